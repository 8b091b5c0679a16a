"""Forms: the operand lists and shape rules that instructions share.

A form says which operands an instruction has and what type and valid shape its result has. Types are
`TileType`; a valid extent is any value that compares (an int, or a symbolic expression).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pto_wsp.types.dtype import DType, b1, f32, i8, i32, i64, u8
from pto_wsp.types.quantised import CHUNK, FORMATS, rounded_cols
from pto_wsp.types.tile import TileType


class Form(enum.Enum):
    """Operands and shape rule of an instruction: (name, number of tiles, number of scalars).

    Attributes:
        num_tiles: tile operands, the destination not counted.
        num_scalars: scalar operands.
    """

    LOAD = ("load", 0, 0)
    STORE = ("store", 1, 0)
    GATHER = ("gather", 1, 0)
    SCATTER = ("scatter", 2, 0)
    UNARY = ("unary", 1, 0)
    BINARY = ("binary", 2, 0)
    TILE_SCALAR = ("tile-scalar", 1, 1)
    FILL = ("fill", 0, 1)
    ROW_REDUCE = ("row-reduce", 1, 0)
    COL_REDUCE = ("col-reduce", 1, 0)
    TERNARY = ("ternary", 3, 0)
    BINARY_SCALAR = ("binary-scalar", 2, 1)
    ROW_BROADCAST = ("row-broadcast", 2, 0)
    COL_BROADCAST = ("col-broadcast", 2, 0)
    ROW_EXPAND = ("row-expand", 1, 0)
    COL_EXPAND = ("col-expand", 1, 0)
    MATMUL = ("matmul", 2, 0)
    MATMUL_ACC = ("matmul-acc", 3, 0)
    MATMUL_BIAS = ("matmul-bias", 3, 0)
    MATMUL_QUANTISED = ("matmul-quantised", 3, 0)
    QUANTISE = ("quantise", 1, 0)
    TRANSPOSE = ("transpose", 1, 0)
    RESHAPE = ("reshape", 1, 0)
    EXTRACT = ("extract", 1, 0)
    INSERT = ("insert", 2, 0)
    SET = ("set", 1, 1)
    COMPARE = ("compare", 2, 0)
    COMPARE_SCALAR = ("compare-scalar", 1, 1)
    SELECT = ("select", 3, 0)
    SELECT_SCALAR = ("select-scalar", 2, 1)
    CONVERT = ("convert", 1, 0)
    IOTA = ("iota", 0, 1)
    SORT = ("sort", 2, 0)
    MERGE_RUNS = ("merge-runs", 1, 0)
    MERGE = ("merge", 2, 0)
    TOPK_VALUES = ("topk-values", 1, 0)
    TOPK_INDICES = ("topk-indices", 1, 0)
    TAKE = ("take", 2, 0)
    PUT = ("put", 3, 0)
    ROW_ARG = ("row-arg", 1, 0)

    def __init__(self, _: str, num_tiles: int, num_scalars: int) -> None:
        self.num_tiles = num_tiles
        self.num_scalars = num_scalars


class FormError(Exception):
    """Operands that do not fit a form: what was expected and found, `kind` shape or dtype."""

    def __init__(self, kind: str, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.kind = kind
        self.expected = expected
        self.found = found


ELEMENTWISE = frozenset(
    {
        Form.UNARY,
        Form.BINARY,
        Form.TILE_SCALAR,
        Form.TERNARY,
        Form.BINARY_SCALAR,
        Form.FILL,
        Form.ROW_BROADCAST,
        Form.COL_BROADCAST,
        Form.ROW_EXPAND,
        Form.COL_EXPAND,
        Form.COMPARE,
        Form.COMPARE_SCALAR,
        Form.SELECT,
        Form.SELECT_SCALAR,
        Form.CONVERT,
        Form.IOTA,
    }
)
"""Forms whose element [i, j] depends on operands at [i, j], [i, 0] or [0, j] alone: chains of them fuse."""

IN_PLACE = ELEMENTWISE | {Form.SET}
"""Forms whose result may overwrite an operand while it is computed."""

PRODUCTS = frozenset({Form.MATMUL, Form.MATMUL_ACC, Form.MATMUL_BIAS})
"""Forms that multiply matrices."""

ADDS_ONTO = frozenset({Form.MATMUL_ACC, Form.MATMUL_QUANTISED})
"""Forms whose first operand is the sum that a product is added to: the result may take its place."""

T = TypeVar("T")


def factors(form: Form, operands: Sequence[T]) -> tuple[T, T]:
    """Return the two matrices that an instruction of `PRODUCTS` multiplies."""
    a, b = operands[:2] if form is Form.MATMUL_BIAS else operands[-2:]
    return a, b


def data_operands(form: Form, tiles: Sequence[TileType]) -> Sequence[TileType]:
    """Return the operands that have a type of the row's list: all but masks, indices and sums."""
    match form:
        case Form.SELECT | Form.SELECT_SCALAR:
            return tiles[1:]
        case Form.SORT | Form.TAKE:
            return tiles[:1]
        case Form.PUT | Form.MATMUL_BIAS:
            return tiles[:2]
        case Form.MATMUL_ACC:
            return tiles[1:]
        case Form.MATMUL_QUANTISED:
            return tiles[1:2]
        case _:
            return tiles


