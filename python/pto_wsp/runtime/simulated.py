"""The runner of the target `sim`: runs on the engine for values, and simulates a device for time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Self

import numpy as np

from pto_wsp import _native
from pto_wsp.advice.machine import Machine
from pto_wsp.advice.report import Report
from pto_wsp.device.model import Device
from pto_wsp.errors import KernelFailed, TimeLimitReached, UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.ir.workload import TURNS, WorkloadFunction
from pto_wsp.runtime.binding import NO_KERNELS
from pto_wsp.runtime.device_costs import DeviceCosts, Find, machine
from pto_wsp.runtime.engine import EngineRunner, LoadedProgram
from pto_wsp.runtime.network_report import NetworkReport
from pto_wsp.runtime.networks import require_known_control, require_no_clock
from pto_wsp.runtime.outcome import CalendarMaker, EndedRun, Figures, RunRequest, SimulatedFigures, Submitted
from pto_wsp.runtime.simulation_report import SimulationReport
from pto_wsp.runtime.trace import Lanes, Ran, Trace
from pto_wsp.support.record import record

_ALL_BYTES = 2**64 - 1


class SimulatedRunner(CalendarMaker):
    """Runs a module on the engine, and finds how long it takes on a device."""

    def __init__(self, engine: EngineRunner, device: Device, has_values: bool) -> None:
        self._engine = engine
        self._device = device
        self._has_values = has_values
        self.clock_ghz = device.clock_ghz
        self.workload = engine.workload
        self.compiles, self.compile_ms = engine.compiles, engine.compile_ms

    def run(self, request: RunRequest) -> tuple[Figures, Trace | None]:
        """Run for values, if asked for, and simulate. The trace is that of the device."""
        loaded = self._loaded
        entry = loaded.module.entry_workload
        if self._has_values:
            require_known_control(loaded.module)
        else:
            _require_simulated(request, loaded.module)
        find, costs = self._costs.of_run()
        figures: Figures | None = None
        result: _native.SimResult | None = None
        if any(t.channel is not None and t.channel.merge != TURNS for t in entry.tensors):
            result = self._simulate(loaded, request, find, [])  # the order of merges decides values
        if self._has_values:
            asked = dataclasses.replace(request, trace=0, calendar=None)
            figures, _ = self._engine_for(result).run(asked)
            assert isinstance(figures, _native.RunResult)
        if result is None:
            result = self._simulate(loaded, request, find, [] if figures is None else figures.flushed)
        found = None
        if result.record is not None:
            ran = Ran(loaded.module, Machine(0, {}, is_simulated=True))
            kept = _SimulatedRecord(result, self._device)
            found = loaded.make_trace(kept, request, 0, ran, kept.lanes())
        of_network = None if result.network is None else NetworkReport(entry, result.network, result.cycles)
        report = cache(lambda: SimulationReport(self._device, result, costs, found, of_network))
        return self._figures(figures, result, report), found if request.trace > 0 else None

    def _simulate(
        self, loaded: LoadedProgram, request: RunRequest, find: Find, flushed: list[int]
    ) -> _native.SimResult:
        entry = loaded.module.entry_workload
        if request.calendar is not None or loaded.options.makes_calendar:
            require_no_clock(entry)
        try:
            return loaded.executable.simulate(
                tuple(request.arrays),
                tuple(request.scalars),
                loaded.options,
                self._machine(loaded),
                find,
                self._costs.matters,
                self._costs.places,
                flushed,
                request.trace > 0,
                _latencies(entry),
                request.calendar,
            )
        except _native.EngineError as error:
            raise self._engine.explained(error, loaded, request) from None

    def _engine_for(self, result: _native.SimResult | None) -> EngineRunner:
        """Return the runner that computes values in the order in which a simulation has merged tokens."""
        if result is None or result.network is None:
            return self._engine
        return self._engine.merging(result.network.merges)

    def core_names(self, count: int) -> list[str]:
        """Return the names of the `count` cores of the device."""
        return _core_names(self._device)

    def make_calendar(self, request: RunRequest) -> tuple[_native.Calendar, Trace]:
        """Return a calendar for the cores of the device, with the places of its tasks."""
        loaded = self._loaded
        require_no_clock(loaded.module.entry_workload)
        find, _ = self._costs.of_run()
        try:
            made, places = loaded.executable.make_simulated_calendar(
                tuple(request.arrays),
                tuple(request.scalars),
                loaded.options,
                self._machine(loaded),
                find,
                self._costs.matters,
                self._costs.places,
            )
        except _native.EngineError as error:
            raise self._engine.explained(error, loaded, request) from None
        return made, loaded.make_trace(places, request, 0, None)

    @property
    def _loaded(self) -> LoadedProgram:
        """The program. Where its schedule is open, stores stream to tensors beyond the device's cache."""
        loaded = self._engine.loaded
        loaded.options.streaming_bytes = loaded.options.streaming_bytes or self._device.l2.size or _ALL_BYTES
        return loaded

    @cached_property
    def _costs(self) -> DeviceCosts:
        module = self._engine.loaded.module
        return DeviceCosts([module.kernel(name) for name in self._engine.library.names], self._device)

    def _machine(self, loaded: LoadedProgram) -> _native.SimMachine:
        """Return the device, with as many dispatchers as the schedule says."""
        found, asked = machine(self._device), loaded.options.dispatchers
        if asked > found.dispatchers:
            raise UnsupportedByTarget(
                target="sim",
                what=f"a schedule for {asked} dispatchers",
                reason=f"the device `{self._device.name}` has {found.dispatchers}",
                loc=loaded.module.entry_workload.loc,
            )
        found.dispatchers = asked or found.dispatchers
        if loaded.options.prefetch > 0 and self._device.l2.size == 0:
            raise UnsupportedByTarget(
                target="sim",
                what="`prefetch`",
                reason=f"the device `{self._device.name}` has no cache that inputs could be fetched into",
                loc=loaded.module.entry_workload.loc,
            )
        return found

    def _figures(
        self, figures: Figures | None, result: _native.SimResult, report: Callable[[], Report]
    ) -> SimulatedFigures:
        ns = self._device.microseconds(result.cycles) * 1e3
        counters: dict[str, int | list[int]] = {} if figures is None else dict(figures.counters)
        counters |= {"cycles": round(result.cycles), "time_ns": round(ns)}
        counters["prefetched_bytes"] = result.prefetched_bytes
        return SimulatedFigures(
            0 if figures is None else figures.run,
            result.tasks,
            0 if figures is None else figures.workers,
            0 if figures is None else figures.run_ns,
            counters,
            report,
        )

    def submit(self, request: RunRequest) -> EndedRun:
        """Run and simulate before returning."""
        try:
            return EndedRun(*self.run(request))
        except (KernelFailed, TimeLimitReached) as error:
            return EndedRun(error)

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> EndedRun | None:
        """Run before returning; None while earlier runs are under way."""
        return None if earlier else self.submit(request)

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> None:
        """Call one kernel on views and scalars for its values, as task number `task`."""
        self._engine.call_kernel(kernel, args, workspace, task)

    def cancel(self) -> None:
        """Stop all runs that are under way."""
        self._engine.cancel()

    def rescheduled(self, module: Module) -> Self:
        """Return a runner with bytecode for the schedule of `module`."""
        other = copy.copy(self)
        other._engine = self._engine.rescheduled(module)
        return other


