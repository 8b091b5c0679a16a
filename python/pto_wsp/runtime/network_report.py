"""Where the time of a simulated network goes: its processes, its channels, and its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import naming_file
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.support.record import record
from pto_wsp.support.text import table
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.network import NetworkPicture, PictureChannel, PictureToken, network_drawing


@record
class ProcessLine:
    """What one process did. Times are in cycles.

    Attributes:
        process: its name.
        tasks: that it ran.
        busy: its tasks took.
        cores: it waited for a core that tasks of other processes had.
        tokens: it waited to receive from a channel, by channel.
        buffers: it waited for a free buffer of a channel, or for a receipt, by channel.
        waited: it let pass with `wait`.
        end: when it ended.
    """

    process: str
    tasks: int
    busy: float
    cores: float
    tokens: Mapping[str, float]
    buffers: Mapping[str, float]
    waited: float
    end: float


@record
class ChannelLine:
    """What one channel carried. Times are in cycles.

    Attributes:
        channel: its name.
        depth: of the channel.
        tokens: that were received.
        fill: buffers in use, on average over the run.
        most: buffers in use at a time.
        queued: between the send of a token and its receipt, on average.
        interval: between two receipts, on average; 0 for less than two tokens.
    """

    channel: str
    depth: int
    tokens: int
    fill: float
    most: int
    queued: float
    interval: float


class NetworkReport:
    """Where the time of a simulated network goes. `str` of it is a text.

    Attributes:
        processes: in declared order.
        channels: in declared order.
        cycles: of the run.
        merges: per tensor, the numbers of the processes that sent the tokens of a channel that is merged by
            time, in order.
    """

    def __init__(self, network: WorkloadFunction, times: _native.SimNetwork, cycles: float) -> None:
        self._names = [t.name for t in network.tensors]
        self._processes = [p.name for p in network.processes]
        self._times = times
        self.merges = times.merges
        self.cycles = max(cycles, 1.0)
        self.processes = [
            ProcessLine(name, tasks, busy, cores, self._by_channel(tokens), self._by_channel(buffers), *rest)
            for name, (tasks, busy, cores, *rest, tokens, buffers) in zip(
                self._processes, times.processes, strict=True
            )
        ]
        self.channels: list[ChannelLine] = []
        for tensor, tokens, queued, in_use, most, first, last in times.channels:
            ring = network.tensors[tensor].channel
            assert ring is not None
            interval = (last - first) / (tokens - 1) if tokens > 1 else 0.0
            fill, mean = in_use / self.cycles, queued / max(tokens, 1)
            self.channels.append(
                ChannelLine(self._names[tensor], ring.depth, tokens, fill, most, mean, interval)
            )

    def _by_channel(self, cycles: list[float]) -> dict[str, float]:
        return {self._names[tensor]: value for tensor, value in enumerate(cycles) if value > 0}

    @property
    def bottleneck(self) -> str:
        """The process that has the least time to wait for channels: a faster one makes the run faster."""
        return max(self.processes, key=lambda p: (p.busy + p.cores + p.waited, p.process)).process

    @property
    def interval(self) -> float:
        """Cycles per token of the last channel of the network, when it is under way."""
        return self.channels[-1].interval if self.channels else 0.0

    @property
    def latency(self) -> float | None:
        """Cycles of a token from the first send of the network until its last receipt ends, on average.

        None where channels carry different numbers of tokens, or where not all tokens were recorded.
        """
        counts = {line.tokens for line in self.channels}
        recorded = len(self._times.tokens)
        if len(counts) != 1 or recorded != sum(line.tokens for line in self.channels) or recorded == 0:
            return None
        return self._mean_latency(counts.pop())

    def _mean_latency(self, count: int) -> float:
        """Return the mean over tokens, which channels carry in order."""
        first, last = np.full(count, np.inf), np.zeros(count)
        for line in self.channels:
            tensor = self._names.index(line.channel)
            rows = [row for row in self._times.tokens if row[0] == tensor]
            first = np.minimum(first, np.sort([row[3] for row in rows]))
            last = np.maximum(last, np.sort([row[6] for row in rows]))
        return float(np.mean(last - first))

    def fill(self, channel: str) -> tuple[np.ndarray, np.ndarray]:
        """Return how full a channel is over time: cycles, and the buffers in use from then on.

        It covers the tokens that were recorded, at most 65,536 of the network.
        """
        tensor = self._names.index(channel)
        rows = [row for row in self._times.tokens if row[0] == tensor]
        times = np.array([row[3] for row in rows] + [row[6] for row in rows])
        steps = np.array([1] * len(rows) + [-1] * len(rows))
        order = np.lexsort((steps, times))
        return times[order], np.cumsum(steps[order])

    def to_svg(self) -> str:
        """Return a picture: the network with its bottleneck marked, and a lane of tasks per process."""
        busy = {line.process: line.busy / self.cycles for line in self.processes}
        channels = [
            PictureChannel(
                self._names[tensor],
                [self._processes[p] for p in sorted({row[1] for row in rows})],
                [self._processes[p] for p in sorted({row[2] for row in rows})],
                line.fill / max(line.depth, 1),
            )
            for (tensor, *_), line in zip(self._times.channels, self.channels, strict=True)
            for rows in [[row for row in self._times.tokens if row[0] == tensor]]
        ]
        spans = [(process, start, end) for process, _, start, end in self._times.spans]
        tokens = [PictureToken(row[1], row[2], row[4], row[5]) for row in self._times.tokens]
        picture = NetworkPicture(self._processes, busy, channels, self.bottleneck, spans, tokens, self.cycles)
        return to_svg(network_drawing(picture))

    def save(self, path: str | Path) -> None:
        """Write the picture to an SVG file."""
        with naming_file("written", path):
            Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"bottleneck: process `{self.bottleneck}`"
        latency = "" if self.latency is None else f", {self.latency:,.0f} cycles from send to last receipt"
        yield f"a token every {self.interval:,.0f} cycles{latency}"
        yield ""
        rows = [
            (
                line.process,
                f"{line.tasks:,}",
                f"{line.busy / self.cycles:.0%}",
                f"{line.cores / self.cycles:.0%}",
                self._waits(line),
            )
            for line in self.processes
        ]
        yield from table(("process", "tasks", "busy", "waits for cores", "other waits"), rows)
        yield ""
        yield from table(
            ("channel", "depth", "tokens", "fill", "most", "queued"),
            [
                (c.channel, f"{c.depth}", f"{c.tokens:,}", f"{c.fill:.2f}", f"{c.most}", f"{c.queued:,.0f}")
                for c in self.channels
            ],
        )

    def _waits(self, line: ProcessLine) -> str:
        waits = [(cycles, f"a token of {name}") for name, cycles in line.tokens.items()]
        waits += [(cycles, f"a buffer of {name}") for name, cycles in line.buffers.items()]
        waits += [(line.waited, "`wait`")] if line.waited else []
        texts = [f"{cycles / self.cycles:.0%} {what}" for cycles, what in sorted(waits, reverse=True)]
        return ", ".join(texts)
