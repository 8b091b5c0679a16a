"""Sessions: programs that are launched in an order and run concurrently, as if one after another."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

from pto_wsp.errors import (
    ContractBroken,
    LaunchSkipped,
    NestedRun,
    NotYetSupported,
    PtoError,
    RunInterrupted,
    SessionClosed,
    WrongValue,
)
from pto_wsp.location import caller_location
from pto_wsp.runtime.bound_call import ArrayAccess, BoundCall
from pto_wsp.runtime.contracts import ContractGraph, GivenArrays
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.run import Run
from pto_wsp.runtime.stats import RunStats
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record


@record
class Wait:
    """Why tasks of a launch may wait for tasks of an earlier one.

    Attributes:
        number: of the earlier launch in its session.
        name: of the earlier launch.
        hazard: `read after write`, `write after read` or `write after write`.
        tensor: name of the tensor in the later launch.
    """

    number: int
    name: str
    hazard: str
    tensor: str


class Launch:
    """A program that a session runs.

    It keeps the launches that it waits for until its outcome is known.

    Attributes:
        name: of the graph, or of the workload.
        graph: what was launched, with its contract.
        waits: the launches that it waits for, with the reasons; those that were settled before are left out.
        number: of the launch in its session, from 0 on.
        session: what launched it.
        location: where it was launched.
        accesses: what it does with its arrays.
        stats: figures of the run, or None before `wait` has returned.
        trace: the record of the run, if the schedule asks for one and `wait` has returned; else None.
    """

    def __init__(
        self, session: Session, graph: ContractGraph, call: BoundCall, earlier: Sequence[tuple[Launch, Wait]]
    ) -> None:
        self.name = graph.name
        self.graph = graph
        self.waits = tuple(wait for _, wait in earlier)
        self.number = session.num_launches
        self.session = session
        self.location = call.location
        self.stats: RunStats | None = None
        self.trace: Trace | None = None
        self.accesses = call.accesses
        self._earlier = tuple(launch for launch, _ in earlier)
        self._call: BoundCall | None = call
        self._is_cancelled = False
        self._is_reported = False
        self._has_begun = False
        self._begun: threading.Event | None = None  # of a launch that begins later
        self._run: Run | None = None
        self._error: Exception | None = None
        self._outcome: RunStats | Exception | None = None

    def __repr__(self) -> str:
        return f"<Launch {self.name}, {'done' if self.done else 'under way'}>"

    @property
    def done(self) -> bool:
        """Whether it and those that it waits for have ended, in whatever way. It does not wait."""
        return all(launch._has_ended for launch in self._unsettled())

    @property
    def _has_ended(self) -> bool:
        run = self._run
        return self._has_begun and (run is None or run.done)

    def wait(self) -> RunStats:
        """Lend the calling thread to the launch until it is done, and return its figures.

        It waits for the launches that this one depends on, too.

        Raises:
            LaunchSkipped: one that it waits for failed. Some of its tasks may have run before.
            PtoError: as `Run.wait` raises.
        """
        try:
            return self._result()
        except Exception:
            self._is_reported = True
            raise

    def _unsettled(self) -> list[Launch]:
        """Return the launch and those that it depends on, in order, without those whose outcome is known."""
        found: dict[int, Launch] = {}
        pending: list[Launch] = [self]
        while pending:
            launch = pending.pop()
            if launch._outcome is None and launch.number not in found:
                found[launch.number] = launch
                pending += launch._earlier
        return [found[number] for number in sorted(found)]

    def _result(self) -> RunStats:
        for launch in self._unsettled():
            launch._settle()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def _settle(self) -> None:
        """Wait for the outcome. A failure of a launch that it waits for counts more than its own end."""
        self._wait_for_begin()
        run, earlier = self._run, self._earlier
        if self._outcome is not None:  # another thread was here
            return
        outcome: RunStats | Exception | None = self._error
        if run is not None:
            try:
                outcome = run.wait()
            except NestedRun:
                raise
            except Exception as error:
                outcome = error
            self.stats, self.trace = run.stats, run.trace
        try:
            for launch in earlier:
                self._require(launch)
        except LaunchSkipped as error:
            outcome = error
        self._outcome = outcome
        self._earlier, self._run, self._call = (), None, None

    @property
    def is_settled(self) -> bool:
        """Whether it is done, and `wait` has raised its error to the caller if it has one."""
        if isinstance(self._outcome, RunStats):
            return True
        if not self.done or self._is_reported:
            return self.done
        try:
            self._result()
        except Exception:
            return False
        return True

    def cancel(self) -> None:
        """End the launch: no task of it begins any more. `wait` then raises `RunInterrupted`."""
        self._is_cancelled = True
        if (run := self._run) is not None:
            run.cancel()

    def begin(self) -> bool:
        """Begin the run if it need not wait for the end of another launch; called by the session."""
        if not all(launch._has_begun for launch in self._earlier):
            return False
        try:
            if not self._try_begin():
                return False
        except LaunchSkipped as error:
            self._error = error
        self._has_begun = True
        return True

    def start_later(self) -> None:
        """Begin the run as soon as it can, on a thread of its own; called by the session."""
        self._begun = threading.Event()
        threading.Thread(target=self._begin_later, name=f"pto {self.name}", daemon=True).start()

    def _wait_for_begin(self) -> None:
        if not self._has_begun:
            assert self._begun is not None
            self._begun.wait()

    def _begin_later(self) -> None:
        assert self._begun is not None
        try:
            for launch in self._earlier:
                launch._wait_for_begin()
            while not self._try_begin():
                oldest = next((launch for launch in self._earlier if not launch.done), None)
                if oldest is not None:
                    self._require(oldest)
        except Exception as error:
            self._error = error
        finally:
            self._has_begun = True
            self._begun.set()

    def _try_begin(self) -> bool:
        """Begin the run while launches that it waits for are under way; return False if it cannot."""
        if self._is_cancelled:
            raise RunInterrupted(reason="it was cancelled before it began")
        assert self._call is not None
        earlier: list[Run] = []
        for launch in self._earlier:
            run = launch._run
            if run is None or launch.done:
                self._require(launch)
            else:
                earlier.append(run)
        self._run = self._call.submit(earlier)
        if self._run is not None and self._is_cancelled:
            self._run.cancel()
        return self._run is not None

    def _require(self, launch: Launch) -> None:
        """Wait for a launch, and raise LaunchSkipped if it failed."""
        try:
            launch._result()
        except PtoError as error:
            notes = [(f"`{launch.name}` was launched here", launch.location)]
            raise LaunchSkipped(
                name=self.name, first=launch.name, code=error.code, loc=self.location, notes=notes
            ) from error


class Session:
    """Programs that run concurrently on one pool of threads, with the results of one after another.

    Launches run at the same time. A task waits for the tasks of earlier launches that access the same
    elements where one of the two writes: read after write, write after read, write after write. Launches of
    several threads have the order in which `launch` was called.

    Use it as a context manager: leaving the block waits for all launches, and an exception cancels them.

    Attributes:
        num_launches: launches so far. The session forgets those that have succeeded.
    """

    def __init__(self) -> None:
        self.num_launches = 0
        self._lock = threading.Lock()
        self._unsettled: list[Launch] = []
        self._given = GivenArrays()
        self._is_closed = False

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: threads work on a session.

        Raises:
            NotYetSupported: always.
        """
        raise NotYetSupported(feature="pickling a Session", detail="", advice="make one per process")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.cancel()
        try:
            self.wait()
        except PtoError:
            if kind is None:
                raise
        finally:
            self._is_closed = True

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Launches that are under way or whose error `wait` has not raised yet, in order."""
        with self._lock:
            self._forget_settled()
            return tuple(self._unsettled)

    def launch(
        self, program: Program | ContractGraph, *, workers: int | None = None, **values: Any
    ) -> Launch:
        """Begin a run of a program that seems to begin after the earlier launches.

        Args:
            program: a program, or a graph of one with a contract.
            workers: as `Program.run` takes it.
            values: those of the program. The caller must neither change nor read what the launch writes
                until the launch is done.

        Returns:
            The launch: `wait()` returns its figures.

        Raises:
            SessionClosed: the block of the session was left.
            ContractBroken: the graph requires a tensor that no earlier launch provides.
            PtoError: as `Program.submit` raises before the first task. If the launch has to begin later, its
                `wait` raises what the submission finds.
        """
        graph = program if isinstance(program, ContractGraph) else ContractGraph(program)
        call = graph.program.bound_call(workers=workers, **values)
        with self._lock:
            if self._is_closed:
                raise SessionClosed(name=graph.name, loc=caller_location())
            graph.check_requirements(call, self._given)
            launch = Launch(self, graph, call, self._waits_of(call))
            if not launch.begin():
                launch.start_later()
            self.num_launches += 1
            self._unsettled.append(launch)
            if graph is program:
                self._given.add(graph, call.accesses)
        return launch

    def _forget_settled(self) -> None:
        self._unsettled = [launch for launch in self._unsettled if not launch.is_settled]

    def _waits_of(self, call: BoundCall) -> list[tuple[Launch, Wait]]:
        """Return the launches that are not settled and conflict with a call, each with its first reason."""
        found: list[tuple[Launch, Wait]] = []
        self._forget_settled()
        for earlier in self._unsettled:
            pairs = ((a, b) for a in earlier.accesses for b in call.accesses if a.conflicts_with(b))
            first, second = next(pairs, (None, None))
            if first is not None and second is not None:
                wait = Wait(earlier.number, earlier.name, _hazard(first, second), second.tensor)
                found.append((earlier, wait))
        return found

    def order(
        self, array: Any, *, reads: list[Launch] | None = None, write: Launch | None = None,
        writes: list[Launch] | None = None,
    ) -> None:  # fmt: skip
        """Check that launches which touch an array run in the order that the caller expects.

        Args:
            array: the array, as it was given to the launches.
            reads: launches that read it before `write`.
            write: the launch that writes it after all `reads`.
            writes: launches that write it, one after the other.

        Raises:
            ContractBroken: a launch does not touch the array as stated, or was launched in another order.
            WrongValue: no launch is given, or what is given is not one.
        """
        given = [*(reads or []), *([] if write is None else [write]), *(writes or [])]
        if not given or not all(isinstance(launch, Launch) for launch in given):
            expected, found = "launches of this session", "none" if not given else repr(given)
            raise WrongValue(
                name="reads, write, writes", expected=expected, found=found, loc=caller_location()
            )
        later = [] if write is None else [write]
        for launch in reads or []:
            self._require_access(launch, array, is_written=False)
        for launch in [*later, *(writes or [])]:
            self._require_access(launch, array, is_written=True)
        chains = [[read, write] for read in reads or [] if write is not None] + [list(writes or [])]
        for chain in chains:
            numbers = [launch.number for launch in chain if launch is not None]
            if numbers != sorted(numbers):
                names = " before ".join(
                    f"launch {launch.number} of `{launch.name}`" for launch in chain if launch is not None
                )
                hint = "launch in this order, or state the order of the launches"
                raise ContractBroken(reason=f"expected {names}", loc=caller_location(), hint=hint)

    def _require_access(self, launch: Launch, array: Any, is_written: bool) -> None:
        if launch.session is not self:
            raise ContractBroken(reason=f"`{launch.name}` is of another session", loc=caller_location())
        if not any(a.array is array and (a.is_written or not is_written) for a in launch.accesses):
            what = "writes" if is_written else "reads"
            reason = f"expected that `{launch.name}` {what} the array, found that it does not"
            hint = f"name a launch that {what} it"
            raise ContractBroken(reason=reason, loc=caller_location(), hint=hint)

    def wait(self) -> None:
        """Wait for all launches.

        Raises:
            PtoError: the first error that is not `LaunchSkipped`; later launches may have failed, too.
        """
        skipped: PtoError | None = None
        failed: PtoError | None = None
        for launch in self._all_unsettled():
            try:
                launch.wait()
            except LaunchSkipped as error:
                skipped = skipped or error
            except PtoError as error:
                failed = failed or error
        error = failed or skipped
        if error is not None:
            raise error

    def cancel(self) -> None:
        """Cancel all launches that are not done."""
        for launch in self._all_unsettled():
            launch.cancel()

    def _all_unsettled(self) -> list[Launch]:
        with self._lock:
            return [*self._unsettled]


def _hazard(earlier: ArrayAccess, later: ArrayAccess) -> str:
    if earlier.is_written:
        return "write after write" if later.is_written else "read after write"
    return "write after read"
