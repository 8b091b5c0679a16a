"""Room in the tensors that a run makes for the larger tiles of its loops.

    CALL @score(..., %S[%i * 32 :+ 32, :])    ->    CALL @score(..., %S[%i * 32 :+ 32, 0 :+ 32])

A whole dimension of such a tensor is written as the range that it is, so that it can grow with the tiles
that write it; afterwards the tensor is as large as what its tasks touch.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.scalar import Const
from pto_wsp.support.record import replace


def with_ranges(function: w.WorkloadFunction) -> w.WorkloadFunction:
    """Return a workload that takes ranges of its local tensors, where it takes whole constant dimensions."""
    sizes = _local_sizes(function)

    def ranged(region: Region) -> Region:
        pairs = zip(region.dims, sizes[region.tensor], strict=True)
        dims = (_range(size) if dim == Full() and isinstance(size, int) else dim for dim, size in pairs)
        return replace(region, dims=tuple(dims))

    return replace(function, body=_map_regions(function.body, sizes, ranged))


def with_room(function: w.WorkloadFunction, before: w.WorkloadFunction) -> w.WorkloadFunction:
    """Return a workload whose local tensors have room for the ranges that it takes of them.

    Args:
        function: what became of a workload that `with_ranges` made.
        before: that workload. What it takes outside of a tensor stays outside.
    """
    old, needed, fitted = _local_sizes(before), _needed(function), _needed(before)
    sizes = {
        name: tuple(
            max(size, needed[name][at]) if isinstance(size, int) and fitted[name][at] <= size else size
            for at, size in enumerate(dims)
        )
        for name, dims in old.items()
    }

    def whole(region: Region) -> Region:
        pairs = zip(region.dims, sizes[region.tensor], strict=True)
        dims = (Full() if isinstance(size, int) and dim == _range(size) else dim for dim, size in pairs)
        return replace(region, dims=tuple(dims))

    params = tuple(
        replace(p, type=replace(p.type, dims=sizes[p.name]))
        if isinstance(p, w.TensorParam) and p.name in sizes
        else p
        for p in function.params
    )
    return replace(function, params=params, body=_map_regions(function.body, sizes, whole))


def _needed(function: w.WorkloadFunction) -> dict[str, list[int]]:
    """Return where the constant ranges of each local tensor end."""
    found = {name: [0] * len(dims) for name, dims in _local_sizes(function).items()}
    for task in w.tasks(function.body):
        for region in task.args:
            if isinstance(region, Region) and region.tensor in found:
                ends = found[region.tensor]
                found[region.tensor] = [
                    max(end, _end(dim)) for end, dim in zip(ends, region.dims, strict=True)
                ]
    return found


def _end(dim: DimSelect) -> int:
    match dim:
        case Range(start=Const(value=start), extent=Const(value=extent)):
            return int(start) + int(extent)
        case _:
            return 0


def _range(size: int) -> Range:
    return Range(Const(0), Const(size))


def _local_sizes(function: w.WorkloadFunction) -> dict[str, tuple[int | str, ...]]:
    return {tensor.name: tensor.type.dims for tensor in function.tensors if tensor.is_local}


def _map_regions(
    body: tuple[w.Node, ...], tensors: Container[str], change: Callable[[Region], Region]
) -> tuple[w.Node, ...]:
    """Return nodes whose tasks have other regions of `tensors`."""

    def arguments(task: w.Task) -> w.Task:
        args = (change(a) if isinstance(a, Region) and a.tensor in tensors else a for a in task.args)
        return replace(task, args=tuple(args))

    def mapped(node: w.Node) -> w.Node:
        if isinstance(node, w.Task):
            return arguments(node)
        return w.rebuild(node, lambda block: _map_regions(block, tensors, change))

    return tuple(map(mapped, body))
