"""The schedule of `.pto` text (grammar: ir/schedule.py)."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.errors import RepeatedText
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.ir.schedule import ARGUMENTS, DEFAULT, KERNEL, KERNEL_NUMBER, POLICIES, TASK, Policy, Schedule
from pto_wsp.text.expressions import read_expression
from pto_wsp.text.tokens import Cursor, Source
from pto_wsp.types.dtype import DType


class _Keys:
    """The scope of keys: names of what tasks have, which only a program can tell."""

    where = "keys of schedules"
    is_bare = False

    def scalar(self, name: str) -> Var | None:
        is_task = name.startswith(TASK) and not name.startswith(ARGUMENTS)
        return Var(name) if is_task or name.startswith(KERNEL_NUMBER) else None

    def has_elements(self, name: str) -> bool:
        return False

    def tile_dtype(self, name: str) -> DType | None:
        return None

    def known(self) -> Iterable[str]:
        return (KERNEL,)


def read_schedule(source: Source) -> Schedule:
    """Read a schedule, to the brace behind it."""
    head = source.statement()
    head.expect("SCHEDULE")
    head.expect("{")
    head.end()
    found, seen = DEFAULT, set[str]()
    while True:
        source.skip_blank()
        cursor = source.statement()
        if cursor.accept("}"):
            cursor.end()
            return found
        token = cursor.token
        directive = cursor.word(POLICIES, "a directive, or `}`")
        if directive in seen:
            raise RepeatedText(kind="directive", name=directive, loc=cursor.place(token))
        seen.add(directive)
        cursor.expect("=")
        found = found.having(_policy(cursor, directive))
        cursor.end()


def _policy(cursor: Cursor, directive: str) -> Policy:
    name = cursor.word(POLICIES[directive], f"a policy of `{directive}`")
    form = POLICIES[directive][name]
    key: Expr | None = None
    count = 0
    is_open = cursor.accept("(")
    if form.takes_key:
        if not is_open:
            cursor.fail("`(` and a key")
        key = read_expression(cursor, _Keys())
    if form.least is not None and is_open and (key is None or cursor.accept(",")):
        cursor.expect("n")
        cursor.expect("=")
        count = cursor.integer()
    if form.takes_bounds and key is not None:
        cursor.expect(",")
    bounds = _bounds(cursor) if form.takes_bounds and is_open else ()
    if is_open:
        cursor.expect(")")
    return Policy(directive, name, count, key, bounds)


def _bounds(cursor: Cursor) -> tuple[int, ...]:
    cursor.expect("at")
    cursor.expect("=")
    cursor.expect("[")
    found = [cursor.integer()]
    while cursor.accept(","):
        found.append(cursor.integer())
    cursor.expect("]")
    return tuple(found)
