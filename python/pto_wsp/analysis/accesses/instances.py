"""Tasks in one iteration of the loops around them, as formulas: whether they exist, what they touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import assert_never

from pto_wsp.analysis.accesses.formula import (
    Formula,
    Linear,
    equal,
    every,
    less,
    less_equal,
    number,
    opposite,
)
from pto_wsp.analysis.accesses.places import IterationPlace
from pto_wsp.analysis.accesses.sites import SiteStep, TakenBranch, TaskAccess, TaskSite, sites
from pto_wsp.analysis.accesses.unknowns import LOOP, OPAQUE, SCALAR, SIZE, Unknowns
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.kernel import Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import LoopExtent, LoopStart, Name
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType, ViewType


@record
class DimSpan:
    """The elements from `start` on of one dimension."""

    start: Linear
    extent: Linear


@record
class RowNames:
    """The rows that elements of an index array name; `span` are the places in that array."""

    indices: str
    span: DimSpan
    merged: int


Dimension = DimSpan | RowNames | None
"""Of a region, one per dimension of its tensor; None for one that row names before it cover."""


class Scene:
    """A workload for all sizes: the place outside its loops, from which instances of tasks start.

    Args:
        module: a module without calls.
        distinct: index arrays whose elements are taken to differ, besides those that the module marks.

    Attributes:
        unknowns: of this question.
        outside: the place outside all loops.
        shapes: sizes of the tensors.
        shape_names: the same as they are written.
    """

    def __init__(self, module: Module, distinct: frozenset[str] = frozenset()) -> None:
        workload = module.entry_workload
        self.module = module
        settled = settled_tensors(module)
        axes = settled & set(workload.axes_by_offsets)
        marked = {t.name for t in workload.tensors if t.is_distinct} & settled
        self.unknowns = Unknowns(axes, distinct | marked)
        values: dict[Name, Linear] = {}
        for param in workload.symbols:
            is_size = isinstance(param, w.SizeParam)
            values[param.name] = self.unknowns.new(SIZE if is_size else SCALAR, param.name)
            if is_size:
                self.unknowns.facts.append(less_equal(number(0), values[param.name]))
        self.shape_names = {t.name: t.type.dims for t in workload.tensors}
        self.shapes = {
            t.name: tuple(number(d) if isinstance(d, int) else values[d] for d in t.type.dims)
            for t in workload.tensors
        }
        for offsets, axis in workload.axes_by_offsets.items():
            if offsets in axes and f"{axis}.entries" in values:
                self.unknowns.limits[offsets] = values[f"{axis}.entries"]
        late = frozenset(t.name for t in workload.tensors) - settled
        self.outside = IterationPlace(self.unknowns, late, self.shapes, values)
        for param in workload.symbols:
            if param.value is not None and param.value.dtype.is_integer:
                self.unknowns.facts.append(equal(values[param.name], self.outside.value(param.value)))
        for param in workload.params:
            if isinstance(param, (w.RaggedParam, w.SparseParam)):
                rows = values[param.outer] + number(1)
                self.unknowns.facts.append(equal(values[param.count], rows))

    def enter(self, steps: Sequence[SiteStep], place: IterationPlace) -> tuple[IterationPlace, list[Linear]]:
        """Return the place inside loops and conditions, and the indices of the loops, outermost first."""
        facts, indices = self.unknowns.facts, []
        for step in steps:
            place = place.copy()
            match step:
                case w.Loop():
                    indices.append(self._enter_loop(step, place))
                case TakenBranch(node=node, is_taken=is_taken):
                    condition = place.condition(node.condition)
                    facts.append(condition if is_taken else opposite(condition))
                case w.Set(name=name, value=value):
                    place.values[name] = place.value(value)
                case _:
                    assert_never(step)
            facts += place.required
            place.required.clear()
        return place, indices

    def _enter_loop(self, loop: w.Loop, place: IterationPlace) -> Linear:
        extent = place.value(loop.extent)
        index = self.unknowns.new(LOOP, loop.called)
        self.unknowns.facts += [
            less_equal(number(0), index),
            less(index.times(loop.tile or 1), extent),
        ]
        place.values[loop.var] = index
        if loop.tile is not None:
            place.enter_tiles(loop.var, index, loop.tile, extent)
        return index


def settled_tensors(module: Module) -> frozenset[str]:
    """Return the tensors whose elements never change once a run has read one.

    No task writes them, or one task outside all loops does, which makes an axis: it is read after that alone.
    """
    writers: dict[str, list[TaskSite]] = {}
    for site in sites(module):
        for access in site.accesses:
            if access.is_write:
                writers.setdefault(access.region.tensor, []).append(site)
    found: set[str] = set()
    for tensor in module.entry_workload.tensors:
        own = writers.get(tensor.name, [])
        is_made = tensor.is_local and (tensor.axis is not None or tensor.is_distinct)
        if not own or (is_made and len(own) == 1 and not own[0].loops):
            found.add(tensor.name)
    return frozenset(found)


@record
class Instance:
    """A task in one iteration.

    Attributes:
        site: the task.
        place: where it is made.
        indices: numbers of the iterations, outermost loop first.
        shape_names: the sizes of tensors as they are written.
    """

    site: TaskSite
    place: IterationPlace
    indices: tuple[Linear, ...]
    shape_names: Mapping[str, tuple[int | str, ...]]


def instances_of(scene: Scene, shared: int, *found: TaskSite) -> tuple[Instance, ...]:
    """Return one instance per task; they are in the same iteration of the first `shared` steps."""
    common, outer = scene.enter(found[0].steps[:shared], scene.outside)
    made: list[Instance] = []
    for site in found:
        place, inner = scene.enter(site.steps[shared:], common.copy())
        made.append(Instance(site, place, (*outer, *inner), scene.shape_names))
    return tuple(made)


def touched(instance: Instance, region: Region) -> tuple[Dimension, ...]:
    """Return what a region of an instance covers."""
    place = instance.place
    sizes = place.shapes[region.tensor]
    merged = sum(isinstance(dim, Merged) for dim in region.dims)
    return tuple(_dimension(dim, size, place, merged) for dim, size in zip(region.dims, sizes, strict=True))


def _dimension(dim: DimSelect, size: Linear, place: IterationPlace, merged: int) -> Dimension:
    match dim:
        case Full():
            return DimSpan(number(0), size)
        case Index(at=at):
            return DimSpan(place.value(at), number(1))
        case TileRange(loop=loop):
            return DimSpan(place.values[LoopStart(loop)], place.values[LoopExtent(loop)])
        case Range(start=start, extent=extent):
            return DimSpan(place.value(start), place.value(extent))
        case Rows(indices=indices, start=start, extent=extent):
            return RowNames(indices, DimSpan(place.value(start), place.value(extent)), merged)
        case Merged():
            return None
        case _:
            assert_never(dim)


def well_formed(instance: Instance, access: TaskAccess) -> list[Formula]:
    """Return what a run requires of a region: that it lies in its tensor and fits the parameter."""
    return [*lies_inside(instance, access), *fits_parameter(instance, access)]


def lies_inside(
    instance: Instance, access: TaskAccess, open_sizes: AbstractSet[str] = frozenset()
) -> list[Formula]:
    """Return that a region has a value and lies in its tensor.

    Args:
        instance: the task.
        access: its argument.
        open_sizes: sizes of dimensions that are taken to be large enough.
    """
    place = instance.place
    place.required.clear()
    dims = touched(instance, access.region)
    found: list[Formula] = list(place.required)
    place.required.clear()
    names = instance.shape_names[access.region.tensor]
    for dim, covered in enumerate(dims):
        if covered is None:
            continue
        span = covered.span if isinstance(covered, RowNames) else covered
        owner = covered.indices if isinstance(covered, RowNames) else access.region.tensor
        found += [less_equal(number(0), span.start), less_equal(number(0), span.extent)]
        if isinstance(covered, RowNames) or names[dim] not in open_sizes:
            found.append(less_equal(span.start + span.extent, place.shapes[owner][dim]))
    return found


def fits_parameter(instance: Instance, access: TaskAccess) -> list[Formula]:
    """Return that the extents of a region are those that its parameter takes."""
    bounds = extents_of(access.param)
    found: list[Formula] = []
    for entry, covered in zip(access.region.dims, touched(instance, access.region), strict=True):
        if covered is None or isinstance(entry, Index):
            continue
        span = covered.span if isinstance(covered, RowNames) else covered
        low, high = next(bounds)
        found.append(less_equal(number(low), span.extent))
        found += [] if high is None else [less_equal(span.extent, number(high))]
    instance.place.required.clear()
    return found


def extents_of(param: Param) -> Iterator[tuple[int, int | None]]:
    """Yield the least and the largest extent of each dimension of a view."""
    match param.type:
        case TileType(rows=rows, cols=cols):
            yield from ((0, rows), (0, cols))
        case ViewType(dims=dims) if dims is not None:
            yield from ((0, None) if d is None else (d, d) for d in dims)
        case _:
            raise AssertionError("a verified workload gives regions to views of known rank alone")


def overlap(first: Instance, a: Region, second: Instance, b: Region) -> Formula:
    """Return whether two regions of one tensor share an element, given that both are well formed."""
    pairs = zip(touched(first, a), touched(second, b), strict=True)
    return every(*(_meet(first.place, one, other) for one, other in pairs))


def _meet(place: IterationPlace, a: Dimension, b: Dimension) -> Formula:
    if a is None or b is None:
        return every()
    unknowns = place.unknowns
    if isinstance(a, RowNames) and isinstance(b, RowNames) and a.merged == b.merged:
        if a.indices == b.indices and a.indices in unknowns.distinct:
            return _spans_meet(a.span, b.span)
    elif (isinstance(a, RowNames) and a.merged) or (isinstance(b, RowNames) and b.merged):
        return every(*(_is_not_empty(_span_of(d)) for d in (a, b)))
    return _rows_meet(place, a, b)


def _span_of(dim: DimSpan | RowNames) -> DimSpan:
    return dim.span if isinstance(dim, RowNames) else dim


def _is_not_empty(span: DimSpan) -> Formula:
    return less(number(0), span.extent)


def _spans_meet(a: DimSpan, b: DimSpan) -> Formula:
    return every(
        _is_not_empty(a),
        _is_not_empty(b),
        less(a.start, b.start + b.extent),
        less(b.start, a.start + a.extent),
    )


def _rows_meet(place: IterationPlace, a: DimSpan | RowNames, b: DimSpan | RowNames) -> Formula:
    """Compare spans of rows, of which row names are one row each that their span holds."""
    parts: list[Formula] = []
    spans: list[DimSpan] = []
    for dim in (a, b):
        if isinstance(dim, DimSpan):
            spans.append(dim)
            continue
        at = place.unknowns.new(LOOP, f"a place in {dim.indices}")
        inside = [less_equal(dim.span.start, at), less(at, dim.span.start + dim.span.extent)]
        text = f"{dim.indices}[...]"
        if dim.indices in place.late:  # each task can read another value
            row = place.unknowns.new(OPAQUE, text)
        else:
            row = place.unknowns.element(dim.indices, (at, number(0)), text)
        parts += inside
        spans.append(DimSpan(row, number(1)))
    return every(*parts, _spans_meet(*spans))
