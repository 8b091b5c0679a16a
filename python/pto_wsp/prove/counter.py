"""From values that a search found to a call of the workload, repeated to see that it breaks the claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pto_wsp.analysis.accesses.instances import Scene
from pto_wsp.analysis.accesses.unknowns import ElementOf
from pto_wsp.errors import BadExpression
from pto_wsp.ir import workload as w
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.prove.finding import CounterExample
from pto_wsp.prove.replay import NoReplay, Replay
from pto_wsp.prove.solver import Model

MAX_REPAIRS = 40
MAX_ELEMENTS = 1 << 20
"""Arrays that decide are made up to this size."""

Elements = dict[str, dict[tuple[int, ...], int]]
Judge = Callable[[Replay], CounterExample | None]
"""Says whether a call breaks a claim; its result has no sizes yet."""


class CallValues:
    """Sizes and arrays of a call in which a model holds; what the model leaves open is chosen.

    Args:
        module: a module without calls.
        scene: whose unknowns the model gives.
        model: the values.
    """

    def __init__(self, module: Module, scene: Scene, model: Model) -> None:
        self.module = module
        workload = module.entry_workload
        self.sizes: dict[str, Value] = {}
        for param in workload.symbols:
            symbol = scene.outside.values[param.name]
            is_float = isinstance(param, w.ScalarParam) and param.type.dtype.is_float
            self.sizes[param.name] = 1.0 if is_float else symbol.at(model)
        self.elements: Elements = {}
        for meaning, at in scene.unknowns.meanings.items():
            if isinstance(meaning, ElementOf) and not meaning.reading and at in model:
                place = tuple(index.at(model) for index in meaning.indices)
                self.elements.setdefault(meaning.array, {})[place] = model[at]
        self.deciding = w.deciding_tensors(workload.body)
        self.rising = scene.unknowns.rising
        self.distinct = scene.unknowns.distinct

    def arrays(self, is_distinct: bool) -> dict[str, np.ndarray]:
        """Return the arrays that decide; elements that the model leaves open differ if `is_distinct`."""
        made: dict[str, np.ndarray] = {}
        for tensor in self.module.entry_workload.tensors:
            if tensor.name not in self.deciding:
                continue
            shape = tuple(d if isinstance(d, int) else int(self.sizes[d]) for d in tensor.type.dims)
            if np.prod(shape, dtype=np.float64) > MAX_ELEMENTS:
                raise NoReplay
            known = {
                at: value
                for at, value in self.elements.get(tensor.name, {}).items()
                if all(0 <= i < n for i, n in zip(at, shape, strict=True))
            }
            distinct = is_distinct or tensor.name in self.distinct
            values = _rising(shape, known) if tensor.name in self.rising else _filled(shape, known, distinct)
            made[tensor.name] = values.astype(tensor.type.dtype.to_numpy())
        return made

    def replays(self) -> Iterator[tuple[Replay, dict[str, np.ndarray]]]:
        """Yield calls: with the smallest sizes, and with sizes that hold regions that were outside."""
        for is_distinct in (False, True):
            sizes = dict(self.sizes)
            for _ in range(MAX_REPAIRS):
                try:
                    self._derive()
                    arrays = self.arrays(is_distinct)
                    replay = Replay(self.module, self.sizes, arrays)
                except (NoReplay, BadExpression, OverflowError, ValueError, KeyError):
                    break
                yield replay, arrays
                if not self._repair(replay):
                    break
            self.sizes = sizes

    def _derive(self) -> None:
        for param in self.module.entry_workload.symbols:
            if param.value is not None:
                self.sizes[param.name] = evaluate(param.value, self.sizes)
        for axis in self.module.entry_workload.params:
            if isinstance(axis, (w.RaggedParam, w.SparseParam)):
                self.sizes[axis.count] = int(self.sizes[axis.outer]) + 1

    def _repair(self, replay: Replay) -> bool:
        """Enlarge the size of a tensor that a region does not fit into; return whether that is possible."""
        if replay.outside is None or replay.outside.needed is None:
            return False
        tensor, dim, needed = replay.outside.needed
        size = self.module.entry_workload.tensor(tensor).type.dims[dim]
        if not isinstance(size, str) or int(self.sizes[size]) >= needed:
            return False
        self.sizes[size] = needed
        return True

    def counter_example(self, judge: Judge) -> CounterExample | None:
        """Return the first call that breaks a claim, or None."""
        for replay, arrays in self.replays():
            found = judge(replay)
            if found is not None:
                return self._described(found, arrays)
        return None

    def _described(self, found: CounterExample, arrays: Mapping[str, np.ndarray]) -> CounterExample:
        workload = self.module.entry_workload
        hidden = {name for t in workload.tensors if t.is_local for name in (t.name,)}
        sizes = tuple(
            (p.name, int(self.sizes[p.name]))
            for p in workload.symbols
            if p.value is None and "." not in p.name and not isinstance(self.sizes[p.name], float)
        )
        shown = tuple((name, array.tolist()) for name, array in arrays.items() if name not in hidden)
        return CounterExample(sizes, shown, found.tasks, found.region, found.problem)


def _rising(shape: tuple[int, ...], known: Mapping[tuple[int, ...], int]) -> np.ndarray:
    """Return offsets that never fall: what is not known is the value before it."""
    found = np.zeros(shape, np.int64)
    last = 0
    for at in range(shape[0]):
        last = known.get((at,), last)
        found[at] = last
    return found


def _filled(shape: tuple[int, ...], known: Mapping[tuple[int, ...], int], is_distinct: bool) -> np.ndarray:
    found = np.zeros(shape, np.int64)
    if is_distinct:
        free = (value for value in range(found.size + len(known)) if value not in known.values())
        found.flat[:] = [next(free) for _ in range(found.size)]
    for at, value in known.items():
        found[at] = value
    return found
