"""What the target `cuda` emits and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import TilesTooLarge, UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16
from tests.cuda.emulated import EmulatedCuda
from tests.golden import Golden
from tests.python.targets import ctypes_abi
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


def test_tiles_that_do_not_fit_are_refused() -> None:
    maker = KernelMaker("large")
    a = maker.input("a", 128, 256, f32)
    maker.store(maker.op("add", a, maker.input("b", 128, 256, f32)), "y")
    with pytest.raises(TilesTooLarge, match="large"):
        registry.get("cuda").check(Module("m", (maker.done(),)))


def test_prints_are_refused() -> None:
    @kernel
    def shows(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]):
        pto.print("x", x)
        pto.store(y, x)

    @workload
    def one(X: Tensor[f32, 8, 64], Y: Tensor[f32, 8, 64]):
        shows(x=X, y=Y)

    with pytest.raises(UnsupportedByTarget, match=r"pto.print"):
        one.compile("cuda")


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
def test_products_have_the_bits_of_the_cpu(cache: ArtifactCache, dtype: DType) -> None:
    """Terms are added in ascending order by fused multiply-adds: of f16 and bf16 too, in f32."""
    if resolve_features().lanes == 4:
        pytest.skip("products of this processor are not fused")
    if dtype is bf16 and resolve_features().has_pair_dots:
        pytest.skip("products of bf16 add two terms at a time on this processor")
    maker = KernelMaker("product")
    a, b = maker.input("a", 33, 70, dtype), maker.input("b", 70, 45, dtype)
    maker.store(maker.op("matmul", a, b), "y")
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(dtype.to_numpy()) for s in ((33, 70), (70, 45)))
    found = []
    for target in (CpuTarget(), EmulatedCuda()):
        library = ctypes_abi.load(target.build([maker.done()], cache))
        found.append(np.zeros((33, 45), np.float32))
        assert library.call(maker.done(), [x, w, found[-1]]) == 0
    np.testing.assert_array_equal(*found)
