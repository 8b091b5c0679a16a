"""The schedule of `.pto` text (grammar: ir/schedule.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pto_wsp.errors import RepeatedText
from pto_wsp.ir.scalar import ArgExtent, Expr, KernelNumber, TaskIndex, TaskKernel
from pto_wsp.ir.schedule import Bounds, Count, Directive, Directives, Key, Keys, Stage, Stages
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.text.expressions import read_expression
from pto_wsp.text.tokens import Cursor, Source
from pto_wsp.types.dtype import DType


class _Keys:
    """The scope of keys: names of what tasks have, which only a program can tell."""

    where = "keys of schedules"
    is_bare = False

    def scalar(self, name: str) -> TaskIndex | TaskKernel | KernelNumber | None:
        family, _, rest = name.partition(".")
        match family, rest:
            case "t", "kernel":
                return TaskKernel()
            case "t", loop if not loop.startswith("args."):
                return TaskIndex(loop)
            case "kernel", kernel:
                return KernelNumber(kernel)
            case _:
                return None

    def extent(self, name: str, dim: int) -> ArgExtent | None:
        param = name.removeprefix("t.args.")
        return None if param == name else ArgExtent(param, dim)

    def has_elements(self, name: str) -> bool:
        return False

    def tile_dtype(self, name: str) -> DType | None:
        return None

    def known(self) -> Iterable[str]:
        return ("t.kernel",)


def read_schedule(source: Source) -> Directives:
    """Read a schedule, up to its closing brace."""
    head = source.statement()
    head.expect("SCHEDULE")
    head.expect("{")
    head.end()
    found: dict[str, Directive] = {}
    while True:
        source.skip_blank()
        cursor = source.statement()
        if cursor.accept("}"):
            cursor.end()
            return Directives(found.values())
        token = cursor.token
        kind = cursor.word(DIRECTIVES, "a directive, or `}`")
        if kind in found:
            raise RepeatedText(kind="directive", name=kind, loc=cursor.place(token))
        cursor.expect("=")
        found[kind] = _directive(cursor, kind)
        cursor.end()


def _directive(cursor: Cursor, kind: str) -> Directive:
    """Read a directive without its kind; what its numbers are is left to the verifier."""
    policies = DIRECTIVES[kind].policies
    name = cursor.word(policies, f"a policy of `{kind}`")
    fields: dict[str, Any] = {"name": name}
    is_open = cursor.accept("(")
    for place, parameter in enumerate(policies[name].takes):
        match parameter:
            case Key():
                if not is_open:
                    cursor.fail("`(` and a key")
                fields["key"] = read_expression(cursor, _Keys())
            case Keys():
                fields["keys"] = _keys(cursor) if is_open else ()
            case Stages():
                fields["stages"] = _stages(cursor) if is_open else ()
            case Count():
                is_given = is_open and (place == 0 or cursor.accept(","))
                fields["n"] = _count(cursor) if is_given else 0
            case Bounds():
                if is_open and place > 0:
                    cursor.expect(",")
                fields["bounds"] = _bounds(cursor) if is_open else ()
    if is_open:
        cursor.expect(")")
    return DIRECTIVES[kind](**fields)


def _keys(cursor: Cursor) -> tuple[Expr, ...]:
    found = [read_expression(cursor, _Keys())]
    while cursor.accept(","):
        found.append(read_expression(cursor, _Keys()))
    return tuple(found)


def _stages(cursor: Cursor) -> tuple[Stage, ...]:
    found = [_stage(cursor)]
    while cursor.accept(","):
        found.append(_stage(cursor))
    return tuple(found)


def _stage(cursor: Cursor) -> Stage:
    loc = cursor.place(cursor.token)
    cursor.expect("stage")
    cursor.expect("(")
    kernels = [_kernel(cursor)]
    cursor.expect(",")
    while not cursor.at("n"):
        kernels.append(_kernel(cursor))
        cursor.expect(",")
    cores = _count(cursor)
    cursor.expect(")")
    return Stage(tuple(kernels), cores, loc)


def _kernel(cursor: Cursor) -> str:
    token = cursor.token
    name = cursor.name("a kernel: `%kernel.name`")
    kernel = name.removeprefix("kernel.")
    return kernel if kernel != name else cursor.fail("a kernel: `%kernel.name`", token=token)


def _count(cursor: Cursor) -> int:
    """Read a number. In a record 0 leaves a number open; text leaves it out instead."""
    cursor.expect("n")
    cursor.expect("=")
    token = cursor.token
    return cursor.integer() or cursor.fail("a number above 0", token=token)


def _bounds(cursor: Cursor) -> tuple[int, ...]:
    cursor.expect("at")
    cursor.expect("=")
    cursor.expect("[")
    found = [cursor.integer()]
    while cursor.accept(","):
        found.append(cursor.integer())
    cursor.expect("]")
    return tuple(found)
