"""Which part of its views a kernel moves: what decides where its loads and stores begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.scalar import Element, Expr, Extent, TileElement, Var, walk

Place = tuple[list[int], list[int]]
"""Numbers of scalar parameters, and of views whose elements or extents decide."""


def places_of_views(kernel: k.KernelFunction) -> list[Place]:
    """Return, for each view of a kernel, what decides where its loads and stores in the view begin.

    A view of a paged cache is the whole cache: its pages follow from the elements of a table. Two tasks move
    the same part of a view if what decides is the same. Loops and extents decide how much is moved.

    Args:
        kernel: a verified kernel without calls of others.
    """
    sources = _sources(kernel)
    scalars = {p.name: i for i, p in enumerate(kernel.scalar_params)}
    views = {p.name: i for i, p in enumerate(kernel.views)}
    found: list[Place] = []
    for view in kernel.views:
        reached: set[str] = set()
        left = [name for stmt in _moves(kernel) if stmt.region.tensor == view.name for name in _begin(stmt)]
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += sources.get(name, ())
        found.append((_numbers(scalars, reached), _numbers(views, reached)))
    return found


def _numbers(known: dict[str, int], reached: set[str]) -> list[int]:
    return sorted(number for name, number in known.items() if name in reached)


def _moves(kernel: k.KernelFunction) -> Iterator[k.Load | k.Store]:
    return (s for s in k.walk_statements(kernel.body or ()) if isinstance(s, (k.Load, k.Store)))


def _sources(kernel: k.KernelFunction) -> dict[str, set[str]]:
    """Return the names that each variable and tile is computed from."""
    found: dict[str, set[str]] = {}
    for stmt in k.walk_statements(kernel.body or ()):
        match stmt:
            case k.Assign(name=name, value=value):
                found.setdefault(name, set()).update(_names([value]))
            case k.For(var=name, start=start):
                found.setdefault(name, set()).update(_names([start]))
            case k.Load(tile=name, region=region):
                found.setdefault(name, set()).update([region.tensor, *_begin(stmt)])
            case k.Instr(dst=name, tiles=tiles, scalars=exprs):
                found.setdefault(name, set()).update([*tiles, *_names(exprs)])
            case k.Store() | k.Prefetch() | k.Print() | k.Assert() | k.If() | k.While() | k.KernelCall():
                pass  # these define no name
            case _:
                assert_never(stmt)
    return found


def _begin(stmt: k.Load | k.Store) -> list[str]:
    """Return the names that decide where a transfer begins."""
    rows = [] if stmt.rows is None else [stmt.rows]
    return [*_names(_starts(stmt.region)), *rows]


def _starts(region: Region) -> Iterator[Expr]:
    for dim in region.dims:
        match dim:
            case Index(at=start) | Range(start=start):
                yield start
            case Full():
                pass  # it begins at the first element
            case _:
                raise AssertionError("row sets and tile ranges occur in workloads only")


def _names(exprs: Iterable[Expr]) -> Iterator[str]:
    for expr in exprs:
        for part in walk(expr):
            if isinstance(part, (Var, Element, TileElement, Extent)):
                yield part.name
