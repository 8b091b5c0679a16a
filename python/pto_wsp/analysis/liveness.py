"""Which tiles and scalars are still needed where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pto_wsp.ir.effects import name_written, names_read, tile_written, tiles_read
from pto_wsp.ir.kernel import (
    Assert,
    Assign,
    For,
    If,
    Instr,
    KernelCall,
    Load,
    Prefetch,
    Print,
    Stmt,
    Store,
    While,
)


def live_before(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles whose value at the start of `body` may be read, given those read after it."""
    for stmt in reversed(body):
        live = _live_before_one(stmt, live)
    return live


def lives_after(body: Sequence[Stmt], live: frozenset[str]) -> list[frozenset[str]]:
    """Return for each statement the tiles whose value at its end may be read, given those read after all."""
    after = [live]
    for stmt in reversed(body[1:]):
        after.append(_live_before_one(stmt, after[-1]))
    return after[::-1][: len(body)]


def _live_before_one(stmt: Stmt, live: frozenset[str]) -> frozenset[str]:
    match stmt:
        case For(body=body) | While(body=body):
            return loop_live(body, live)
        case If(then=then, other=other):
            return live_before(then, live) | live_before(other, live)
        case Load() | Store() | Prefetch() | Instr() | Assign() | Print() | Assert() | KernelCall():
            return (live - {tile_written(stmt)}) | frozenset(tiles_read(stmt))
        case _:
            assert_never(stmt)


def loop_live(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles live at the head of a loop: read after it, or by some iteration."""
    while True:
        more = live | live_before(body, live)
        if more == live:
            return live
        live = more


def names_before(body: Sequence[Stmt], live: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the names whose value at the start of `body` may be read, given those read after it."""
    for stmt in reversed(body):
        match stmt:
            case For(var=var, body=inner):
                live = (names_at_head(inner, live) - {var}) | names_read(stmt)
            case While(body=inner):
                live = names_at_head(inner, live | names_read(stmt))
            case If(then=then, other=other):
                live = names_before(then, live) | names_before(other, live) | names_read(stmt)
            case _:
                live = (live - {name_written(stmt)}) | names_read(stmt)
    return live


def names_at_head(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the names live at the head of a loop: read after it, or by some iteration."""
    while True:
        more = live | names_before(body, live)
        if more == live:
            return live
        live = more
