"""The tasks of one run and what each of them waits for, found by running it task after task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pto_wsp import _native
from pto_wsp.analysis.buffers import BufferUse, buffer_use
from pto_wsp.errors import PtoError, naming_file
from pto_wsp.interp.regions import RegionPlace, RegionReader
from pto_wsp.interp.workload import BoundTask, TensorReader
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.kernel import IN
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import loop_text
from pto_wsp.ir.scalar import Element, Expr, Name, name_of, walk
from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.graph import Graph, graph_drawing


@record
class GraphTask:
    """A task of a run.

    Attributes:
        kernel: name of its kernel.
        keys: the coordinates of the task call.
        location: `file:line:col` of the task call.
        arguments: role, tensor and elements of each region: `in X[0:32, 0:128]`.
        call: the task call with the loops around it.
    """

    kernel: str
    keys: tuple[int, ...]
    location: str
    arguments: tuple[str, ...]
    call: CallSite

    @property
    def label(self) -> str:
        """The task as a user writes it: `kernel[coordinates]`."""
        return f"{self.kernel}[{', '.join(map(str, self.keys))}]" if self.keys else self.kernel


@record
class TaskGraph:
    """The tasks of one run, in program order, and their order.

    Attributes:
        tasks: the tasks.
        edges: pairs (before, after) of positions in `tasks`: after waits for before because of data, `P.seq`
            or `after=`. What follows from other pairs is left out.
        decisions: pairs (before, after): that `after` exists, or what it works on, depends on an element
            whose last writer, when `after` begins, is `before`.
        buffers: of each kernel, what its tiles take.
    """

    tasks: tuple[GraphTask, ...]
    edges: tuple[tuple[int, int], ...]
    decisions: tuple[tuple[int, int], ...]
    buffers: Mapping[str, BufferUse]

    def dump(self, path: str | Path | None = None, verbose: bool = False) -> str:
        """Return the tasks and what they wait for as text (docs/task_dump.md).

        Args:
            path: a file to write the text to as well.
            verbose: list the buffers and arguments of each task too.
        """
        before: list[list[int]] = [[] for _ in self.tasks]
        for first, second in sorted({*self.edges, *self.decisions}):
            before[second].append(first)
        native = _native.TaskDump()
        for task, waits in zip(self.tasks, before, strict=True):
            use = self.buffers[task.kernel]
            native.add(task.kernel, use.separate, use.shared, waits, list(task.arguments))
        text = native.text(verbose)
        if path is not None:
            with naming_file("written", path):
                Path(path).write_text(text, encoding="utf-8")
        return text

    def graph(self) -> Graph:
        """Return what pictures of the graph are drawn from."""
        calls = [task.call for task in self.tasks]
        places = {call: i for i, call in enumerate(dict.fromkeys(calls))}
        return Graph(
            [task.kernel for task in self.tasks],
            [task.label for task in self.tasks],
            [self.buffers[task.kernel].shared for task in self.tasks],
            np.array(self.edges, np.int64).reshape(-1, 2),
            np.array(self.decisions, np.int64).reshape(-1, 2),
            [*places],
            np.array([places[call] for call in calls], np.int64),
        )

    def to_svg(self) -> str:
        """Return a picture: a box for each task, an arrow for each edge, a dashed one for each decision."""
        return to_svg(graph_drawing(self.graph()))

    def save_svg(self, path: str | Path) -> None:
        """Write `to_svg()` to a file."""
        with naming_file("written", path):
            Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()


class Collector:
    """Called with each task of a run before it runs; knows its order from the elements that it touches.

    Args:
        module: a verified module.
        arrays: the arrays of the run, by name.
    """

    def __init__(self, module: Module, arrays: Mapping[str, np.ndarray]) -> None:
        self._kernels = {kernel.name: kernel for kernel in module.kernels}
        self._workload = module.entry_workload
        self._deciding = dict(_deciding_elements(self._workload.body, (), _assigned(self._workload)))
        self._arrays = arrays
        self._reader = TensorReader(arrays)
        self._accesses = {_identity(arrays[name]): _Accesses(arrays[name].shape) for name in module.written}
        self._tasks: list[GraphTask] = []
        self._before: list[set[int]] = []
        self._decided: list[set[int]] = []
        self._labelled: dict[str, int] = {}
        self._iterations: dict[tuple[object, ...], _Iterations] = {}

    def __call__(self, task: BoundTask) -> None:
        """Add a task."""
        number, node = len(self._tasks), task.node
        keys = tuple(int(evaluate(key, task.scope, self._reader)) for key in node.keys)
        loc = str(node.loc) if node.loc else ""
        nest = str(task.loops[-1].loc) if task.loops else ""
        call = CallSite(node.kernel, tuple(map(loop_text, task.loops)), loc, nest)
        self._tasks.append(GraphTask(node.kernel, keys, loc, tuple(self._arguments(task)), call))
        self._decided.append(self._deciders(task))
        before = {self._labelled[label] for label in node.after if label in self._labelled}
        before |= self._sequence(task, number)
        touched = list(self._touched(task))
        for accesses, ids, role in touched:
            before |= accesses.conflicts(ids, role != IN)
        for accesses, ids, role in touched:
            accesses.add(number, ids, role != IN)
        self._before.append(before - {number})
        if node.label:
            self._labelled[node.label] = number

    def graph(self) -> TaskGraph:
        """Return what was found."""
        decisions = [(b, a) for a, before in enumerate(self._decided) for b in sorted(before)]
        buffers = {name: buffer_use(kernel) for name, kernel in self._kernels.items()}
        return TaskGraph(tuple(self._tasks), tuple(_reduced(self._before)), tuple(decisions), buffers)

    def _arguments(self, task: BoundTask) -> Iterator[str]:
        """Yield a line for each region of a task."""
        kernel, regions = self._kernels[task.node.kernel], RegionReader(self._arrays, self._reader)
        for param, arg in zip(kernel.params, task.node.args, strict=True):
            if isinstance(arg, Region):
                place = RegionPlace(kernel, param, task.scope, task.loops, arg.loc)
                yield f"{param.role} {regions.describe(arg, place)}"

    def _touched(self, task: BoundTask) -> Iterator[tuple[_Accesses, np.ndarray, str]]:
        """Yield what a task reads and writes: elements of its regions, and the indices of its row sets."""
        kernel = self._kernels[task.node.kernel]
        for param, arg in zip(kernel.params, task.node.args, strict=True):
            if not isinstance(arg, Region):
                continue
            accesses = self._accesses_of(arg.tensor)
            if accesses is not None:
                numbered = RegionReader({**self._arrays, arg.tensor: accesses.ids}, self._reader)
                place = RegionPlace(kernel, param, task.scope, task.loops, arg.loc)
                yield accesses, numbered.view(arg, place).array.ravel(), param.role
            for rows in arg.dims:
                if isinstance(rows, Rows) and (indices := self._accesses_of(rows.indices)) is not None:
                    start, extent = (
                        int(evaluate(e, task.scope, self._reader)) for e in (rows.start, rows.extent)
                    )
                    yield indices, indices.ids[start : start + extent].ravel(), IN

    def _accesses_of(self, tensor: str) -> _Accesses | None:
        """Return what has happened to a tensor that some task writes."""
        return self._accesses.get(_identity(self._arrays[tensor]))

    def _sequence(self, task: BoundTask, number: int) -> set[int]:
        """Return the tasks of the iterations before this one of the `P.seq` loops around a task."""
        found: set[int] = set()
        for depth, loop in enumerate(task.loops):
            if loop.kind == w.SEQUENTIAL:
                outer = tuple(task.scope[around.var] for around in task.loops[:depth])
                iterations = self._iterations.setdefault((loop.var, outer), _Iterations())
                found |= iterations.before(int(task.scope[loop.var]), number)
        return found

    def _deciders(self, task: BoundTask) -> set[int]:
        """Return the tasks that have written what decides about a task."""
        found: set[int] = set()
        for element in self._deciding[id(task.node)]:
            accesses = self._accesses_of(element.name)
            if accesses is None:
                continue
            try:
                at = tuple(int(evaluate(i, task.scope, self._reader)) for i in element.indices)
            except (PtoError, KeyError):
                continue  # not read: it is in an arm that is not chosen, or for a loop that has ended
            shape = accesses.ids.shape
            if all(0 <= i < size for i, size in zip(at, shape, strict=True)):
                found.add(int(accesses.writer[np.ravel_multi_index(at, shape)]))
        return found - {-1}


class _Accesses:
    """Who has touched which element of an array; elements are named by their position."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        size = int(np.prod(shape, dtype=np.int64))
        self.ids = np.arange(size).reshape(shape)
        self.writer = np.full(size, -1)
        self._reads: list[_Read] = []

    def conflicts(self, ids: np.ndarray, is_write: bool) -> set[int]:
        found = set(np.unique(self.writer[ids]).tolist())
        if is_write:
            found |= {read.task for read in self._reads if read.meets(ids).any()}
        return found - {-1}

    def add(self, number: int, ids: np.ndarray, is_write: bool) -> None:
        """Add an access. A read is forgotten where it is written: later writers come after this one."""
        if is_write:
            self.writer[ids] = number
            left = (_Read(read.task, read.ids[~read.meets(ids)]) for read in self._reads)
            self._reads = [read for read in left if read.ids.size]
        elif ids.size:
            self._reads.append(_Read(number, ids))


