"""Do not load what a tile holds, and do not store what memory holds.

    tstore %t, %y[0 :+ 8, :]                tstore %t, %y[0 :+ 8, :]
    %u = tload %y[0 :+ 8, :]          ->    %u = tmov %t
    tstore %u, %y[0 :+ 8, :]

Holds along straight lines, into loops and choices for what they leave alone. Views can be the same memory: a
store ends what is known of any region other than those of its own view that it provably does not meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.affine import difference
from pto_wsp.analysis.extents import upper_bound
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Index, Range, Region
from pto_wsp.ir.effects import name_written, names_in
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Element, Expr, walk
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import replace
from pto_wsp.types.tile import TileType

Known = dict[Region, str]
"""Regions, each with a tile that holds the elements it has in memory."""


def forward_stores(module: Module) -> Module:
    """Return `module` with loads and stores removed that move nothing new."""
    bodies = (None if f.body is None else _Forwarding(f).statements(f.body, {}) for f in module.kernels)
    pairs = zip(module.kernels, bodies, strict=True)
    return module.with_kernels(replace(kernel, body=body) for kernel, body in pairs)


class _Forwarding:
    def __init__(self, kernel: k.KernelFunction) -> None:
        self.types: dict[str, TileType] = dict(kernel.tiles)

    def statements(self, body: Sequence[k.Stmt], known: Known) -> tuple[k.Stmt, ...]:
        """Return the statements of `body` that move new values, and update `known` to the state after it."""
        found: list[k.Stmt] = []
        for stmt in body:
            match stmt:
                case k.For() | k.While():
                    _forget(known, stmt.body, stmt.var if isinstance(stmt, k.For) else None)
                    found.append(replace(stmt, body=self.statements(stmt.body, dict(known))))
                case k.If(then=then, other=other):
                    after = [dict(known), dict(known)]
                    arms = [self.statements(arm, end) for arm, end in zip((then, other), after, strict=True)]
                    found.append(replace(stmt, then=arms[0], other=arms[1]))
                    both = [region for region, tile in after[0].items() if after[1].get(region) == tile]
                    kept = {region: after[0][region] for region in both}
                    known.clear()
                    known.update(kept)
                case _:
                    found += self.simple(stmt, known)
        return tuple(found)

    def simple(self, stmt: k.Stmt, known: Known) -> tuple[k.Stmt, ...]:
        match stmt:
            case k.Load(rows=None):
                return self.load(stmt, known)
            case k.Store(rows=None):
                return self.store(stmt, known)
            case k.Store() | k.KernelCall():
                known.clear()
            case _:
                _overwrite(known, name_written(stmt))
        return (stmt,)

    def load(self, load: k.Load, known: Known) -> tuple[k.Stmt, ...]:
        tile = known.get(load.region)
        if tile == load.tile:
            return ()
        _overwrite(known, load.tile)
        if load.tile not in names_in(*load.region.expressions):
            _learn(known, load.region, load.tile)
        if tile is None or self.types[tile] != self.types[load.tile]:
            return (load,)
        if self.types[tile].dtype not in TABLE["mov"].dtypes:
            return (load,)
        return (k.Instr("mov", load.tile, (tile,), loc=load.loc),)

    def store(self, store: k.Store, known: Known) -> tuple[k.Stmt, ...]:
        if known.get(store.region) == store.tile:
            return ()
        for region in [r for r in known if not _are_apart(r, store.region)]:
            del known[region]
        _learn(known, store.region, store.tile)
        return (store,)


def _learn(known: Known, region: Region, tile: str) -> None:
    """Note that a tile holds a region, unless its place is itself in memory."""
    if not any(isinstance(part, Element) for expr in region.expressions for part in walk(expr)):
        known[region] = tile


def _overwrite(known: Known, name: str | None) -> None:
    """Forget what follows from the old value of a tile or scalar."""
    for region, tile in list(known.items()):
        if name is not None and (tile == name or name in names_in(*region.expressions)):
            del known[region]


def _forget(known: Known, body: tuple[k.Stmt, ...], var: str | None) -> None:
    """Forget what the statements of a loop may change."""
    _overwrite(known, var)
    for stmt in k.walk_statements(body):
        if isinstance(stmt, (k.Store, k.KernelCall)):
            known.clear()
        _overwrite(known, stmt.var if isinstance(stmt, k.For) else name_written(stmt))


def _are_apart(a: Region, b: Region) -> bool:
    """Whether two regions of one view share no element."""
    return a.tensor == b.tensor and any(map(_dims_are_apart, a.dims, b.dims))


def _dims_are_apart(a: DimSelect, b: DimSelect) -> bool:
    (start, extent), (other, other_extent) = _bounds(a), _bounds(b)
    if start is None or other is None:
        return False
    ahead = difference(other, start)
    if ahead is None:
        return False
    return (extent is not None and ahead >= extent) or (other_extent is not None and -ahead >= other_extent)


def _bounds(dim: DimSelect) -> tuple[Expr | None, int | None]:
    """Return where a dimension of a region starts, and its largest extent."""
    match dim:
        case Index(at=at):
            return at, 1
        case Range(start=start, extent=extent):
            return start, upper_bound(extent)
        case _:
            return None, None
