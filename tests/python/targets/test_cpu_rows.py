"""Every row of the instruction table on the target `cpu`, against its numpy meaning and its bound."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Extent, binary, const
from pto_wsp.isa.forms import PRODUCTS, Form
from pto_wsp.isa.meaning import COMPARE_MODES, ROUND_MODES
from pto_wsp.isa.table import TABLE, Instruction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.targets.cpu.templates import STORAGE, TEMPLATES, Unsupported
from pto_wsp.types.dtype import DTYPES, DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16
from tests.python.isa.operands import (
    PLACE,
    QUANTISED,
    RUN,
    fitting,
    has_place,
    makes_shape,
    operand_shapes,
    operand_types,
)
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

CAPACITY = (40, 70)
SHAPES = ((40, 70), (1, 1), (7, 64), (33, 17), (40, 1), (5, 69), (0, 5), (3, 0))
STORED = tuple(DTYPES[name] for name in STORAGE)
ROUNDED = (f32, f16, bf16, i8, i64)
"""What floats are converted to in every rounding mode."""

TO_CAPACITY = (Form.FILL, Form.IOTA, Form.ROW_EXPAND, Form.MERGE, Form.TOPK_VALUES, Form.TOPK_INDICES)
"""Forms that make as many columns as their tile has."""


def test_templates_are_total() -> None:
    assert TEMPLATES.keys() == TABLE.keys()


def test_every_row_is_emitted() -> None:
    for name, template in TEMPLATES.items():
        assert not isinstance(template, Unsupported), name


# --- kernels of rows that take the same operands ------------------------------------------------------------

Case = tuple[Instruction, DType, dict[str, object]]
"""A row, the element type of its data, and the attributes that tell cases of one row apart."""

SAME_SHAPES = {
    **dict.fromkeys((Form.UNARY, Form.BINARY, Form.TILE_SCALAR, Form.TERNARY, Form.BINARY_SCALAR), "plain"),
    **dict.fromkeys((Form.COMPARE, Form.COMPARE_SCALAR), "plain"),
    **dict.fromkeys((Form.ROW_REDUCE, Form.COL_REDUCE), "reduce"),
    **{form: form.value[0] for form in (Form.CONVERT, Form.ROW_BROADCAST, Form.COL_BROADCAST)},
}
"""Forms whose rows share kernels: what they read at [i, j] is the same."""

ALIKE = ((f16, bf16), (i8, u16), (i16, u8))
"""Types whose code differs in loads, stores and rounding alone: of each pair a row is tested on one."""

MOST_CASES = 16
"""Cases of one kernel."""


def variants(row: Instruction, dtype: DType) -> list[dict[str, object]]:
    """The attributes that tell cases of one row apart."""
    match row.form:
        case Form.EXTRACT | Form.INSERT | Form.SET:
            return [{"row": PLACE[0], "col": PLACE[1]}]
        case Form.COMPARE | Form.COMPARE_SCALAR:
            return [{"mode": mode} for mode in COMPARE_MODES[:: 1 if row.form is Form.COMPARE else 3]]
        case Form.CONVERT:
            modes = [{"dtype": t, "rmode": m} for t in ROUNDED for m in ROUND_MODES] if dtype.is_float else []
            return [*({"dtype": target} for target in STORED), *modes]
        case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
            return [{"trans_a": a, "trans_b": b} for a in (False, True) for b in (False, True)]
        case Form.MERGE_RUNS:
            return [{"run": RUN}]
        case Form.MATMUL_QUANTISED:
            return [{"format": QUANTISED.name}]
        case _:
            return [{}]


def scalar_value(dtype: DType) -> int | float | bool:
    return {"f": 1.3, "i": -3, "u": 3, "b": True}[dtype.kind]


def bundles(dtypes: Sequence[DType]) -> dict[str, list[Case]]:
    """The cases of element types, those that share a kernel together, by the name of their kernel."""
    found: dict[str, list[Case]] = {}
    for row in TABLE.values():
        if row.form is Form.QUANTISE:
            continue  # its result has a shape of its own: test_cpu_quantised.py
        for dtype in (t for t in dtypes if t in row.dtypes and row.numpy is not None):
            if dtype is u8 and row.form is Form.MATMUL_QUANTISED:
                continue  # rows that `quantise` made: the same
            if any(dtype in pair and dtype is not pair[zlib.crc32(row.name.encode()) % 2] for pair in ALIKE):
                continue
            for number, attrs in enumerate(variants(row, dtype)):
                shared = SAME_SHAPES.get(row.form)
                name = f"{shared}_{dtype}" if shared else f"{row.name}_{dtype}_{number}"
                found.setdefault(name.replace("-", "_"), []).append((row, dtype, attrs))
    return {
        f"{name}_{start}": cases[start : start + MOST_CASES]
        for name, cases in found.items()
        for start in range(0, len(cases), MOST_CASES)
    }


def make(name: str, cases: list[Case]) -> KernelFunction:
    maker = KernelMaker(name)
    row, dtype, attrs = max(cases, key=lambda case: case[0].form.num_tiles)
    shapes = operand_shapes(row, attrs, CAPACITY, 50)
    tiles = [
        maker.input("abc"[i], *shape, kind)
        for i, (shape, kind) in enumerate(zip(shapes, operand_types(row, dtype), strict=True))
    ]
    results = []
    for row, dtype, attrs in cases:
        made = dtype if row.form in (Form.FILL, Form.IOTA) else None
        words = {key: const(v) if key in ("row", "col") else v for key, v in attrs.items() if key != "dtype"}
        results.append(
            maker.op(
                row.name,
                *tiles[: row.form.num_tiles],
                scalars=[scalar_value(dtype)] * row.form.num_scalars,
                shape=CAPACITY if makes_shape(row) else None,
                dtype=attrs.get("dtype", made),
                **words,
                **extents(row),
            )
        )
    for number, tile in enumerate(results):
        maker.store(tile, f"out{number}")
    return maker.done()


def extents(row: Instruction) -> dict[str, object]:
    """The valid extents that a case asks for, where they are not those of its operands."""
    if row.form is Form.RESHAPE:
        return {"rows": Extent("a", 1), "cols": Extent("a", 0)}
    if row.form is Form.EXTRACT:
        sizes = [("rows", 0, PLACE[0]), ("cols", 1, PLACE[1] + 7)]
        return {
            name: binary("max", Const(0), binary("sub", Extent("a", dim), Const(rest)))
            for name, dim, rest in sizes
        }
    return {}


MAIN = bundles((f32, i32, i64))
"""What is built for vectors of every width: the small types differ in code that does not know it."""

SMALL = bundles([dtype for dtype in STORED if dtype not in (f32, i32, i64)])


def build(found: dict[str, list[Case]], cache: ArtifactCache) -> ctypes_abi.Library:
    return ctypes_abi.load(CpuTarget().build([make(*item) for item in found.items()], cache))


@pytest.fixture(scope="module", params=WIDTHS)
def main(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        return build(MAIN, cache)


@pytest.fixture(scope="module")
def small(cache: ArtifactCache) -> ctypes_abi.Library:
    return build(SMALL, cache)


def special_values(dtype: DType) -> list[float]:
    if dtype.is_integer:
        return [0, 1, 7, *dtype.integer_range, *([-1, -7] if dtype.kind == "i" else [])]
    if dtype is b1:
        return [True, False]
    return [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        1e-45,
        1e-39,
        6e-5,
        88.7,
        -87.4,
        -103.0,
        3.3e38,
        65504.0,
        0.5,
    ]


def random_array(rng: np.random.Generator, shape: tuple[int, int], dtype: DType, special: bool) -> np.ndarray:
    kind = dtype.to_numpy()
    if dtype is b1:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low, high = dtype.integer_range
        array = rng.integers(max(low, -40), 40, shape).astype(kind)
        wide = rng.integers(low, high, shape, endpoint=True).astype(kind)
        array = np.where(rng.random(shape) < 0.3, wide, array).astype(kind)
    else:
        array = (rng.standard_normal(shape) * rng.choice([0.1, 1.0, 10.0])).astype(np.float32)
    if special:
        with np.errstate(all="ignore"):
            values = np.array(special_values(dtype)).astype(array.dtype)
        array = np.where(rng.random(shape) < 0.5, rng.choice(values, shape), array)
    with np.errstate(all="ignore"):
        return array.astype(kind)


def compute_type(row: Instruction, array: np.ndarray, dtype: DType) -> np.ndarray:
    if not dtype.is_float:
        return array
    return array.astype(np.float32 if row.bound.kind == "exact" else np.float64)


def result_dtype(row: Instruction, dtype: DType, attrs: dict[str, object]) -> DType:
    match row.form:
        case Form.COMPARE | Form.COMPARE_SCALAR:
            return b1
        case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
            return i32 if dtype is i8 else f32
        case Form.MATMUL_QUANTISED:
            return f32
        case Form.CONVERT:
            target = attrs["dtype"]
            assert isinstance(target, DType)
            return target
        case Form.SORT:
            return i64
        case Form.TOPK_VALUES:
            return f32
        case Form.TOPK_INDICES | Form.ROW_ARG:
            return i32
        case _:
            return dtype


def assert_within(
    row: Instruction, found: np.ndarray, exact: np.ndarray, dtype: DType, scale: np.ndarray | None, terms: int
) -> None:
    """Compare with the meaning: in the result's type where exact, else in f64 within the row's bound."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(found.dtype)
    if not dtype.is_float or row.bound.kind == "exact":
        same = (found == rounded) | ((found != found) & (rounded != rounded))
        assert same.all(), (found[~same][:4], rounded[~same][:4])
        return
    wide = found.astype(np.float64)
    smallest = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}[dtype.name]
    if row.bound.kind == "sum":
        assert scale is not None
        # Beyond the range of f32 a partial sum may overflow where the whole does not.
        assert (np.isnan(wide) | ~np.isnan(exact)).all()
        finite = scale < 1e38 if dtype is not f16 else scale < 6e4
        allowed = (terms / 8 + 4) * dtype.eps * scale + smallest * dtype.eps
    else:
        limit = rounded.astype(np.float64)
        finite = np.isfinite(limit)
        assert ((wide == limit) | (np.isnan(wide) & np.isnan(limit)) | finite).all()
        size = np.maximum(np.abs(np.where(finite, exact, 1.0)), smallest)
        allowed = row.bound.amount * dtype.eps * 2.0 ** np.floor(np.log2(size))
    with np.errstate(all="ignore"):
        bad = finite & ~(np.abs(wide - exact) <= allowed)
    assert not bad.any(), (wide[bad][:4], exact[bad][:4])


