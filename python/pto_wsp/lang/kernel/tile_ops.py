"""What operators and `pto` functions mean for tiles: which instructions they become.

Scalars take the tile's element type. Operands of shapes [R, 1] and [1, C] are broadcast; any other pair of
different shapes is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pto_wsp.errors import BadOperand, DTypeMismatch, ShapeMismatch
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.lang import arithmetic
from pto_wsp.lang.kernel.builder import Builder, Site
from pto_wsp.lang.kernel.values import Constant, ScalarValue, TileValue, Transposed, Valid, Value, ViewValue
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1, bf16, f16, f32

ARRAY_HINT = "a kernel gets arrays as arguments of its tasks: add a parameter `In[Tensor[...]]`"

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"})
BROADCAST = frozenset({"add", "sub", "mul", "div", "max", "min"})
"""Rows that have forms whose right operand is one column or one row."""

WITH_SCALAR = {"prelu": "lrelu", "addc": "addsc", "subc": "subsc"}
"""Rows with a scalar operand whose name is not that of the row of tiles followed by an s."""
SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
LARGEST_FLOAT = {f16: 65504.0, bf16: 3.3895313892515355e38}


class TileOps:
    """Appends the instructions of one operation."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    # --- operands ---

    def tile(self, value: Value, site: Site) -> TileValue:
        """Return a tile operand, loading a view or transposing where that is needed.

        Raises:
            BadOperand: `value` is neither a tile nor a view.
        """
        match value:
            case TileValue():
                return value
            case ViewValue():
                return (
                    self.builder.param_tile(value) if value.is_tile_param else self.builder.load(value, site)
                )
            case Transposed(operand=operand):
                source = self.tile(operand, site.inner)
                return self.builder.instruction("transpose", [source], (), site)
            case _:
                hint = ARRAY_HINT if isinstance(value, Constant) and value.is_array else None
                raise BadOperand(op=site.label, expected="a tile", found=str(value), loc=site.loc, hint=hint)

    def scalar(self, value: Value, loc: Location) -> Expr | None:
        """Return a scalar operand, or None if `value` is something else."""
        match value:
            case ScalarValue(expr=expr):
                return expr
            case Constant(value=number) if arithmetic.is_number(number):
                return arithmetic.constant(number, loc)
            case _:
                return None

    def element(self, expr: Expr, dtype: DType, site: Site) -> Expr:
        """Return a scalar as an element of type `dtype`.

        Raises:
            DTypeMismatch: it is of another kind, or a literal that the type cannot hold.
        """
        if dtype is b1 or expr.dtype is b1:
            return arithmetic.convert(expr, dtype, site.label, site.loc)
        if isinstance(expr, Const):
            return self._literal(expr, dtype, site)
        if dtype.is_integer and expr.dtype.is_float:
            raise DTypeMismatch(op=site.label, expected=str(dtype), found=str(expr.dtype), loc=site.loc)
        return arithmetic.convert(expr, f32, site.label, site.loc) if dtype.is_float else expr

    def _literal(self, literal: Const, dtype: DType, site: Site) -> Const:
        value = literal.value
        largest = LARGEST_FLOAT.get(dtype, math.inf)
        low, high = dtype.integer_range if dtype.is_integer else (-largest, largest)
        fits = not math.isfinite(value) or low <= value <= high
        if not fits or (dtype.is_integer and literal.dtype.is_float):
            raise DTypeMismatch(
                op=site.label, expected=f"a number that {dtype} can hold", found=repr(value), loc=site.loc
            )
        if dtype.is_float:
            return Const(arithmetic.as_f32(float(value), site.loc), f32, site.loc)
        return literal

    # --- elementwise ---

    def binary(self, op: str, a: Value, b: Value, site: Site) -> TileValue:
        """Append the row `op` of two operands, one a tile at least."""
        left, right = self.scalar(a, site.loc), self.scalar(b, site.loc)
        if right is not None:
            tile = self.tile(a, site.inner)
            return self._with_scalar(op, tile, right, site)
        if left is not None:
            tile = self.tile(b, site.inner)
            if op in COMMUTATIVE:
                return self._with_scalar(op, tile, left, site)
            filled = self.fill(left, tile.type.shape, tile.valid, tile.type.dtype, site.inner)
            return self.builder.instruction(op, [filled, tile], (), site)
        x, y = self.tile(a, site.inner), self.tile(b, site.inner)
        self._require_same_dtype([x, y], site)
        if op in BROADCAST and x.type.shape != y.type.shape:
            if y.type.shape == (x.type.rows, 1):
                return self.builder.instruction("rowexpand" + op, [x, y], (), site)
            if y.type.shape == (1, x.type.cols):
                return self.builder.instruction("colexpand" + op, [x, y], (), site)
        return self.builder.instruction(op, self.broadcast([x, y], site), (), site)

    def _with_scalar(self, op: str, tile: TileValue, scalar: Expr, site: Site) -> TileValue:
        row, element = WITH_SCALAR.get(op, op + "s"), self.element(scalar, tile.type.dtype, site)
        return self.builder.instruction(row, [tile], [element], site)

    def ternary(self, op: str, a: Value, b: Value, c: Value, site: Site) -> TileValue:
        """Append the row `op` (addc, subc) of two tiles and a tile or scalar between them."""
        scalar = self.scalar(b, site.loc)
        tiles = [self.tile(v, site.inner) for v in ((a, c) if scalar is not None else (a, b, c))]
        self._require_same_dtype(tiles, site)
        tiles = self.broadcast(tiles, site)
        if scalar is None:
            return self.builder.instruction(op, tiles, (), site)
        element = self.element(scalar, tiles[0].type.dtype, site)
        return self.builder.instruction(WITH_SCALAR[op], tiles, [element], site)

    def compare(self, mode: str, a: Value, b: Value, site: Site) -> TileValue:
        """Append a comparison, which makes a mask."""
        left, right = self.scalar(a, site.loc), self.scalar(b, site.loc)
        if left is not None and right is None:
            return self.compare(SWAPPED[mode], b, a, site)
        flags = (("mode", mode),)
        x = self.tile(a, site.inner)
        if right is not None:
            scalar = self.element(right, x.type.dtype, site)
            return self.builder.instruction("cmps", [x], [scalar], site, flags=flags)
        y = self.tile(b, site.inner)
        self._require_same_dtype([x, y], site)
        return self.builder.instruction("cmp", self.broadcast([x, y], site), (), site, flags=flags)

    def where(self, mask: Value, a: Value, b: Value, site: Site) -> TileValue:
        """Append a selection; both arms may be scalars, which then make f32."""
        condition = self.tile(mask, site.inner)
        left, right = self.scalar(a, site.loc), self.scalar(b, site.loc)
        tiles = [self.tile(v, site.inner) for v, s in ((a, left), (b, right)) if s is None]
        self._require_same_dtype(tiles, site)
        condition, *tiles = self.broadcast([condition, *tiles], site)
        like = tiles[0] if tiles else condition
        dtype = tiles[0].type.dtype if tiles else f32
        if left is not None:
            tiles.insert(0, self.fill(left, like.type.shape, like.valid, dtype, site.inner))
        if right is not None:
            scalar = self.element(right, dtype, site)
            return self.builder.instruction("sels", [condition, tiles[0]], [scalar], site)
        return self.builder.instruction("sel", [condition, *tiles], (), site)

    def fill(self, value: Expr, shape: tuple[int, int], valid: Valid, dtype: DType, site: Site) -> TileValue:
        """Append a tile with one value everywhere."""
        scalar = self.element(value, dtype, site)
        return self.builder.instruction("expands", (), [scalar], site, shape=shape, valid=valid, dtype=dtype)

    # --- broadcasts ---

    def broadcast(self, tiles: Sequence[TileValue], site: Site) -> list[TileValue]:
        """Return the operands, those of shapes [R, 1] and [1, C] expanded to the common shape."""
        shape, valid = [1, 1], [tiles[0].valid[0], tiles[0].valid[1]]
        for tile in tiles:
            for dim, size in enumerate(tile.type.shape):
                if shape[dim] == 1 and size != 1:
                    shape[dim], valid[dim] = size, tile.valid[dim]
                elif size not in (1, shape[dim]):
                    raise self._do_not_fit(tiles, site)
        return [self._expanded(t, (shape[0], shape[1]), (valid[0], valid[1]), site.inner) for t in tiles]

    def _expanded(self, tile: TileValue, shape: tuple[int, int], valid: Valid, site: Site) -> TileValue:
        emit = self.builder.instruction
        if tile.type.rows != shape[0]:
            tile = emit("colexpand", [tile], (), site, shape=(shape[0], tile.type.cols), valid=valid)
        if tile.type.cols != shape[1]:
            tile = emit("rowexpand", [tile], (), site, shape=shape, valid=valid)
        return tile

    def _do_not_fit(self, tiles: Sequence[TileValue], site: Site) -> ShapeMismatch:
        shapes = [f"[{t.type.rows}, {t.type.cols}]" for t in tiles]
        expected = "equal shapes, or [R, 1] or [1, C] with [R, C]"
        return ShapeMismatch(op=site.label, expected=expected, found=" and ".join(shapes), loc=site.loc)

    def _require_same_dtype(self, tiles: Sequence[TileValue], site: Site) -> None:
        for tile in tiles[1:]:
            if tile.type.dtype is not tiles[0].type.dtype:
                raise DTypeMismatch(
                    op=site.label,
                    expected=str(tiles[0].type.dtype),
                    found=str(tile.type.dtype),
                    loc=site.loc,
                )

    # --- matrices ---

    def matmul(
        self, a: Value, b: Value, acc: Value | None, site: Site, bias: Value | None = None
    ) -> TileValue:
        """Append a product; transposed operands cost nothing."""
        flags: list[tuple[str, bool]] = []
        operands: list[TileValue] = []
        for value, flag in ((a, "trans_a"), (b, "trans_b")):
            if isinstance(value, Transposed):
                flags.append((flag, True))
                value = value.operand
            operands.append(self.tile(value, site.inner))
        if bias is not None:
            operands.append(self.tile(bias, site.inner))
            return self.builder.instruction("matmul_bias", operands, (), site, flags=flags)
        if acc is None:
            return self.builder.instruction("matmul", operands, (), site, flags=flags)
        tiles = [self.tile(acc, site.inner), *operands]
        return self.builder.instruction("matmul_acc", tiles, (), site, flags=flags)
