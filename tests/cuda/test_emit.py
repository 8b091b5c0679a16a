"""What the target `cuda` emits and refuses."""

from __future__ import annotations

import pytest

from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import TilesTooLarge, UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.targets import registry
from tests.golden import Golden
from tests.python.targets.build_kernels import KernelMaker


@kernel
def softmax(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]):
    e = pto.exp(x - pto.rowmax(x))
    pto.store(y, e / pto.rowsum(e))


@workload
def rows(X: Tensor[f32, "n", 8, 64], Y: Tensor[f32, "n", 8, 64]):
    for i in P("n"):
        softmax[i](x=X[i], y=Y[i])


def test_text(golden: Golden) -> None:
    tree = registry.get("cuda").emit(rows.compile("interp").module)
    golden("softmax.cu", tree.files["program.cu"])
    golden("README.md", tree.files["README.md"])
    assert "include/pto/wsp/tile/cuda/device.hpp" in tree.files


def test_kernels_without_an_entry() -> None:
    module = Module("m", rows.compile("interp").module.kernels)
    assert set(registry.get("cuda").emit(module).kernels) == {"kernels.cu"}


def test_emission_is_pure() -> None:
    module = rows.compile("interp").module
    assert registry.get("cuda").emit(module).files == registry.get("cuda").emit(module).files


def large(rows: int) -> Module:
    maker = KernelMaker("large")
    a = maker.input("a", rows, 256, f32)
    maker.store(maker.op("add", a, maker.input("b", rows, 256, f32)), "y")
    return Module("m", (maker.done(),))


def test_tiles_that_do_not_fit_lie_in_global_memory() -> None:
    """Of two tiles of 128 KB, one stays in shared memory."""
    text = registry.get("cuda").emit(large(128)).files["kernels.cu"]
    assert "load_now(" in text and "load(" in text
    assert "load_now(" not in registry.get("cuda").emit(large(64)).files["kernels.cu"]


def test_tiles_that_do_not_fit_global_memory_are_refused() -> None:
    with pytest.raises(TilesTooLarge, match="large"):
        registry.get("cuda").check(large(128 * 256))


def test_prints_are_refused() -> None:
    @kernel
    def shows(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]):
        pto.print("x", x)
        pto.store(y, x)

    @workload
    def one(X: Tensor[f32, 8, 64], Y: Tensor[f32, 8, 64]):
        shows(x=X, y=Y)

    with pytest.raises(UnsupportedByTarget, match=r"pto.print[\s\S]*print on `cpu` or `interp`"):
        one.compile("cuda")
