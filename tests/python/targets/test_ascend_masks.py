"""Comparisons, selects, numbers of columns and places of largest elements on the simulated vector cores.

Vector cores lack these rows, so several instructions write each. Results equal those of the interpreter to
the bit.
"""

from __future__ import annotations

import shutil
from itertools import product
from typing import Any

import numpy as np
import pytest

from pto_wsp import In, Out, Scalar, Tile, b1, f16, f32, i8, i16, i32, i64, kernel, pto
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import Instr, walk_statements
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.rewrite import rewrite
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.build import StandIn, build
from tests.python.targets.ctypes_abi import Library

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

ROWS, COLS = 20, 200
MODES = ("eq", "ne", "lt", "le", "gt", "ge")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, np.nextafter(1, 2)]
WIDE = [0, 1, -1, 2**31 - 1, -(2**31), 7, -7]
SHAPES = ((ROWS, COLS), (1, COLS), (7, 163), (ROWS, 1), (3, 8), (1, 1))


def compared(dtype: Any, mode: str) -> Kernel:
    """A kernel that selects by a comparison of two tiles, and by one with a scalar."""

    @kernel(name=f"compare_{dtype}_{mode}")
    def compare(
        a: In[Tile[ROWS, COLS, dtype]],
        b: In[Tile[ROWS, COLS, dtype]],
        y: Out[Tile[ROWS, COLS, dtype]],
        z: Out[Tile[ROWS, COLS, dtype]],
    ):
        x, other = pto.load(a), pto.load(b)
        pto.store(y, pto.where(pto.compare(x, other, mode), x, other))
        pto.store(z, pto.where(pto.compare(x, 1, mode), other, 1))

    return compare


COMPARED = {(dtype, mode): compared(dtype, mode) for dtype in (f32, f16, i32) for mode in MODES}


@kernel
def logic(a: In[Tile[ROWS, COLS, f32]], b: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, i32]]):
    """Masks of rows and of tiles, together."""
    x, other = pto.load(a), pto.load(b)
    some, rest = x > 0.0, other < 0.5
    both = (some & ~rest) | (~rest ^ (other > 1.0))
    chosen = pto.where(pto.rowmax(x) > 1.0, pto.cast(pto.where(both, some, rest), f32), 2.0)
    pto.store(y, pto.cast(chosen, i32))


@kernel
def numbered(x: In[Tile[ROWS, COLS, i32]], y: Out[Tile[ROWS, COLS, i32]], start: Scalar[i64]):
    """Numbers of columns from a start, and of rows."""
    shape = (x.rows, x.cols)
    at = pto.transpose(pto.iota((1, x.rows), 5)) * 1000
    pto.store(y, pto.load(x) + pto.iota(shape, start) + at)


@kernel
def places(x: In[Tile[ROWS, COLS, f32]], most: Out[Tile[ROWS, 1, i32]], least: Out[Tile[ROWS, 1, i32]]):
    pto.store(most, pto.rowargmax(pto.load(x)))
    pto.store(least, pto.rowargmin(pto.load(x)))


@kernel
def narrow(x: In[Tile[ROWS, COLS, i8]], y: Out[Tile[ROWS, COLS, f32]], z: Out[Tile[ROWS, COLS, i32]]):
    """Conversions that one instruction does not do."""
    pto.store(y, pto.cast(pto.load(x), f32))
    pto.store(z, pto.cast(pto.load(x), i32))


@pytest.fixture(scope="module", params=[A2A3, A5], ids=lambda generation: generation.arch)
def generation(request: pytest.FixtureRequest) -> Generation:
    return request.param


@pytest.fixture(scope="module")
def cores(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, StandIn]:
    """All kernels of this module, in one library."""
    target = registry.get(generation.name)
    assert isinstance(target, AscendTarget)
    kernels = [source.specialise({}, {}) for source in (*COMPARED.values(), logic, numbered, places, narrow)]
    path = build(kernels, target, tmp_path_factory.mktemp(generation.arch) / "out")
    return Library(path), StandIn(path)


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"i{array.itemsize}")