@pytest.mark.parametrize("name", MAIN)
def test_rows_against_numpy(main: ctypes_abi.Library, name: str) -> None:
    check(main, name, MAIN[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_rows_of_small_types_against_numpy(small: ctypes_abi.Library, name: str) -> None:
    check(small, name, SMALL[name])


def check(library: ctypes_abi.Library, name: str, cases: list[Case]) -> None:
    kernel = make(name, cases)
    row = cases[0][0]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for special in (False, True):
        for rows, cols in [CAPACITY] if row.form in (Form.FILL, Form.IOTA) else SHAPES:
            if not has_place(row, (rows, cols)):
                continue
            shape = (
                CAPACITY[0] if row.form is Form.COL_EXPAND else rows,
                CAPACITY[1] if row.form in TO_CAPACITY else cols,
            )
            check_one(library, kernel, cases, rng, shape, special)


def check_one(
    library: ctypes_abi.Library,
    kernel: KernelFunction,
    cases: list[Case],
    rng: np.random.Generator,
    shape: tuple[int, int],
    special: bool,
) -> None:
    """Call a kernel on random operands, and compare all of its results."""
    k = 7 if cases[0][0].form is Form.EXTRACT else int(rng.integers(1, 50))
    row, dtype, attrs = max(cases, key=lambda case: case[0].form.num_tiles)
    kinds = operand_types(row, dtype)
    shapes = operand_shapes(row, attrs, shape, k)
    arrays = [random_array(rng, s, t, special) for s, t in zip(shapes, kinds, strict=True)]
    arrays = fitting(row, arrays, rng)
    if row.form is Form.EXTRACT:
        shape = tuple(max(0, n - m) for n, m in zip(shapes[0], (PLACE[0], PLACE[1] + 7), strict=True))
    wanted = [meaning_of(case, arrays, kinds, shape, k) for case in cases]
    results = [result_dtype(row, dtype, attrs) for row, dtype, attrs in cases]
    outs = [np.zeros(w[0].shape, t.to_numpy()) for w, t in zip(wanted, results, strict=True)]
    assert library.call(kernel, [*arrays, *outs]) == 0
    for (row, _, attrs), out, result, (exact, scale, terms) in zip(cases, outs, results, wanted, strict=True):
        try:
            assert_within(row, out, exact, result, scale, terms)
        except AssertionError as error:
            raise AssertionError(f"{row.name} {attrs} on {shape}") from error


def meaning_of(
    case: Case, arrays: list[np.ndarray], kinds: list[DType], shape: tuple[int, int], k: int
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Return the meaning of a case, and where it adds terms the sum of their sizes and their number."""
    row, dtype, attrs = case
    count = row.form.num_tiles
    operands = [compute_type(row, a, t) for a, t in zip(arrays[:count], kinds[:count], strict=True)]
    scalar = compute_type(row, np.asarray(scalar_value(dtype)).astype(dtype.to_numpy()), dtype)
    result = result_dtype(row, dtype, attrs)
    meaning = attrs | {"valid_shape": shape, "numpy_dtype": result.to_numpy()}
    meaning["numpy_source"] = dtype.to_numpy()
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        exact = np.asarray(row.numpy(*operands, *[scalar] * row.form.num_scalars, meaning))
        if row.bound.kind != "sum" or not dtype.is_float:
            return exact, None, 0
        scale = np.asarray(row.numpy(*map(np.abs, operands), meaning))
    k = QUANTISED.block if row.form is Form.MATMUL_QUANTISED else k
    return exact, scale, k + 1 if row.form in PRODUCTS | {Form.MATMUL_QUANTISED} else max(shape)
