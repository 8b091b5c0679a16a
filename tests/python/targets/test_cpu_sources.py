"""Emitted sources against files: a change of generated code shows in a diff."""

from __future__ import annotations

import pytest

from pto_wsp import DYN, In, Out, Scalar, Tensor, Tile, f16, f32, i32, i64, kernel, pto
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.targets.cpu.emit import emit_library
from tests.golden import Golden


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


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("each", [softmax, product, pick], ids=lambda each: each.name)
def test_kernels(each: Kernel, lanes: int, golden: Golden) -> None:
    golden(f"{each.name}_{lanes}.cpp", emit_library([each.specialise({}, {})], lanes).text)
