"""The reference meaning of a workload: its tasks, one after another, in program order.

Used as the workload oracle (ARCHITECTURE 4.6) with compiled kernels, and as the target `interp` with numpy
kernels. It loops over tasks in Python and is meant for checking and debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pto_wsp.errors import BadExpression, RegionOutside, StridedView, ViewShape
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region, TileRange
from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Reader, Value, evaluate, read_element
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType, ViewType

Scope = dict[str, Value]
CallKernel = Callable[[str, Sequence[np.ndarray | Value]], None]


@record
class TensorReader:
    """Answers expressions of a workload from the run's arrays."""

    arrays: Mapping[str, np.ndarray]

    def extent(self, name: str, dim: int) -> int:
        """Return the size of a dimension."""
        return self.arrays[name].shape[dim]

    def element(self, name: str, indices: tuple[int, ...]) -> int:
        """Return an element of an integer tensor."""
        return read_element(name, self.arrays[name], indices)


@record
class BoundTask:
    """One task of a run: its node, the values of every variable, and the loops around it, outermost first."""

    node: w.Task
    scope: Mapping[str, Value]
    loops: tuple[str, ...]


def expand(
    workload: w.WorkloadFunction, sizes: Mapping[str, Value], reader: Reader | None = None
) -> Iterator[BoundTask]:
    """Yield the tasks of `workload` in program order.

    Args:
        workload: what to expand.
        sizes: values of its sizes and scalars.
        reader: answers for the elements that its expressions mention.
    """
    scope: Scope = dict(sizes)
    yield from _nodes(workload.body, scope, (), reader)


def _nodes(
    body: Sequence[w.Node], scope: Scope, loops: tuple[str, ...], reader: Reader | None
) -> Iterator[BoundTask]:
    for node in body:
        if isinstance(node, w.Task):
            yield BoundTask(node, dict(scope), loops)
            continue
        extent = int(evaluate(node.extent, scope, reader))
        if extent < 0:
            raise BadExpression(reason=f"the axis of `{node.var}` has extent {extent}", loc=node.loc)
        for i in range(extent if node.tile is None else -(-extent // node.tile)):
            scope[node.var] = i
            if node.tile is not None:
                scope[node.start] = i * node.tile
                scope[node.length] = min(node.tile, extent - i * node.tile)
            yield from _nodes(node.body, scope, (*loops, node.var), reader)


def run_workload(
    module: Module, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value], call: CallKernel
) -> int:
    """Run the entry workload of `module` in program order and return the number of tasks.

    Args:
        module: a verified module.
        arrays: an array per tensor of the entry, written in place.
        sizes: values of its sizes and scalars.
        call: runs the kernel of a name on views and scalars.

    Raises:
        RegionOutside, ViewShape, BadExpression: before the first task, as on every target.
    """
    reader = TensorReader(arrays)
    tasks = expand(module.entry_workload, sizes, reader)
    planned = [_arguments(module, task, arrays, reader) for task in tasks]
    for kernel, args in planned:
        call(kernel, args)
    return len(planned)


def _arguments(
    module: Module, task: BoundTask, arrays: Mapping[str, np.ndarray], reader: Reader
) -> tuple[str, list[np.ndarray | Value]]:
    kernel = module.kernel(task.node.kernel)
    args: list[np.ndarray | Value] = []
    for param, arg in zip(kernel.params, task.node.args, strict=True):
        if isinstance(arg, Region):
            loc = arg.loc or task.node.loc
            view = select(arg, arrays[arg.tensor], task, reader, loc)
            _check_view(kernel, param, arg, view, task, loc)
            args.append(view)
        else:
            args.append(evaluate(arg, task.scope, reader))
    return kernel.name, args


def select(
    region: Region, array: np.ndarray, task: BoundTask, reader: Reader | None, loc: Location | None
) -> np.ndarray:
    """Return the view of `array` that `region` means for the variables of `task`."""
    index: list[int | slice] = []
    scope = task.scope
    for dim, (entry, size) in enumerate(zip(region.dims, array.shape, strict=True)):
        match entry:
            case Full():
                index.append(slice(None))
                continue
            case Index(at=at):
                start = int(evaluate(at, scope, reader))
                stop = start + 1
                index.append(start)
            case TileRange(loop=loop):
                start = int(scope[loop + ".start"])
                stop = start + int(scope[loop + ".len"])
                index.append(slice(start, stop))
            case Range(start=first, extent=extent):
                start = int(evaluate(first, scope, reader))
                stop = start + int(evaluate(extent, scope, reader))
                index.append(slice(start, stop))
        if start < 0 or stop > size or stop < start:
            where = scope_text(scope, task.loops)
            raise RegionOutside(
                tensor=region.tensor, dim=dim, size=size, start=start, stop=stop, where=where, loc=loc
            )
    return array[tuple(index)]


def scope_text(scope: Mapping[str, Value], loops: Sequence[str]) -> str:
    """Return ` when b = 3, i = 0` for the loop variables around a task, or nothing without loops."""
    values = ", ".join(f"{name} = {scope[name]}" for name in loops if name in scope)
    return f" when {values}" if values else ""


def _check_view(
    kernel: KernelFunction,
    param: Param,
    region: Region,
    view: np.ndarray,
    task: BoundTask,
    loc: Location | None,
) -> None:
    match param.type:
        case TileType(rows=rows, cols=cols):
            bounds: Sequence[tuple[int, int | None]] = [(0, rows), (0, cols)]
        case ViewType(dims=dims) if dims is not None:
            bounds = [(0, None) if d is None else (d, d) for d in dims]
        case _:
            raise AssertionError("verified modules have specialised kernels")
    for dim, size, (low, high) in zip(region.kept, view.shape, bounds, strict=True):
        if size < low or (high is not None and size > high):
            expected = f"{low}" if low == high else f"at most {high}"
            where = scope_text(task.scope, task.loops)
            raise ViewShape(
                param=param.name,
                kernel=kernel.name,
                dim=dim,
                expected=expected,
                found=size,
                where=where,
                loc=loc,
            )
    if view.size and view.shape[-1] > 1 and view.strides[-1] != view.itemsize:
        raise StridedView(
            param=param.name, kernel=kernel.name, tensor=region.tensor, dim=region.kept[-1], loc=loc
        )
