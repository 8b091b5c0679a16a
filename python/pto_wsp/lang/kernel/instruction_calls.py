"""Calls of `pto` functions in a kernel: one way per form of the instruction table."""

from __future__ import annotations

import ast

from pto_wsp.errors import BadOperand
from pto_wsp.ir.kernel import BLOCK_IDX, Assert, AttrValue, Print, Words
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.isa import BY_FUNCTION, Form, Instruction
from pto_wsp.isa.attributes import MODES
from pto_wsp.isa.compositions import COMPOSITIONS, Composition
from pto_wsp.lang.kernel.builder import Site
from pto_wsp.lang.kernel.compositions import composed
from pto_wsp.lang.kernel.functions import OTHER_FUNCTIONS, PtoFunction
from pto_wsp.lang.kernel.reader import KernelReader
from pto_wsp.lang.kernel.values import (
    Constant,
    ScalarValue,
    SpanValue,
    TileValue,
    Transposed,
    TupleValue,
    Valid,
    Value,
    ViewValue,
    constant_of,
)
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType, f32, i32
from pto_wsp.types.quantised import rounded_cols


def call_function(reader: KernelReader, function: PtoFunction, node: ast.Call, hint: str) -> Value:
    """Read the call of a `pto` function and append its instructions.

    Raises:
        BadOperand: arguments that the function does not have, or cannot take.
        ShapeMismatch, DTypeMismatch, BadIndex: operands that do not fit.
    """
    return _Call(reader, function, node, hint).run()


