"""Reads the statements of a kernel: assignment, loops and branches have their Python meaning.

A name is bound to a value, never to a place: an assignment binds the name again and changes nothing else.
A name that a loop or branch assigns again needs one tile (or scalar) that both ways write; it is declared
here, and `copies.py` removes the copies that turn out to be unnecessary.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from pto_wsp.errors import CarriedValue
from pto_wsp.ir import kernel as k
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.effects import names_read_in
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.lang import arithmetic
from pto_wsp.lang.kernel.builder import Builder, Site
from pto_wsp.lang.kernel.expressions import ExpressionReader
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.lang.kernel.values import (
    Constant,
    ScalarValue,
    SpanValue,
    TileValue,
    TupleValue,
    UndefinedName,
    Value,
    ViewValue,
    known,
)
from pto_wsp.lang.source import FunctionSource
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import f32, i64
from pto_wsp.types.tile import ScalarType, TileType

Slot = TileValue | Var
"""What both ways through a loop or branch write."""


@record
class _Carried:
    """A name that a loop assigns, with its slot; None where its value before the loop can have none."""

    name: str
    slot: Slot | None


class StatementReader:
    """Reads statements, appending to the builder's open block."""

    def __init__(self, source: FunctionSource, builder: Builder, env: dict[str, Value]) -> None:
        assert source.node is not None
        self.builder = builder
        self.reader = ExpressionReader(source, builder, frozenset(assigned_names(source.node.body)))
        self.reader.env = env
        self.assigned_at: dict[str, Location] = {}

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Read the statements of one block."""
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                current = self.reader.read(ast.copy_location(ast.Name(name, ast.Load()), target))
                result = self.reader.binary(op, current, self.reader.read(value), node, name)
                self.bind(name, result, self.reader.at(target))
            case ast.For():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.If():
                self._if(node)
            case ast.Pass():
                pass
            case ast.Expr(value=value):
                self._expression(value)
            case _:
                self._refuse(node)

    # --- assignment ---

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        for target in targets:
            self._require_names(target)
        first = targets[0]
        if isinstance(first, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            hints = [t.id if isinstance(t, ast.Name) else "" for t in first.elts]
            hints += [""] * (len(value.elts) - len(hints))
            found: Value = TupleValue(
                tuple(self.reader.read(e, h) for e, h in zip(value.elts, hints, strict=False))
            )
        else:
            found = self.reader.read(value, first.id if isinstance(first, ast.Name) else "")
        for target in targets:
            self._unpack(target, found)

    def _require_names(self, target: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._require_names(element)
        elif not isinstance(target, ast.Name):
            name = ast.unparse(target)
            self.reader.refuse(target, f"assigning `{name}`", f"`pto.store({name}, value)` writes to memory")

    def _unpack(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, value, self.reader.at(target))
            return
        assert isinstance(target, (ast.Tuple, ast.List))
        if isinstance(value, Constant) and isinstance(value.value, tuple):
            value = TupleValue(tuple(Constant(v) for v in value.value))
        if not isinstance(value, TupleValue) or len(value.items) != len(target.elts):
            self.reader.refuse(target, f"unpacking {value} into {len(target.elts)} names", "")
        for element, item in zip(target.elts, value.items, strict=True):
            self._unpack(element, item)

    def bind(self, name: str, value: Value, loc: Location) -> None:
        """Bind a name to a value."""
        self.assigned_at[name] = loc
        self.reader.env[name] = self._settled(value, name, loc)

    def _settled(self, value: Value, name: str, loc: Location) -> Value:
        """Return a value that no later statement changes."""
        match value:
            case ScalarValue(expr=expr, capacity=capacity):
                is_leaf = not ir.children(expr)
                settle = self.builder.frozen if is_leaf else self.builder.assign
                return ScalarValue(settle(expr, name, loc), capacity)
            case TupleValue(items=items):
                return TupleValue(tuple(self._settled(item, name, loc) for item in items))
            case _:
                return value

    def _expression(self, node: ast.expr) -> None:
        """Read an expression statement, which is a call with an effect, such as a store."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return
        value = self.reader.read(node)
        if not isinstance(node, ast.Call) or value != Constant(None):
            self.reader.refuse(node, "a value that nothing uses", "assign it to a name, or store it")

    def _refuse(self, node: ast.stmt) -> None:
        self.reader.refuse(node, f"`{_keyword(node)}`", self._advice(node))

    def _advice(self, node: ast.stmt) -> str:
        """Return what to write instead of a statement that kernels do not have."""
        return {
            ast.Return: "kernels return nothing: write results with `pto.store`",
            ast.AnnAssign: "assign without an annotation",
            ast.AugAssign: "`pto.store(view, value)` writes to memory",
            ast.Assert: '`pto.check(condition, "message")` ends the run with a message',
        }.get(type(node), "kernels have assignments, `for`, `while`, `if` and calls of `pto`")

    # --- loops ---

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            self.reader.refuse(node.orelse[0], "`else` of a loop", "put it after the loop")
        if not isinstance(node.target, ast.Name):
            self.reader.refuse(node.target, "unpacking a loop variable", "use one name")
        kind, args = self._iterable(node.iter)
        loc, name = self.reader.at(node.iter), node.target.id
        if kind == "tiles":
            start, step = Const(0), self.reader.constant_integer(args[1], "pto.tiles")
            stop = self._bound(args[0], "pto.tiles")
        else:
            start = Const(0) if len(args) == 1 else self._bound(args[0], "range")
            stop = self._bound(args[0 if len(args) == 1 else 1], "range")
            step = 1 if len(args) < 3 else self.reader.constant_integer(args[2], "range")
        var = self.builder.fresh(name)
        index: Value = ScalarValue(Var(var))
        if kind == "tiles":
            index = SpanValue(Var(var), _span_extent(var, stop, step), step)
        carried = self._open(node.body, name)
        with self.builder.nested() as block:
            self.reader.env[name] = index
            self._body(node.body, carried, block)
        problem = UndefinedName("is the variable of a loop that has ended", "a value", "none", loc)
        self.reader.env[name] = problem
        self.builder.emit(k.For(var, start, stop, step, tuple(block), loc))

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            self.reader.refuse(node.orelse[0], "`else` of a loop", "put it after the loop")
        carried = self._open(node.body)
        with self.builder.nested() as block:
            condition = self.reader.condition(node.test)
            if isinstance(condition, Const) and condition.value:
                self.reader.refuse(node.test, "a condition that always holds", "leave the loop with `break`")
            if block:
                advice = "assign it to a name before the loop, and again at the end of the body"
                self.reader.refuse(node.test, "a condition that computes tiles", advice)
            self._body(node.body, carried, block)
        self.builder.emit(k.While(condition, tuple(block), self.reader.at(node.test)))

    def _open(self, body: Sequence[ast.stmt], loop_variable: str = "") -> list[_Carried]:
        """Give a slot to every name that has a value and is assigned in the loop."""
        carried = []
        for name in assigned_names(body):
            if name == loop_variable or name not in self.reader.env:
                continue
            before = self.reader.env[name]
            loc = self.reader.at(body[0])
            slot = self._slot(name, before, loc)
            carried.append(_Carried(name, slot))
            found = f"{before} before the loop"
            self.reader.env[name] = (
                UndefinedName("has no value that a loop can change", "a tile or scalar", found, loc)
                if slot is None
                else _value(slot)
            )
        return carried

    def _body(self, body: Sequence[ast.stmt], carried: Sequence[_Carried], block: list[k.Stmt]) -> None:
        """Read a loop's body, then copy the values of its names into their slots."""
        known_before = set(self.reader.env)
        self.statements(body)
        after = self.reader.env
        moves = []
        for item in carried:
            if item.slot is not None and after[item.name] != _value(item.slot):
                moves.append((item.name, item.slot, self._fitting(item.name, item.slot, block)))
        self._copy_all([(s, v) for _, s, v in moves if v is not None], self.reader.at(body[-1]))
        unfit = {name for name, _, value in moves if value is None}
        for name in set(after) - known_before | unfit | {c.name for c in carried if c.slot is None}:
            after[name] = self._only_inside("loop", name)
        for item in carried:
            if item.slot is not None and item.name not in unfit:
                after[item.name] = _value(item.slot)

    def _fitting(self, name: str, slot: Slot, block: Sequence[k.Stmt]) -> TileValue | Expr | None:
        """Return the value of `name` at the end of a loop's body, or None if nothing needs it.

        Raises:
            CarriedValue: the next iteration reads it, and it has another type.
        """
        before, after = _value(slot), self.reader.env[name]
        value = self._as_slot_value(after, slot)
        if value is None and slot.name in names_read_in(block):
            is_tile = isinstance(before, TileValue)
            raise CarriedValue(
                name=name,
                problem="changes its type from one iteration to the next",
                expected=str(before),
                found="another type on one path" if isinstance(after, UndefinedName) else str(after),
                hint=None if is_tile else "a sum of tiles begins with a tile: `pto.zeros((rows, cols))`",
                loc=self.assigned_at.get(name),
            )
        return value

    def _only_inside(self, construct: str, name: str) -> UndefinedName:
        problem = f"may have no single value here: it is assigned inside a {construct}"
        return UndefinedName(problem, "a value of one type on every path", "none", self.assigned_at.get(name))

    # --- branches ---

    def _if(self, node: ast.If) -> None:
        condition = self.reader.condition(node.test)
        if isinstance(condition, Const):
            self.statements(node.body if condition.value else node.orelse)
            return
        before, blocks, envs = self.reader.env, [], []
        for body in (node.body, node.orelse):
            self.reader.env = dict(before)
            with self.builder.nested() as block:
                self.statements(body)
            blocks.append(block)
            envs.append(self.reader.env)
        self.reader.env = {
            name: self._merged(name, [env.get(name) for env in envs], blocks, node)
            for name in dict.fromkeys((*envs[0], *envs[1]))
        }
        self.builder.emit(k.If(condition, tuple(blocks[0]), tuple(blocks[1]), self.reader.at(node.test)))

    def _merged(
        self, name: str, values: Sequence[Value | None], blocks: Sequence[list[k.Stmt]], node: ast.If
    ) -> Value:
        """Return the value of a name after a branch."""
        first, second = values
        if first is None or second is None:
            return self._only_inside("branch", name)
        if _is_same(first, second):
            return first
        slot_type = self._common_type(first, second)
        if slot_type is None:
            return self._only_inside("branch", name)
        slot = self._declare(name, slot_type)
        loc = self.reader.at(node.test)
        for value, block in zip((first, second), blocks, strict=True):
            source = self._as_slot_value(value, slot)
            assert source is not None
            with self.builder.inside(block):
                self._copy(slot, source, loc)
        return _value(slot)

    def _common_type(self, a: Value, b: Value) -> TileType | ScalarType | None:
        types = [self._slot_type(a), self._slot_type(b)]
        if types[0] != types[1] and ScalarType(f32) in types and ScalarType(i64) in types:
            return ScalarType(f32)
        return types[0] if types[0] == types[1] else None

    # --- slots ---

    def _slot(self, name: str, value: Value, loc: Location) -> Slot | None:
        """Declare a slot that starts with `value`, or return None if the value can have none."""
        slot_type = self._slot_type(value)
        if slot_type is None:
            return None
        slot = self._declare(name, slot_type)
        source = self._as_slot_value(value, slot)
        assert source is not None
        self._copy(slot, source, loc)
        return slot

    def _declare(self, name: str, slot_type: TileType | ScalarType) -> Slot:
        if isinstance(slot_type, TileType):
            slot: Slot = self.builder.tile(name, slot_type)
        else:
            slot = self.builder.scalar(name, slot_type)
        self.builder.slot(slot.name)
        return slot

    def _slot_type(self, value: Value) -> TileType | ScalarType | None:
        match value:
            case TileValue(type=tile):
                return tile
            case ViewValue(is_tile_param=True, param=k.Param(type=TileType() as tile)):
                return tile
            case ScalarValue(expr=expr):
                return ScalarType(expr.dtype)
            case Constant(value=number) if arithmetic.is_number(number):
                return ScalarType(ir.const(number).dtype)
            case _:
                return None

    def _as_slot_value(self, value: Value, slot: Slot) -> TileValue | Expr | None:
        """Return the operand that is copied into a slot for `value`, or None if it does not fit."""
        slot_type = self._slot_type(value)
        if isinstance(slot, TileValue):
            return self.reader.ops.tile(value, _NOWHERE) if slot_type == slot.type else None
        if not isinstance(slot_type, ScalarType):
            return None
        expr = self.reader.ops.scalar(value, _NOWHERE.loc)
        assert expr is not None
        if expr.dtype is not slot.dtype and (expr.dtype, slot.dtype) != (i64, f32):
            return None
        return arithmetic.convert(expr, slot.dtype, "=", _NOWHERE.loc)

    def _copy(self, slot: Slot, value: TileValue | Expr, loc: Location) -> None:
        if isinstance(value, TileValue):
            self.builder.emit(k.Instr("mov", slot.name, (value.name,), loc=loc))
        else:
            self.builder.emit(k.Assign(slot.name, value, loc))

    def _copy_all(self, moves: Sequence[tuple[Slot, TileValue | Expr]], loc: Location) -> None:
        """Copy as if simultaneously: a tile that is overwritten too early goes through another tile."""
        written = {slot.name for slot, _ in moves}
        staged = []
        for slot, value in moves:
            if isinstance(value, TileValue) and value.name in written:
                between = self.builder.tile(value.name, value.type)
                self._copy(between, value, loc)
                value = between
            staged.append((slot, value))
        for slot, value in staged:
            self._copy(slot, value, loc)

    def _iterable(self, node: ast.expr) -> tuple[str, list[ast.expr]]:
        """Return which loop an iterable makes, and its arguments."""
        if isinstance(node, ast.Call):
            function = self.reader.read(node.func)
            target = function.value if isinstance(function, Constant) else None
            if target is range and not node.keywords and 1 <= len(node.args) <= 3:
                return "range", list(node.args)
            if target is FUNCTIONS["tiles"]:
                given = {kw.arg: kw.value for kw in node.keywords}
                args = [
                    *node.args,
                    *(given.pop(n) for n in ("extent", "tile")[len(node.args) :] if n in given),
                ]
                if len(args) == 2 and not given:
                    return "tiles", args
        self.reader.refuse(
            node, f"a loop over `{ast.unparse(node)}`", "use `range(...)` or `pto.tiles(extent, tile)`"
        )

    def _bound(self, node: ast.expr, what: str) -> Expr:
        return self.builder.frozen(self.reader.integer(node, what).expr, "n", self.reader.at(node))


