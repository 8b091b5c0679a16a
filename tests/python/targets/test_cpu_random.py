"""Random kernels on the target `cpu` and in the interpreter: equal bits and equal failures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.errors import KernelFailed
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType
from tests.generators.drawing import tries
from tests.generators.kernels import COLS, ROWS, kernels
from tests.python.targets import ctypes_abi
from tests.python.targets.widths import WIDTHS, vectors_of

BATCH = 8
NAMES = ("a", "b", "y", "z")


@st.composite
def batches(draw: st.DrawFn) -> tuple[KernelFunction, ...]:
    return tuple(draw(kernels(f"k{i}")) for i in range(BATCH))


@st.composite
def layouts(draw: st.DrawFn) -> Mapping[str, tuple[int, int, int, int]]:
    """Where the views lie in one array: (first row, rows, first column, columns)."""
    common = draw(st.integers(0, ROWS)), draw(st.integers(0, COLS))
    found = {}
    for name in NAMES:
        rows, cols = common
        if draw(st.integers(0, 4)) == 0:
            rows, cols = draw(st.integers(0, ROWS + 2)), draw(st.integers(0, COLS + 1))
        apart = draw(st.booleans())
        row = 10 * NAMES.index(name) if apart else draw(st.integers(0, 2))
        found[name] = (row, rows, draw(st.sampled_from([0, 0, 1, 20])), cols)
    return found


def base_array(dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        values = rng.choice([0.0, -0.0, 1.0, np.inf, np.nan, -2.5, 3e38], (48, 48))
        array = np.where(rng.random((48, 48)) < 0.1, values, rng.standard_normal((48, 48)))
        with np.errstate(all="ignore"):
            return array.astype(dtype.to_numpy())
    return rng.integers(-9, 9, (48, 48)).astype(dtype.to_numpy())


def views(base: np.ndarray, layout: Mapping[str, tuple[int, int, int, int]]) -> list[np.ndarray]:
    return [base[r : r + n, c : c + m] for r, n, c, m in (layout[name] for name in NAMES)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, where all NaNs and both zeros count as one."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


@pytest.mark.parametrize("width", WIDTHS)
@tries(6, compiles=True)
@given(
    batches(),
    st.lists(layouts(), min_size=6, max_size=6),
    st.integers(0, 99),
)
def test_random_kernels(
    cache: ArtifactCache,
    width: str | None,
    batch: tuple[KernelFunction, ...],
    arrangements: list[Mapping[str, tuple[int, int, int, int]]],
    seed: int,
) -> None:
    verify(Module("m", batch))
    with vectors_of(width):
        artifact = CpuTarget().build(batch, cache)
    library = ctypes_abi.load(artifact)
    for kernel in batch:
        for layout in arrangements:
            note(f"{kernel}\n{layout}")
            found, wanted = (base_array(kernel.views[0].type.dtype, seed) for _ in range(2))
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
