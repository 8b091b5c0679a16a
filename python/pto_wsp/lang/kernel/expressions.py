"""Reading the expressions of a kernel: syntax in, values and instructions out."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import NoReturn

import numpy as np

from pto_wsp.errors import (
    BadIndex,
    BadOperand,
    CarriedValue,
    UnknownInstruction,
    UnknownName,
    UnsupportedSyntax,
    did_you_mean,
)
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.core import Index
from pto_wsp.ir.kernel import IN
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.lang import arithmetic
from pto_wsp.lang.arithmetic import FOLD
from pto_wsp.lang.captured import Defined
from pto_wsp.lang.kernel import pto, ptoisa
from pto_wsp.lang.kernel.builder import Builder, Site
from pto_wsp.lang.kernel.functions import FUNCTIONS, PtoFunction
from pto_wsp.lang.kernel.instruction_calls import call_function
from pto_wsp.lang.kernel.operators import (
    COMPREHENSION,
    OPERATORS,
    REFUSED_EXPRESSIONS,
    TILE_ADVICE,
    TILE_OPERATORS,
    is_foldable,
)
from pto_wsp.lang.kernel.ptoisa import PtoisaFunction
from pto_wsp.lang.kernel.suggestions import suggestion
from pto_wsp.lang.kernel.tile_ops import TileOps
from pto_wsp.lang.kernel.values import (
    Constant,
    ScalarValue,
    SpanValue,
    TileValue,
    Transposed,
    TupleValue,
    UndefinedName,
    Value,
    ViewValue,
    constant_of,
    known,
)
from pto_wsp.lang.kernel.view_index import index_view
from pto_wsp.lang.source import FunctionSource
from pto_wsp.location import Location
from pto_wsp.types.dtype import b1, f32, i64

_ATTRIBUTES = {
    "cols": "a vector has no columns: declare `Tensor[f32, 1, DYN]`, or write `.shape[0]`",
    "rows": "tiles and views have .rows, .cols, .shape and .T",
    "sum": "write `pto.rowsum(x)` or `pto.colsum(x)`",
    "max": "write `pto.rowmax(x)` or `pto.colmax(x)`",
    "min": "write `pto.rowmin(x)` or `pto.colmin(x)`",
}
"""Advice for an attribute that a value does not have."""


class ExpressionReader:
    """Reads expressions in an environment, appending the instructions that they need.

    Attributes:
        env: the values of the local names at this point.
        inline: reads the call of a function of Python; None where it cannot.
    """

    inline: Callable[[FunctionType, ast.Call], Value | None] | None = None

    def __init__(self, source: FunctionSource, builder: Builder, local_names: frozenset[str]) -> None:
        self.source = source
        self.builder = builder
        self.ops = TileOps(builder)
        self.local_names = local_names
        self.env: dict[str, Value] = {}

    # --- entry points ---

    def read(self, node: ast.expr, hint: str = "") -> Value:
        """Return the value of an expression; `hint` names a tile that it makes."""
        match node:
            case ast.Constant(value=value):
                return Constant(value)
            case ast.Name():
                return self._name(node)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return TupleValue(tuple(self.read(e) for e in elts))
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node, hint)
            case _:
                return self._operation(node, hint)

    def _operation(self, node: ast.expr, hint: str) -> Value:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.read(left), self.read(right), node, hint)
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.read(operand), node, hint)
            case ast.Compare():
                return self._compare(node, hint)
            case ast.BoolOp():
                return self._logic(node, self.read)
            case ast.IfExp():
                return self._choice(node)
            case _:
                what = REFUSED_EXPRESSIONS.get(type(node), f"`{type(node).__name__}`")
                self.refuse(node, what, "write a `for` loop" if what == COMPREHENSION else "")

    def condition(self, node: ast.expr) -> Expr:
        """Return an expression as a truth value.

        Raises:
            UnsupportedSyntax: it is a tile, which has none.
        """
        is_logic = isinstance(node, ast.BoolOp)
        value = self._logic(node, self._condition_value) if is_logic else self.read(node)
        if isinstance(value, Constant):
            return Const(bool(value.value), b1)
        expr = self.ops.scalar(value, self.at(node))
        if expr is None:
            self.refuse(node, f"{value} as a condition", "choose element by element with `pto.where`")
        return arithmetic.truth(expr, self.at(node))

    def _condition_value(self, node: ast.expr) -> Value:
        expr = self.condition(node)
        return Constant(expr.value) if isinstance(expr, Const) else ScalarValue(expr)

    def integer(self, node: ast.expr, what: str) -> ScalarValue:
        """Return an expression that must be an integer scalar."""
        value = self.read(node)
        expr = self.ops.scalar(value, self.at(node))
        if expr is None or expr.dtype is not i64:
            raise BadOperand(op=what, expected="an integer", found=str(value), loc=self.at(node))
        return value if isinstance(value, ScalarValue) else ScalarValue(expr, known(expr))

    def constant_integer(self, node: ast.expr, what: str) -> int:
        """Return an expression that must be a positive integer known while the kernel is read."""
        value = constant_of(self.read(node))
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value <= 0:
            raise BadOperand(
                op=what, expected="a positive constant integer", found=ast.unparse(node), loc=self.at(node)
            )
        return int(value)

    def at(self, node: ast.AST) -> Location:
        """Return the place of a node."""
        return self.source.at(node)

    def refuse(self, node: ast.AST, construct: str, advice: str, detail: str = "not supported") -> NoReturn:
        """Raise UnsupportedSyntax at `node`."""
        raise UnsupportedSyntax(
            construct=construct, where="kernel", detail=detail, advice=advice, loc=self.at(node)
        )

    # --- names ---

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.env:
            value = self.env[name]
            if isinstance(value, UndefinedName):
                raise CarriedValue(
                    name=name,
                    problem=value.problem,
                    expected=value.expected,
                    found=value.found,
                    loc=self.at(node),
                    notes=[("assigned here", value.loc)] if value.loc else [],
                )
            return value
        if name not in self.local_names and name in self.source.names:
            return Constant(self.source.names[name])
        if name == self.source.function.__name__:
            self.refuse(node, f"`{name}`, a kernel that calls itself,", "repeat with `for` or `while`")
        where = f"kernel `{self.source.function.__name__}`"
        advice = self.source.suggestion(name, self.env)
        raise UnknownName(name=name, where=where, advice=advice, loc=self.at(node))

    # --- operators ---

    def binary(self, op: ast.operator, a: Value, b: Value, node: ast.AST, hint: str) -> Value:
        """Return `a op b`, which is written at `node`."""
        name, sign = OPERATORS[type(op)]
        left, right = constant_of(a), constant_of(b)
        if left is not None and right is not None:
            return self.fold(name, (left, right), node)
        loc = self.at(node)
        x, y = self.ops.scalar(a, loc), self.ops.scalar(b, loc)
        if x is not None and y is not None:
            if name not in ir.BINARY_OPS:
                self.refuse(node, f"`{sign}` of run-time scalars", "")
            return ScalarValue(arithmetic.combine(name, x, y, loc), _capacity(name, a, b))
        site = Site(loc, sign, hint)
        if name == "matmul":
            return self.ops.matmul(a, b, None, site)
        if name not in TILE_OPERATORS:
            self.refuse(node, f"`{sign}` of tiles", TILE_ADVICE.get(name, ""))
        result = self.ops.binary(TILE_OPERATORS[name], a, b, site)
        if name == "div" and not result.type.dtype.is_float:
            self.refuse(node, f"`/` of {result.type.dtype} tiles", "`pto.div(a, b)` truncates; `/` would not")
        return result

    def _unary(self, op: ast.unaryop, a: Value, node: ast.expr, hint: str) -> Value:
        name, sign = OPERATORS[type(op)]
        constant = constant_of(a)
        if isinstance(a, Constant) or constant is not None:
            return self.fold(name, (constant,), node)
        loc = self.at(node)
        expr = self.ops.scalar(a, loc)
        if expr is not None:
            match name:
                case "neg":
                    return ScalarValue(arithmetic.negate(expr, loc))
                case "not":
                    return ScalarValue(arithmetic.invert(arithmetic.truth(expr, loc), loc))
                case "invert":
                    return ScalarValue(arithmetic.complement(expr, loc))
                case "pos":
                    return a
        elif name in ("neg", "pos", "invert"):
            site = Site(loc, sign, hint)
            tile = self.ops.tile(a, site.inner)
            row = "neg" if name == "neg" else "bitwise_not"
            return tile if name == "pos" else self.builder.instruction(row, [tile], (), site)
        self.refuse(node, f"`{sign}` of {a}", "")

    def fold(self, name: str, operands: tuple[object, ...], node: ast.AST) -> Constant:
        """Return the result of Python's own operator on constants."""
        try:
            return Constant(FOLD[name](*operands))
        except (ArithmeticError, TypeError, ValueError) as error:
            self.refuse(node, f"`{ast.unparse(node)}`", "", str(error))

    def _compare(self, node: ast.Compare, hint: str) -> Value:
        values = [self.read(operand) for operand in (node.left, *node.comparators)]
        constants = [constant_of(v) for v in values]
        if all(isinstance(v, Constant) or c is not None for v, c in zip(values, constants, strict=True)):
            return self._fold_comparison(node, constants)
        loc = self.at(node)
        scalars = [self.ops.scalar(v, loc) for v in values]
        modes = [OPERATORS.get(type(op), ("", ""))[0] for op in node.ops]
        if "" in modes:
            self.refuse(node, "`in` and `is` of run-time values", "")
        if any(s is None for s in scalars):
            if len(modes) > 1:
                self.refuse(node, "a chain of comparisons of tiles", "combine masks: `(a < b) & (b < c)`")
            return self.ops.compare(
                modes[0], values[0], values[1], Site(loc, OPERATORS[type(node.ops[0])][1], hint)
            )
        exprs = [s for s in scalars if s is not None]
        pairs = zip(modes, exprs, exprs[1:], strict=False)
        result: Expr = Const(True, b1)
        for number, (mode, a, b) in enumerate(pairs):
            term = arithmetic.combine(mode, a, b, loc)
            result = term if number == 0 else arithmetic.choose("and", result, term, loc)
        return ScalarValue(result)

    def _fold_comparison(self, node: ast.Compare, constants: list[object]) -> Constant:
        code = ast.Compare(
            left=ast.Name("v0", ast.Load()),
            ops=node.ops,
            comparators=[ast.Name(f"v{i}", ast.Load()) for i in range(1, len(constants))],
        )
        tree = ast.fix_missing_locations(ast.Expression(code))
        scope = {f"v{i}": value for i, value in enumerate(constants)}
        try:
            return Constant(eval(compile(tree, self.source.file, "eval"), {"__builtins__": {}}, scope))
        except TypeError as error:
            self.refuse(node, f"`{ast.unparse(node)}`", "", str(error))

    def _logic(self, node: ast.BoolOp, read: Callable[[ast.expr], Value]) -> Value:
        """Read `and`, `or`; a choice among constants is made now, as Python makes it."""
        is_and = isinstance(node.op, ast.And)
        op, loc = "and" if is_and else "or", self.at(node)
        result: Expr | None = None
        for operand in node.values:
            value = read(operand)
            if isinstance(value, Constant):
                if bool(value.value) is not is_and:
                    if result is None:
                        return value
                    decided = Const(not is_and, b1)
                    fails = ir.can_fail(result)  # Python evaluates what comes before the constant
                    return ScalarValue(arithmetic.choose(op, result, decided, loc) if fails else decided)
                if result is None and operand is node.values[-1]:
                    return value
                continue
            expr = self.ops.scalar(value, self.at(operand))
            if expr is None or expr.dtype is not b1:
                self.refuse(operand, f"{value} in `and` and `or`", "combine truth values of scalars")
            result = expr if result is None else arithmetic.choose(op, result, expr, loc)
        return Constant(is_and) if result is None else ScalarValue(result)

    def _choice(self, node: ast.IfExp) -> Value:
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            return self.read(node.body if condition.value else node.orelse)
        arms = [self.ops.scalar(self.read(arm), self.at(arm)) for arm in (node.body, node.orelse)]
        if arms[0] is None or arms[1] is None:
            self.refuse(node, "`if` ... `else` inside an expression of tiles", "use an `if` statement")
        return ScalarValue(arithmetic.select(condition, arms[0], arms[1], self.at(node)))

    # --- attributes and indices ---

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.read(node.value)
        match base:
            case Constant(value=value):
                return self._constant_attribute(value, node)
            case SpanValue(extent=extent, capacity=capacity) if node.attr == "extent":
                return ScalarValue(extent, capacity)
            case SpanValue(start=start, extent=extent) if node.attr in ("start", "stop"):
                return ScalarValue(start if node.attr == "start" else ir.add(start, extent, self.at(node)))
            case Transposed(operand=operand) if node.attr == "T":
                return operand
            case TileValue() | ViewValue() | Transposed():
                found = self._extents(base)
                if node.attr == "shape":
                    return TupleValue(found)
                if node.attr == "T" and not isinstance(base, Transposed):
                    return Transposed(base)
                if node.attr in ("rows", "cols") and len(found) == 2:
                    return found[node.attr == "cols"]
                if node.attr == "rows" and found:
                    return found[0]
        self.refuse(node, f"`.{node.attr}` of {base}", _ATTRIBUTES.get(node.attr, _ATTRIBUTES["rows"]))

    def _extents(self, value: TileValue | ViewValue | Transposed) -> tuple[ScalarValue | Constant, ...]:
        match value:
            case TileValue(type=type, valid=valid):
                pairs = list(zip(valid, type.shape, strict=True))
            case ViewValue(extents=extents, capacities=capacities):
                pairs = list(zip(extents, capacities, strict=True))
            case Transposed(operand=operand):
                return tuple(reversed(self._extents(operand)))
        return tuple(Constant(e.value) if isinstance(e, Const) else ScalarValue(e, size) for e, size in pairs)

    def _constant_attribute(self, value: object, node: ast.Attribute) -> Constant:
        if value is pto and node.attr not in FUNCTIONS:
            advice = suggestion(node.attr)
            raise UnknownInstruction(name=f"pto.{node.attr}", advice=advice, loc=self.at(node))
        if value is ptoisa and node.attr not in (*ptoisa.FUNCTIONS, "tile"):
            advice = ptoisa.unknown(node.attr)
            raise UnknownInstruction(name=f"ptoisa.{node.attr}", advice=advice, loc=self.at(node))
        try:
            return Constant(getattr(value, node.attr))
        except AttributeError:
            owner = value.__name__ if isinstance(value, ModuleType) else repr(value)
            raise UnknownName(
                name=node.attr,
                where=f"`{owner}`",
                advice=did_you_mean(node.attr, dir(value)),
                loc=self.at(node),
            ) from None

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.read(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(base, (Constant, TupleValue)):
            return self._constant_subscript(base, node)
        if isinstance(base, TileValue) and len(items) == 2:
            return self._tile_element(base, items, node)
        if not isinstance(base, ViewValue):
            expected = "a parameter or a view of one"
            raise BadIndex(
                tensor=ast.unparse(node.value), expected=expected, found=str(base), loc=self.at(node)
            )
        view = index_view(self, base, items, self.at(node))
        return view if view.kept else self._element(view, node)

    def _tile_element(self, tile: TileValue, items: list[ast.expr], node: ast.Subscript) -> Value:
        """Return the current value of an element of a tile as a scalar."""
        loc, what = self.at(node), f"{ast.unparse(node.value)}[...]"
        indices = tuple(self.integer(item, what).expr for item in items)
        element = ir.TileElement(tile.name, indices, ir.element_dtype(tile.type.dtype), loc)
        return ScalarValue(self.builder.assign(element, "", loc))

    def _element(self, view: ViewValue, node: ast.Subscript) -> Value:
        """Return one element of an integer input as a scalar."""
        if not view.dtype.is_integer or view.param.role != IN:
            raise BadIndex(
                tensor=view.param.name,
                expected="an integer input, or an index that keeps two dimensions",
                found=f"an element of {view.dtype} of an {view.param.role} parameter",
                hint="read an element from a tile: `t = pto.load(...)`, then `t[i, j]`",
                loc=self.at(node),
            )
        indices = tuple(d.at for d in view.dims if isinstance(d, Index))
        return ScalarValue(ir.Element(view.param.name, indices, self.at(node)))

    def _constant_subscript(self, base: Constant | TupleValue, node: ast.Subscript) -> Value:
        index = constant_of(self.read(node.slice)) if not isinstance(node.slice, ast.Slice) else None
        items = base.items if isinstance(base, TupleValue) else base.value
        if index is None:
            self.refuse(node, "an index known only at run time", "only views take such indices")
        try:
            found = items[index]  # pyright: ignore
        except (LookupError, TypeError) as error:
            self.refuse(node, f"`{ast.unparse(node)}`", "", str(error))
        return found if isinstance(base, TupleValue) else Constant(found)

    # --- calls ---

    def _call(self, node: ast.Call, hint: str) -> Value:
        function = self.read(node.func)
        target = function.value if isinstance(function, Constant) else None
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "`**`", "")
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                self.refuse(arg, "`*`", "")
        return self.call(target, node, hint)

    def call(self, target: object, node: ast.Call, hint: str) -> Value:
        """Read the call of `target`, the value of the called expression if it is known."""
        if isinstance(target, PtoFunction):
            return call_function(self, target, node, hint)
        if isinstance(target, PtoisaFunction) or target is ptoisa.tile:
            self.refuse(node, "`ptoisa`", "decorate the function with `@ptoisa_kernel`")
        if isinstance(target, FunctionType) and self.inline is not None:
            result = self.inline(target, node)
            if result is not None:
                return result
        args = [self.read(arg) for arg in node.args]
        constants = [constant_of(a) for a in args]
        is_pure = is_foldable(target)
        if is_pure and not node.keywords and None not in constants:
            return self._fold_call(target, constants, node)
        return self._builtin(target, args, node, hint)

    def _fold_call(self, target: object, constants: list[object], node: ast.Call) -> Constant:
        assert callable(target)
        try:
            return Constant(target(*constants))
        except (ArithmeticError, TypeError, ValueError) as error:
            self.refuse(node, f"`{ast.unparse(node)}`", "", str(error))

    def _builtin(self, target: object, args: list[Value], node: ast.Call, hint: str) -> Value:
        loc = self.at(node)
        scalars = [self.ops.scalar(a, loc) for a in args]
        exprs = [s for s in scalars if s is not None]
        are_scalars = len(exprs) == len(args) > 0 and not node.keywords
        match target:
            case builtins.abs if are_scalars and len(args) == 1:
                return ScalarValue(arithmetic.absolute(exprs[0], loc))
            case builtins.abs if len(args) == 1 and not node.keywords:
                site = Site(loc, "abs", hint)
                return self.builder.instruction("abs", [self.ops.tile(args[0], site.inner)], (), site)
            case builtins.min | builtins.max if are_scalars and len(args) > 1:
                result = exprs[0]
                for expr in exprs[1:]:
                    result = arithmetic.combine("min" if target is min else "max", result, expr, loc)
                return ScalarValue(result)
            case builtins.int | builtins.float if are_scalars and len(args) == 1 and exprs[0].dtype is not b1:
                dtype = i64 if target is int else f32
                expr = exprs[0]
                return ScalarValue(expr if expr.dtype is dtype else ir.Unary(str(dtype), expr, loc))
        name = ast.unparse(node.func)
        advice = (
            f"inside a kernel it is `pto.{name.split('.')[-1]}`" if name.split(".")[-1] in FUNCTIONS else ""
        )
        if isinstance(target, Defined):
            advice = (
                f"make two tasks in a workload, or leave out the decorator of `{name}`, a plain function then"
            )
        self.refuse(
            node, f"a call of `{name}`", advice or "call functions of `pto`, or of `math` with constants"
        )


def _capacity(name: str, a: Value, b: Value) -> int | None:
    """Return the positive bound of a sum or product of extents and constants, or None."""
    bounds = [value.capacity if isinstance(value, ScalarValue) else constant_of(value) for value in (a, b)]
    x, y = (bound if isinstance(bound, int) and bound >= 0 else None for bound in bounds)
    if x is None or y is None:
        return None
    return {"add": x + y, "mul": x * y}.get(name) or None
