"""Random kernels on the target `cuda`, emulated, and in the interpreter: equal bits and equal failures."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.errors import KernelFailed
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda import memory
from tests.cuda.emulated import EmulatedCuda
from tests.generators.drawing import tries
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_random import base_array, batches, layouts, same_bits, views

Arrangements = list[Mapping[str, tuple[int, int, int, int]]]


@tries(10, compiles=True)
@given(batches(), st.lists(layouts(), min_size=6, max_size=6), st.integers(0, 99))
def test_random_kernels(
    cache: ArtifactCache, batch: tuple[KernelFunction, ...], arrangements: Arrangements, seed: int
) -> None:
    compare(cache, batch, arrangements, seed)


@tries(10, compiles=True)
@given(
    batches(),
    st.lists(layouts(), min_size=6, max_size=6),
    st.integers(0, 99),
    st.sampled_from((0, 256, 2048)),
)
def test_random_kernels_whose_tiles_do_not_fit_shared_memory(
    cache: ArtifactCache,
    batch: tuple[KernelFunction, ...],
    arrangements: Arrangements,
    seed: int,
    shared: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SHARED_BYTES", shared)
        compare(cache, batch, arrangements, seed)


def compare(
    cache: ArtifactCache, batch: tuple[KernelFunction, ...], arrangements: Arrangements, seed: int
) -> None:
    verify(Module("m", batch))
    artifact = EmulatedCuda().build(batch, cache)
    library = ctypes_abi.load(artifact)
    for kernel in batch:
        for layout in arrangements:
            note(f"{kernel}\n{layout}")
            dtype = kernel.views[0].type.dtype
            assert dtype is not None
            found, wanted = (base_array(dtype, seed) for _ in range(2))
            scalars = [0.75, seed % 6]
            status = library.call(kernel, [*views(found, layout), *scalars])
            failed = None
            try:
                run_kernel(kernel, [*views(wanted, layout), *scalars])
            except KernelFailed as error:
                failed = error
            assert (status != 0) == (failed is not None), (status, failed)
            if failed is not None:
                assert 0 < status <= len(artifact.checks[kernel.name])
            assert same_bits(found, wanted)
