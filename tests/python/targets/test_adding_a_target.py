"""The target that `docs/adding_a_target.md` shows: registered, emitted, built as its README says, and run."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import DYN, In, Out, Scalar, Tensor, Tile, bf16, f32, i64, kernel, pto, workload
from pto_wsp.errors import CannotRun, UnsupportedByTarget
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.isa.table import TABLE
from pto_wsp.targets import registry
from pto_wsp.tools.main import main
from pto_wsp.types.tile import ScalarType
from tests.python.targets.ctypes_abi import Scalar as ScalarBits
from tests.python.targets.ctypes_abi import TaskContext, View, view_of
from tests.python.targets.test_cpu_rows import check, make

PAGE = Path(__file__).parents[3] / "docs" / "adding_a_target.md"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")


def programs() -> list[str]:
    """The programs of the page: a target, and its registration."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^````python\n(.*?)^````$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, Any]]:
    """The names that the programs of the page define; its target is registered."""
    before = dict(registry.TARGETS)
    names: dict[str, Any] = {"__name__": "scalar_c"}
    for program in programs():
        exec(program, names)
    yield names
    registry.TARGETS.clear()
    registry.TARGETS.update(before)
    registry._made.cache_clear()


class CLibrary:
    """Kernels of the target, built by the command of the README."""

    def __init__(self, folder: Path) -> None:
        readme = (folder / "README.md").read_text()
        command = re.search(r"^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        assert command is not None
        done = subprocess.run(
            ["bash", "-ec", command[1]], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.scratch = {
            name: int(n) for name, n in re.findall(r"^\| `(\w+)` \| (\d+) \|$", readme, re.MULTILINE)
        }
        self.handle = ctypes.CDLL(str(folder / "kernels.so"))

    def call(self, kernel: KernelFunction, args: Sequence[object]) -> int:
        """Call a kernel with one array or number per parameter."""
        name = f"k_{kernel.name}"
        views, scalars = [], []
        for param, arg in zip(kernel.params, args, strict=True):
            if isinstance(param.type, ScalarType):
                scalars.append(ScalarBits(**{"f32" if param.type.dtype.is_float else "i64": arg}))
            else:
                assert isinstance(arg, np.ndarray)
                views.append(view_of(arg, None))
        memory = np.full(self.scratch[name] + 64, 0xFF, np.uint8)
        context = TaskContext()
        context.scratch = memory.ctypes.data + (-memory.ctypes.data) % 64
        return getattr(self.handle, name)(
            (View * max(1, len(views)))(*views),
            (ScalarBits * max(1, len(scalars)))(*scalars),
            ctypes.byref(context),
        )


def build(kernels: Sequence[KernelFunction], folder: Path) -> CLibrary:
    tree = registry.get("scalar_c").emit(Module("kernels", kernels=tuple(kernels)))
    for path, text in tree.files.items():
        (folder / path).write_text(text)
    return CLibrary(folder)


@kernel
def softmax(
    x: In[Tensor[f32, DYN, DYN]], y: Out[Tensor[f32, DYN, DYN]], scale: Scalar[f32], skip: Scalar[i64]
):
    for r in pto.tiles(x.rows, 4):
        for c in pto.tiles(x.cols, 32):
            if r.start == skip * 4:
                pto.store(y[r, c], x[r, c])
            else:
                scaled = x[r, c] * scale
                powers = pto.exp(scaled - pto.rowmax(scaled))
                pto.store(y[r, c], powers / pto.rowsum(powers))


@kernel
def narrow(x: In[Tile[4, 8, bf16]], y: Out[Tile[4, 8, bf16]]):
    pto.store(y, x + x)


@kernel
def turn(x: In[Tile[4, 8, f32]], y: Out[Tile[8, 4, f32]]):
    pto.store(y, pto.transpose(x))


@workload
def softmax_rows(X: Tensor[f32, "n", "m"], Y: Tensor[f32, "n", "m"]):
    softmax(x=X, y=Y, scale=1.0, skip=0)


@workload
def turn_all(X: Tensor[f32, 4, 8], Y: Tensor[f32, 8, 4]):
    turn(x=X, y=Y)


@needs_cc
def test_rows_are_within_their_bounds(page: dict[str, Any], tmp_path: Path) -> None:
    supported = [*page["OPS"], *page["FOLDS"]]
    cases = {op: [(TABLE[op], f32, {})] for op in supported}
    library = build([make(op, [*cases[op]]) for op in supported], tmp_path)
    for op in supported:
        check(library, op, cases[op])  # pyright: ignore[reportArgumentType]


@needs_cc
@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (1, 1), (7, 40), (8, 64)])
def test_control_flow_and_tails(page: dict[str, Any], tmp_path: Path, rows: int, cols: int) -> None:
    each = softmax.specialise({}, {})
    library = build([each], tmp_path)
    x = np.random.default_rng(0).standard_normal((rows, cols), np.float32)
    found, expected = np.zeros_like(x), np.zeros_like(x)
    assert library.call(each, [x, found, 0.7, 1]) == 0
    run_kernel(each, [x, expected, np.float32(0.7), 1])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert np.array_equal(found[4:8], x[4:8])
    short = np.zeros((max(rows - 1, 0), cols), np.float32)
    failed = library.call(each, [x, short, 0.7, -1])
    said = f"// softmax returns {failed}: `y` is indexed" in (tmp_path / "kernels.c").read_text()
    assert said == (rows > 0) == (failed > 0)


def test_what_it_does_not_support_is_refused_by_name_and_line(page: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedByTarget, match="`scalar_c` does not support `transpose`") as caught:
        turn_all.compile(target="scalar_c")
    assert caught.value.loc is not None
    assert (caught.value.loc.source_line() or "").strip() == "pto.store(y, pto.transpose(x))"
    module = Module("narrow", kernels=(narrow.specialise({}, {}),))
    with pytest.raises(UnsupportedByTarget, match="of type bf16") as caught:
        registry.get("scalar_c").check(module)
    assert caught.value.loc is not None and "def narrow" in (caught.value.loc.source_line() or "")


def test_programs_and_the_command(
    page: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = softmax_rows.compile(target="scalar_c")
    x = np.ones((3, 4), np.float32)
    with pytest.raises(CannotRun, match="scalar_c"):
        program(X=x, Y=np.empty_like(x))
    program.export(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "kernels.c",
        "kernels.h",
    ]
    (tmp_path / "softmax.pto").write_text(program.dump())
    argv = ["emit", str(tmp_path / "softmax.pto"), "--target", "scalar_c"]
    assert main([*argv, "-o", str(tmp_path / "again")]) == 0
    assert main(argv) == 0 and "int32_t k_softmax(" in capsys.readouterr().out
    for name in ("README.md", "kernels.h"):
        assert (tmp_path / "out" / name).read_text() == (tmp_path / "again" / name).read_text()


def test_the_example_is_short() -> None:
    assert len(programs()[0].splitlines()) <= 165
