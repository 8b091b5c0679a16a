"""The record of a launch on a GPU, in the form of the engine's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.interp.workload import BoundTask, TensorReader
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.scalar import Value
from pto_wsp.lang.schedule.registry import every_kind
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.runtime.host_walk import on_host, tasks_of
from pto_wsp.runtime.trace import Lanes, Trace
from pto_wsp.support.record import record


def launch_trace(
    spans: np.ndarray,
    module: Module,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Value],
    blocks: int,
) -> Trace:
    """Return the record of a launch.

    Args:
        spans: `SPAN` per task.
        module: the program; no element that its tasks write decides what runs.
        arrays: of the run.
        sizes: values of sizes and scalars.
        blocks: of the launch.
    """
    lowered = lower_workload_to_bytecode(module, [kernel.name for kernel in module.kernels], 0)
    reader = TensorReader(on_host(module, arrays))
    about = {
        "program": module.entry_workload.name,
        "run": "0",
        "schedule": "\n".join(map(print_directive, every_kind(module.schedule))),
    }
    kept = _LaunchRecord(spans, lowered, list(tasks_of(module, arrays, sizes)), blocks)
    lanes = Lanes("GPU", [f"block {number}" for number in range(blocks)], np.full(len(spans), -1))
    return Trace(lowered, kept, sizes, reader, about, None, lanes)


@record
class _LaunchRecord:
    """What a launch wrote down. Its workers and dispatchers are blocks."""

    spans: np.ndarray
    lowered: Lowered
    bound: list[BoundTask]
    workers: int

    @property
    def tasks(self) -> int:
        """How many tasks ran."""
        return len(self.spans)

    def times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the block, and start and end in nanoseconds since the first start."""
        first = self.spans["begin"].min() if len(self.spans) else 0
        block, begin, end = (self.spans[name].astype(np.int64) for name in ("block", "begin", "end"))
        return block, begin - np.int64(first), end - np.int64(first)

    def dispatchers(self) -> np.ndarray:
        """Return the block, which expands its own tasks."""
        return self.times()[0]

    def walks(self) -> np.ndarray:
        """Return none: blocks expand tasks without a clock."""
        return np.empty((0, 4), np.int64)

    def stalls(self) -> np.ndarray:
        """Return none: blocks wait without a clock."""
        return np.empty((0, 4), np.int64)

    def stretches(self) -> np.ndarray:
        """Return none."""
        return np.empty((0, 3), np.int64)

    def dependences(self) -> NoReturn:
        """Refuse: a launch writes down times alone.

        Raises:
            UnsupportedByTarget: always.
        """
        hint = "pass `dependences=False`, or record a run on `cpu`"
        reason = "a launch writes down when tasks run"
        raise UnsupportedByTarget(target="cuda", what="the dependences of a run", reason=reason, hint=hint)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each task's node, and the registers at its place."""
        nodes = {id(node): pc for pc, node in self.lowered.sites.items() if isinstance(node, w.Task)}
        registers = self.lowered.registers
        found = np.zeros((self.tasks, 1 + max(registers.values(), default=0)), np.int64)
        for row, task in zip(found, self.bound, strict=True):
            for name, register in registers.items():
                value = task.scope.get(name, 0)
                row[register] = int(value) if not isinstance(value, float) else 0
        return np.array([nodes[id(task.node)] for task in self.bound], np.int64), found