def pairs(dtype: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two tiles: all pairs of special values, then random ones."""
    rng = np.random.default_rng(0)
    special = np.array(list(product(*[SPECIAL if dtype.is_float else WIDE] * 2)))
    with np.errstate(over="ignore"):
        chosen = special[rng.permutation(np.prod(shape)) % len(special)].astype(dtype.to_numpy())
    return chosen[:, 0].reshape(shape).copy(), chosen[:, 1].reshape(shape).copy()


@needs_compiler
@pytest.mark.parametrize("dtype", [f32, f16, i32], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_comparisons_are_exact(dtype: Any, mode: str, cores: tuple[Library, StandIn]) -> None:
    """NaN, signed zeros, infinities, the smallest numbers, and integers whose difference wraps."""
    (library, core), function = cores, COMPARED[dtype, mode].specialise({}, {})
    holds = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    holds["ge"] = np.greater_equal
    for number, shape in enumerate(SHAPES):
        core.loads_first(number % 2 == 0)
        a, b = pairs(dtype, shape)
        y, z, limit = np.zeros_like(a), np.zeros_like(a), dtype.to_numpy().type(1)
        assert library.call(function, [a, b, y, z]) == 0
        assert core.report() == ""
        np.testing.assert_array_equal(bits(y), bits(np.where(holds[mode](a, b), a, b)))
        np.testing.assert_array_equal(bits(z), bits(np.where(holds[mode](a, limit), b, limit)))


@needs_compiler
def test_masks_are_joined_and_broadcast(cores: tuple[Library, StandIn]) -> None:
    (library, core), function = cores, logic.specialise({}, {})
    for shape in SHAPES:
        a, b = pairs(f32, shape)
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        y = np.zeros(shape, np.int32)
        assert library.call(function, [a, b, y]) == 0
        some, rest = a > 0, b < 0.5
        both = (some & ~rest) | (~rest ^ (b > 1))
        chosen = np.where(a.max(axis=1, keepdims=True) > 1, np.where(both, some, rest), 2)
        np.testing.assert_array_equal(y, chosen)
        assert core.report() == ""


@needs_compiler
@pytest.mark.parametrize("start", [0, -3, 2**31 - 2])
def test_numbers(start: int, cores: tuple[Library, StandIn]) -> None:
    """Of columns, from a start that may wrap, and of rows."""
    (library, core), function = cores, numbered.specialise({}, {})
    for shape in SHAPES:
        x, y = np.full(shape, 7, np.int32), np.zeros(shape, np.int32)
        assert library.call(function, [x, y, start]) == 0
        rows, columns = np.indices(shape, np.int32)
        np.testing.assert_array_equal(y, x + (columns + np.int32(start)) + (rows + 5) * 1000)
        assert core.report() == ""


@needs_compiler
def test_places_of_the_largest_and_the_least(cores: tuple[Library, StandIn]) -> None:
    """The lowest of equal ones; NaN comes first; infinities; -1 of a row without elements."""
    (library, core), function = cores, places.specialise({}, {})
    for shape in (*SHAPES, (5, 0)):
        x = np.zeros(shape, np.float32) if 0 in shape else pairs(f32, shape)[0]
        x[1::3] = np.nan_to_num(x[1::3])
        x[2::7], x[4::7] = -np.inf, np.inf
        found = [np.zeros((shape[0], 1), np.int32) for _ in range(2)]
        assert library.call(function, [x, *found]) == 0
        assert core.report() == ""
        for array, place in zip(found, (np.argmax, np.argmin), strict=True):
            expected = place(x, axis=1)[:, None] if x.size else np.full_like(array, -1)
            np.testing.assert_array_equal(array, expected)


@needs_compiler
def test_conversions_in_steps(cores: tuple[Library, StandIn]) -> None:
    (library, core), function = cores, narrow.specialise({}, {})
    x = np.arange(-128, 128, dtype=np.int8).reshape(16, 16)
    y, z = np.zeros(x.shape, np.float32), np.zeros(x.shape, np.int32)
    assert library.call(function, [x, y, z]) == 0 and core.report() == ""
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x)


@needs_compiler
def test_each_barrier_that_is_left_out_is_found(cores: tuple[Library, StandIn]) -> None:
    (library, core), function = cores, places.specialise({}, {})
    x, found = pairs(f32, (7, 163))[0], [np.zeros((7, 1), np.int32) for _ in range(2)]
    core.skip(-1)
    assert library.call(function, [x, *found]) == 0 and core.report() == ""
    for number in range(core.skip(-1)):
        core.skip(number)
        library.call(function, [x, *found])
        assert core.report() != "", number


def test_bits_are_written_by_comparisons_and_read_by_selects_alone() -> None:
    written = rewrite(logic.specialise({}, {}), A2A3)
    packed = {name for name, tile in written.tiles if tile.dtype is b1}
    assert packed
    for stmt in walk_statements(written.body or ()):
        if isinstance(stmt, Instr) and packed & {stmt.dst, *stmt.tiles}:
            assert (stmt.op == "cmps" and stmt.dst in packed) or (
                stmt.op == "sel" and {*stmt.tiles} & packed == {stmt.tiles[0]}
            )


@kernel
def kept(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, b1]]):
    pto.store(y, pto.load(x) > 0.0)


@kernel
def small(x: In[Tile[16, 64, i16]], y: Out[Tile[16, 64, i16]]):
    pto.store(y, pto.where(pto.load(x) > 3, pto.load(x), 3))


@pytest.mark.parametrize(
    ("source", "words"), [(kept, "a move of a mask.*where"), (small, "`cmps` of i16.*f16, f32, i32")]
)
def test_refusals_name_the_line(source: Kernel, words: str) -> None:
    with pytest.raises(UnsupportedByTarget, match="(?s)" + words) as found:
        write_kernel(source.specialise({}, {}), A2A3)
    assert "test_ascend_masks.py:" in str(found.value)
