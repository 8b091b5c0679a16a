"""Policies, one class per directive; each of their functions gives what a schedule holds."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from pto_wsp.errors import WrongValue
from pto_wsp.ir.schedule import MOST, POLICIES, Policy
from pto_wsp.lang.keys import KeyFunction, trace_key
from pto_wsp.location import caller_location


def _policy(
    directive: str, name: str, count: int | None = None, key: KeyFunction | None = None, least: int = 0
) -> Policy:
    """Return a policy with its number and key checked against its form."""
    form = POLICIES[directive][name]
    if count is not None:
        is_integer = isinstance(count, int) and not isinstance(count, bool)
        least = max(least, form.least or 0)
        if not is_integer or not least <= count <= form.most:
            expected = f"an integer from {least} to {form.most}"
            raise WrongValue(name=f"{name}'s n", expected=expected, found=repr(count), loc=caller_location())
    return Policy(directive, name, count or 0, trace_key(f"`{name}`", key) if form.takes_key else None)


class DispatchPolicy:
    """Which dispatcher walks the tasks into being, and runs those that can run at once.

    A number of dispatchers of 0 means as many as there are workers, up to 8. There can be 64.
    """

    @staticmethod
    def work_steal(num_aicpus: int = 0) -> Policy:
        """A dispatcher that is free takes the next piece of the program. The default."""
        return _policy("dispatch", "work_steal", num_aicpus)

    @staticmethod
    def round_robin(num_aicpus: int = 0) -> Policy:
        """The pieces of the program go to the dispatchers in turn."""
        return _policy("dispatch", "round_robin", num_aicpus)

    @staticmethod
    def affinity(key: KeyFunction, n: int = 0) -> Policy:
        """Tasks with equal keys go to one dispatcher: the key modulo the number of dispatchers."""
        return _policy("dispatch", "affinity", n, key)

    @staticmethod
    def hash(key: KeyFunction, n: int = 0) -> Policy:
        """Tasks with equal keys go to one dispatcher, spread over them by a hash of the key."""
        return _policy("dispatch", "hash", n, key)

    @staticmethod
    def dispatch_by(key: KeyFunction, n: int) -> Policy:
        """The key is the number of the dispatcher, from 0 to n - 1; any other is an error of the run."""
        return _policy("dispatch", "dispatch_by", n, key)

    @staticmethod
    def static_partition(bounds: Sequence[int]) -> Policy:
        """Tasks go to dispatchers by their number in program order: `[100, 300]` makes three parts.

        Raises:
            WrongValue: no 1 to 63 integers in ascending order.
        """
        found = tuple(bounds) if isinstance(bounds, Sequence) else ()
        are_integers = all(isinstance(b, int) and not isinstance(b, bool) for b in found)
        is_ascending = are_integers and all(a < b for a, b in zip((-1, *found), found, strict=False))
        if not found or len(found) >= MOST or not is_ascending:
            expected = f"1 to {MOST - 1} numbers of tasks in ascending order"
            raise WrongValue(name="bounds", expected=expected, found=repr(bounds), loc=caller_location())
        return Policy("dispatch", "static_partition", bounds=found)


class WindowMode(enum.Enum):
    """What happens when the window is full."""

    STALL = "stall"
    ABORT = "abort"
    BENCHMARK = "benchmark"


class TaskWindow:
    """How many tasks may be recorded and not complete: `TaskWindow(8192, "tasks", WindowMode.STALL)`.

    A task that can run when it is made needs no room: it is run, not recorded. The default is 8,192, STALL.
    """

    def __new__(cls, size: int, unit: str = "tasks", mode: WindowMode = WindowMode.STALL) -> Policy:
        """Return the policy.

        Raises:
            WrongValue: the size is below 1, the unit is not tasks, or there is no such mode.
        """
        if unit != "tasks":
            raise WrongValue(name="unit", expected='"tasks"', found=repr(unit), loc=caller_location())
        if not isinstance(mode, WindowMode):
            raise WrongValue(name="mode", expected="a WindowMode", found=repr(mode), loc=caller_location())
        return _policy("window", mode.value, size, least=1)


class ReadyPolicy:
    """Which of the tasks that are ready starts first."""

    @staticmethod
    def work_steal() -> Policy:
        """A worker goes on with what it made ready, and takes from others when idle. The default."""
        return _policy("ready", "work_steal")

    @staticmethod
    def fifo() -> Policy:
        """The first in program order."""
        return _policy("ready", "fifo")

    @staticmethod
    def priority(key: KeyFunction) -> Policy:
        """One with the largest key; of equal ones the first in program order."""
        return _policy("ready", "priority", key=key)


class StartPolicy:
    """When tasks begin to run."""

    @staticmethod
    def immediate() -> Policy:
        """While the program is still being walked. The default."""
        return _policy("start", "immediate")

    @staticmethod
    def threshold(n: int) -> Policy:
        """When n tasks, or all, have been made."""
        return _policy("start", "threshold", n)

    @staticmethod
    def after_build() -> Policy:
        """When all tasks have been made."""
        return _policy("start", "after_build")


class Deps:
    """Which tasks wait for each other."""

    @staticmethod
    def infer_tensor_map_exact() -> Policy:
        """Those whose regions share an element that one of them writes. The default."""
        return _policy("deps", "infer_tensor_map_exact")

    @staticmethod
    def infer_bytes_overlap() -> Policy:
        """Those whose regions lie in ranges of bytes that overlap: extra waits, the same results."""
        return _policy("deps", "infer_bytes_overlap")

    @staticmethod
    def hybrid() -> Policy:
        """As `infer_tensor_map_exact`, with the edges of `after=` beside them."""
        return _policy("deps", "hybrid")

    @staticmethod
    def explicit() -> Policy:
        """Those that `after=` names, and no others."""
        return _policy("deps", "explicit")

    @staticmethod
    def trust() -> Policy:
        """Iterations of one P loop never wait for each other."""
        return _policy("deps", "trust")
