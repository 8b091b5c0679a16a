"""Dispatch: which dispatcher expands a task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pto_wsp.errors import WrongValue
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Binary, Const, Expr, Select, Unary
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key, Schedule, Settings
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

MAX_DISPATCHERS = 64
OPEN = Count(0, MAX_DISPATCHERS)


class DispatchPolicy(Directive):
    """Which dispatcher expands a task, and runs it if it is ready.

    Attributes:
        n: the number of dispatchers; 0 stands for one per worker, up to 8.
    """

    kind, place = "dispatch", 0
    is_walked = True
    ownership: str
    n: int = 0

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return who owns a task, and the number of dispatchers."""
        return {"ownership": self.ownership, "dispatchers": self.n}

    @staticmethod
    def work_steal(num_aicpus: int = 0) -> DispatchPolicy:
        """A dispatcher that is free takes the next piece of the program. The default."""
        return directed(DispatchToFree, n=num_aicpus)

    @staticmethod
    def round_robin(num_aicpus: int = 0) -> DispatchPolicy:
        """The pieces of the program go to the dispatchers in turn."""
        return directed(DispatchInTurn, n=num_aicpus)

    @staticmethod
    def affinity(key: KeyFunction, n: int = 0) -> DispatchByRemainder:
        """Tasks with equal keys go to one dispatcher: the key modulo the number of dispatchers."""
        return directed(DispatchByRemainder, key=key, n=n)

    @staticmethod
    def hash(key: KeyFunction, n: int = 0) -> DispatchByHash:
        """Tasks with equal keys go to one dispatcher, spread over them by a hash of the key."""
        return directed(DispatchByHash, key=key, n=n)

    @staticmethod
    def dispatch_by(key: KeyFunction, n: int) -> DispatchByNumber:
        """The key is the number of the dispatcher, from 0 to n - 1; any other is an error of the run."""
        return directed(DispatchByNumber, key=key, n=n)

    @staticmethod
    def threshold(
        key: KeyFunction, bounds: Sequence[int], levels: Sequence[Directive] | None = None
    ) -> DispatchByLevel | DispatchByNumber:
        """Tasks go to dispatchers by the size of their key: `[128, 1024]` makes three, small keys first.

        Args:
            key: a function of a task.
            bounds: the first key of each level but the first.
            levels: what each level does with its tasks; by default each has one dispatcher. With levels, the
                result is the equivalent `dispatch_by`, whose dispatchers are numbered level after level.

        Raises:
            WrongValue: the bounds are not 1 to 63 ascending integers from 0; there is not one level more than
                bounds; a level is neither `affinity` with an n nor one dispatcher; more than 64 dispatchers.
        """
        found = directed(DispatchByLevel, key=key, bounds=bounds)
        return found if levels is None else _by_levels(found, levels)

    @staticmethod
    def static_partition(bounds: Sequence[int]) -> DispatchByPosition:
        """Tasks go to dispatchers by their number in program order: `[100, 300]` makes three parts.

        Raises:
            WrongValue: the bounds are not 1 to 63 ascending integers from 0.
        """
        return directed(DispatchByPosition, bounds=bounds)


@record
class DispatchToFree(DispatchPolicy):
    """A dispatcher that is free takes the next piece of the program."""

    name, ownership, parameters, is_initial = "work_steal", "CLAIM", (OPEN,), True
    effect = "test_the_number_of_dispatchers"
    n: int = 0


@record
class DispatchInTurn(DispatchPolicy):
    """The pieces of the program go to the dispatchers in turn."""

    name, ownership, parameters = "round_robin", "ROUND_ROBIN", (OPEN,)
    effect = "test_dispatchers_take_turns"
    n: int = 0


@record
class DispatchByRemainder(DispatchPolicy):
    """Tasks with equal keys go to one dispatcher: key modulo n."""

    name, ownership, parameters, mark = "affinity", "KEY", (Key(), OPEN), "KEY"
    effect = "test_equal_keys_have_one_dispatcher"
    key: Expr
    n: int = 0


