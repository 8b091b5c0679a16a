"""What statements of a kernel read and write, by name: the names of a kernel are unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

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
    statement_expressions,
    walk_statements,
)
from pto_wsp.ir.scalar import Element, Expr, Extent, Name, TileElement, Var, name_of, walk


def tiles_read(stmt: Stmt) -> tuple[str, ...]:
    """Return the tiles whose elements a simple statement reads."""
    match stmt:
        case Store(tile=tile, rows=rows):
            return (tile,) if rows is None else (tile, rows)
        case Load(rows=rows) | Prefetch(rows=rows):
            return () if rows is None else (rows,)
        case Instr(tiles=tiles) | Print(tiles=tiles):
            return tiles
        case Assign(value=value):
            return tuple(part.name for part in walk(value) if isinstance(part, TileElement))
        case Assert() | For() | If() | While() | KernelCall():
            return ()
        case _:
            assert_never(stmt)


def tile_written(stmt: Stmt) -> str | None:
    """Return the tile that a simple statement writes."""
    match stmt:
        case Load(tile=tile) | Instr(dst=tile):
            return tile
        case Store() | Prefetch() | Assign() | Print() | Assert():
            return None
        case For() | If() | While() | KernelCall():
            return None
        case _:
            assert_never(stmt)


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


def names_in(*exprs: Expr) -> frozenset[str]:
    """Return the names of variables, views, tensors and tiles that expressions mention."""
    return frozenset(
        part.name
        for expr in exprs
        for part in walk(expr)
        if isinstance(part, (Var, Extent, Element, TileElement))
    )


def leaves_in(*exprs: Expr) -> frozenset[Name]:
    """Return the values that expressions of a workload mention, as tables of values know them."""
    found = (name_of(part) for expr in exprs for part in walk(expr))
    return frozenset(name for name in found if name is not None)


def names_read(stmt: Stmt) -> frozenset[str]:
    """Return the tiles and scalars that a statement itself reads, valid shapes included."""
    return names_in(*statement_expressions(stmt)) | frozenset(tiles_read(stmt))


def names_read_in(body: Iterable[Stmt]) -> frozenset[str]:
    """Return the names that a body reads anywhere."""
    return frozenset(name for stmt in walk_statements(body) for name in names_read(stmt))


def name_written(stmt: Stmt) -> str | None:
    """Return the tile or scalar that a simple statement writes."""
    return stmt.name if isinstance(stmt, Assign) else tile_written(stmt)
