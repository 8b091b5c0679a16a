"""Pools: which workers run which tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pto_wsp.errors import WrongValue
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Expr, KernelNumber
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key, Settings, Stage, Stages, policy
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.schedule.arguments import Scheduled, checked_count, count_of, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

MAX_POOLS = 8
_POOL_OF_CORE = {"cube": 0, "vector": 1}


@record
class Pools(Directive):
    """Which workers run which tasks: disjoint sets of workers, except where there are too few to share."""

    kind, place, mark = "pools", 60, "POOL"
    name: str
    key: Expr | None = None
    n: int = 0
    bounds: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def single(self) -> Pools:
        """Every worker runs every task."""
        return self

    @policy(Count(0), effect="test_kernels_run_on_workers_for_their_cores")
    def by_exec_unit(self, cube_workers: int | None = None) -> Pools:
        """Kernels for cube cores run on the first n workers, those for vector cores on the others.

        If n is open, it is half of the workers. Kernels for other cores run on any.
        """
        return directed(self, n=cube_workers)

    @policy(Key(), Bounds(MAX_POOLS), effect="test_tasks_run_in_their_pool")
    def custom(self, key: KeyFunction, bounds: Sequence[int]) -> Pools:
        """Workers before the first bound run the tasks with key 0, those before the second key 1, ...

        Keys count modulo the number of pools. A task without the key runs in any pool.

        Args:
            key: a function of a task.
            bounds: the first worker of each pool but the first: `[1, 3]` makes pools of worker 0, of 1 and 2,
                and of all others.

        Raises:
            WrongValue: the bounds are not 1 to 7 ascending integers from 0.
        """
        return directed(self, key=key, bounds=bounds)

    @policy(Key(), Count(1), effect="test_equal_keys_run_on_one_group")
    def _affinity(self, key: KeyFunction, n: int) -> Pools:
        """Groups of n workers each run the tasks of their keys: key modulo the number of groups.

        There are at most 31 groups; with more workers, groups are larger. A task without the key runs on any
        worker.
        """
        return directed(self, key=key, n=n)

    @policy(Stages(2, MAX_POOLS), effect="test_stages_share_the_workers")
    def _pipeline(self, *stages: Stage) -> Pools:
        """Stages have workers of their own, in proportion to their cores, and at least one each.

        Kernels of no stage run on any worker.
        """
        return directed(self, stages=stages)

    @policy(
        Stages(2, 2),
        effect="test_both_classes_run_at_a_time",
        refused={"sim": "a device has cores of its own for each unit"},
    )
    def _overlap(self, *stages: Stage) -> Pools:
        """As `pipeline`, for kernels bound by memory and kernels bound by computing.

        A worker whose stage has no ready task runs tasks of the other stage.
        """
        return directed(self, stages=stages)

    @property
    def key_exprs(self) -> tuple[Expr, ...]:
        """Its key, or the kernels of its stages."""
        kernels = [(kernel, stage.loc) for stage in self.stages for kernel in stage.kernels]
        return tuple(KernelNumber(*named) for named in kernels) or super().key_exprs

    def engine_settings(self) -> Settings:
        """Return the number of pools, and the first worker of each but the first; none makes equal pools."""
        if self.stages:
            shares, is_soft = [stage.cores for stage in self.stages], self.name == "overlap"
            return {"num_pools": len(shares), "pool_shares": shares, "pools_are_soft": is_soft}
        if self.name == "affinity":
            return {"pool_size": self.n}
        bounds = list(self.bounds) or [self.n] * (self.n > 0)
        return {"num_pools": len(self.bounds) + 1 if self.bounds else 2, "pool_bounds": bounds}

    def engine_keys(self, kernel: KernelFunction) -> tuple[Expr, ...]:
        """Return the key, the stage of a kernel, or the pool of its core."""
        if self.stages:
            numbers = [n for n, stage in enumerate(self.stages) if kernel.name in stage.kernels]
            return tuple(map(Const, numbers))
        if self.key is not None or kernel.unit not in _POOL_OF_CORE:
            return self.key_exprs
        return (Const(_POOL_OF_CORE[kernel.unit]),)


KernelOrName = Kernel | str


def stage(*kernels: KernelOrName, cores: int) -> Stage:
    """Return a stage of a pipeline: `stage(indexer, cores=8)`.

    Args:
        kernels: at least one kernel or name of a kernel.
        cores: its share of the workers, from 1. Shares are scaled to the workers of a run.

    Raises:
        WrongValue: an argument is something else.
    """
    loc = caller_location()
    names = tuple(kernel.name if isinstance(kernel, Kernel) else kernel for kernel in kernels)
    if not names or not all(isinstance(name, str) for name in names):
        expected = "kernels, or names of kernels"
        raise WrongValue(name="stage", expected=expected, found=repr(kernels), loc=loc)
    return Stage(names, checked_count("cores", cores, 1), loc)


class PoolMethods(Scheduled):
    """Groups and stages of workers, as methods."""

    def affinity(self, key: KeyFunction, group: int = 1) -> Self:
        """Return a copy in which tasks with equal keys run on one group of `group` workers.

        `affinity(lambda t: t.b)` keeps the data of a batch in the caches of one worker. The group is the key
        modulo the number of groups. On a device, a group has an equal share of the cores of each kind:
        `group` cores of the kind that has the fewest.

        Args:
            key: a function of a task.
            group: workers per group, from 1. There are at most 31 groups; with more workers, groups are
                larger.

        Raises:
            WrongValue, BadKey, FrontendError: an argument does not fit.
        """
        return self.having(pools=Pools._affinity(key, count_of("affinity's group", group, Pools._affinity)))

    def pipeline(self, *stages: Stage) -> Self:
        """Return a copy in which each stage has workers of its own, through which batches flow.

        `pipeline(stage(indexer, cores=8), stage(attention, cores=16))` runs `indexer` on a third of the
        workers. `program.stats.counters["pool_workers"]` shows the split of a run.

        Args:
            stages: two to eight results of `stage`, with distinct kernels.

        Raises:
            WrongValue: an argument is something else, or a kernel is in two stages.
        """
        return self.having(pools=Pools._pipeline(*stages))

    def overlap(self, memory_bound: Stage, compute_bound: Stage) -> Self:
        """Return a copy in which tasks of both stages run at a time, as long as both have ready tasks.

        Memory then serves one stage while the other computes. No worker idles while any task is ready.

        Args:
            memory_bound: `stage` of the kernels that memory bounds, with their share of the workers.
            compute_bound: `stage` of the kernels that computing bounds.

        Raises:
            WrongValue: an argument is something else, or a kernel is in both stages.
        """
        return self.having(pools=Pools._overlap(memory_bound, compute_bound))
