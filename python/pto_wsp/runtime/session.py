"""Sessions: programs that are launched in an order and run concurrently, as if one after another."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, NoReturn

from pto_wsp.errors import (
    ContractBroken,
    LaunchSkipped,
    NotYetSupported,
    PtoError,
    RunInterrupted,
    SessionClosed,
)
from pto_wsp.location import caller_location
from pto_wsp.runtime.bound_call import ArrayAccess, BoundCall
from pto_wsp.runtime.contracts import ContractGraph
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.run import Run
from pto_wsp.runtime.stats import RunStats
from pto_wsp.support.record import record


@record
class Wait:
    """Why a launch waits for an earlier one.

    Attributes:
        launch: the earlier launch.
        hazard: `read after write`, `write after read` or `write after write`.
        tensor: name of the tensor in the later launch.
    """

    launch: Launch
    hazard: str
    tensor: str


class Launch:
    """A program that a session runs.

    Attributes:
        name: of the graph, or of the workload.
        graph: what was launched, with its contract.
        waits: the launches that it waits for, with the reasons; those that were settled before are left out.
        location: where it was launched.
    """

    def __init__(self, graph: ContractGraph, call: BoundCall, waits: tuple[Wait, ...]) -> None:
        self.name = graph.name
        self.graph = graph
        self.waits = waits
        self.location = caller_location()
        self._call = call
        self._is_cancelled = False
        self._is_reported = False
        self._begun = threading.Event()
        self._run: Run | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Launch {self.name}, {'done' if self.done else 'under way'}>"

    @property
    def accesses(self) -> tuple[ArrayAccess, ...]:
        """What the launch does with its arrays."""
        return tuple(self._call.accesses)

    @property
    def done(self) -> bool:
        """Whether the launch has ended, in whatever way. It does not wait."""
        return self._begun.is_set() and (self._run is None or self._run.done)

    @property
    def stats(self) -> RunStats | None:
        """Figures of the run, or None before `wait` has returned."""
        return None if self._run is None else self._run.stats

    def wait(self) -> RunStats:
        """Lend the calling thread to the launch until it is done, and return its figures.

        Raises:
            LaunchSkipped: it did not run, since one that it waits for failed.
            PtoError: as `Run.wait` raises.
        """
        try:
            return self._result()
        except Exception:
            self._is_reported = True
            raise

    def _result(self) -> RunStats:
        self._begun.wait()
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run.wait()

    @property
    def is_settled(self) -> bool:
        """Whether it is done, and `wait` has raised its error to the caller if it has one."""
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
        if self._run is not None:
            self._run.cancel()

    def begin(self) -> None:
        """Begin the run; called by the session."""
        if self._is_cancelled:
            raise RunInterrupted(reason="it was cancelled before it began")
        self._run = self._call.submit()
        self._begun.set()
        if self._is_cancelled:
            self._run.cancel()

    def begin_later(self) -> None:
        """Begin the run when all launches that it waits for have ended; called by a thread of the session."""
        try:
            for wait in self.waits:
                self._require(wait)
            self.begin()
        except Exception as error:
            self._error = error
        finally:
            self._begun.set()

    def _require(self, wait: Wait) -> None:
        try:
            wait.launch._result()
        except PtoError as error:
            notes = [(f"`{wait.launch.name}` was launched here", wait.launch.location)]
            raise LaunchSkipped(
                name=self.name, first=wait.launch.name, code=error.code, loc=self.location, notes=notes
            ) from error


class Session:
    """Programs that run concurrently on one pool of threads, with the results of one after another.

    A launch waits for the earlier launches whose arrays overlap its own where one of the two writes: read
    after write, write after read, write after write. Others run at the same time. Launches of several
    threads have the order in which `launch` was called.

    Use it as a context manager: leaving the block waits for all launches, and an exception cancels them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launches: list[Launch] = []
        self._unsettled: list[Launch] = []  # of them
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
        """All launches, in order."""
        return tuple(self._launches)

    def launch(
        self, program: Program | ContractGraph, *, workers: int | None = None, **values: Any
    ) -> Launch:
        """Run a program after the earlier launches that it depends on.

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
            PtoError: as `Program.submit` raises before the first task. If the launch has to wait, its `wait`
                raises what the submission finds later.
        """
        graph = program if isinstance(program, ContractGraph) else ContractGraph(program)
        call = graph.program.bound_call(workers=workers, **values)
        with self._lock:
            if self._is_closed:
                raise SessionClosed(name=graph.name, loc=caller_location())
            graph.check_requirements(call, [(e.graph, e.accesses) for e in self._launches])
            launch = Launch(graph, call, self._waits_of(call))
            if launch.waits:
                threading.Thread(target=launch.begin_later, name=f"pto {launch.name}", daemon=True).start()
            else:
                launch.begin()
            self._launches.append(launch)
            self._unsettled.append(launch)
        return launch

    def _waits_of(self, call: BoundCall) -> tuple[Wait, ...]:
        """Return the launches that are not settled and conflict with a call, each with its first reason."""
        found: list[Wait] = []
        self._unsettled = [earlier for earlier in self._unsettled if not earlier.is_settled]
        for earlier in self._unsettled:
            pairs = ((a, b) for a in earlier.accesses for b in call.accesses if a.conflicts_with(b))
            first, second = next(pairs, (None, None))
            if first is not None and second is not None:
                found.append(Wait(earlier, _hazard(first, second), second.tensor))
        return tuple(found)

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
        """
        later = [] if write is None else [write]
        for launch in reads or []:
            self._require_access(launch, array, is_written=False)
        for launch in [*later, *(writes or [])]:
            self._require_access(launch, array, is_written=True)
        chains = [[read, write] for read in reads or [] if write is not None] + [list(writes or [])]
        for chain in chains:
            numbers = [self._launches.index(launch) for launch in chain if launch is not None]
            if numbers != sorted(numbers):
                names = " before ".join(f"`{launch.name}`" for launch in chain if launch is not None)
                raise ContractBroken(reason=f"expected {names}, found another order", loc=caller_location())

    def _require_access(self, launch: Launch, array: Any, is_written: bool) -> None:
        if launch not in self._launches:
            raise ContractBroken(reason=f"`{launch.name}` is of another session", loc=caller_location())
        if not any(a.array is array and (a.is_written or not is_written) for a in launch.accesses):
            what = "writes" if is_written else "reads"
            reason = f"expected that `{launch.name}` {what} the array, found that it does not"
            raise ContractBroken(reason=reason, loc=caller_location())

    def wait(self) -> None:
        """Wait for all launches.

        Raises:
            PtoError: the first error that is not `LaunchSkipped`; later launches may have failed, too.
        """
        skipped: PtoError | None = None
        failed: PtoError | None = None
        for launch in self.launches:
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
        for launch in self.launches:
            launch.cancel()


def _hazard(earlier: ArrayAccess, later: ArrayAccess) -> str:
    if earlier.is_written:
        return "write after write" if later.is_written else "read after write"
    return "write after read"