class _Read:
    """Elements that a task has read, and that no task has written since."""

    def __init__(self, task: int, ids: np.ndarray) -> None:
        self.task = task
        self.ids = ids
        self._bounds = (ids.min(), ids.max()) if ids.size else (0, -1)

    def meets(self, ids: np.ndarray) -> np.ndarray:
        """Return which of its elements are among others."""
        first, last = self._bounds
        if not ids.size or ids.max() < first or ids.min() > last:
            return np.zeros(self.ids.size, bool)
        return np.isin(self.ids, ids)


class _Iterations:
    """The tasks of the current and the last iteration of a `P.seq` loop."""

    def __init__(self) -> None:
        self.value = -1
        self.current: set[int] = set()
        self.last: set[int] = set()

    def before(self, value: int, number: int) -> set[int]:
        if value != self.value:
            self.value, self.last, self.current = value, self.current or self.last, set()
        self.current.add(number)
        return self.last


def _identity(array: np.ndarray) -> tuple[object, ...]:
    return array.ctypes.data, array.shape, array.strides


def _assigned(workload: w.WorkloadFunction) -> dict[Name, list[Expr]]:
    """Return the expressions that each variable is set to."""
    found: dict[Name, list[Expr]] = {}
    for node in w.walk_nodes(workload.body):
        if isinstance(node, w.Set):
            found.setdefault(node.name, []).append(node.value)
    return found


def _deciding_elements(
    body: Sequence[w.Node], around: tuple[Expr, ...], assigned: Mapping[Name, Sequence[Expr]]
) -> Iterator[tuple[int, list[Element]]]:
    """Yield, by its id, each task with the elements that its arguments and the nodes around it mention."""
    for node in body:
        exprs = (*around, *w.node_expressions(node))
        if isinstance(node, w.Task):
            yield id(node), list(_elements(exprs, assigned, frozenset()))
        for block in w.blocks(node):
            yield from _deciding_elements(block, exprs, assigned)


def _elements(
    exprs: Sequence[Expr], assigned: Mapping[Name, Sequence[Expr]], seen: frozenset[Name]
) -> Iterator[Element]:
    for expr in exprs:
        for part in walk(expr):
            name = name_of(part)
            if isinstance(part, Element):
                yield part
            elif name is not None and name in assigned and name not in seen:
                yield from _elements(assigned[name], assigned, seen | {name})


def _reduced(before: Sequence[set[int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs that do not follow from others."""
    reach: list[int] = []
    for after, found in enumerate(before):
        reached = 0
        for b in sorted(found, reverse=True):
            if not reached >> b & 1:
                yield b, after
                reached |= reach[b] | 1 << b
        reach.append(reached)
