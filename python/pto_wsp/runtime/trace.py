"""The record of a run: which task ran where and when; as Perfetto JSON and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Reader, Value, evaluate
from pto_wsp.runtime.timeline import timeline_svg
from pto_wsp.support.record import record


@record
class TaskEvent:
    """One task of a traced run.

    Attributes:
        task: its number in program order.
        kernel: name of the kernel it ran.
        keys: the coordinates of the task call.
        worker: index of the thread that ran it.
        start_ns: start, in nanoseconds since the run began.
        end_ns: end, in nanoseconds since the run began.
        location: `file:line:col` of the task call.
    """

    task: int
    kernel: str
    keys: tuple[int, ...]
    worker: int
    start_ns: int
    end_ns: int
    location: str

    @property
    def label(self) -> str:
        """The task as a user writes it: `kernel[coordinates]`."""
        return f"{self.kernel}[{', '.join(map(str, self.keys))}]" if self.keys else self.kernel


class Trace:
    """The tasks of one run, in program order.

    Iterating yields a `TaskEvent` per task. Arrays `task`, `worker`, `start_ns`, `end_ns` (length = tasks)
    hold the same figures for numeric work.
    """

    def __init__(
        self,
        sites: Mapping[int, w.Node],
        registers: Mapping[str, int],
        columns: Mapping[str, np.ndarray],
        sizes: Mapping[str, Value],
        reader: Reader,
    ) -> None:
        self._sites = sites
        self._register_names = registers
        self._sizes = sizes
        self._reader = reader
        self._site = columns["site"]
        self._registers = columns["registers"]
        self.task = columns["task"]
        self.worker = columns["worker"]
        self.start_ns = columns["start_ns"]
        self.end_ns = columns["end_ns"]

    def __len__(self) -> int:
        return len(self.task)

    def __iter__(self) -> Iterator[TaskEvent]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> TaskEvent:
        node = self._sites[int(self._site[i])]
        assert isinstance(node, w.Task)
        return TaskEvent(
            int(self.task[i]),
            node.kernel,
            self._keys(node, self._registers[i]),
            int(self.worker[i]),
            int(self.start_ns[i]),
            int(self.end_ns[i]),
            str(node.loc) if node.loc else "",
        )

    def _keys(self, node: w.Task, registers: Sequence[int]) -> tuple[int, ...]:
        scope = dict(self._sizes)
        scope |= {name: int(registers[reg]) for name, reg in self._register_names.items()}
        return tuple(int(evaluate(key, scope, self._reader)) for key in node.keys)

    def save(self, path: str | Path) -> None:
        """Write the run as Chrome trace JSON, which Perfetto (ui.perfetto.dev) opens. Times are in us."""
        import json  # here: few programs save a trace, and all of them start

        events: list[dict[str, object]] = [
            {
                "ph": "M",
                "pid": 0,
                "tid": int(worker),
                "name": "thread_name",
                "args": {"name": f"worker {worker}"},
            }
            for worker in np.unique(self.worker)
        ]
        events += (
            {
                "ph": "X",
                "pid": 0,
                "tid": event.worker,
                "name": event.label,
                "cat": event.kernel,
                "ts": event.start_ns / 1000,
                "dur": (event.end_ns - event.start_ns) / 1000,
                "args": {"task": event.task, "location": event.location},
            }
            for event in self
        )
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))

    def to_svg(self) -> str:
        """Return a picture of the run: one lane per worker, one colour per kernel."""
        kernels = {site: node.kernel for site, node in self._sites.items() if isinstance(node, w.Task)}
        names = sorted(set(kernels.values()))
        by_site = np.zeros(max(kernels, default=0) + 1, np.int64)
        for site, name in kernels.items():
            by_site[site] = names.index(name)
        return timeline_svg(names, by_site[self._site], self.worker, self.start_ns, self.end_ns)

    def save_svg(self, path: str | Path) -> None:
        """Write `to_svg()` to a file."""
        Path(path).write_text(self.to_svg())

    def _repr_svg_(self) -> str:
        return self.to_svg()
