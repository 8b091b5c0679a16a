"""How schedules decide on a GPU which block runs a task, and how many tasks are under way."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.errors import UnsupportedByTarget, WrongValue
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Unary
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.lang.schedule.directives.deps import Deps
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.pools import Pools
from pto_wsp.lang.schedule.directives.ready import ReadyPolicy
from pto_wsp.lang.schedule.directives.start import StartPolicy
from pto_wsp.lang.schedule.directives.streams import Streams
from pto_wsp.lang.schedule.directives.timing import TimingPolicy
from pto_wsp.lang.schedule.directives.trace import TracePolicy
from pto_wsp.lang.schedule.directives.window import DEFAULT_TASKS, Window
from pto_wsp.location import caller_location
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.targets.base import Enforced, Refused, Support

MAX_POOLS = 32
"""`kMaxPools` of waits.hpp."""

NAMES_BLOCKS = frozenset({"dispatch", "ready", "pools"})
"""Kinds whose policies, other than the default, say which block runs a task. A schedule has one of them."""

_HASH = 2654435761

_ENFORCED: dict[type[Directive], tuple[str, ...]] = {
    DispatchPolicy: tuple(DispatchPolicy.policies),
    Window: ("stall", "benchmark"),
    ReadyPolicy: ("work_steal", "fifo"),
    StartPolicy: ("immediate",),
    Streams: ("off",),
    TimingPolicy: ("immediate",),
    Pools: ("single", "by_exec_unit", "custom", "affinity", "pipeline"),
    TracePolicy: ("off", "tasks"),
    Deps: ("infer_tensor_map_exact", "hybrid", "symbolic"),
}

_REASONS = {
    "window": "blocks wait for room",
    "ready": "a block runs its tasks in program order",
    "start": "tasks run while blocks walk the program",
    "pools": "a block is in one pool",
    "trace": "blocks expand tasks without a clock",
    "deps": "waits follow from loops, or from places in the text",
}


def support(policy: Policy[..., Directive]) -> Support:
    """Return how the target lowers a directive."""
    if any(kind.kind == policy.kind and policy.name in names for kind, names in _ENFORCED.items()):
        return Enforced()
    return Refused(_REASONS.get(policy.kind, "nothing on the GPU enforces it"))


def says_which_block(directive: Directive) -> bool:
    """Return whether a directive says which block runs a task."""
    return directive.kind in NAMES_BLOCKS and directive.name != directive.default().name


class TaskOrder:
    """What the schedule of a program says of blocks.

    Attributes:
        window: how many tasks are under way at most.
        blocks: how many blocks a launch has; 0 where the run decides.
        num_keys: keys that name a block, where others are errors; 0 if none is.
        is_claimed: whether blocks claim tasks.
        is_by_number: whether a block knows the number of its next task.
        is_benchmark: whether no kernel is called.

    Raises:
        UnsupportedByTarget: two directives decide which block runs a task.
    """

    def __init__(self, module: Module, target: str) -> None:
        self._module = module
        schedule = module.schedule
        window = schedule.find(Window)
        self.window = DEFAULT_TASKS if window is None else window.size
        self.is_benchmark = window is not None and window.name == "benchmark"
        self._dispatch = schedule.find(DispatchPolicy) or DispatchPolicy.default()
        self._pools = schedule.find(Pools) or Pools.default()
        settings = self._dispatch.engine_settings()
        blocks = settings["dispatchers"]
        assert isinstance(blocks, int)
        self.blocks = blocks
        self.num_keys = self._dispatch.n if self._dispatch.name == "dispatch_by" else 0
        self.is_claimed, is_single = self._dispatch.name == "work_steal", self._pools.name == "single"
        self.is_by_number = (self.is_claimed and is_single) or self._dispatch.name == "round_robin"
        naming = [directive for directive in schedule if says_which_block(directive)]
        if len(naming) > 1:
            reason = f"`{naming[0].title}` says which block runs a task"
            raise UnsupportedByTarget(target=target, what=f"`{naming[1].title}`", reason=reason)

    def taken(self, task: w.Task, loops: Sequence[w.Loop]) -> tuple[str, Expr | None]:
        """Return the function that numbers a task, and its argument: a key, or a part of the text."""
        match self._dispatch.name:
            case "work_steal":
                return self._claimed(task, loops)
            case "round_robin":
                return "run.takes_turn()", None
            case "static_partition":
                bounds = ", ".join(f"{bound}ull" for bound in self._dispatch.bounds)
                return f"run.takes_part({{{bounds}}})", None
            case name:
                key = self._key(self._dispatch, task, loops)
                if key is None:
                    return "run.takes_turn()", None
                if name == "hash":
                    low = Binary("mod", key, Const(2**31))
                    key = Binary("rshift", Binary("mul", low, Const(_HASH)), Const(16))
                has_modulus = name in ("affinity", "hash") and self._dispatch.n > 0
                return "run.takes_of", Binary("mod", key, Const(self._dispatch.n)) if has_modulus else key

    def _claimed(self, task: w.Task, loops: Sequence[w.Loop]) -> tuple[str, Expr | None]:
        if self._pools.name == "single":
            return "run.claims()", None
        key = self._key(self._pools, task, loops)
        # Any pool may run a task without a key.
        return ("run.claims_of(run.next())", None) if key is None else ("run.claims_of", key)

    def _key(self, directive: Directive, task: w.Task, loops: Sequence[w.Loop]) -> Expr | None:
        """Return the number that a directive gives to a task; None where the task has no key."""
        for key in directive.engine_keys(self._module.kernel(task.kernel)):
            found = TaskKeys(self._module, key).at(task, loops)
            return None if found is None else Unary("i64", found)
        return None

    def pools(self, blocks: int) -> list[int]:
        """Return the first block of each pool.

        Raises:
            WrongValue: a pool has no block.
        """
        settings = self._pools.engine_settings()
        match self._pools.name:
            case "single":
                found = [0]
            case "pipeline":
                found = _divided([stage.cores for stage in self._pools.stages], blocks)
            case "affinity":
                size = self._pools.n
                groups = min(MAX_POOLS - 1, max(1, blocks // size))
                found = [group * blocks // groups for group in range(groups)]
            case _:
                bounds = settings["pool_bounds"]
                assert isinstance(bounds, list)
                found = [0, *(bounds or [blocks // 2])]
        if any(second <= first for first, second in zip(found, [*found[1:], blocks], strict=True)):
            expected = f"more blocks, for {len(found)} pools that begin at block {', '.join(map(str, found))}"
            raise WrongValue(name="workers", expected=expected, found=blocks, loc=caller_location())
        return found


def _divided(shares: Sequence[int], blocks: int) -> list[int]:
    """Return the first block of each pool, whose number of blocks is near its share, and at least 1."""
    counts = [1] * len(shares)
    while sum(counts) < blocks:
        lacks = [share / sum(shares) * blocks - count for share, count in zip(shares, counts, strict=True)]
        counts[lacks.index(max(lacks))] += 1
    return [sum(counts[:number]) for number in range(len(counts))]