def _require_simulated(request: RunRequest, module: Module) -> None:
    """Refuse options of a run that observe kernels, where no kernel is called."""
    options = {
        '`check="hazards"`': request.check,
        "`progress`": request.progress is not None,
        "`time_limit`": request.time_limit_ns != 0,
    }
    for what, is_given in options.items():
        if is_given:
            loc = module.entry_workload.loc
            raise UnsupportedByTarget(target="sim", what=what, reason=NO_KERNELS, loc=loc)


def _latencies(workload: WorkloadFunction) -> list[int]:
    """Return, per tensor, the cycles from a send to its receipt, or -1 - s where symbol number s has them."""
    symbols = [param.name for param in workload.symbols]
    cycles = (0 if tensor.channel is None else tensor.channel.latency for tensor in workload.tensors)
    return [count if isinstance(count, int) else -1 - symbols.index(count) for count in cycles]


def _core_names(device: Device) -> list[str]:
    return [f"{kind.name} {i}" for kind in device.cores for i in range(kind.count)]


@record
class _SimulatedRecord:
    """What a simulation wrote down, in nanoseconds of the device. Cores are numbered kind after kind."""

    result: _native.SimResult
    device: Device

    @property
    def tasks(self) -> int:
        """How many tasks ran."""
        return self.result.tasks

    @property
    def workers(self) -> int:
        """How many cores could run them."""
        return sum(kind.count for kind in self.device.cores)

    def times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the core, and start and end in nanoseconds."""
        columns = self.result.times()
        core = self._first[columns["kind"]] + columns["core"]
        return core, self._ns(columns["start"]), self._ns(columns["end"])

    def lanes(self) -> Lanes:
        """Return the names of the cores, and the second core of each task."""
        columns = self.result.times()
        second = self._first[columns["second_kind"]] + columns["second"]
        return Lanes(
            self.device.name, _core_names(self.device), np.where(columns["second_kind"] < 0, -1, second)
        )

    @property
    def _first(self) -> np.ndarray:
        return np.cumsum([0, *(kind.count for kind in self.device.cores)])[:-1]

    def _ns(self, cycles: np.ndarray) -> np.ndarray:
        return np.rint(cycles / self.device.clock_ghz).astype(np.int64)

    def dispatchers(self) -> np.ndarray:
        """Return the dispatcher."""
        return self.result.times()["dispatcher"]

    def walks(self) -> np.ndarray:
        """Return when each task was made."""
        columns = self.result.times()
        task = np.arange(self.tasks)
        rows = [columns["dispatcher"], task, np.ones_like(task), self._ns(columns["made"])]
        return np.stack(rows, axis=1)

    def stalls(self) -> np.ndarray:
        """Return none: the report has their sums."""
        return np.empty((0, 4), np.int64)

    def stretches(self) -> np.ndarray:
        """Return none: cores do not expand tasks."""
        return np.empty((0, 3), np.int64)

    def dependences(self) -> np.ndarray:
        """Return rows of a task, one that depended on it, and the reason."""
        return self._places.dependences()

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the task's node, and the registers at its place."""
        return self._places.places()

    @property
    def _places(self) -> _native.RunRecord:
        assert self.result.record is not None
        return self.result.record
