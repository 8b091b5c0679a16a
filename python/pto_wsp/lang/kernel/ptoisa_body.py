"""Reading the body of a `@ptoisa_kernel`: declared tiles, and calls of instructions that write them.

A tile is a place here, not a value: it is declared once, and keeps its name. What reads a tile finds what was
written last on the way; a tile that some way has not written is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pto_wsp.errors import BadOperand, CarriedValue
from pto_wsp.ir import kernel as k
from pto_wsp.ir.paths import require_written
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.isa import Form, Instruction
from pto_wsp.isa.attributes import CONSTANTS, EXTENTS, MODES, PLACES
from pto_wsp.isa.compositions import Composition
from pto_wsp.lang.kernel import ptoisa
from pto_wsp.lang.kernel.builder import Builder, Site
from pto_wsp.lang.kernel.compositions import compose, composed
from pto_wsp.lang.kernel.expressions import ExpressionReader
from pto_wsp.lang.kernel.functions import PtoFunction
from pto_wsp.lang.kernel.ptoisa import PtoisaFunction
from pto_wsp.lang.kernel.statements import StatementReader, assigned_names
from pto_wsp.lang.kernel.values import Constant, TileValue, Value, ViewValue, constant_of
from pto_wsp.lang.source import FunctionSource
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

SCALAR_FUNCTIONS = ("block_idx", "block_num")
"""Functions of `pto` that work on no tiles, in addition to `pto.tiles` of loops."""


_NUM_OPERANDS = {Form.LOAD: 2, Form.STORE: 2, Form.GATHER: 3, Form.SCATTER: 3}
"""Operands of the forms that move data: a tile and a view, and a tile of row numbers."""


class InstructionReader(StatementReader):
    """Reads statements in which tiles are written by instructions alone."""

    def __init__(self, source: FunctionSource, builder: Builder, env: dict[str, Value]) -> None:
        super().__init__(source, builder, env)
        assert source.node is not None
        self.reader = _Expressions(source, builder, frozenset(assigned_names(source.node.body)))
        self.reader.env = env
        self.named: set[str] = set()

    def bind(self, name: str, value: Value, loc: Location) -> None:
        """Bind a name to a value: to a tile only where it is declared."""
        if isinstance(value, TileValue):
            is_new = value.name in self.reader.declared and value.name not in self.named
            if not is_new or isinstance(self.reader.env.get(name), TileValue):
                raise BadOperand(
                    op=f"{name} = ...",
                    expected="`ptoisa.tile(rows, cols, dtype)`, once per name",
                    found="another tile",
                    loc=loc,
                )
            self.named.add(value.name)
        super().bind(name, value, loc)


class _Expressions(ExpressionReader):
    """Reads expressions; instructions are calls of their own."""

    def __init__(self, source: FunctionSource, builder: Builder, local_names: frozenset[str]) -> None:
        super().__init__(source, builder, local_names)
        self.declared: set[str] = set()

    def call(self, target: object, node: ast.Call, hint: str) -> Value:
        """Read a call of `ptoisa` or of one of the functions that kernels share."""
        if target is ptoisa.tile:
            return self.declare(node, hint)
        if isinstance(target, PtoisaFunction):
            row = target.row
            if isinstance(row, Composition):
                _Composed(self, target, node).emit(row)
            else:
                _Instruction(self, target, node, row).emit()
            return Constant(None)
        if isinstance(target, PtoFunction) and target.name not in SCALAR_FUNCTIONS:
            advice = "write the instruction: `ptoisa.TADD(dst, a, b)`"
            self.refuse(node, f"`pto.{target.name}` among instructions", advice)
        return super().call(target, node, hint)

    def declare(self, node: ast.Call, hint: str) -> TileValue:
        given = dict(zip(("rows", "cols", "dtype"), node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        if set(given) != {"rows", "cols", "dtype"} or len(node.args) > 3:
            raise self.bad_tile("rows, cols and dtype", ast.unparse(node), node)
        rows, cols = (self.constant_integer(given[name], "ptoisa.tile") for name in ("rows", "cols"))
        dtype = constant_of(self.read(given["dtype"]))
        if not isinstance(dtype, DType):
            raise self.bad_tile("an element type", ast.unparse(given["dtype"]), given["dtype"])
        found = self.builder.tile(hint or "tile", TileType(rows, cols, dtype))
        self.builder.slot(found.name)
        self.declared.add(found.name)
        return found

    def bad_tile(self, expected: str, found: str, node: ast.AST) -> BadOperand:
        return BadOperand(op="ptoisa.tile", expected=expected, found=found, loc=self.at(node))


class _Call:
    """One call of an instruction: its place, keywords and operands."""

    def __init__(self, reader: _Expressions, function: PtoisaFunction, node: ast.Call) -> None:
        self.reader = reader
        self.builder = reader.builder
        self.node = node
        self.site = Site(reader.at(node), f"ptoisa.{function.name}")
        self.keywords = {kw.arg: kw.value for kw in node.keywords if kw.arg is not None}
        for name, value in self.keywords.items():
            if name not in function.keywords:
                expected = "one of " + ", ".join(function.keywords) if function.keywords else "no keywords"
                raise self.bad(expected, f"`{name}`", value)

    def operands(self, count: int) -> list[ast.expr]:
        """Return the operands, the destination first."""
        if len(self.node.args) != count:
            raise self.bad(f"{count} operands, the destination first", str(len(self.node.args)), self.node)
        return self.node.args

    def tile(self, node: ast.expr) -> TileValue:
        value = self.reader.read(node)
        if not isinstance(value, TileValue) or value.name not in self.reader.declared:
            raise self.bad("a tile made by `ptoisa.tile`", str(value), node)
        return value

    def view(self, node: ast.expr) -> ViewValue:
        value = self.reader.read(node)
        if not isinstance(value, ViewValue):
            raise self.bad("a parameter or a view of one", str(value), node)
        return value

    def output(self, node: ast.expr) -> ViewValue:
        view = self.view(node)
        if view.param.role == k.IN:
            raise self.bad("an Out or InOut parameter", f"`{view.param.name}`, an input", node)
        return view

    def constant(self, name: str, kind: type, default: object) -> object:
        """Return a constant that is given by name, or its default."""
        node = self.keywords.get(name)
        value = default if node is None else constant_of(self.reader.read(node))
        modes = MODES.get(name)
        is_known = modes is None or value in modes or (node is None and value == default)
        if type(value) is not kind or not is_known:
            expected = f"a {kind.__name__}" if modes is None else "one of " + ", ".join(modes)
            raise self.bad(f"`{name}`: {expected}", "none" if node is None else repr(value), self.node)
        return value

    def bad(self, expected: str, found: str, node: ast.AST) -> BadOperand:
        return BadOperand(op=self.site.label, expected=expected, found=found, loc=self.reader.at(node))


class _Composed(_Call):
    """One call of a composition."""

    def emit(self, composition: Composition) -> None:
        """Append its rows.

        Raises:
            BadOperand, ShapeMismatch, DTypeMismatch: operands that it cannot take.
        """
        first, *others = self.operands(1 + len(composition.operands))
        rmode = str(self.constant("rmode", str, ""))
        view = self.output(first) if composition.stores else None
        tiles = [self.tile(node) for node in others]
        if view is None:
            compose(self.builder, composition, self.tile(first), tiles, self.site, rmode)
            return
        stored = composed(self.builder, composition, tiles, view.dtype, self.site, rmode)
        self.builder.store(view, stored, self.site)


class _Instruction(_Call):
    """One call of a row of the table."""

    def __init__(
        self, reader: _Expressions, function: PtoisaFunction, node: ast.Call, row: Instruction
    ) -> None:
        super().__init__(reader, function, node)
        self.row = row

    def emit(self) -> None:
        """Append the instruction.

        Raises:
            BadOperand, ShapeMismatch, DTypeMismatch: operands that it cannot take.
        """
        form = self.row.form
        count = _NUM_OPERANDS.get(form, 1 + form.num_tiles + form.num_scalars)
        first, *others = self.operands(count)
        match form:
            case Form.LOAD:
                self.builder.load(self.view(others[0]), self.site, into=self.tile(first))
            case Form.GATHER:
                self.builder.gather(self.view(others[0]), self.tile(others[1]), self.site, self.tile(first))
            case Form.STORE:
                self.builder.store(self.output(first), self.tile(others[0]), self.site)
            case Form.SCATTER:
                self.builder.store(self.output(first), self.tile(others[0]), self.site, self.tile(others[1]))
            case _:
                self.compute(self.tile(first), others)

    def compute(self, dst: TileValue, operands: Sequence[ast.expr]) -> None:
        form = self.row.form
        tiles = [self.tile(node) for node in operands[: form.num_tiles]]
        like = tiles[-1].type.dtype if tiles else dst.type.dtype
        scalars = [self.scalar(node, like) for node in operands[form.num_tiles :]]
        self.builder.write(
            self.row.name, dst, tiles, scalars, self.site, flags=self.constants(), valid=self.extents(dst)
        )

    # --- operands ---

    def scalar(self, node: ast.expr, dtype: DType) -> Expr:
        loc = self.reader.at(node)
        value = self.reader.read(node)
        expr = self.reader.ops.scalar(value, loc)
        if expr is None:
            raise self.bad("a scalar", str(value), node)
        return self.reader.ops.element(expr, dtype, Site(loc, self.site.label))

    def extents(self, dst: TileValue) -> tuple[Expr, Expr]:
        """Return the valid extents that the instruction makes, where its form makes any."""
        names = EXTENTS.get(self.row.form, ())
        found: list[Expr] = []
        for name, size in zip(("rows", "cols"), dst.type.shape, strict=True):
            node = self.keywords.get(name) if name in names else None
            found.append(Const(size) if node is None else self.reader.integer(node, self.site.label).expr)
        return found[0], found[1]

    def constants(self) -> list[tuple[str, k.AttrValue]]:
        found: list[tuple[str, k.AttrValue]] = []
        for name, (kind, default) in CONSTANTS.get(self.row.form, {}).items():
            value = self.constant(name, kind, default)
            assert isinstance(value, (bool, int, str))
            if value is not False and value != "":
                found.append((name, value))
        for name in PLACES.get(self.row.form, ()):
            if name in self.keywords:
                place = self.reader.integer(self.keywords[name], self.site.label).expr
                if place != Const(0):
                    found.append((name, place))
        return found


# --- what is read before it is written ------------------------------------------------------------------


def check_written(kernel: k.KernelFunction) -> None:
    """Raise CarriedValue at the first read of a tile or scalar that some path has not written."""
    require_written(kernel, _carried)


def _carried(name: str, loc: Location | None) -> CarriedValue:
    return CarriedValue(
        name=name,
        problem="is read before every path has written it",
        expected="a statement that writes it",
        found="none",
        loc=loc,
    )
