"""Elements of a kernel's output that no statement can store.

A store covers boxes of its view. The boxes are exact where constants and loops with constant bounds decide
them. Anything else counts as the whole dimension, and every statement counts as one that runs, so an element
outside all boxes is an element that the kernel certainly leaves alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pto_wsp.errors import BadExpression
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Full, Index, Range, Region
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.scalar import Const, Element, Expr, TileElement, Var, children, walk
from pto_wsp.types.tile import ScalarType, TileType, ViewType

Box = tuple[tuple[int, int], ...]
"""Per dimension the first element and the one after the last."""

Loops = Mapping[str, range]
"""What the variables of the loops around a statement count through, where constants decide it."""

MAX_ITERATIONS = 4096
"""Iterations that are tried for one store. Beyond, a dimension that follows them counts as whole."""

MAX_CELLS = 1 << 20
"""Cells that the bounds of all boxes may cut an output into. Beyond, it counts as stored."""


def missing_element(kernel: k.KernelFunction, param: k.Param) -> tuple[int, ...] | None:
    """Return the first element of an output that no statement of `kernel` can store, or None.

    Args:
        kernel: a kernel with a body.
        param: one of its outputs. One with an extent known only at run time has no such element. Of a tile
            the arguments with all rows and columns count.
    """
    shape = _shape(param.type)
    if shape is None or _passed_on(kernel, param.name):
        return None
    assigned = {s.name for s in k.walk_statements(kernel.body or ()) if isinstance(s, k.Assign)}
    boxes: set[Box] = set()
    for store, loops in _stores(kernel.body or (), {}):
        if store.region.tensor == param.name:
            known = {name: values for name, values in loops.items() if name not in assigned}
            boxes.update(_boxes(store, shape, known))
    return _outside(boxes, shape)


def _shape(type_: TileType | ViewType | ScalarType) -> tuple[int, ...] | None:
    """Return the extents of an output, None where the run decides one of them."""
    match type_:
        case TileType(rows=rows, cols=cols):
            return rows, cols
        case ViewType(dims=dims) if dims is not None:
            extents = tuple(extent for extent in dims if extent is not None)
            return extents if len(extents) == len(dims) else None
        case _:
            return None


def _passed_on(kernel: k.KernelFunction, name: str) -> bool:
    """Whether a kernel that `kernel` calls is given the output, and stores it."""
    calls = (s for s in k.walk_statements(kernel.body or ()) if isinstance(s, k.KernelCall))
    return any(name in call.args for call in calls)


def _stores(body: Sequence[k.Stmt], loops: Loops) -> Iterator[tuple[k.Store, Loops]]:
    for stmt in body:
        if isinstance(stmt, k.Store):
            yield stmt, loops
        inside = loops
        if isinstance(stmt, k.For):
            inside = {name: values for name, values in loops.items() if name != stmt.var}
            if isinstance(stmt.start, Const) and isinstance(stmt.stop, Const):
                values = range(int(stmt.start.value), int(stmt.stop.value), stmt.step)
                if not values:
                    continue
                inside[stmt.var] = values
        for block in k.blocks(stmt):
            yield from _stores(block, inside)


def _boxes(store: k.Store, shape: tuple[int, ...], loops: Loops) -> Iterator[Box]:
    """Yield the boxes that a store writes over all iterations of the loops around it."""
    region = store.region
    scattered = region.kept[0] if store.rows is not None else None
    known = [_follows(dim, loops) and number != scattered for number, dim in enumerate(region.dims)]
    names = sorted(_names(region, known))
    if math.prod(len(loops[name]) for name in names) > MAX_ITERATIONS:
        known = [is_known and not _mentions(dim) for is_known, dim in zip(known, region.dims, strict=True)]
        names = []
    for values in itertools.product(*(loops[name] for name in names)):
        scope = dict(zip(names, values, strict=True))
        parts = zip(region.dims, known, shape, strict=True)
        try:
            yield tuple(_span(dim, scope, size) if exact else (0, size) for dim, exact, size in parts)
        except BadExpression:
            continue  # the iteration fails before it stores


def _span(dim: DimSelect, scope: Mapping[str, int], size: int) -> tuple[int, int]:
    match dim:
        case Index(at=at):
            start = int(evaluate(at, scope))
            return start, start + 1
        case Range(start=first, extent=extent):
            start = int(evaluate(first, scope))
            return start, start + max(0, int(evaluate(extent, scope)))
        case _:
            return 0, size


def _expressions(dim: DimSelect) -> tuple[Expr, ...]:
    match dim:
        case Index(at=at):
            return (at,)
        case Range(start=start, extent=extent):
            return start, extent
        case _:
            return ()


def _follows(dim: DimSelect, loops: Loops) -> bool:
    """Whether constants and known loops decide which part of a dimension is stored."""
    if isinstance(dim, Full):
        return True
    parts = [part for expr in _expressions(dim) for part in walk(expr)]
    leaves = (part for part in parts if not children(part))
    has_elements = any(isinstance(part, Element | TileElement) for part in parts)
    are_known = all(isinstance(p, Const) or (isinstance(p, Var) and p.name in loops) for p in leaves)
    return are_known and not has_elements


def _mentions(dim: DimSelect) -> bool:
    return any(isinstance(part, Var) for expr in _expressions(dim) for part in walk(expr))


def _names(region: Region, known: Sequence[bool]) -> set[str]:
    """Return the loop variables that the exact dimensions of a region mention."""
    exprs = (e for dim, exact in zip(region.dims, known, strict=True) if exact for e in _expressions(dim))
    return {part.name for expr in exprs for part in walk(expr) if isinstance(part, Var)}


def _outside(boxes: set[Box], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the first element of `shape` that is in no box, or None."""
    whole = tuple((0, size) for size in shape)
    if 0 in shape or whole in boxes:
        return None
    cuts = [sorted({0, *(e for box in boxes for e in box[d] if 0 < e < s)}) for d, s in enumerate(shape)]
    if math.prod(map(len, cuts)) > MAX_CELLS:
        return None
    is_stored = np.zeros([len(c) for c in cuts], bool)
    for box in boxes:
        is_stored[tuple(slice(*np.searchsorted(c, span)) for c, span in zip(cuts, box, strict=True))] = True
    missing = np.argwhere(~is_stored)
    return tuple(c[i] for c, i in zip(cuts, missing[0], strict=True)) if len(missing) else None
