"""The tasks of one call, computed from its sizes and arrays: what confirms a counter-example."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pto_wsp.analysis.accesses.instances import extents_of
from pto_wsp.errors import BadExpression, RunError
from pto_wsp.interp.workload import BoundTask, expand
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.evaluate import evaluate, read_element
from pto_wsp.ir.kernel import IN, KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import LoopExtent, LoopStart, Value
from pto_wsp.location import Location
from pto_wsp.support.record import record

MAX_TASKS = 400
"""Counter-examples are small; larger ones are not looked at."""


class NoReplay(Exception):
    """Values that no call can have, or that make too many tasks."""


@record
class TouchedBox:
    """What one argument of one task touches.

    Attributes:
        param: the kernel's parameter.
        region: as it is written.
        spans: start and stop per dimension of the tensor.
        rows: of a row set, the numbers of its rows, which count over the first `1 + merged` dimensions.
        merged: how many dimensions after the first the row numbers cover.
    """

    param: Param
    region: Region
    spans: tuple[tuple[int, int], ...]
    rows: frozenset[int] | None = None
    merged: int = 0


@record
class Outside:
    """An argument that a run refuses, or an expression without a value where `region` is None.

    `needed` is the size of a dimension that would hold it, by (tensor, dimension).
    """

    task: BoundTask
    region: Region | None
    text: str
    needed: tuple[str, int, int] | None = None


@record
class Replayed:
    """A task with what it touches."""

    task: BoundTask
    boxes: tuple[TouchedBox, ...]

    @property
    def text(self) -> str:
        """The task, for reports."""
        return f"{self.task.node.kernel}{self.task.where}"


class Replay:
    """A call of a workload.

    Args:
        module: a module without calls.
        sizes: every size and scalar.
        arrays: every array whose elements decide something.

    Attributes:
        tasks: the tasks, in program order.
        outside: the first argument that a run refuses, or None.

    Raises:
        NoReplay: it makes too many tasks.
    """

    def __init__(self, module: Module, sizes: Mapping[str, Value], arrays: Mapping[str, np.ndarray]) -> None:
        self.module = module
        self.arrays = arrays
        self.written = module.written
        self.kernels = {kernel.name: kernel for kernel in module.kernels}
        workload = module.entry_workload
        self.shapes = {
            t.name: tuple(d if isinstance(d, int) else int(sizes[d]) for d in t.type.dims)
            for t in workload.tensors
        }
        self.outside: Outside | None = None
        self.missing: tuple[str, int, int] | None = None
        self.tasks: list[Replayed] = []
        try:
            for task in expand(workload, sizes, self):
                self.tasks.append(Replayed(task, tuple(self._boxes(task))))
                if len(self.tasks) > MAX_TASKS:
                    raise NoReplay
                if self.outside is not None:
                    break
        except RunError as error:
            nowhere = BoundTask(w.Task("", (), loc=error.loc), {}, ())
            self.outside = Outside(nowhere, None, error.message, self.missing)

    def extent(self, name: str, dim: int) -> int:
        """Return the size of a dimension."""
        return self.shapes[name][dim]

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> int:
        """Return an element of an array that decides; of one that tasks write, no element is known."""
        if name in self.written:
            raise NoReplay
        places = list(indices)
        for dim, (at, size) in enumerate(zip(places, self.shapes[name], strict=True)):
            self.missing = (name, dim, at + 1) if at >= size else self.missing
        return read_element(name, self.arrays[name], places, loc)

    def _boxes(self, task: BoundTask) -> Iterator[TouchedBox]:
        kernel = self.kernels[task.node.kernel]
        for param, arg in zip(kernel.params, task.node.args, strict=True):
            try:
                if isinstance(arg, Region):
                    yield self._box(task, kernel, param, arg)
                else:
                    evaluate(arg, task.scope, self)
            except BadExpression as error:
                region = arg if isinstance(arg, Region) else None
                self.outside = self.outside or Outside(task, region, error.message, self.missing)

    def _box(self, task: BoundTask, kernel: KernelFunction, param: Param, region: Region) -> TouchedBox:
        spans: list[tuple[int, int]] = []
        bounds = extents_of(param)
        merged = sum(isinstance(dim, Merged) for dim in region.dims)
        rows: frozenset[int] | None = None
        for dim, entry in enumerate(region.dims):
            if isinstance(entry, Merged):
                spans.append((0, self.shapes[region.tensor][dim]))
                continue
            start, extent = self._span(task, region, dim)
            owner = entry.indices if isinstance(entry, Rows) else region.tensor
            size = self.shapes[owner][dim]
            is_inside = start >= 0 and extent >= 0 and start + extent <= size
            if not is_inside:
                self._refuse(task, region, owner, dim, (start, start + extent))
            if not isinstance(entry, Index):
                low, high = next(bounds)
                if extent < low or (high is not None and extent > high):
                    text = (
                        f"`{param.name}` of {kernel.name} takes {low if low == high else f'at most {high}'}"
                    )
                    text += f" in dimension {dim}, found {extent}"
                    self.outside = self.outside or Outside(task, region, text)
            if isinstance(entry, Rows):
                rows = self._rows(task, param, region, entry, start, extent) if is_inside else None
                start, extent = 0, self.shapes[region.tensor][0]
            spans.append((start, start + extent))
        return TouchedBox(param, region, tuple(spans), rows, merged)

    def _refuse(self, task: BoundTask, region: Region, tensor: str, dim: int, span: tuple[int, int]) -> None:
        needed = (tensor, dim, span[1]) if span[0] >= 0 and span[1] >= span[0] else None
        size = self.shapes[tensor][dim]
        text = f"{span[0]}:{span[1]} in dimension {dim} of `{tensor}`, which has {size}"
        self.outside = self.outside or Outside(task, region, text, needed)

    def _rows(
        self, task: BoundTask, param: Param, region: Region, entry: Rows, start: int, extent: int
    ) -> frozenset[int]:
        found = [self.element(entry.indices, (at, 0), region.loc) for at in range(start, start + extent)]
        leading = self.shapes[region.tensor][: 1 + sum(isinstance(d, Merged) for d in region.dims)]
        if any(not 0 <= row < int(np.prod(leading, dtype=np.int64)) for row in found):
            self.outside = self.outside or Outside(task, region, f"rows {found} of `{region.tensor}`")
        if param.role != IN and len(set(found)) < len(found):
            self.outside = self.outside or Outside(task, region, f"a row twice in {found}")
        return frozenset(found)

    def _span(self, task: BoundTask, region: Region, dim: int) -> tuple[int, int]:
        entry = region.dims[dim]
        match entry:
            case Full() | Merged():
                return 0, self.shapes[region.tensor][dim]
            case Index(at=at):
                return int(evaluate(at, task.scope, self)), 1
            case TileRange(loop=loop):
                return int(task.scope[LoopStart(loop)]), int(task.scope[LoopExtent(loop)])
            case Range(start=start, extent=extent) | Rows(start=start, extent=extent):
                first = int(evaluate(start, task.scope, self))
                return first, int(evaluate(extent, task.scope, self))

    # --- conflicts ---

    def conflict(self, first: Replayed, second: Replayed) -> tuple[TouchedBox, TouchedBox, str] | None:
        """Return two arguments that share an element which one of the tasks writes, and these elements."""
        for a, b in itertools.product(first.boxes, second.boxes):
            if a.region.tensor == b.region.tensor and not a.param.role == b.param.role == IN:
                text = self._shared(a, b)
                if text is not None:
                    return a, b, text
        return None

    def _shared(self, a: TouchedBox, b: TouchedBox) -> str | None:
        spans = [
            (max(one[0], other[0]), min(one[1], other[1]))
            for one, other in zip(a.spans, b.spans, strict=True)
        ]
        tensor = a.region.tensor
        merged = max(a.merged, b.merged)
        if a.rows is not None or b.rows is not None:
            rows = self._row_numbers(a, merged) & self._row_numbers(b, merged)
            if not rows or any(low >= high for low, high in spans[1 + merged :]):
                return None
            rest = "".join(f", {low}:{high}" for low, high in spans[1 + merged :])
            return f"{tensor}[row {min(rows)}{rest}]"
        if any(low >= high for low, high in spans):
            return None
        return f"{tensor}[{', '.join(f'{low}:{high}' for low, high in spans)}]"

    def _row_numbers(self, box: TouchedBox, merged: int) -> frozenset[int]:
        sizes = self.shapes[box.region.tensor]
        if box.rows is not None:
            inner = int(np.prod(sizes[1 + box.merged : 1 + merged], dtype=np.int64))
            return frozenset(row * inner + at for row in box.rows for at in range(inner))
        places = itertools.product(*(range(low, high) for low, high in box.spans[: 1 + merged]))
        return frozenset(int(np.ravel_multi_index(at, sizes[: 1 + merged])) for at in places)


def iteration_of(task: BoundTask, loop: w.Loop) -> tuple[tuple[Value, ...], Value] | None:
    """Return the iterations of the loops around `loop`, and that of `loop`; None for a task outside it."""
    for depth, around in enumerate(task.loops):
        if around is loop:
            return tuple(task.scope[outer.var] for outer in task.loops[:depth]), task.scope[loop.var]
    return None
