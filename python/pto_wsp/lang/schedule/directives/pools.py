"""Pools: which workers run which tasks."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key, Schedule, Settings
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record

MAX_POOLS = 8
_POOL_OF_CORE = {"cube": 0, "vector": 1}


class Pools(Directive):
    """Which workers run which tasks: disjoint sets of workers, except where there are too few to share."""

    kind, place = "pools", 60
    is_walked = True

    @staticmethod
    def single() -> Pools:
        """Every worker runs every task. The default."""
        return SinglePool()

    @staticmethod
    def by_exec_unit(cube_workers: int = 0) -> Pools:
        """Kernels with `core="cube"` run on the first workers, those with `core="vector"` on the others.

        Kernels for other cores run anywhere.

        Args:
            cube_workers: how many run cube kernels; 0 means half of them.
        """
        return directed(PoolsByCore, n=cube_workers)

    @staticmethod
    def custom(key: KeyFunction, bounds: Sequence[int]) -> Pools:
        """Tasks run in the pool that their key numbers, modulo the number of pools.

        Args:
            key: a function of a task.
            bounds: the first worker of each pool but the first: `[1, 3]` makes pools of worker 0, of 1 and 2,
                and of all others.

        Raises:
            WrongValue: the bounds are not 1 to 7 ascending integers from 0.
        """
        return directed(PoolsByKey, key=key, bounds=bounds)


@record
class SinglePool(Pools):
    """Every worker runs every task."""

    name, is_initial = "single", True
    effect = "test_tasks_run_in_their_pool"


@record
class PoolsByCore(Pools):
    """Kernels for cube cores run on the first n workers, those for vector cores on the others.

    If n is open, it is half of the workers.
    """

    name, parameters, mark = "by_exec_unit", (Count(0),), "POOL"
    effect = "test_kernels_run_on_workers_for_their_cores"
    n: int = 0

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return two pools."""
        return {"num_pools": 2, "pool_bounds": [self.n] if self.n else []}

    def engine_key(self, kernel: KernelFunction) -> Expr | None:
        """Return the pool of a kernel's core; kernels for other cores run in any."""
        return Const(_POOL_OF_CORE[kernel.unit]) if kernel.unit in _POOL_OF_CORE else None


@record
class PoolsByKey(Pools):
    """Tasks run in the pool that their key numbers, modulo the number of pools.

    Workers before the first bound are pool 0, those before the second pool 1, and so on. A task without the
    key runs in any pool.
    """

    name, parameters, mark = "custom", (Key(), Bounds(MAX_POOLS)), "POOL"
    effect = "test_tasks_run_in_their_pool"
    key: Expr
    bounds: tuple[int, ...]

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the pools."""
        return {"num_pools": len(self.bounds) + 1, "pool_bounds": list(self.bounds)}


DIRECTIVES = (SinglePool, PoolsByCore, PoolsByKey)
