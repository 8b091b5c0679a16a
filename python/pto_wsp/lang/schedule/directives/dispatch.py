"""Dispatch: which dispatcher expands a task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pto_wsp.errors import WrongValue
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Binary, Const, Expr, Select, Unary
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

MAX_DISPATCHERS = 64
_OPEN, _PARTS = Count(0, MAX_DISPATCHERS), Bounds(MAX_DISPATCHERS)
_BY_KEY = "test_equal_keys_have_one_dispatcher"


@record
class DispatchPolicy(Directive):
    """Which dispatcher expands a task, and runs it if it is ready.

    A number of dispatchers of 0 means as many as there are workers, up to 8. There can be 64.
    """

    kind, place, mark = "dispatch", 0, "KEY"
    name: str
    key: Expr | None = None
    n: int = 0
    bounds: tuple[int, ...] = ()

    @policy(_OPEN, settings={"ownership": "CLAIM"}, effect="test_the_number_of_dispatchers")
    def work_steal(self, num_aicpus: int | None = None) -> DispatchPolicy:
        """A dispatcher that is free takes the next strand of the program."""
        return directed(self, n=num_aicpus)

    @policy(_OPEN, settings={"ownership": "ROUND_ROBIN"}, effect="test_dispatchers_take_turns")
    def round_robin(self, num_aicpus: int | None = None) -> DispatchPolicy:
        """The strands of the program go to the dispatchers in turn."""
        return directed(self, n=num_aicpus)

    @policy(Key(), _OPEN, settings={"ownership": "KEY"}, effect=_BY_KEY)
    def affinity(self, key: KeyFunction, n: int | None = None) -> DispatchPolicy:
        """Tasks with equal keys go to one dispatcher: key modulo n."""
        return directed(self, key=key, n=n)

    @policy(Key(), _OPEN, settings={"ownership": "HASH"}, effect=_BY_KEY)
    def hash(self, key: KeyFunction, n: int | None = None) -> DispatchPolicy:
        """Tasks with equal keys go to one dispatcher: hash of the key modulo n."""
        return directed(self, key=key, n=n)

    @policy(Key(), Count(1, MAX_DISPATCHERS), settings={"ownership": "KEY"}, effect=_BY_KEY)
    def dispatch_by(self, key: KeyFunction, n: int) -> DispatchPolicy:
        """The key is the number of the dispatcher, from 0 to n - 1; any other is an error of the run."""
        return directed(self, key=key, n=n)

    @policy(Key(), _PARTS, settings={"ownership": "KEY"}, effect="test_keys_go_to_dispatchers_by_their_size")
    def threshold(
        self, key: KeyFunction, bounds: Sequence[int], levels: Sequence[DispatchPolicy] | None = None
    ) -> DispatchPolicy:
        """Tasks with a key below the first bound go to dispatcher 0, below the second to 1, ...

        Args:
            key: a function of a task.
            bounds: the first key of each level but the first.
            levels: what each level does with its tasks; by default each has one dispatcher. With levels, the
                result is the equivalent `dispatch_by`, whose dispatchers are numbered level after level.

        Raises:
            WrongValue: the bounds are not 1 to 63 ascending integers from 0; there is not one level more than
                bounds; a level is neither `affinity` with an n nor one dispatcher; more than 64 dispatchers.
        """
        found = directed(self, key=key, bounds=bounds)
        return found if levels is None else _by_levels(found, levels)

    @policy(_PARTS, settings={"ownership": "PARTITION"}, effect="test_partitions_are_by_number")
    def static_partition(self, bounds: Sequence[int]) -> DispatchPolicy:
        """The tasks before the first bound go to dispatcher 0, those before the second to 1, ...

        Raises:
            WrongValue: the bounds are not 1 to 63 ascending integers from 0.
        """
        return directed(self, bounds=bounds)

    def engine_settings(self) -> Settings:
        """Return who owns a task, the number of dispatchers, and the parts of the program."""
        dispatchers = len(self.bounds) + 1 if self.bounds else self.n
        parts = list(self.bounds) if self.key is None else []
        return {**self.policy.settings, "dispatchers": dispatchers, "bounds": parts}

    def engine_keys(self, kernel: KernelFunction) -> tuple[Expr, ...]:
        """Return the key; with bounds, how many of them it reaches."""
        if self.key is None or not self.bounds:
            return self.key_exprs
        key = Unary("i64", self.key)
        reached = (Unary("i64", Binary("le", Const(bound), key)) for bound in self.bounds)
        return (reduce(lambda total, one: Binary("add", total, one), reached),)

    def engine_operand(self, number: int) -> int:
        """Return the number of dispatchers, where keys that number none are errors of the run."""
        return self.n if self.name == "dispatch_by" else 0


def _by_levels(threshold: DispatchPolicy, levels: Sequence[DispatchPolicy]) -> DispatchPolicy:
    """Return the directive that gives each level its own dispatchers, to which the level deals its tasks."""
    if not isinstance(levels, Sequence) or len(levels) != len(threshold.bounds) + 1:
        expected = f"{len(threshold.bounds) + 1} policies, one per level"
        raise WrongValue(name="levels", expected=expected, found=repr(levels), loc=caller_location())
    assert threshold.key is not None
    key = Unary("i64", threshold.key)
    number, total = _level(levels[0])
    for bound, level in zip(threshold.bounds, levels[1:], strict=True):
        inner, count = _level(level)
        number = Select(Binary("le", Const(bound), key), Binary("add", Const(total), inner), number)
        total += count
    if total > MAX_DISPATCHERS:
        expected = f"levels of at most {MAX_DISPATCHERS} dispatchers"
        raise WrongValue(name="levels", expected=expected, found=f"{total}", loc=caller_location())
    return DispatchPolicy("dispatch_by", number, total)


def _level(level: object) -> tuple[Expr, int]:
    """Return a task's dispatcher within its level, and the number of the level's dispatchers."""
    if isinstance(level, DispatchPolicy):
        if level.n == 1 and level.name != "work_steal":
            return Const(0), 1
        if level.name == "affinity" and level.n > 0 and level.key is not None:
            return Binary("mod", Unary("i64", level.key), Const(level.n)), level.n
    expected = "`DispatchPolicy.affinity(key, n)`, or a policy that moves no tasks, with n = 1"
    raise WrongValue(name="a level", expected=expected, found=repr(level), loc=caller_location())
