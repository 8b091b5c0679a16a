"""Policies, one class per directive; each of their functions gives what a schedule holds."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import pairwise

from pto_wsp.errors import WrongValue
from pto_wsp.ir.scalar import I64_MAX, Binary, Const, Expr, Select, Unary
from pto_wsp.ir.schedule import MOST, POLICIES, Policy
from pto_wsp.lang.workload.keys import KeyFunction, trace_key
from pto_wsp.location import caller_location


def _policy(
    directive: str, name: str, count: int | None = None, key: KeyFunction | None = None, least: int = 0
) -> Policy:
    """Return a policy with its number and key checked against its form."""
    form = POLICIES[directive][name]
    if form.least is not None:
        least = max(least, form.least)
        if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= form.most:
            expected = f"an integer from {least} to {form.most}"
            raise WrongValue(name=f"{name}'s n", expected=expected, found=repr(count), loc=caller_location())
    return Policy(directive, name, count or 0, trace_key(name, key) if form.takes_key else None)


def _bounded(directive: str, name: str, bounds: Sequence[int], key: KeyFunction | None = None) -> Policy:
    """Return a policy with its bounds, which are ascending integers, and its key checked against its form."""
    form = POLICIES[directive][name]
    found = tuple(bounds) if isinstance(bounds, Sequence) and not isinstance(bounds, str) else ()
    are_integers = all(isinstance(b, int) and not isinstance(b, bool) and 0 <= b <= I64_MAX for b in found)
    is_ascending = are_integers and all(a < b for a, b in pairwise(found))
    if not found or len(found) >= form.most_parts or not is_ascending:
        expected = f"1 to {form.most_parts - 1} integers >= 0 in ascending order"
        raise WrongValue(
            name=f"{name}'s bounds", expected=expected, found=repr(bounds), loc=caller_location()
        )
    return Policy(directive, name, key=trace_key(name, key) if form.takes_key else None, bounds=found)


def _by_levels(threshold: Policy, levels: Sequence[Policy]) -> Policy:
    """Return the policy that gives each level dispatchers of its own, over which its tasks are dealt out."""
    assert threshold.key is not None
    if not isinstance(levels, Sequence) or len(levels) != len(threshold.bounds) + 1:
        expected = f"{len(threshold.bounds) + 1} policies, one per level"
        raise WrongValue(name="levels", expected=expected, found=repr(levels), loc=caller_location())
    key = Unary("i64", threshold.key)
    number = _number_in(levels[0])
    total = levels[0].count
    for bound, level in zip(threshold.bounds, levels[1:], strict=True):
        is_reached = Binary("le", Const(bound), key)
        number = Select(is_reached, Binary("add", Const(total), _number_in(level)), number)
        total += level.count
    if total > MOST:
        expected = f"levels of at most {MOST} dispatchers"
        raise WrongValue(name="levels", expected=expected, found=f"{total}", loc=caller_location())
    return Policy("dispatch", "dispatch_by", total, number)


def _number_in(level: object) -> Expr:
    """Return which dispatcher of its level a task has."""
    if isinstance(level, Policy) and level.directive == "dispatch":
        if level.count == 1 and level.name != "work_steal":
            return Const(0)
        if level.name == "affinity" and level.count > 0 and level.key is not None:
            return Binary("mod", Unary("i64", level.key), Const(level.count))
    expected = "`DispatchPolicy.affinity(key, n)`, or a policy that moves no tasks, with n = 1"
    raise WrongValue(name="a level", expected=expected, found=repr(level), loc=caller_location())


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
    def threshold(key: KeyFunction, bounds: Sequence[int], levels: Sequence[Policy] | None = None) -> Policy:
        """Tasks go to dispatchers by the size of their key: `[128, 1024]` makes three, small keys first.

        Args:
            key: a function of a task.
            bounds: the first key of each level but the first.
            levels: what each level does with its tasks; by default each has one dispatcher. With levels, the
                policy is the `dispatch_by` that says the same: dispatchers are numbered level after level.

        Raises:
            WrongValue: no 1 to 63 bounds from 0 on in ascending order; not as many levels as there are; a
                level that is neither `affinity` with an n nor has one dispatcher; more than 64 dispatchers.
        """
        found = _bounded("dispatch", "threshold", bounds, key)
        return found if levels is None else _by_levels(found, levels)

    @staticmethod
    def static_partition(bounds: Sequence[int]) -> Policy:
        """Tasks go to dispatchers by their number in program order: `[100, 300]` makes three parts.

        Raises:
            WrongValue: no 1 to 63 integers in ascending order.
        """
        return _bounded("dispatch", "static_partition", bounds)


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


class TimingPolicy:
    """When tasks that are ready start."""

    @staticmethod
    def immediate() -> Policy:
        """As soon as there is a worker for them. The default."""
        return _policy("timing", "immediate")

    @staticmethod
    def batched(n: int) -> Policy:
        """In groups of n in program order: none of a group starts before the group before it is complete."""
        return _policy("timing", "batched", n)

    @staticmethod
    def interleaved(n: int) -> Policy:
        """Streams take turns, n at a time, in the order in which they begin; needs streams."""
        return _policy("timing", "interleaved", n)

    @staticmethod
    def rate_limit(per_second: int) -> Policy:
        """At most so many starts per second, evenly spaced: a token bucket with room for one."""
        return _policy("timing", "rate_limit", per_second)


class Pools:
    """Which workers run which tasks: disjoint sets of workers, but where there are too few to share."""

    @staticmethod
    def single() -> Policy:
        """Every worker runs every task. The default."""
        return _policy("pools", "single")

    @staticmethod
    def by_exec_unit(cube_workers: int = 0) -> Policy:
        """Kernels with `core="cube"` on the first workers, those with `core="vector"` on the others.

        Kernels for other cores run anywhere.

        Args:
            cube_workers: how many run cube kernels; 0 means half of them.
        """
        return _policy("pools", "by_exec_unit", cube_workers)

    @staticmethod
    def custom(key: KeyFunction, bounds: Sequence[int]) -> Policy:
        """Tasks run in the pool that their key numbers, modulo the number of pools.

        Args:
            key: a function of a task.
            bounds: the first worker of each pool but the first: `[1, 3]` makes pools of worker 0, of 1 and 2,
                and of all others.

        Raises:
            WrongValue: no 1 to 7 integers from 0 on in ascending order.
        """
        return _bounded("pools", "custom", bounds, key)


class StorePolicy:
    """Which stores go past the caches: they cost half as much, and leave nothing there.

    `Program.stats.streamed` names the tensors of which that was so in the last run.
    """

    @staticmethod
    def streaming(least_bytes: int = 0) -> Policy:
        """Those to large tensors that no task of the program reads. The default.

        Args:
            least_bytes: how large; 0: four times the second-level caches of all cores, or the last level if
                that is smaller.
        """
        return _policy("stores", "streaming", least_bytes)

    @staticmethod
    def cached() -> Policy:
        """None."""
        return _policy("stores", "cached")


class TracePolicy:
    """What runs record in `Program.trace`, unless `run(trace=...)` says otherwise."""

    @staticmethod
    def off() -> Policy:
        """Nothing. The default."""
        return _policy("trace", "off")

    @staticmethod
    def tasks() -> Policy:
        """Where and when each task ran."""
        return _policy("trace", "tasks")

    @staticmethod
    def full() -> Policy:
        """As `tasks`, and what dispatchers did: when they made tasks, and what stopped them."""
        return _policy("trace", "full")


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
    def explicit(unchecked: bool = False) -> Policy:
        """Those that `after=` names, and those of different iterations of a `P.seq` loop; no others.

        A run raises EdgesMissing unless these order every two tasks that share an element which one of them
        writes. With `unchecked`, nobody looks, and results may be anything.
        """
        return _policy("deps", "explicit_unchecked" if unchecked else "explicit")

    @staticmethod
    def trust() -> Policy:
        """As `infer_tensor_map_exact`, but iterations of one P loop never wait for each other.

        Results are right where what P states is true, which `check="hazards"` finds out.
        """
        return _policy("deps", "trust")
