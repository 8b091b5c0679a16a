"""Programs: what `Workload.compile` returns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from pto_wsp._native import FloatEnvironment
from pto_wsp.errors import (
    NothingRecorded,
    NotYetSupported,
    UnsupportedByTarget,
    UnusableFile,
    WrongValue,
    naming_file,
)
from pto_wsp.ir.module import Module
from pto_wsp.lang.captured import NOTHING_CAPTURED, Captured
from pto_wsp.lang.compiling import compile_traced
from pto_wsp.lang.schedule.schedule import Schedule
from pto_wsp.lang.schedule.strategies import Strategies
from pto_wsp.lang.workload.build_module import Traced
from pto_wsp.location import argument_location, caller_location
from pto_wsp.prove.finding import Proof
from pto_wsp.runtime.binding import NO_KERNELS, Arrays, Binder, Bound
from pto_wsp.runtime.bound_call import ArrayAccess, BoundCall
from pto_wsp.runtime.calendar import Calendar
from pto_wsp.runtime.calls import CallChecker, CallOptions
from pto_wsp.runtime.chosen_schedules import ChosenSchedules, ScheduledProgram
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.export import write_tree
from pto_wsp.runtime.interpreted import InterpretedFigures, InterpretedRunner, bind
from pto_wsp.runtime.networks import require_one_order
from pto_wsp.runtime.one_task import Chosen, OneTask, choose, compare_values, run_alone
from pto_wsp.runtime.outcome import Figures, Runner, SimulatedFigures
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.proved import proved
from pto_wsp.runtime.run import Run
from pto_wsp.runtime.run_options import (
    require_outermost,
)
from pto_wsp.runtime.runners import make_runner
from pto_wsp.runtime.stated import require_stated
from pto_wsp.runtime.stats import RunStats
from pto_wsp.runtime.task_graph import TaskGraph
from pto_wsp.runtime.trace import Trace
from pto_wsp.targets import registry
from pto_wsp.targets.base import Target
from pto_wsp.text.files import read_program, with_defaults, write_program
from pto_wsp.types.dtype import f32, i64, u64
from pto_wsp.visualize.drawing import escaped
from pto_wsp.visualize.notebook import module_html

if TYPE_CHECKING:
    from pto_wsp.advice.advice import Advices
    from pto_wsp.advice.report import Report


class Program:
    """A compiled workload. Calling it binds arrays, checks them and runs; it is safe to share by threads.

    Arrays are used in place: numpy arrays, or others of the CPU with `__dlpack__` (torch tensors among them),
    whose element type, rank and sizes are those of the workload's tensors, packed if a tensor's layout says
    so. Sizes are taken from them. Nothing is compiled again for other sizes.

    Attributes:
        trace: the record of the last run with `trace=True`, or None.
    """

    def __init__(
        self,
        module: Module,
        defaults: Mapping[str, object],
        target: str | Target,
        captured: Captured = NOTHING_CAPTURED,
        stated: Arrays | None = None,
        proof: Proof | None = None,
    ) -> None:
        self.trace: Trace | None = None
        made = registry.get(target) if isinstance(target, str) else target
        self._target = made.name
        self._captured = captured
        self._prepared = Prepared(module, made, proof)
        self._name = module.entry_workload.name
        runner = make_runner(self._prepared)
        first = ScheduledProgram("", self._prepared.module, runner)
        self._schedules = ChosenSchedules(made.name, first)
        self._is_time_alone = stated is not None
        if stated is not None:
            require_stated(self.module, stated)
        self._binder = Binder(self._runner.workload, defaults, stated)
        self._calls = CallChecker(self._prepared, captured, self._binder, self._schedules)
        self._unreported = (self._runner.compiles, self._runner.compile_ms)
        self._last: tuple[Figures, str, int, float] | None = None

    def __repr__(self) -> str:
        return f"<Program {self._name}({', '.join(self._binder.params)})>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a program holds compiled kernels.

        Raises:
            NotYetSupported: always.
        """
        advice = "write it with `program.save(path)`, read it with `Program.load(path)`; threads may share it"
        raise NotYetSupported(feature="pickling a Program", detail="", advice=advice)

    def _repr_html_(self) -> str:
        ran = [f"<p>{escaped(str(self.stats))}</p>"] if self.stats is not None else []
        pictures = [self.trace.to_svg()] if self.trace is not None else []
        return module_html(f"program {self._name} for {self._target}", self.module, *ran, *pictures)

    @property
    def target(self) -> str:
        """Name of the target that it was compiled for."""
        return self._target

    @property
    def module(self) -> Module:
        """The IR that runs, with the schedule of the last run if runs choose it."""
        return self._schedules.current.module

    @property
    def _runner(self) -> Runner:
        return self._schedules.current.runner

    @property
    def stats(self) -> RunStats | None:
        """Figures of the last run, or None before the first."""
        return None if self._last is None else self._stats(*self._last)

    def _stats(self, figures: Figures, schedule: str, compiles: int, compile_ms: float) -> RunStats:
        counters = dict(figures.counters)
        tensors = self._runner.workload.tensors
        numbers = counters.pop("streamed_tensors", [])
        left_out = counters.pop("left_out", [])
        assert isinstance(numbers, list) and isinstance(left_out, list)
        streamed = tuple(tensors[i].name for i in numbers)
        run_ms = figures.run_ns / 1e6
        return RunStats(
            figures.tasks,
            figures.workers,
            run_ms,
            compiles,
            compile_ms,
            counters,
            streamed,
            figures.run,
            schedule,
            proved(self._prepared.proof, left_out),
        )

    def run(
        self,
        *unnamed: object,
        workers: int | None = None,
        trace: bool | str | None = None,
        check: str | None = None,
        progress: Callable[[int], object] | None = None,
        time_limit: float | None = None,
        stream: object = None,
        calendar: Calendar | None = None,
        **values: Any,
    ) -> None:
        """Bind, check and run; return when every task is done.

        This is `submit` and `wait` in one, on the calling thread. A call whose arrays overlap those of
        another call of this program, in another thread, waits for that call first.

        Args:
            unnamed: refused: values have names.
            workers: threads to use; all cores by default. Results do not depend on it.
            trace: what to record in `self.trace`: `"tasks"` or True, when and where each task ran; `"full"`,
                what dispatchers did, too; `"off"` or False, nothing. By default what the schedule says. The
                target `interp` records nothing, and refuses the others.
            check: `"values"` runs one task after another on this thread, each also in the interpreter, and
                raises at the first whose outputs differ, or that writes a NaN though it was given none. No
                other option goes with it.
                `"hazards"` checks what P states: that no two tasks of different iterations touch a common
                element that one of them writes. Before anything runs; where elements that tasks write decide
                what runs, when everything has. And, as a task of a kernel with `block_dim` runs, that no two
                of its instances write one element; each runs twice then. What a proof given to `compile`
                proves is left out.
            progress: called with the number of tasks that are complete: about every 50 ms of running, by
                whichever worker is between two tasks, and at the end by the calling thread. An exception in
                it stops the run and is raised. The target `interp` calls it at the end only.
            time_limit: seconds that the run may take. After that no task begins, and kernels end at their
                next iteration of a loop; C++ kernels are not stopped.
            stream: of torch or CuPy, or its number: a run of the target `cuda` is ordered in it, after the
                work that it has. By default the default stream. `workers` are then blocks.
            calendar: runs each task on its core of this calendar, in its order. The number of workers is that
                of its cores. On `sim`, the simulated cores follow it.
            values: an array per tensor, `Ragged.lengths(...)` and the like per axis with rows, a number per
                scalar and per size that no array decides.

        Raises:
            CannotRun: the target only emits sources.
            BindError: a value is missing or does not fit; nothing has run.
            ArraysInFlight: an array overlaps one of an unfinished run, and one of the two runs writes it.
            RegionOutside, ViewShape, BadExpression: a region or size is wrong; nothing has run.
            KernelFailed: a check inside a kernel failed; earlier tasks have run.
            RunInterrupted: another thread called `cancel`, or the process forked or exits.
            TimeLimitReached: the run took longer than `time_limit`; some tasks have run.
            NestedRun: inside a task, or while a workload is described.
            VariableChanged: a variable around the workload or its kernels has changed since it was read.
            IterationsConflict, InstancesConflict: the check found something.
            EdgesMissing: the schedule is `Deps.explicit()`, and edges do not order all tasks that conflict.
            RowsNotKnown: the check cannot tell; the run is right all the same.
            ValuesDiffer, NanWritten, ElementNotStored: `check="values"` found it; earlier tasks have run.
            NoReference: `check="values"`, and a kernel in C++ has no reference.
            CalendarChanged, CalendarUnordered, BadCalendar, CalendarUndecided: the calendar does not fit.
        """
        options = CallOptions(workers, trace, check, progress, time_limit, stream, calendar)
        bound, request, scheduled = self._calls.request(values, options, unnamed)
        compiles, compile_ms = self._unreported
        if check == "values":
            options.require_check_alone()
            figures, self.trace = self._compare(bound), None
        else:
            figures, self.trace = scheduled.runner.run(request)
        self._binder.keep(bound)
        self._unreported = (0, 0.0)
        self._last = (figures, scheduled.name, compiles, compile_ms)

    __call__ = run

    def submit(
        self,
        *unnamed: object,
        workers: int | None = None,
        trace: bool | str | None = None,
        check: str | None = None,
        progress: Callable[[int], object] | None = None,
        time_limit: float | None = None,
        stream: object = None,
        calendar: Calendar | None = None,
        **values: Any,
    ) -> Run:
        """Bind, check and begin a run; threads of the pool work on it, whether or not a thread waits.

        Several runs may be under way, of one program or of several, as long as none uses memory that another
        one writes. The target `interp` runs all tasks before it returns.

        Args:
            unnamed: refused: values have names.
            workers: as `run` takes it. A thread that waits for the run is one of them.
            trace: as `run` takes it.
            check: as `run` takes it, other than `"values"`.
            progress: as `run` takes it. Any thread may call it, and at the end the one that waits.
            time_limit: as `run` takes it; `wait` raises `TimeLimitReached`.
            stream: as `run` takes it. If it records a graph, the run is part of the graph; keep the run as
                long as the graph.
            calendar: as `run` takes it.
            values: those of `run`. The run holds them until it is done.

        Returns:
            The run: `wait()` returns its figures.

        Raises:
            ArraysInFlight: an array overlaps one of an unfinished run, and one of the two runs writes it.
            PtoError: as `run` raises before the first task.
        """
        if check == "values":
            raise WrongValue(name="check", expected='None or "hazards" in `submit`', found=repr(check))
        options = CallOptions(workers, trace, check, progress, time_limit, stream, calendar)
        bound, request, scheduled = self._calls.request(values, options, unnamed)
        submitted = scheduled.runner.submit(request)
        return Run(submitted, self._finish(bound, scheduled), caller_location())

    def calendar(self, *, workers: int | None = None, **values: Any) -> Calendar:
        """Return a table of which worker, or core of the simulated device, runs which task when.

        List scheduling makes it: of the tasks that are ready, the one before the longest chain of tasks
        starts first. Costs are those of the device, or the measured mean time of each task call of earlier
        runs, shared out by elements. Nothing runs. `run(calendar=...)` runs the table as it is.

        Args:
            workers: how many the calendar is for; all cores by default. On `sim` the device decides.
            values: those of `run`. Sizes replace arrays whose elements decide nothing.

        Raises:
            CalendarUndecided: tasks write what decides which tasks exist, or time merges tokens.
            UnsupportedByTarget: the target has no calendars; on `sim`, a network has latencies or delays.
            WrongValue: the schedule decides where or in which order tasks run; `workers` on `sim`.
            PtoError: as `run` raises where values do not fit.
        """
        values = self._binder.with_reserved(values)
        _, request, _ = self._calls.request(values, CallOptions(workers, trace=False))
        runner = self._calls.calendar_maker()
        if runner.clock_ghz is not None and workers is not None:
            expected = "no number of workers: the device decides"
            raise WrongValue(name="workers", expected=expected, found=str(workers), loc=caller_location())
        native, places = runner.make_calendar(request)
        clock, cores = runner.clock_ghz, runner.core_names(sum(native.kinds))
        names = [event.label for event in places]
        return Calendar((self._name, self._calls.identity), clock, cores, names, native)

    def _finish(
        self, bound: Bound, scheduled: ScheduledProgram
    ) -> Callable[[Figures, Trace | None], RunStats]:
        compiles, compile_ms = self._unreported
        self._unreported = (0, 0.0)

        def finish(figures: Figures, recorded: Trace | None) -> RunStats:
            self._binder.keep(bound)
            self.trace, self._last = recorded, (figures, scheduled.name, compiles, compile_ms)
            return self._stats(*self._last)

        return finish

    def bound_call(self, *, workers: int | None = None, **values: Any) -> BoundCall:
        """Bind a call that a session submits later.

        Raises:
            PtoError: as `run` raises where values do not fit.
        """
        bound, request, scheduled = self._calls.request(values, CallOptions(workers))
        arrays, location = bound.arrays, caller_location()
        accesses = tuple(ArrayAccess(name, arrays[i], is_written) for i, name, is_written in self._accessed)

        def submit(earlier: Sequence[Run]) -> Run | None:
            submitted = scheduled.runner.submit_after(request, [run.submitted for run in earlier])
            return None if submitted is None else Run(submitted, self._finish(bound, scheduled), location)

        return BoundCall(self._name, accesses, location, submit)

    @cached_property
    def _accessed(self) -> tuple[tuple[int, str, bool], ...]:
        """Position, name and whether tasks write it, of each tensor that a call gives."""
        written, tensors = self.module.written, enumerate(self._runner.workload.tensors)
        return tuple((i, t.name, t.name in written) for i, t in tensors if not t.is_local)

    def _require_kernels(self, what: str) -> None:
        """Refuse to run tasks of a program that is compiled for time alone."""
        if self._is_time_alone:
            loc = self._runner.workload.loc
            raise UnsupportedByTarget(target=self._target, what=what, reason=NO_KERNELS, loc=loc)

    def _compare(self, bound: Bound) -> Figures:
        """Run task after task, each on the target and in the interpreter."""
        self._require_kernels('`check="values"`')
        if isinstance(self._runner, InterpretedRunner):
            reason = "it is what values are compared with: compile for `cpu`"
            loc = argument_location("check")
            raise UnsupportedByTarget(target=self._target, what='`check="values"`', reason=reason, loc=loc)
        arrays, sizes = bind(self.module, bound.arrays, bound.scalars)
        start = time.perf_counter_ns()
        with FloatEnvironment():
            tasks = compare_values(self.module, arrays, sizes, self._runner.call_kernel)
        return InterpretedFigures(tasks, time.perf_counter_ns() - start)

    def task(self, which: int | str, **indices: int) -> OneTask:
        """Return one task, to run it alone: `program.task(12).run(X=x)`.

        Args:
            which: its number in program order, as errors, prints and traces show it, or its kernel's name.
            indices: with a name, values of loop variables around the task: `program.task("attend", b=1)`.

        Raises:
            WrongValue: `which` is neither.
        """
        require_one_order(self._runner.workload, "`task`")
        self._require_kernels("`task`")
        return OneTask(choose(which, indices), self._run_task)

    def _run_task(self, chosen: Chosen, values: Mapping[str, Any]) -> None:
        require_outermost()
        bound = self._binder.bind(values)
        arrays, sizes = bind(self.module, bound.arrays, bound.scalars)
        with FloatEnvironment():
            run_alone(self.module, arrays, sizes, chosen, self._runner.call_kernel)
        self._binder.keep(bound)

    def cancel(self) -> None:
        """Stop all runs of this program that are under way: who waits for one gets `RunInterrupted`.

        No task begins any more, and kernels end at their next iteration of a loop; then the program can be
        run again. A call that waits for another one begins.
        """
        self._runner.cancel()

    def task_graph(self, **values: Any) -> TaskGraph:
        """Run once in the interpreter, task after task, and return the tasks with what each waited for.

        Slow, and meant for small sizes and for looking at; results are written as by any run.

        Args:
            values: those of `run`.

        Raises:
            PtoError: as `run` does.
        """
        require_outermost()
        require_one_order(self._runner.workload, "`task_graph`")
        self._require_kernels("`task_graph`")
        self._captured.check()
        bound = self._binder.bind(values)
        graph = InterpretedRunner(self.module).graph(bound.arrays, bound.scalars)
        self._binder.keep(bound)
        return graph

    def report(self) -> Report:
        """Return the figures of the last run: time of workers, critical path, longest tasks, and advice.

        Of a run on the target `sim` it is a `SimulationReport`: lanes are cores, times are simulated.

        Raises:
            NothingRecorded: the last run was neither simulated nor recorded with `trace="full"`.
        """
        figures = None if self._last is None else self._last[0]
        return figures.report() if isinstance(figures, SimulatedFigures) else self._recorded().report()

    def advise(self) -> Advices:
        """Return what costs time in the last run: `print(program.advise())` (docs/advice.md).

        Each advice has its figures, the line of source, the gain at stake and the remedy. The result is
        empty if there is nothing to say.

        Raises:
            NothingRecorded: the last run was not recorded with `trace="full"`.
        """
        return self._recorded().advise()

    def _recorded(self) -> Trace:
        if self.trace is None:
            raise NothingRecorded(program=self._name)
        return self.trace

    def set_symbol_i64(self, name: str, value: int) -> None:
        """Set a scalar parameter of type i64 for the runs to come; a value in a call goes before it.

        Raises:
            UnknownParameter: there is no scalar of that name.
            WrongValue: it is of another type, or cannot be this number.
        """
        self._binder.set_symbol(name, value, i64)

    def set_symbol_u64(self, name: str, value: int) -> None:
        """Set a scalar parameter of type u64, as `set_symbol_i64` does."""
        self._binder.set_symbol(name, value, u64)

    def set_symbol_f32(self, name: str, value: float) -> None:
        """Set a scalar parameter of type f32, as `set_symbol_i64` does."""
        self._binder.set_symbol(name, value, f32)

    def set_axis_sizes(self, sizes: Mapping[str, int]) -> None:
        """Set extents of axes and sizes for the runs to come; a value in a call goes before it.

        Arrays of a call have to agree with them.

        Raises:
            UnknownParameter: there is no axis or size of one of these names.
            WrongValue: an extent is not an integer >= 0.
        """
        self._binder.set_extents(sizes)

    def dump(self) -> str:
        """Return the IR as `.pto` text."""
        return str(self.module)

    @property
    def schedule(self) -> Schedule | Strategies:
        """How the tasks of the next run are run, or the schedules that it chooses from."""
        return self._schedules.schedule

    def reschedule(self, schedule: Schedule | Strategies) -> None:
        """Replace the whole schedule. Nothing is compiled, and results stay the same, bit for bit.

        Args:
            schedule: the schedule of the runs from now on, or strategies, of which each run chooses one.

        Raises:
            WrongValue: no schedule.
            BadKey: a key that no task of the program has, or that can mean two things.
            UnsupportedByTarget: the target refuses a policy.
        """
        self._schedules.replace(schedule)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as text: module, schedule, and the numbers that sizes and scalars have.

        No machine code is written, no arrays, and no numpy references of kernels in C++.

        Raises:
            UnusableFile: the file cannot be written, or runs choose the schedule.
        """
        write_program(path, self._schedules.require_one(path), self._binder.numbers)

    def export(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the program as a folder of sources, which its `README.md` says how to build and run.

        Numbers of `set_symbol_i64` and the like become defaults of the sources.

        Args:
            folder: where they go; made where it is missing.
            force: overwrite files that exist.

        Raises:
            UnusableFile: the folder is not empty and `force` is not given, it cannot be written, or runs
                choose the schedule.
            UnsupportedByTarget: the target emits no sources, or not those of this program.
        """
        module = with_defaults(self._schedules.require_one(folder), self._binder.numbers)
        write_tree(self._prepared.target.emit(module), folder, force=force)

    def save_kernels(self, path: str | os.PathLike[str]) -> None:
        """Write the kernels as a shared library for this machine: `pto_load_kernels` of the C API loads it.

        Raises:
            UnusableFile: the target has no library of kernels, or the file cannot be written.
        """
        if not isinstance(self._runner, EngineRunner):
            reason = f"target `{self._target}` compiles no kernels for this machine"
            raise UnusableFile(what="written", path=path, reason=reason, hint="compile for `cpu`")
        import shutil  # here: it loads the packages of four kinds of archives

        with naming_file("written", path):
            shutil.copy(self._runner.artifact.path, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], target: str = "cpu") -> Program:
        """Compile a program that `save` wrote; kernels that the cache has are not compiled again.

        Args:
            path: of the file.
            target: where the program runs.

        Raises:
            UnusableFile, TextError, InvalidIR: the file is not what `save` writes.
            CompileError: as `compile` raises.
        """
        return compile_traced(Traced(read_program(path), {}), target)
