"""Calls of `pto` functions in a kernel: one way per form of the instruction table."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pto_wsp.errors import BadOperand
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.isa import BY_FUNCTION, Form, Instruction
from pto_wsp.isa.meaning import COMPARE_MODES
from pto_wsp.lang.builder import Site
from pto_wsp.lang.functions import PtoFunction
from pto_wsp.lang.values import Constant, TupleValue, Value, ViewValue, constant_of
from pto_wsp.types.dtype import DType, f32

if TYPE_CHECKING:
    from pto_wsp.lang.expressions import ExpressionReader


def call_function(reader: ExpressionReader, function: PtoFunction, node: ast.Call, hint: str) -> Value:
    """Read the call of a `pto` function and append its instructions.

    Raises:
        BadOperand: arguments that the function does not have, or cannot take.
        ShapeMismatch, DTypeMismatch, BadIndex: operands that do not fit.
    """
    return _Call(reader, function, node, hint).run()


class _Call:
    def __init__(self, reader: ExpressionReader, function: PtoFunction, node: ast.Call, hint: str) -> None:
        self.reader = reader
        self.ops = reader.ops
        self.function = function
        self.node = node
        self.site = Site(reader.at(node), f"pto.{function.name}", hint)
        self.args = self.bind()

    def run(self) -> Value:
        name = self.function.name
        if name == "tiles":
            self.reader.refuse(self.node, "`pto.tiles` outside a loop", "`for r in pto.tiles(extent, tile):`")
        if name == "zeros":
            return self.fill(Constant(0))
        row = BY_FUNCTION[name]
        match row.form:
            case Form.LOAD:
                return self.reader.builder.load(self.view("view"), self.site)
            case Form.STORE:
                return self.store()
            case Form.FILL:
                return self.fill(self.value("value"))
            case Form.ROW_EXPAND | Form.COL_EXPAND:
                return self.expand(row.name, row.form)
            case _:
                return self.compute(row)

    def compute(self, row: Instruction) -> Value:
        emit, site = self.reader.builder.instruction, self.site
        match row.form:
            case Form.BINARY:
                return self.ops.binary(row.name, self.value("a"), self.value("b"), site)
            case Form.COMPARE:
                return self.ops.compare(self.mode(), self.value("a"), self.value("b"), site)
            case Form.SELECT:
                return self.ops.where(self.value("mask"), self.value("a"), self.value("b"), site)
            case Form.MATMUL | Form.MATMUL_ACC:
                acc = self.value("acc") if "acc" in self.args else None
                return self.ops.matmul(self.value("a"), self.value("b"), acc, site)
            case Form.CONVERT:
                source = self.ops.tile(self.value("x"), site.inner)
                return emit(row.name, [source], (), site, dtype=self.dtype())
            case _:
                return emit(row.name, [self.ops.tile(self.value("x"), site.inner)], (), site)

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

    def dtype(self) -> DType:
        if "dtype" not in self.args:
            return f32
        value = constant_of(self.value("dtype"))
        if not isinstance(value, DType):
            raise self.bad("an element type", ast.unparse(self.args["dtype"]), self.args["dtype"])
        return value

    def mode(self) -> str:
        mode = constant_of(self.value("mode"))
        if mode not in COMPARE_MODES:
            raise self.bad("one of " + ", ".join(COMPARE_MODES), repr(mode), self.args["mode"])
        return str(mode)

    def extent(self, value: Value, node: ast.expr) -> tuple[int, Expr]:
        """Return the capacity and valid extent that a part of a shape asks for."""
        match value:
            case Constant(value=int(size)) if not isinstance(size, bool) and size > 0:
                return size, Const(size)
            case _:
                expr, capacity = self.ops.scalar(value, self.site.loc), getattr(value, "capacity", None)
                if expr is None or capacity is None:
                    expected = "a positive constant, or an extent such as `x.rows` of known capacity"
                    raise self.bad(expected, ast.unparse(node), node)
                return capacity, expr

    # --- functions that are no plain instruction ---

    def store(self) -> Constant:
        view, value = self.view("view"), self.value("tile")
        if view.param.role == "in":
            raise self.bad("an Out or InOut parameter", f"`{view.param.name}`, an input", self.args["view"])
        scalar = self.ops.scalar(value, self.site.loc)
        if scalar is not None:
            rows, cols = self.reader.builder.capacity(view, self.site.loc)
            valid = (view.extents[0], view.extents[1])
            tile = self.ops.fill(scalar, (rows, cols), valid, view.dtype, self.site.inner)
        else:
            tile = self.ops.tile(value, self.site.inner)
        self.reader.builder.store(view, tile, self.site)
        return Constant(None)

    def fill(self, value: Value) -> Value:
        shape, node = self.value("shape"), self.args["shape"]
        if isinstance(shape, Constant) and isinstance(shape.value, tuple):
            shape = TupleValue(tuple(Constant(v) for v in shape.value))
        if not isinstance(shape, TupleValue) or len(shape.items) != 2:
            raise self.bad("a shape (rows, cols)", str(shape), node)
        scalar = self.ops.scalar(value, self.site.loc)
        if scalar is None:
            raise self.bad("a number or a scalar", str(value), self.args.get("value", self.node))
        (rows, valid_rows), (cols, valid_cols) = (self.extent(v, node) for v in shape.items)
        return self.ops.fill(scalar, (rows, cols), (valid_rows, valid_cols), self.dtype(), self.site)

    def expand(self, op: str, form: Form) -> Value:
        source = self.ops.tile(self.value("x"), self.site.inner)
        name = "cols" if form is Form.ROW_EXPAND else "rows"
        size, extent = self.extent(self.value(name), self.args[name])
        if form is Form.ROW_EXPAND:
            shape, valid = (source.type.rows, size), (source.valid[0], extent)
        else:
            shape, valid = (size, source.type.cols), (extent, source.valid[1])
        return self.reader.builder.instruction(op, [source], (), self.site, shape=shape, valid=valid)
