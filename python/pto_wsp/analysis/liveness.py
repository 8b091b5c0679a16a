"""What statements of a kernel read and write, and which tiles are still needed where."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.kernel import (
    Assign,
    For,
    If,
    Instr,
    KernelCall,
    Load,
    Prefetch,
    Stmt,
    Store,
    While,
    walk_statements,
)
from pto_wsp.ir.scalar import Element, Expr, Extent, TileElement, Var, walk


def tiles_read(stmt: Stmt) -> tuple[str, ...]:
    """Return the tiles whose elements a simple statement reads."""
    match stmt:
        case Store(tile=tile, rows=rows):
            return (tile,) if rows is None else (tile, rows)
        case Load(rows=str(rows)) | Prefetch(rows=str(rows)):
            return (rows,)
        case Instr(tiles=tiles):
            return tiles
        case Assign(value=value):
            return tuple(part.name for part in walk(value) if isinstance(part, TileElement))
        case _:
            return ()


def tile_written(stmt: Stmt) -> str | None:
    """Return the tile that a simple statement writes."""
    match stmt:
        case Load(tile=tile) | Instr(dst=tile):
            return tile
        case _:
            return None


def written(body: Sequence[Stmt]) -> tuple[set[str], set[str]]:
    """Return the tiles and scalars that a body may write."""
    tiles: set[str] = set()
    scalars: set[str] = set()
    for stmt in walk_statements(tuple(body)):
        tile = tile_written(stmt)
        if tile is not None:
            tiles.add(tile)
        if isinstance(stmt, Assign):
            scalars.add(stmt.name)
        elif isinstance(stmt, For):
            scalars.add(stmt.var)
    return tiles, scalars


def live_before(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles whose value at the start of `body` may be read, given those read after it."""
    for stmt in reversed(body):
        live = _live_before_one(stmt, live)
    return live


def _live_before_one(stmt: Stmt, live: frozenset[str]) -> frozenset[str]:
    match stmt:
        case For(body=body) | While(body=body):
            return loop_live(body, live)
        case If(then=then, other=other):
            return live_before(then, live) | live_before(other, live)
        case _:
            return (live - {tile_written(stmt)}) | frozenset(tiles_read(stmt))


def loop_live(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles live at the head of a loop: read after it, or by some iteration."""
    while True:
        more = live | live_before(body, live)
        if more == live:
            return live
        live = more


# --- tiles, scalars and views by name; a kernel's names are unique ------------------------------------------


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself, without those of the statements inside it."""
    match stmt:
        case Load(region=region) | Store(region=region) | Prefetch(region=region):
            return region.expressions
        case Instr(scalars=scalars, attrs=attrs):
            return (*scalars, *(value for _, value in attrs if not isinstance(value, (str, int))))
        case Assign(value=value):
            return (value,)
        case For(start=start, stop=stop):
            return (start, stop)
        case If(condition=condition) | While(condition=condition):
            return (condition,)
        case KernelCall(args=args):
            return tuple(arg for arg in args if not isinstance(arg, str))


def names_in(*exprs: Expr) -> frozenset[str]:
    """Return the names of variables, views and tiles that expressions mention."""
    return frozenset(
        part.name
        for expr in exprs
        for part in walk(expr)
        if isinstance(part, (Var, Extent, Element, TileElement))
    )


def names_read(stmt: Stmt) -> frozenset[str]:
    """Return the tiles and scalars that a statement itself reads, valid shapes included."""
    return names_in(*expressions(stmt)) | frozenset(tiles_read(stmt))


def name_written(stmt: Stmt) -> str | None:
    """Return the tile or scalar that a simple statement writes."""
    return stmt.name if isinstance(stmt, Assign) else tile_written(stmt)


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