class _Call:
    def __init__(self, reader: KernelReader, function: PtoFunction, node: ast.Call, hint: str) -> None:
        self.reader = reader
        self.ops = reader.ops
        self.function = function
        self.node = node
        self.site = Site(reader.at(node), f"pto.{function.name}", hint)
        self.args = {} if function.takes_any else self.bind()

    def run(self) -> Value:
        if self.function.name in OTHER_FUNCTIONS:
            return self.other(self.function.name)
        row = BY_FUNCTION[self.function.name]
        match row.form:
            case Form.LOAD:
                return self.reader.builder.load(self.view("view"), self.site)
            case Form.STORE:
                return self.store()
            case Form.GATHER:
                return self.reader.builder.gather(self.view("view"), self.tile("rows"), self.site)
            case Form.SCATTER:
                view, rows = self.output(), self.tile("rows")
                self.reader.builder.store(view, self.tile("tile"), self.site, rows)
                return Constant(None)
            case Form.FILL:
                return self.fill(self.value("value"))
            case Form.IOTA:
                return self.iota()
            case Form.ROW_EXPAND | Form.COL_EXPAND:
                return self.expand(row.name, row.form)
            case _:
                return self.compute(row)

    def other(self, name: str) -> Value:
        match name:
            case "block_idx":
                return ScalarValue(Var(BLOCK_IDX))
            case "block_num":
                return Constant(self.reader.builder.block_dim)
            case "prefetch":
                rows = self.tile("rows") if "rows" in self.args else None
                self.reader.builder.prefetch(self.view("view"), rows, self.site)
                return Constant(None)
            case "print":
                return self.print()
            case "check":
                return self.check()
            case "zeros":
                return self.fill(Constant(0))
            case _ if name in COMPOSITIONS:
                return self.compose(COMPOSITIONS[name])
            case _:
                advice = "`for r in pto.tiles(extent, tile):`"
                self.reader.refuse(self.node, "`pto.tiles` outside a loop", advice)

    def print(self) -> Value:
        for keyword in self.node.keywords:
            raise self.bad("values without names", f"`{keyword.arg}=`", keyword)
        if not self.node.args:
            raise self.bad("at least one value", "none", self.node)
        parts = tuple(self.printed(node) for node in self.node.args)
        self.reader.builder.emit(Print(parts, self.site.loc))
        return Constant(None)

    def printed(self, node: ast.expr) -> Words | str | Expr:
        """Return what a value prints: text, a tile, or a scalar; of a range, its start."""
        value = self.reader.read(node)
        if isinstance(value, Constant) and isinstance(value.value, str):
            return Words(value.value)
        if isinstance(value, SpanValue):
            return value.start
        scalar = self.ops.scalar(value, self.site.loc)
        return self.ops.tile(value, self.site.inner).name if scalar is None else scalar

    def check(self) -> Value:
        message = constant_of(self.value("message"))
        if not isinstance(message, str):
            raise self.bad("a text", ast.unparse(self.args["message"]), self.args["message"])
        condition = self.reader.condition(self.args["condition"])
        if not (isinstance(condition, Const) and condition.value):
            self.reader.builder.emit(Assert(condition, message, self.site.loc))
        return Constant(None)

    def compose(self, composition: Composition) -> Value:
        tiles = [self.tile(name) for name in composition.operands]
        view = self.output() if composition.stores else None
        dtype = self.dtype() if view is None else view.dtype
        rmode = self.word("rmode") if "rmode" in self.args else ""
        made = composed(self.reader.builder, composition, tiles, dtype, self.site, rmode)
        if view is None:
            return made
        self.reader.builder.store(view, made, self.site)
        return Constant(None)

    def compute(self, row: Instruction) -> Value:
        emit, site = self.reader.builder.instruction, self.site
        match row.form:
            case Form.BINARY:
                return self.ops.binary(row.name, self.operand("a"), self.operand("b"), site)
            case Form.TERNARY:
                a, b, c = (self.operand(name) for name in ("a", "b", "c"))
                return self.ops.ternary(row.name, a, b, c, site)
            case Form.COMPARE:
                return self.ops.compare(self.word("mode"), self.operand("a"), self.operand("b"), site)
            case Form.SELECT:
                mask = self.operand("mask", is_scalar_allowed=False)
                return self.ops.where(mask, self.operand("a"), self.operand("b"), site)
            case Form.MATMUL | Form.MATMUL_ACC | Form.MATMUL_BIAS:
                acc, bias = (self.matrix(n) if n in self.args else None for n in ("acc", "bias"))
                return self.ops.matmul(self.matrix("a"), self.matrix("b"), acc, site, bias)
            case Form.TAKE | Form.PUT | Form.MATMUL_QUANTISED:
                names = self.function.parameters
                flags = [(name, self.word(name)) for name in names if name in MODES]
                tiles = [self.tile(name) for name in names if name not in MODES]
                return emit(row.name, tiles, (), site, flags=flags)
            case Form.CONVERT:
                flags = [("rmode", self.word("rmode"))] if "rmode" in self.args else []
                return emit(row.name, [self.tile("x")], (), site, dtype=self.dtype(), flags=flags)
            case Form.RESHAPE | Form.EXTRACT | Form.INSERT | Form.SET | Form.QUANTISE:
                return self.part(row)
            case Form.SORT | Form.MERGE_RUNS | Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES:
                return self.order(row)
            case _:
                return emit(row.name, [self.tile("x")], (), site)

    def part(self, row: Instruction) -> Value:
        emit, tile = self.reader.builder.instruction, self.tile("x")
        if row.form is Form.QUANTISE:
            cols = rounded_cols(tile.type.cols)
            valid = (tile.valid[0], Const(cols))
            return emit(row.name, [tile], (), self.site, shape=(tile.type.rows, cols), valid=valid)
        if row.form is Form.INSERT:
            return emit(row.name, [tile, self.tile("part")], (), self.site, flags=self.places())
        if row.form is Form.SET:
            value = self.ops.scalar(self.value("value"), self.site.loc)
            if value is None:
                raise self.bad("a number or a scalar", str(self.value("value")), self.args["value"])
            element = self.ops.element(value, tile.type.dtype, self.site)
            return emit(row.name, [tile], [element], self.site, flags=self.places())
        shape, valid = self.shape()
        flags = self.places() if row.form is Form.EXTRACT else []
        return emit(row.name, [tile], (), self.site, shape=shape, valid=valid, flags=flags)

    def order(self, row: Instruction) -> Value:
        match row.form:
            case Form.SORT:
                return self.sort(row)
            case Form.MERGE:
                return self.merge(row)
            case Form.MERGE_RUNS:
                run = self.reader.constant_integer(self.args["run"], self.site.label)
                tiles, flags = [self.tile("pairs")], [("run", run)]
                return self.reader.builder.instruction(row.name, tiles, (), self.site, flags=flags)
            case _:
                return self.first(row, [self.tile("pairs")])

    # --- arguments ---

    def bind(self) -> dict[str, ast.expr]:
        """Return the arguments by parameter name."""
        names, found = self.function.parameters, {}
        if len(self.node.args) > len(names):
            raise self.bad(f"at most {len(names)} arguments", str(len(self.node.args)), self.node)
        found = dict(zip(names, self.node.args, strict=False))
        for keyword in self.node.keywords:
            assert keyword.arg is not None
            if keyword.arg not in names:
                raise self.bad("one of " + ", ".join(f"`{n}`" for n in names), f"`{keyword.arg}`", keyword)
            if keyword.arg in found:
                raise self.bad("each argument once", f"`{keyword.arg}` twice", keyword)
            found[keyword.arg] = keyword.value
        for name in self.function.required:
            if name not in found:
                raise self.bad(f"an argument `{name}`", "none", self.node)
        return found

    def bad(self, expected: str, found: str, node: ast.AST) -> BadOperand:
        return BadOperand(op=self.site.label, expected=expected, found=found, loc=self.reader.at(node))

    def value(self, name: str) -> Value:
        return self.reader.read(self.args[name])

    def view(self, name: str) -> ViewValue:
        value = self.value(name)
        if not isinstance(value, ViewValue):
            raise self.bad("a parameter or a view of one", str(value), self.args[name])
        return value

    def tile(self, name: str) -> TileValue:
        """Return a tile operand; an error is marked at the argument."""
        loc = self.reader.at(self.args[name])
        return self.ops.tile(self.value(name), replace(self.site.inner, loc=loc))

    def operand(self, name: str, *, is_scalar_allowed: bool = True) -> Value:
        """Return an operand that is a tile or view, or a scalar where one is allowed."""
        value = self.value(name)
        is_scalar = self.ops.scalar(value, self.site.loc) is not None
        if isinstance(value, (TileValue, ViewValue, Transposed)) or (is_scalar and is_scalar_allowed):
            return value
        expected = "a tile or a scalar" if is_scalar_allowed else "a tile"
        raise self.bad(expected, str(value), self.args[name])

    def matrix(self, name: str) -> Value:
        return self.operand(name, is_scalar_allowed=False)

    def dtype(self, default: DType = f32) -> DType:
        if "dtype" not in self.args:
            return default
        value = constant_of(self.value("dtype"))
        if not isinstance(value, DType):
            raise self.bad("an element type", ast.unparse(self.args["dtype"]), self.args["dtype"])
        return value

    def word(self, name: str) -> str:
        """Return an argument that is one of the words of an attribute."""
        word = constant_of(self.value(name))
        if word not in MODES[name]:
            raise self.bad("one of " + ", ".join(MODES[name]), repr(word), self.args[name])
        return str(word)

    def places(self) -> list[tuple[str, AttrValue]]:
        """Return where a part starts, in the dimensions in which that is not 0."""
        found: list[tuple[str, AttrValue]] = []
        for name in ("row", "col"):
            if name in self.args:
                place = self.reader.integer(self.args[name], self.site.label).expr
                found += [(name, place)] if place != Const(0) else []
        return found

    def extent(self, value: Value, node: ast.expr) -> tuple[int, Expr]:
        """Return the capacity and valid extent that a part of a shape asks for."""
        match value:
            case Constant(value=int(size)) if not isinstance(size, bool) and size > 0:
                return size, Const(size)
            case _:
                expr, capacity = self.ops.scalar(value, self.site.loc), getattr(value, "capacity", None)
                if expr is None or capacity is None:
                    found = ast.unparse(node)
                    expected = "positive constants, and extents of static shapes such as `x.rows * 8`"
                    raise self.bad(expected, found, node)
                return capacity, expr

    # --- functions other than plain instructions ---

    def output(self) -> ViewValue:
        view = self.view("view")
        if view.param.role == "in":
            raise self.bad("an Out or InOut parameter", f"`{view.param.name}`, an input", self.args["view"])
        return view

    def store(self) -> Constant:
        view, value = self.output(), self.value("tile")
        scalar = self.ops.scalar(value, self.site.loc)
        if scalar is not None:
            rows, cols = self.reader.builder.capacity(view, self.site.loc)
            valid = (view.extents[0], view.extents[1])
            tile = self.ops.fill(scalar, (rows, cols), valid, view.dtype, self.site.inner)
        else:
            tile = self.ops.tile(value, self.site.inner)
        self.reader.builder.store(view, tile, self.site)
        return Constant(None)

    def sort(self, row: Instruction) -> Value:
        """Sort; a row's own columns are its indices where none are given."""
        x, site = self.tile("x"), self.site
        if "indices" in self.args:
            indices = self.tile("indices")
        else:
            indices = self.reader.builder.instruction(
                "iota", (), [Const(0)], site.inner, shape=x.type.shape, valid=x.valid, dtype=i32
            )
        return self.reader.builder.instruction(row.name, [x, indices], (), site)

    def merge(self, row: Instruction) -> Value:
        tiles = [self.tile("a"), self.tile("b")]
        if "k" in self.args:
            return self.first(row, tiles)
        shape = (tiles[0].type.rows, sum(t.type.cols for t in tiles))
        valid = (tiles[0].valid[0], Const(shape[1]))
        return self.reader.builder.instruction(row.name, tiles, (), self.site, shape=shape, valid=valid)

    def first(self, row: Instruction, tiles: list[TileValue]) -> Value:
        """Append an instruction that makes the first `k` columns of something."""
        cols, extent = self.extent(self.value("k"), self.args["k"])
        shape, valid = (tiles[0].type.rows, cols), (tiles[0].valid[0], extent)
        return self.reader.builder.instruction(row.name, tiles, (), self.site, shape=shape, valid=valid)

    def iota(self) -> Value:
        start = self.value("start") if "start" in self.args else Constant(0)
        dtype, site = self.dtype(i32), self.site
        shape, valid = self.shape()
        scalar = self.ops.scalar(start, site.loc)
        if scalar is None:
            raise self.bad("a number or a scalar", str(start), self.args["start"])
        first = self.ops.element(scalar, dtype, site)
        return self.reader.builder.instruction(
            "iota", (), [first], site, shape=shape, valid=valid, dtype=dtype
        )

    def shape(self) -> tuple[tuple[int, int], Valid]:
        """Return the capacity and valid shape that the argument `shape` asks for."""
        shape, node = self.value("shape"), self.args["shape"]
        if isinstance(shape, Constant) and isinstance(shape.value, tuple):
            shape = TupleValue(tuple(Constant(v) for v in shape.value))
        if not isinstance(shape, TupleValue) or len(shape.items) != 2:
            raise self.bad("a shape (rows, cols)", str(shape), node)
        (rows, valid_rows), (cols, valid_cols) = (self.extent(v, node) for v in shape.items)
        return (rows, cols), (valid_rows, valid_cols)

    def fill(self, value: Value) -> Value:
        shape, valid = self.shape()
        scalar = self.ops.scalar(value, self.site.loc)
        if scalar is None:
            raise self.bad("a number or a scalar", str(value), self.args.get("value", self.node))
        return self.ops.fill(scalar, shape, valid, self.dtype(), self.site)

    def expand(self, op: str, form: Form) -> Value:
        source = self.ops.tile(self.value("x"), self.site.inner)
        name = "cols" if form is Form.ROW_EXPAND else "rows"
        size, extent = self.extent(self.value(name), self.args[name])
        if form is Form.ROW_EXPAND:
            shape, valid = (source.type.rows, size), (source.valid[0], extent)
        else:
            shape, valid = (size, source.type.cols), (extent, source.valid[1])
        return self.reader.builder.instruction(op, [source], (), self.site, shape=shape, valid=valid)
