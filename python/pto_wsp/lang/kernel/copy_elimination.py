"""Removing the copies that the reader of a kernel inserts.

Names that loops and branches assign are copied into one tile by both ways. Where the lifetimes of a copy's
source and destination do not cross, both become one tile and the copy goes away (Chaitin's coalescing); a
copy that nothing reads goes away as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir.effects import names_read, names_read_in, written
from pto_wsp.ir.names import KernelRenaming
from pto_wsp.ir.scalar import children
from pto_wsp.isa import ADDS_ONTO, ELEMENTWISE, TABLE
from pto_wsp.support.record import replace


def remove_copies(kernel: k.KernelFunction) -> k.KernelFunction:
    """Return the kernel without unnecessary copies, and without declarations that nothing uses."""
    body = _without_dead(kernel.body or ())
    names = _coalesce(body, dict(kernel.tiles))
    body = _renamed(body, names)
    used = names_read_in(body).union(*written(body))
    return replace(
        kernel,
        tiles=tuple((name, tile) for name, tile in kernel.tiles if name in used),
        scalars=tuple((name, scalar) for name, scalar in kernel.scalars if name in used),
        body=body,
    )


# --- what nothing reads ---


def _without_dead(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """Remove loads and copies whose result is never read, until there are none."""
    smaller = _without_unread(body, names_read_in(body))
    return body if smaller == body else _without_dead(smaller)


def _without_unread(body: tuple[k.Stmt, ...], read: frozenset[str]) -> tuple[k.Stmt, ...]:
    return _rebuilt(body, lambda stmt: None if _is_dead(stmt, read) else stmt)


def _is_dead(stmt: k.Stmt, read: frozenset[str]) -> bool:
    match stmt:
        case k.Load(tile=name) | k.Instr(op="mov", dst=name):
            return name not in read
        case k.Assign(name=name, value=value):
            return name not in read and not children(value)
        case _:
            return False


# --- lifetimes ---


class _Interference:
    """Which tiles hold values that are needed at the same time."""

    def __init__(self, tiles: Iterable[str]) -> None:
        self.of: dict[str, set[str]] = {name: set() for name in tiles}

    def before(self, body: Sequence[k.Stmt], live: frozenset[str]) -> frozenset[str]:
        """Return the tiles that are live before `body`, given those live after it."""
        for stmt in reversed(body):
            live = self._before(stmt, live)
        return live

    def _before(self, stmt: k.Stmt, live: frozenset[str]) -> frozenset[str]:
        used = frozenset(name for name in names_read(stmt) if name in self.of)
        match stmt:
            case k.Load(tile=name):
                self._write(name, live | used)
                return (live - {name}) | used
            case k.Instr(dst=name):
                self._write(name, (live - used if stmt.op == "mov" else live) | _read_late(stmt))
                return (live - {name}) | used
            case k.If(then=then, other=other):
                return self.before(then, live) | self.before(other, live) | used
            case k.For(body=body) | k.While(body=body):
                head = live | used
                while (earlier := self.before(body, head) | head) != head:
                    head = earlier
                return head
            case k.Store() | k.Prefetch() | k.Assign() | k.Print() | k.Assert() | k.KernelCall():
                return live | used
            case _:
                assert_never(stmt)

    def _write(self, name: str, live: Iterable[str]) -> None:
        for other in live:
            if other != name:
                self.of[name].add(other)
                self.of[other].add(name)


def _read_late(instr: k.Instr) -> set[str]:
    """Return operands that are still read after the first elements of the result are written."""
    form = TABLE[instr.op].form
    if form in ELEMENTWISE:
        return set()
    return set(instr.tiles[1:] if form in ADDS_ONTO else instr.tiles)


def _coalesce(body: Sequence[k.Stmt], tiles: dict[str, object]) -> dict[str, str]:
    """Return a new name for every tile, equal for tiles that become one."""
    interference = _Interference(tiles)
    interference.before(body, frozenset())
    name_of = {name: name for name in tiles}
    members = {name: {name} for name in tiles}
    order = list(tiles)
    for stmt in k.walk_statements(tuple(body)):
        if not isinstance(stmt, k.Instr) or stmt.op != "mov":
            continue
        first, second = sorted((name_of[stmt.dst], name_of[stmt.tiles[0]]), key=order.index)
        crossing = any(interference.of[m] & members[second] for m in members[first])
        if first != second and not crossing:
            members[first] |= members.pop(second)
            name_of.update(dict.fromkeys(members[first], first))
    return name_of


# --- rewriting ---


def _rebuilt(body: Sequence[k.Stmt], change: Callable[[k.Stmt], k.Stmt | None]) -> tuple[k.Stmt, ...]:
    """Return `body` with every statement changed, innermost first; None removes it."""
    rebuilt = (k.rebuild(stmt, lambda block: _rebuilt(block, change)) for stmt in body)
    return tuple(stmt for stmt in map(change, rebuilt) if stmt is not None)


def _renamed(body: Sequence[k.Stmt], names: dict[str, str]) -> tuple[k.Stmt, ...]:
    """Return `body` with tiles renamed; copies of a tile to itself go away."""
    renamed = KernelRenaming(tiles=names).statements(body)
    return _rebuilt(renamed, lambda stmt: None if _is_idle(stmt) else stmt)


def _is_idle(stmt: k.Stmt) -> bool:
    return isinstance(stmt, k.Instr) and stmt.op == "mov" and stmt.tiles == (stmt.dst,)