def _span_extent(var: str, stop: Expr, tile: int) -> Expr:
    size = known(stop)
    if size is not None and size % tile == 0:
        return Const(tile)
    return ir.binary("min", Const(tile), ir.binary("sub", stop, Var(var)))


def assigned_names(body: Iterable[ast.stmt]) -> list[str]:
    """Return the names that statements assign, in order, each once."""
    nodes = (n for stmt in body for n in ast.walk(stmt))
    names = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return list(dict.fromkeys(names))


def _value(slot: Slot) -> Value:
    return slot if isinstance(slot, TileValue) else ScalarValue(slot)


def _is_same(a: Value, b: Value) -> bool:
    if isinstance(a, Constant) and isinstance(b, Constant):
        is_number = arithmetic.is_number(a.value) and type(a.value) is type(b.value)
        return a.value is b.value or (is_number and a.value == b.value)
    return a == b


def _keyword(node: ast.stmt) -> str:
    names = {
        ast.FunctionDef: "def",
        ast.AsyncFunctionDef: "async def",
        ast.ClassDef: "class",
        ast.Delete: "del",
    }
    names |= {
        ast.ImportFrom: "import",
        ast.AnnAssign: "annotated assignment",
        ast.AugAssign: "augmented assignment",
    }
    return names.get(type(node), type(node).__name__.lower())


_NOWHERE = Site(Location("", 0), "=")