def result_type(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    """Return the type of the result.

    Args:
        form: a form that has a result.
        tiles: types of the tile operands.
        attrs: `trans_a`, `trans_b` (matmul forms), `format` (of a quantised matrix), `dtype` (convert, fill,
            iota), `rmode` (convert), `shape` (fill, iota, reshape, extract: (rows, cols); expand, merge and
            topk forms: the extent made).

    Raises:
        FormError: shapes or element types that do not fit.
    """
    match form:
        case Form.FILL | Form.IOTA:
            return TileType(*_pair(attrs["shape"]), _dtype(attrs["dtype"]))
        case Form.ROW_EXPAND | Form.COL_EXPAND:
            return _expanded(form, tiles[0], _pair(attrs["shape"]))
        case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
            return _matmul(form, tiles, attrs)
        case Form.MATMUL_QUANTISED:
            return _matmul_quantised(tiles, str(attrs["format"]))
        case Form.QUANTISE:
            return _quantised(tiles[0])
        case Form.ROW_REDUCE | Form.COL_REDUCE | Form.ROW_ARG:
            return _reduced(form, tiles[0])
        case Form.CONVERT:
            return _converted(tiles[0], _dtype(attrs["dtype"]), attrs)
        case Form.TRANSPOSE | Form.RESHAPE | Form.EXTRACT | Form.INSERT | Form.SET | Form.PUT:
            return _rearranged(form, tiles, attrs)
        case Form.SORT | Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES | Form.TAKE:
            return _ordered_type(form, tiles, attrs)
        case _:
            return _elementwise_type(form, tiles)


def _ordered_type(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    rows = tiles[0].rows
    match form:
        case Form.SORT:
            _require_shape(tiles[0].shape, tiles[1])
            _require_dtype(i32, tiles[1])
            return TileType(rows, tiles[0].cols, i64)
        case Form.TAKE:
            _require_shape((rows, tiles[1].cols), tiles[1])
            _require_dtype(i32, tiles[1])
            return TileType(rows, tiles[1].cols, tiles[0].dtype)
        case Form.MERGE:
            _require_shape((rows, tiles[1].cols), tiles[1])
    dtype = {Form.TOPK_VALUES: f32, Form.TOPK_INDICES: i32}.get(form, i64)
    return TileType(rows, _pair(attrs["shape"])[1], dtype)


def _reduced(form: Form, source: TileType) -> TileType:
    match form:
        case Form.ROW_REDUCE:
            return TileType(source.rows, 1, source.dtype)
        case Form.COL_REDUCE:
            return TileType(1, source.cols, source.dtype)
        case _:
            return TileType(source.rows, 1, i32)


def _rearranged(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    first, *others = tiles
    if form is Form.TRANSPOSE:
        return TileType(first.cols, first.rows, first.dtype)
    if form in (Form.RESHAPE, Form.EXTRACT):
        return TileType(*_pair(attrs["shape"]), first.dtype)
    if form is Form.SET:
        return first
    _require_dtype(first.dtype, others[0])
    if form is Form.PUT:
        values, indices = others
        _require_shape((first.rows, values.cols), values)
        _require_shape(values.shape, indices)
        _require_dtype(i32, indices)
    return first


def _converted(source: TileType, dtype: DType, attrs: Mapping[str, object]) -> TileType:
    if attrs.get("rmode"):
        if not source.dtype.is_float:
            raise FormError("dtype", "a float operand where a rounding mode is given", str(source.dtype))
        if dtype is b1:
            raise FormError("dtype", "a number as the result where a rounding mode is given", str(dtype))
    return TileType(source.rows, source.cols, dtype)


def _elementwise_type(form: Form, tiles: Sequence[TileType]) -> TileType:
    match form:
        case Form.ROW_BROADCAST | Form.COL_BROADCAST:
            a, line = tiles
            _require_shape((a.rows, 1) if form is Form.ROW_BROADCAST else (1, a.cols), line)
            _require_dtype(a.dtype, line)
            return a
        case Form.SELECT | Form.SELECT_SCALAR:
            mask, *arms = tiles
            _require_dtype(b1, mask)
            _require_same(arms)
            _require_shape(arms[0].shape, mask)
            return arms[0]
        case _:
            _require_same(tiles)
            is_mask = form in (Form.COMPARE, Form.COMPARE_SCALAR)
            return TileType(*tiles[0].shape, b1) if is_mask else tiles[0]


def result_valid(
    form: Form, tiles: Sequence[tuple[object, object]], attrs: Mapping[str, object]
) -> tuple[object, object]:
    """Return the valid (rows, cols) of the result from those of the tile operands.

    For the forms that make a shape of their own, `attrs["valid"]` is the pair of extents asked for.
    """
    match form:
        case Form.FILL | Form.IOTA | Form.RESHAPE | Form.EXTRACT:
            return _valid_pair(attrs["valid"])
        case Form.TAKE:
            return tiles[1]
        case Form.ROW_EXPAND | Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES | Form.QUANTISE:
            return tiles[0][0], _valid_pair(attrs["valid"])[1]
        case Form.COL_EXPAND:
            return _valid_pair(attrs["valid"])[0], tiles[0][1]
        case Form.ROW_REDUCE | Form.ROW_ARG:
            return tiles[0][0], 1
        case Form.COL_REDUCE:
            return 1, tiles[0][1]
        case Form.TRANSPOSE:
            return tiles[0][1], tiles[0][0]
        case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
            a, b = factors(form, tiles)
            return a[1 if attrs.get("trans_a") else 0], b[0 if attrs.get("trans_b") else 1]
        case _:
            return tiles[0]


def valid_pairs_that_agree(
    form: Form, tiles: Sequence[tuple[object, object]], attrs: Mapping[str, object]
) -> list[tuple[object, object]]:
    """Return the pairs of valid extents that must be equal for the instruction to have a meaning."""
    match form:
        case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
            a, b = factors(form, tiles)
            pairs = [(a[0 if attrs.get("trans_a") else 1], b[1 if attrs.get("trans_b") else 0])]
            rows, cols = result_valid(form, tiles, attrs)
            if form is Form.MATMUL_ACC:
                pairs += [(tiles[0][0], rows), (tiles[0][1], cols)]
            elif form is Form.MATMUL_BIAS:
                pairs += [(tiles[2][1], cols)]
            return pairs
        case Form.ROW_BROADCAST | Form.MERGE | Form.TAKE | Form.MATMUL_QUANTISED:
            return [(tiles[0][0], tiles[1][0])]
        case Form.COL_BROADCAST:
            return [(tiles[0][1], tiles[1][1])]
        case Form.INSERT:
            return []
        case Form.PUT:
            return [(tiles[0][0], tiles[1][0]), *zip(tiles[1], tiles[2], strict=True)]
        case _:
            first = tiles[:1]
            return [pair for other in tiles[1:] for pair in zip(first[0], other, strict=True)]


def _expanded(form: Form, source: TileType, shape: tuple[int, int]) -> TileType:
    rows, cols = shape
    _require_shape((rows, 1) if form is Form.ROW_EXPAND else (1, cols), source)
    return TileType(rows, cols, source.dtype)


def _matmul(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    a, b = factors(form, tiles)
    rows, k = (a.cols, a.rows) if attrs.get("trans_a") else (a.rows, a.cols)
    inner, cols = (b.cols, b.rows) if attrs.get("trans_b") else (b.rows, b.cols)
    if k != inner:
        raise FormError("shape", f"a right operand with {k} rows", f"{inner}")
    result = TileType(rows, cols, _product_type(a.dtype, b.dtype))
    if form is Form.MATMUL_ACC:
        _require_shape(result.shape, tiles[0])
        _require_dtype(result.dtype, tiles[0])
    elif form is Form.MATMUL_BIAS:
        _require_shape((1, cols), tiles[2])
        _require_dtype(result.dtype, tiles[2])
    return result


def _matmul_quantised(tiles: Sequence[TileType], name: str) -> TileType:
    """Return the type of acc [M, N] + x [M, K] @ w, where w is [K / block, bytes] u8."""
    (acc, x, w), form = tiles, FORMATS[name]
    _require_dtype(u8, w)
    _require_dtype(f32, acc)
    _require_shape((x.rows, acc.cols), acc)
    if w.cols % form.column_bytes or acc.cols > w.cols // form.column_bytes:
        expected = f"blocks of {name}: {form.column_bytes} bytes for each of {acc.cols} columns or more"
        raise FormError("shape", expected, f"{w.cols} bytes")
    wanted = w.rows * form.block
    if x.cols != (wanted if x.dtype.is_float else rounded_cols(wanted)):
        expected = f"a left operand with {wanted} columns, quantised or not: {w.rows} blocks of {form.block}"
        raise FormError("shape", expected, f"{x.cols}")
    return acc


def _quantised(tile: TileType) -> TileType:
    """Return the type of rows that are rounded in groups of CHUNK columns."""
    if tile.cols % CHUNK:
        raise FormError("shape", f"a multiple of {CHUNK} columns", f"{tile.cols}")
    return TileType(tile.rows, rounded_cols(tile.cols), u8)


def _product_type(left: DType, right: DType) -> DType:
    """Return the type that products of two element types are added up in."""
    if left.is_float and (right.is_float or right is i8):
        return f32
    if left is i8 and right is i8:
        return i32
    expected = "two floats, a float with a right operand of i8, or two i8"
    raise FormError("dtype", expected, f"{left} and {right}")


def _require_same(tiles: Sequence[TileType]) -> None:
    for tile in tiles[1:]:
        _require_shape(tiles[0].shape, tile)
        _require_dtype(tiles[0].dtype, tile)


def _require_shape(shape: tuple[int, int], tile: TileType) -> None:
    if tile.shape != shape:
        raise FormError("shape", f"[{shape[0]}, {shape[1]}]", f"[{tile.rows}, {tile.cols}]")


def _require_dtype(dtype: DType, tile: TileType) -> None:
    if tile.dtype is not dtype:
        raise FormError("dtype", str(dtype), str(tile.dtype))


def _pair(value: object) -> tuple[int, int]:
    assert isinstance(value, tuple) and len(value) == 2
    return value


def _valid_pair(value: object) -> tuple[object, object]:
    assert isinstance(value, tuple) and len(value) == 2
    return value


def _dtype(value: object) -> DType:
    assert isinstance(value, DType)
    return value
