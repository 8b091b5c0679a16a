"""Every row of the instruction table on the target `cpu`, against its numpy meaning and its bound."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.isa.forms import Form
from pto_wsp.isa.meaning import COMPARE_MODES
from pto_wsp.isa.table import TABLE, Instruction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.features import VARIABLE
from pto_wsp.targets.cpu.templates import STORAGE, TEMPLATES, Unsupported
from pto_wsp.types.dtype import DTYPES, DType, b1, f16, f32, i32, i64
from tests.python.isa.operands import RUN, fitting, makes_shape, operand_shapes, operand_types
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker

CAPACITY = (40, 70)
SHAPES = ((40, 70), (1, 1), (7, 64), (33, 17), (40, 1), (5, 69), (0, 5), (3, 0))
STORED = tuple(DTYPES[name] for name in STORAGE)


def test_templates_are_total() -> None:
    assert TEMPLATES.keys() == TABLE.keys()


def test_every_row_is_emitted() -> None:
    for name, template in TEMPLATES.items():
        assert not isinstance(template, Unsupported), name


# --- one kernel per row, element type and variant -----------------------------------------------------------


def variants(row: Instruction, dtype: DType) -> list[dict[str, object]]:
    """The attributes that tell kernels of one row apart."""
    match row.form:
        case Form.COMPARE | Form.COMPARE_SCALAR:
            return [{"mode": mode} for mode in COMPARE_MODES[:: 1 if row.form is Form.COMPARE else 3]]
        case Form.CONVERT:
            return [{"dtype": target} for target in STORED]
        case Form.MATMUL | Form.MATMUL_ACC:
            return [{"trans_a": a, "trans_b": b} for a in (False, True) for b in (False, True)]
        case Form.MERGE_RUNS:
            return [{"run": RUN}]
        case _:
            return [{}]


def scalar_value(dtype: DType) -> int | float | bool:
    return {"f": 1.3, "i": -3, "u": 3, "b": True}[dtype.kind]


def make(row: Instruction, dtype: DType, attrs: dict[str, object], number: int) -> KernelFunction:
    maker = KernelMaker(f"{row.name}_{dtype}_{number}")
    k = 50
    shapes = operand_shapes(row, attrs, CAPACITY, k)
    names = "abc"
    tiles = [
        maker.input(names[i], *shape, kind)
        for i, (shape, kind) in enumerate(zip(shapes, operand_types(row, dtype), strict=True))
    ]
    scalars = [scalar_value(dtype)] * row.form.num_scalars
    result_dtype = dtype if row.form in (Form.FILL, Form.IOTA) else None
    extra = {key: value for key, value in attrs.items() if key != "dtype"}
    dst = maker.op(
        row.name,
        *tiles,
        scalars=scalars,
        shape=CAPACITY if makes_shape(row) else None,
        dtype=attrs.get("dtype", result_dtype),
        **extra,
    )
    maker.store(dst, "out")
    return maker.done()


CASES = [
    (row, dtype, attrs, number)
    for row in TABLE.values()
    if row.numpy is not None
    for dtype in STORED
    if dtype in row.dtypes
    for number, attrs in enumerate(variants(row, dtype))
]
NARROW_CASES = [case for case in CASES if case[1] in (f32, i32, i64)]
"""What is built for narrow vectors too: the small floats differ in code that does not know the width."""


def build(cases: list[tuple], cache: ArtifactCache) -> ctypes_abi.Library:
    return ctypes_abi.load(registry.get("cpu").build([make(*case) for case in cases], cache))


@pytest.fixture(scope="module")
def wide(cache: ArtifactCache) -> ctypes_abi.Library:
    return build(CASES, cache)


@pytest.fixture(scope="module", params=["avx2,fma", ""], ids=["8 lanes", "4 lanes"])
def narrow(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        return build(NARROW_CASES, cache)


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
        case Form.MATMUL | Form.MATMUL_ACC:
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


def case_name(case: tuple) -> str:
    return f"{case[0].name}-{case[1]}-{case[3]}"


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_row_against_numpy(wide: ctypes_abi.Library, case: tuple) -> None:
    check(wide, case)


@pytest.mark.parametrize("case", NARROW_CASES, ids=case_name)
def test_row_with_narrow_vectors(narrow: ctypes_abi.Library, case: tuple) -> None:
    check(narrow, case)


def check(library: ctypes_abi.Library, case: tuple) -> None:
    row, dtype, attrs, _ = case
    kernel = make(*case)
    rng = np.random.default_rng(zlib.crc32(kernel.name.encode()))
    for special in (False, True):
        for rows, cols in [CAPACITY] if row.form in (Form.FILL, Form.IOTA) else SHAPES:
            shape = (
                CAPACITY[0] if row.form is Form.COL_EXPAND else rows,
                CAPACITY[1] if makes_shape(row) and row.form is not Form.COL_EXPAND else cols,
            )
            check_one(library, kernel, row, dtype, attrs, rng, shape, special)


def check_one(
    library: ctypes_abi.Library,
    kernel: KernelFunction,
    row: Instruction,
    dtype: DType,
    attrs: dict[str, object],
    rng: np.random.Generator,
    shape: tuple[int, int],
    special: bool,
) -> None:
    k = int(rng.integers(1, 50))
    kinds = operand_types(row, dtype)
    shapes = operand_shapes(row, attrs, shape, k)
    arrays = [random_array(rng, s, t, special) for s, t in zip(shapes, kinds, strict=True)]
    arrays = fitting(row, arrays, rng)
    result = result_dtype(row, dtype, attrs)
    wanted = [compute_type(row, a, t) for a, t in zip(arrays, kinds, strict=True)]
    scalars = [
        compute_type(row, np.asarray(scalar_value(dtype)).astype(dtype.to_numpy()), dtype)
    ] * row.form.num_scalars
    meaning = dict(attrs) | {"valid_shape": shape, "numpy_dtype": result.to_numpy()}
    assert row.numpy is not None
    with np.errstate(all="ignore"):
        exact = np.asarray(row.numpy(*wanted, *scalars, meaning))
    scale, terms = None, 0
    if row.bound.kind == "sum" and dtype.is_float:
        sizes = [np.abs(w) for w in wanted]
        with np.errstate(all="ignore"):
            scale = np.asarray(row.numpy(*sizes, meaning))
        terms = k if row.form in (Form.MATMUL, Form.MATMUL_ACC) else max(shape)
    out = np.zeros(exact.shape, result.to_numpy())
    assert library.call(kernel, [*arrays, out]) == 0
    assert_within(row, out, exact, result, scale, terms)
