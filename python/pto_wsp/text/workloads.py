"""Workload functions of `.pto` text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from pto_wsp.errors import RepeatedText
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, LoopStart, Slot, Var
from pto_wsp.support.record import replace
from pto_wsp.text.expressions import Scope, read_expression, read_region
from pto_wsp.text.function_bodies import Body, indexed, read_ranges
from pto_wsp.text.native import unquoted
from pto_wsp.text.refused import refuse_known
from pto_wsp.text.tokens import FUNCTION, NAME, WORD, Cursor, Source, Token
from pto_wsp.types.dtype import i64, u64
from pto_wsp.types.tile import ScalarType

_PARTS_OF_LOOPS = {"start": LoopStart, "len": LoopExtent}

Find = Callable[[Cursor, Token], k.KernelFunction | w.WorkloadFunction]
"""Returns the function that a token names."""

_STATEMENTS = ("FOR", "IF", "CALL", "REFUSE", "PROCESS", "SEND", "RECEIVE", "WAIT", "return")
_KINDS = (w.PARALLEL, w.SEQUENTIAL, w.RANGE)


def read_workload_body(source: Source, function: w.WorkloadFunction, find: Find) -> w.WorkloadFunction:
    """Return a function with the statements of its body, and read the brace after them."""
    reader = _WorkloadBody(source, f"workload `{function.name}`", function.params, find)
    reader.know_variables()
    return replace(function, body=reader.whole())


def scope_of_params(params: Iterable[w.WorkloadParam]) -> Scope:
    """Return the scope of what parameters follow from."""
    return _WorkloadBody(Source("", ""), "the parameters", params, _find_none)


def _find_none(cursor: Cursor, token: Token) -> k.KernelFunction | w.WorkloadFunction:
    cursor.fail("an expression", token=token)


def _slot(name: str) -> Slot | None:
    """Return the slot that a name is, or None."""
    family, _, number = name.partition(".")
    is_slot = family == "slot" and number.isdecimal() and str(int(number)) == number
    return Slot(int(number)) if is_slot else None


class _WorkloadBody(Body[w.Node]):
    def __init__(self, source: Source, where: str, params: Iterable[w.WorkloadParam], find: Find) -> None:
        super().__init__(source, where)
        self.find = find
        self.tiled: set[str] = set()
        for param in params:
            match param:
                case w.TensorParam():
                    self.tensors.add(param.name)
                case w.ScalarParam(type=ScalarType(dtype=dtype)):
                    self.scalars[param.name] = i64 if dtype is u64 else dtype
                case w.SizeParam():
                    self.scalars[param.name] = i64
                case w.RaggedParam() | w.SparseParam():
                    pass
                case _:
                    assert_never(param)

    def know_variables(self) -> None:
        """Note the names that the body assigns: variables are known in the whole function."""
        for line in self.source.lines[self.source.line - 1 :]:
            text = line.strip()
            if text == "}":
                return
            name, equals, _ = text.partition("=")
            if equals and name.startswith("%"):
                self.scalars.setdefault(name[1:].rstrip(), i64)

    def statement(self, cursor: Cursor) -> w.Node:
        token = cursor.token
        if token.kind == NAME:
            return self.assignment(cursor)
        match token.text:
            case "FOR":
                return self.loop(cursor)
            case "IF":
                return w.Cond(*self.choice(cursor), cursor.whole)
            case "CALL":
                return self.call(cursor)
            case "REFUSE":
                return self.refusal(cursor)
            case "PROCESS":
                cursor.skip()
                name = cursor.take(FUNCTION, "a process: `@name`").text[1:]
                cursor.end()
                return w.Process(name, self.inside("ENDPROCESS"), cursor.whole)
            case "SEND":
                return self.send(cursor)
            case "RECEIVE":
                return self.receive(cursor)
            case "WAIT":
                cursor.skip()
                cycles = read_expression(cursor, self)
                cursor.end()
                return w.Delay(cycles, cursor.whole)
        refuse_known(cursor)
        cursor.word(_STATEMENTS, "a statement")
        cursor.fail("a statement", token=token)

    def assignment(self, cursor: Cursor) -> w.Set:
        name = cursor.name()
        cursor.expect("=")
        return w.Set(_slot(name) or name, self.value(cursor, name), cursor.whole)

    def scalar(self, name: str) -> Expr | None:
        """Return a scalar, or None if there is none of that name."""
        if name not in self.scalars:
            return None
        loop, _, part = name.rpartition(".")
        if loop in self.tiled and part in _PARTS_OF_LOOPS:
            return _PARTS_OF_LOOPS[part](loop)
        return _slot(name) or Var(name, self.scalars[name])

    # --- control ---

    def loop(self, cursor: Cursor) -> w.Loop:
        cursor.skip()
        token = cursor.token
        var = cursor.name("a loop variable")
        indexed(cursor)
        cursor.expect(",")
        cursor.expect("0", "a loop of a workload begins at 0")
        indexed(cursor)
        cursor.expect(",")
        extent = read_expression(cursor, self)
        indexed(cursor)
        cursor.expect(",")
        step_token = cursor.token
        step = cursor.integer("the step, an integer")
        indexed(cursor)
        ranges = read_ranges(cursor)
        kind, is_tiled, called = self.kind(cursor)
        if not is_tiled and step != 1:
            cursor.fail("the step 1, or `tiles` after the kind", token=step_token)
        cursor.end()
        owned = {var, f"{var}.start", f"{var}.len"} if is_tiled else {var}
        if any(name in self.scalars for name in owned):
            raise RepeatedText(kind="loop variable", name=var, loc=cursor.place(token))
        self.scalars |= dict.fromkeys(owned, i64)
        self.tiled |= {var} if is_tiled else set()
        body = self.block(("ENDFOR",))
        self.close("ENDFOR")
        for name in owned:
            del self.scalars[name]
        self.tiled.discard(var)
        return w.Loop(kind, var, extent, step if is_tiled else None, body, cursor.whole, *ranges, called)

    def kind(self, cursor: Cursor) -> tuple[str, bool, str]:
        cursor.expect("{")
        kind = cursor.word(_KINDS, "the kind of the loop: `parallel`, `seq` or `range`")
        is_tiled, name = False, ""
        while cursor.accept(","):
            token = cursor.token
            if cursor.word(("tiles", "name"), "`tiles` or `name`") == "tiles":
                is_repeated, is_tiled = is_tiled, True
            else:
                cursor.expect("=")
                is_repeated, name = bool(name), cursor.take(WORD, "a name").text
            if is_repeated:
                raise RepeatedText(kind="attribute", name=token.text, loc=cursor.place(token))
        cursor.expect("}")
        return kind, is_tiled, name

    # --- processes ---

    def inside(self, end: str, *names: Token, cursor: Cursor | None = None) -> tuple[w.Node, ...]:
        """Read a block up to `end`, in which the variables `names` are known."""
        for token in names:
            if token.text[1:] in self.scalars:
                assert cursor is not None
                raise RepeatedText(kind="variable", name=token.text[1:], loc=cursor.place(token))
            self.scalars[token.text[1:]] = i64
        body = self.block((end,))
        self.close(end)
        for token in names:
            del self.scalars[token.text[1:]]
        return body

    def send(self, cursor: Cursor) -> w.Send:
        cursor.skip()
        channel = cursor.name("a channel")
        cursor.expect("(")
        scalars: list[Expr] = []
        while not cursor.accept(")"):
            if scalars:
                cursor.expect(",")
            scalars.append(read_expression(cursor, self))
        cursor.expect("->")
        names = self.names(cursor)
        cursor.end()
        body = self.inside("ENDSEND", *names, cursor=cursor)
        slot, index = (token.text[1:] for token in names)
        return w.Send(channel, slot, index, tuple(scalars), body, cursor.whole)

    def names(self, cursor: Cursor) -> list[Token]:
        """Read the variables of the buffer and of the number of a token."""
        slot = cursor.take(NAME, "the variable of the buffer")
        cursor.expect(",")
        return [slot, cursor.take(NAME, "the variable of the token's number")]

    def receive(self, cursor: Cursor) -> w.Receive:
        cursor.skip()
        channel = cursor.name("a channel")
        cursor.expect("->")
        names = self.names(cursor)
        while cursor.accept(","):
            names.append(cursor.take(NAME, "the variable of a scalar"))
        ends_loop = cursor.accept("{")
        if ends_loop:
            cursor.expect("ends_loop")
            cursor.expect("}")
        cursor.end()
        body = self.inside("ENDRECEIVE", *names, cursor=cursor)
        slot, index, *scalars = (token.text[1:] for token in names)
        return w.Receive(channel, slot, index, tuple(scalars), ends_loop, body, cursor.whole)

    def refusal(self, cursor: Cursor) -> w.Refuse:
        cursor.skip()
        if cursor.accept("assumption"):
            assumption = unquoted(cursor)
            cursor.end()
            return w.Refuse("", (), Const(0), cursor.whole, assumption)
        tier = unquoted(cursor)
        cursor.expect(",")
        size = read_expression(cursor, self)
        indexed(cursor)
        cursor.expect("{")
        cursor.expect("bounds")
        cursor.expect("=")
        cursor.expect("[")
        bounds: list[int] = []
        while not cursor.accept("]"):
            if bounds:
                cursor.expect(",")
            bounds.append(cursor.integer())
        cursor.expect("}")
        cursor.end()
        return w.Refuse(tier, tuple(bounds), size, cursor.whole)

    # --- calls ---

    def call(self, cursor: Cursor) -> w.Task | w.WorkloadCall:
        cursor.skip()
        token = cursor.take(FUNCTION, "a function: `@name`")
        callee = self.find(cursor, token)
        if isinstance(callee, w.WorkloadFunction):
            takes = [isinstance(p, w.TensorParam) for p in callee.open_params]
            args = self.arguments(cursor, callee.name, takes)
            cursor.end()
            return w.WorkloadCall(callee.name, args, cursor.whole)
        keys: list[Expr] = []
        if cursor.accept("["):
            while not cursor.accept("]"):
                if keys:
                    cursor.expect(",")
                keys.append(read_expression(cursor, self))
        takes = [not isinstance(p.type, ScalarType) for p in callee.params]
        args = self.arguments(cursor, callee.name, takes)
        task = self.with_attributes(cursor, w.Task(callee.name, args, tuple(keys), cursor.whole))
        cursor.end()
        return task

    def arguments(self, cursor: Cursor, callee: str, takes: list[bool]) -> tuple[Region | Expr, ...]:
        """Read arguments, of which `takes` says which are tensors."""
        cursor.expect("(")
        found: list[Region | Expr] = []
        for number, is_tensor in enumerate(takes):
            if number:
                cursor.expect(",", f"`{callee}` takes {len(takes)} arguments")
            found.append(
                read_region(cursor, self, self.tiled) if is_tensor else read_expression(cursor, self)
            )
        cursor.expect(")", f"`{callee}` takes {len(takes)} arguments")
        return tuple(found)

    def with_attributes(self, cursor: Cursor, task: w.Task) -> w.Task:
        """Return a task with its attributes."""
        if not cursor.accept("{"):
            return task
        seen: set[str] = set()
        while True:
            token = cursor.token
            key = cursor.word(("label", "after", "workspace", "cost"), "an attribute of a task")
            if key in seen:
                raise RepeatedText(kind="attribute", name=key, loc=cursor.place(token))
            seen.add(key)
            cursor.expect("=")
            match key:
                case "label":
                    task = replace(task, label=self.label(cursor))
                case "after":
                    task = replace(task, after=self.labels(cursor))
                case "workspace":
                    task = replace(task, workspace=read_expression(cursor, self))
                case _:
                    task = replace(task, cost=read_expression(cursor, self))
            if cursor.accept("}"):
                return task
            cursor.expect(",")

    def label(self, cursor: Cursor) -> str:
        return cursor.take(WORD, "a label").text

    def labels(self, cursor: Cursor) -> tuple[str, ...]:
        cursor.expect("[")
        found: list[str] = []
        while not cursor.accept("]"):
            if found:
                cursor.expect(",")
            found.append(self.label(cursor))
        return tuple(found)
