"""Pools: which workers run which tasks."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
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

    def engine_settings(self) -> Settings:
        """Return the number of pools, and the first worker of each but the first; none makes equal pools."""
        bounds = list(self.bounds) or [self.n] * (self.n > 0)
        return {"num_pools": len(self.bounds) + 1 if self.bounds else 2, "pool_bounds": bounds}

    def engine_keys(self, kernel: KernelFunction) -> tuple[Expr, ...]:
        """Return the key, or the pool of a kernel's core."""
        if self.name == "custom" or kernel.unit not in _POOL_OF_CORE:
            return self.key_exprs
        return (Const(_POOL_OF_CORE[kernel.unit]),)