@record
class DispatchByHash(DispatchPolicy):
    """Tasks with equal keys go to one dispatcher: hash of the key modulo n."""

    name, ownership, parameters, mark = "hash", "HASH", (Key(), OPEN), "KEY"
    effect = "test_equal_keys_have_one_dispatcher"
    key: Expr
    n: int = 0


@record
class DispatchByNumber(DispatchPolicy):
    """The key is the number of the dispatcher, from 0 to n - 1."""

    name, ownership, parameters, mark = "dispatch_by", "KEY", (Key(), Count(1, MAX_DISPATCHERS)), "KEY"
    effect = "test_equal_keys_have_one_dispatcher"
    key: Expr
    n: int

    def engine_limit(self) -> int:
        """Return the number of dispatchers: a key that numbers no dispatcher is an error of the run."""
        return self.n


@record
class DispatchByLevel(DispatchPolicy):
    """Tasks with a key below the first bound go to dispatcher 0, below the second to 1, ..."""

    name, ownership, parameters, mark = "threshold", "KEY", (Key(), Bounds(MAX_DISPATCHERS)), "KEY"
    effect = "test_keys_go_to_dispatchers_by_their_size"
    key: Expr
    bounds: tuple[int, ...]

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return who owns a task, and the number of levels."""
        return {"ownership": self.ownership, "dispatchers": len(self.bounds) + 1}

    def engine_key(self, kernel: KernelFunction) -> Expr:
        """Return how many bounds the key reaches."""
        key = Unary("i64", self.key)
        reached = (Unary("i64", Binary("le", Const(bound), key)) for bound in self.bounds)
        return reduce(lambda total, one: Binary("add", total, one), reached)


@record
class DispatchByPosition(DispatchPolicy):
    """The tasks before the first bound go to dispatcher 0, those before the second to 1, ..."""

    name, ownership, parameters = "static_partition", "PARTITION", (Bounds(MAX_DISPATCHERS),)
    effect = "test_partitions_are_by_number"
    bounds: tuple[int, ...]

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return who owns a task, and the parts of the program."""
        parts = len(self.bounds) + 1
        return {"ownership": self.ownership, "dispatchers": parts, "bounds": list(self.bounds)}


DIRECTIVES = (
    DispatchToFree,
    DispatchInTurn,
    DispatchByRemainder,
    DispatchByHash,
    DispatchByNumber,
    DispatchByLevel,
    DispatchByPosition,
)


def _by_levels(threshold: DispatchByLevel, levels: Sequence[Directive]) -> DispatchByNumber:
    """Return the directive that gives each level its own dispatchers, to which the level deals its tasks."""
    if not isinstance(levels, Sequence) or len(levels) != len(threshold.bounds) + 1:
        expected = f"{len(threshold.bounds) + 1} policies, one per level"
        raise WrongValue(name="levels", expected=expected, found=repr(levels), loc=caller_location())
    key = Unary("i64", threshold.key)
    number, total = _level(levels[0])
    for bound, level in zip(threshold.bounds, levels[1:], strict=True):
        inner, count = _level(level)
        number = Select(Binary("le", Const(bound), key), Binary("add", Const(total), inner), number)
        total += count
    if total > MAX_DISPATCHERS:
        expected = f"levels of at most {MAX_DISPATCHERS} dispatchers"
        raise WrongValue(name="levels", expected=expected, found=f"{total}", loc=caller_location())
    return DispatchByNumber(number, total)


def _level(level: object) -> tuple[Expr, int]:
    """Return a task's dispatcher within its level, and the number of the level's dispatchers."""
    match level:
        case DispatchByRemainder(key=key, n=n) if n > 1:
            return Binary("mod", Unary("i64", key), Const(n)), n
        case DispatchPolicy(n=1) if not isinstance(level, DispatchToFree):
            return Const(0), 1
    expected = "`DispatchPolicy.affinity(key, n)`, or a policy that moves no tasks, with n = 1"
    raise WrongValue(name="a level", expected=expected, found=repr(level), loc=caller_location())
