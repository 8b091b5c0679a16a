"""Reads of local tensors that no earlier task has surely written.

A write covers a read where the regions are equal once the loops around the write, beyond those around both,
are matched with loops of the same extents around the read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Range, Region, Rows
from pto_wsp.ir.kernel import IN, OUT, KernelFunction
from pto_wsp.ir.names import WorkloadRenaming
from pto_wsp.ir.scalar import Element, name_of, walk
from pto_wsp.location import Location
from pto_wsp.support.record import record

Path = tuple[tuple[w.Node, int], ...]
"""The loops and conditions around a node, outermost first, each with the number of the block inside it."""


@record
class UnwrittenRead:
    """A read of elements of `tensor` that no earlier task has surely written."""

    tensor: str
    loc: Location | None = None


def first_unwritten_read(
    body: Sequence[w.Node], kernels: Mapping[str, KernelFunction], local: Container[str]
) -> UnwrittenRead | None:
    """Return the first read of an element that no earlier task certainly wrote, or None.

    Args:
        body: of a workload without calls of others.
        kernels: the kernels of its tasks.
        local: names of the tensors that the run makes.
    """
    written: list[_RegionUse] = []
    moving = {node.name for node in w.walk_nodes(body) if isinstance(node, w.Set)}
    for node, path in _nodes(body, ()):
        for region in _reads(node, kernels):
            read = _RegionUse(region, path)
            if region.tensor in local and not any(_covers(write, read, moving) for write in written):
                return UnwrittenRead(region.tensor, region.loc or node.loc)
        written += [_RegionUse(region, path) for role, region in _regions(node, kernels) if role != IN]
    return None


@record
class _RegionUse:
    """A region that a node reads or writes."""

    region: Region
    path: Path


def _nodes(body: Sequence[w.Node], path: Path) -> Iterator[tuple[w.Node, Path]]:
    for node in body:
        yield node, path
        for number, block in enumerate(w.blocks(node)):
            yield from _nodes(block, (*path, (node, number)))


def _regions(node: w.Node, kernels: Mapping[str, KernelFunction]) -> Iterator[tuple[str, Region]]:
    if isinstance(node, w.Task):
        for param, arg in zip(kernels[node.kernel].params, node.args, strict=True):
            if isinstance(arg, Region):
                yield param.role, arg


def _reads(node: w.Node, kernels: Mapping[str, KernelFunction]) -> Iterator[Region]:
    """Yield what a node itself reads: elements in expressions, indices of rows, and regions of a task."""
    for part in (part for expr in w.node_expressions(node) for part in walk(expr)):
        if isinstance(part, Element):
            yield Region(part.name, tuple(map(Index, part.indices)), part.loc)
    for role, region in _regions(node, kernels):
        if role != OUT:
            yield region
        for dim in region.dims:
            if isinstance(dim, Rows):
                yield Region(dim.indices, (Range(dim.start, dim.extent), Full()), region.loc)


def _covers(write: _RegionUse, read: _RegionUse, moving: AbstractSet[w.Variable]) -> bool:
    """Whether a write surely has written what a read reads; `moving` are the variables, which change."""
    if write.region.tensor != read.region.tensor:
        return False
    common = 0
    for a, b in zip(write.path, read.path, strict=False):
        if a[0] is not b[0] or a[1] != b[1]:
            break
        common += 1
    inner = [node for node, _ in write.path[common:]]
    loops = [node for node in inner if isinstance(node, w.Loop)]
    exprs = [*write.region.expressions, *(loop.extent for loop in loops)]
    parts = [part for expr in exprs for part in walk(expr)]
    if any(isinstance(part, Element) or name_of(part) in moving for part in parts):
        return False
    around = [node for node, _ in read.path[common:] if isinstance(node, w.Loop)]
    return len(loops) == len(inner) and _matches(write.region, read.region, loops, around, {})


def _matches(
    write: Region, read: Region, loops: Sequence[w.Loop], around: Sequence[w.Loop], names: Mapping[str, str]
) -> bool:
    """Whether the loops of a write can be matched with those of a read so that the regions are equal."""
    renaming = WorkloadRenaming(names)
    if not loops:
        mapped = renaming.region(write.mapped(renaming.expr))
        return all(_contains(a, b) for a, b in zip(mapped.dims, read.dims, strict=True))
    first, *rest = loops
    candidates: Iterable[w.Loop] = (a for a in around if a.var not in names.values())
    return any(
        _matches(write, read, rest, around, {**names, first.var: loop.var})
        for loop in candidates
        if renaming.expr(first.extent) == loop.extent and first.tile == loop.tile
    )


def _contains(outer: DimSelect, inner: DimSelect) -> bool:
    return isinstance(outer, Full) or outer == inner
