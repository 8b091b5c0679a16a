"""Whether iterations of a loop touch the same elements.

Views of one kernel can be the same memory. In a kernel whose views are *aligned* they are then the same view,
so that equal indices are equal elements, and different indices different ones.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pto_wsp.analysis.affine import Sum, linear
from pto_wsp.analysis.extents import upper_bound
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Index, Range, Region, Rows, TileRange
from pto_wsp.ir.effects import leaves_in
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Element, Expr, Name, walk
from pto_wsp.support.record import record


@record
class Access:
    """What one statement or task touches.

    `region` is None for what may be any element.
    """

    tensor: str
    region: Region | None
    is_write: bool


def has_aligned_views(module: Module, kernel: k.KernelFunction) -> bool:
    """Return whether any two views of a kernel are identical or disjoint, for every caller.

    Where arrays are equal they are identical; so tasks have to give the same part of different tensors.
    """
    found = False
    for workload in module.workloads:
        local = {tensor.name for tensor in workload.tensors if tensor.is_local}
        for task in w.tasks(workload.body):
            if task.kernel == kernel.name:
                found = True
                pairs = zip(kernel.params, task.args, strict=True)
                regions = [(p.role, arg) for p, arg in pairs if isinstance(arg, Region)]
                if not _are_aligned(regions, local):
                    return False
    return found or module.entry == kernel.name


def _are_aligned(regions: list[tuple[str, Region]], local: AbstractSet[str]) -> bool:
    if any(isinstance(dim, Rows) for _, region in regions for dim in region.dims):
        return False
    for number, (role, region) in enumerate(regions):
        for other_role, other in regions[:number]:
            if role == other_role == k.IN or region.dims == other.dims:
                continue
            if region.tensor == other.tensor or not {region.tensor, other.tensor} & local:
                return False
    return True


def never_meet(later: Region, earlier: Region, var: str, step: int, changing: AbstractSet[Name]) -> bool:
    """Return whether a region of a later iteration shares no element with one of an earlier iteration.

    Args:
        later: what the later iteration touches, of the same view as `earlier`.
        earlier: what the earlier iteration touches.
        var: the loop variable, of the same name in both.
        step: by how much it grows per iteration, at least.
        changing: other names whose value is not the same in both iterations.
    """
    if len(later.dims) != len(earlier.dims):
        return False
    pairs = zip(later.dims, earlier.dims, strict=True)
    return any(_never_meet(a, b, var, step, changing) for a, b in pairs)


def _never_meet(
    later: DimSelect, earlier: DimSelect, var: str, step: int, changing: AbstractSet[Name]
) -> bool:
    if isinstance(later, TileRange) and later == earlier:
        return later.loop == var
    first, second = _line(later, changing), _line(earlier, changing)
    if first is None or second is None:
        return False
    (a, a_extent), (b, b_extent) = first, second
    factor = a.factor(var)
    if not factor or factor != b.factor(var) or a.without(var).terms != b.without(var).terms:
        return False
    moved = a.constant - b.constant  # by how much `later` is ahead in one and the same iteration
    if factor > 0:
        return b_extent is not None and factor * step + moved >= b_extent
    return a_extent is not None and -factor * step - moved >= a_extent


def _line(dim: DimSelect, changing: AbstractSet[Name]) -> tuple[Sum, int | None] | None:
    """Return where a dimension of a region begins and its largest extent, or None where that changes."""
    match dim:
        case Index(at=start):
            extent: Expr = Const(1)
        case Range(start=start, extent=extent):
            pass
        case _:
            return None
    if leaves_in(start) & changing or any(isinstance(part, Element) for part in walk(start)):
        return None
    return linear(start), upper_bound(extent)


def kernel_accesses(body: tuple[k.Stmt, ...]) -> list[Access]:
    """Return what the statements of `body` touch in the kernel's views."""
    found: list[Access] = []
    for stmt in k.walk_statements(body):
        if isinstance(stmt, (k.Load, k.Store)):
            region = stmt.region if stmt.rows is None else None
            found.append(Access(stmt.region.tensor, region, isinstance(stmt, k.Store)))
        elif isinstance(stmt, k.KernelCall):
            found += [Access(arg, None, True) for arg in stmt.args if isinstance(arg, str)]
        elements = (
            part for e in k.statement_expressions(stmt) for part in walk(e) if isinstance(part, Element)
        )
        found += [Access(part.name, None, False) for part in elements]
    return found
