"""Emitted sources against files: a change of generated code shows in a diff.

With `--update`, the files are written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_wsp import DYN, In, Out, Scalar, Tensor, Tile, f16, f32, i32, i64, kernel, pto
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.targets.cpu.emit import emit_library

FOLDER = Path(__file__).parent / "golden"


@kernel
def softmax(x: In[Tile[16, 40, f16]], y: Out[Tile[16, 40, f16]], scale: Scalar[f32]):
    scaled = pto.cast(x, f32) * scale
    powers = pto.exp(scaled - pto.rowmax(scaled))
    pto.store(y, pto.cast(powers / pto.rowsum(powers), f16))


@kernel
def product(
    x: In[Tensor[f32, DYN, DYN]], w: In[Tensor[f32, DYN, 48]], y: Out[Tensor[f32, DYN, 48]], skip: Scalar[i64]
):
    for r in pto.tiles(x.rows, 32):
        total = pto.full((x[r].rows, w.cols), 0.0)
        for k in pto.tiles(x.cols, 64):
            if k.start % 128 != skip:
                total = pto.matmul(x[r, k], w[k, :], acc=total)
        pto.store(y[r, :], total)


@kernel
def pick(x: In[Tensor[f32, DYN, 24]], rows: In[Tile[8, 1, i32]], y: Out[Tile[8, 24, f32]]):
    pto.store(y, pto.gather(x, rows))


def require_golden(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update", default=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "check the difference, and write it with --update"


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("each", [softmax, product, pick], ids=lambda each: each.name)
def test_kernels(each: Kernel, lanes: int, request: pytest.FixtureRequest) -> None:
    text = emit_library([each.specialise({}, {})], lanes).text
    require_golden(FOLDER / f"{each.name}_{lanes}.cpp.golden", text, request)
