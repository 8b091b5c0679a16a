"""Forms: the operand lists and shape rules that instructions share.

A form says which operands an instruction has and what type and valid shape its result has. Types are
`TileType`; a valid extent is any value that compares (an int, or a symbolic expression).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from pto_wsp.types.dtype import DType, b1, f32, i32, i64
from pto_wsp.types.tile import TileType


class Form(enum.Enum):
    """Operands and shape rule of an instruction: (name, number of tiles, number of scalars)."""

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
    ROW_BROADCAST = ("row-broadcast", 2, 0)
    ROW_EXPAND = ("row-expand", 1, 0)
    COL_EXPAND = ("col-expand", 1, 0)
    MATMUL = ("matmul", 2, 0)
    MATMUL_ACC = ("matmul-acc", 3, 0)
    TRANSPOSE = ("transpose", 1, 0)
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
    ROW_ARG = ("row-arg", 1, 0)

    @property
    def num_tiles(self) -> int:
        """Tile operands, the destination not counted."""
        return self.value[1]

    @property
    def num_scalars(self) -> int:
        """Scalar operands."""
        return self.value[2]


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
        Form.FILL,
        Form.ROW_BROADCAST,
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


def data_operands(form: Form, tiles: Sequence[TileType]) -> Sequence[TileType]:
    """Return the operands that have a type of the row's list: all but masks and indices."""
    match form:
        case Form.SELECT | Form.SELECT_SCALAR:
            return tiles[1:]
        case Form.SORT | Form.TAKE:
            return tiles[:1]
        case _:
            return tiles


def result_type(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    """Return the type of the result.

    Args:
        form: a form that has a result.
        tiles: types of the tile operands.
        attrs: `trans_a`, `trans_b` (matmul forms), `dtype` (convert, fill, iota), `shape` (fill, iota: (rows,
            cols); expand, merge and topk forms: the extent made).

    Raises:
        FormError: shapes or element types that do not fit.
    """
    match form:
        case Form.FILL | Form.IOTA:
            return TileType(*_pair(attrs["shape"]), _dtype(attrs["dtype"]))
        case Form.ROW_EXPAND | Form.COL_EXPAND:
            return _expanded(form, tiles[0], _pair(attrs["shape"]))
        case Form.MATMUL | Form.MATMUL_ACC:
            return _matmul(form, tiles, attrs)
        case Form.ROW_REDUCE:
            return TileType(tiles[0].rows, 1, tiles[0].dtype)
        case Form.COL_REDUCE:
            return TileType(1, tiles[0].cols, tiles[0].dtype)
        case Form.TRANSPOSE:
            return TileType(tiles[0].cols, tiles[0].rows, tiles[0].dtype)
        case Form.CONVERT:
            return TileType(tiles[0].rows, tiles[0].cols, _dtype(attrs["dtype"]))
        case Form.SORT | Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES | Form.TAKE:
            return _ordered_type(form, tiles, attrs)
        case Form.ROW_ARG:
            return TileType(tiles[0].rows, 1, i32)
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


def _elementwise_type(form: Form, tiles: Sequence[TileType]) -> TileType:
    match form:
        case Form.ROW_BROADCAST:
            a, row = tiles
            _require_shape((a.rows, 1), row)
            _require_dtype(a.dtype, row)
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

    For fill, iota and the expand, merge and topk forms, `attrs["valid"]` is the pair of extents asked for.
    """
    match form:
        case Form.FILL | Form.IOTA:
            return _valid_pair(attrs["valid"])
        case Form.TAKE:
            return tiles[1]
        case Form.ROW_EXPAND | Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES:
            return tiles[0][0], _valid_pair(attrs["valid"])[1]
        case Form.COL_EXPAND:
            return _valid_pair(attrs["valid"])[0], tiles[0][1]
        case Form.ROW_REDUCE | Form.ROW_ARG:
            return tiles[0][0], 1
        case Form.COL_REDUCE:
            return 1, tiles[0][1]
        case Form.TRANSPOSE:
            return tiles[0][1], tiles[0][0]
        case Form.MATMUL | Form.MATMUL_ACC:
            a, b = tiles[-2:]
            return a[1 if attrs.get("trans_a") else 0], b[0 if attrs.get("trans_b") else 1]
        case _:
            return tiles[0]


def valid_pairs_that_agree(
    form: Form, tiles: Sequence[tuple[object, object]], attrs: Mapping[str, object]
) -> list[tuple[object, object]]:
    """Return the pairs of valid extents that must be equal for the instruction to have a meaning."""
    match form:
        case Form.MATMUL | Form.MATMUL_ACC:
            a, b = tiles[-2:]
            pairs = [(a[0 if attrs.get("trans_a") else 1], b[1 if attrs.get("trans_b") else 0])]
            if form is Form.MATMUL_ACC:
                result = result_valid(form, tiles, attrs)
                pairs += list(zip(tiles[0], result, strict=True))
            return pairs
        case Form.ROW_BROADCAST | Form.MERGE | Form.TAKE:
            return [(tiles[0][0], tiles[1][0])]
        case _:
            first = tiles[:1]
            return [pair for other in tiles[1:] for pair in zip(first[0], other, strict=True)]


def _expanded(form: Form, source: TileType, shape: tuple[int, int]) -> TileType:
    rows, cols = shape
    _require_shape((rows, 1) if form is Form.ROW_EXPAND else (1, cols), source)
    return TileType(rows, cols, source.dtype)


def _matmul(form: Form, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    a, b = tiles[-2:]
    rows, k = (a.cols, a.rows) if attrs.get("trans_a") else (a.rows, a.cols)
    inner, cols = (b.cols, b.rows) if attrs.get("trans_b") else (b.rows, b.cols)
    if k != inner:
        raise FormError("shape", f"a right operand with {k} rows", f"{inner}")
    for operand in (a, b):
        if not operand.dtype.is_float:
            raise FormError("dtype", "floating-point operands", str(operand.dtype))
    result = TileType(rows, cols, f32)
    if form is Form.MATMUL_ACC:
        _require_shape(result.shape, tiles[0])
        _require_dtype(result.dtype, tiles[0])
    return result


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
