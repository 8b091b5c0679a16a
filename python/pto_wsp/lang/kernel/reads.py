"""Which tiles and scalars the statements of a kernel read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Index, Range, Region
from pto_wsp.ir.scalar import Expr, Extent, TileElement, Var, walk


def names_read(body: Sequence[k.Stmt]) -> set[str]:
    """Return the names that `body` reads anywhere."""
    return {name for stmt in k.walk_statements(tuple(body)) for name in reads(stmt)}


def reads(stmt: k.Stmt) -> set[str]:
    """Return the names that a statement reads itself; of a loop or branch, in its bounds or condition."""
    match stmt:
        case k.Load(region=region) | k.Prefetch(region=region):
            return {*_rows_of(stmt), *_names(_region_exprs(region))}
        case k.Store(region=region, tile=tile):
            return {tile, *_rows_of(stmt), *_names(_region_exprs(region))}
        case k.Instr(tiles=tiles, scalars=scalars, attrs=attrs):
            extents = [value for _, value in attrs if not isinstance(value, (str, int))]
            return {*tiles, *_names([*scalars, *extents])}
        case k.Assign(value=value):
            return set(_names([value]))
        case k.For(start=start, stop=stop):
            return set(_names([start, stop]))
        case k.If(condition=condition) | k.While(condition=condition):
            return set(_names([condition]))
        case k.KernelCall(args=args):
            return set(_names(a for a in args if not isinstance(a, str)))


def _rows_of(stmt: k.Load | k.Store | k.Prefetch) -> set[str]:
    return set() if stmt.rows is None else {stmt.rows}


def _region_exprs(region: Region) -> Iterator[Expr]:
    for dim in region.dims:
        match dim:
            case Index(at=at):
                yield at
            case Range(start=start, extent=extent):
                yield from (start, extent)


def _names(exprs: Iterable[Expr]) -> Iterator[str]:
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, (Var, Extent, TileElement)):
                yield node.name
