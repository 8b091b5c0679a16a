"""Stores: which stores bypass the caches."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record

_MORE_THAN_ANY_TENSOR = 2**64 - 1


@record
class StorePolicy(Directive):
    """Which stores bypass the caches: they cost half as much, and leave nothing in the caches.

    `Program.stats.streamed` names the tensors of which that was so in the last run.
    """

    kind, place = "stores", 70
    name: str
    n: int = 0

    @policy(Count(0), effect="test_the_bound_counts_bytes")
    def streaming(self, least_bytes: int | None = None) -> StorePolicy:
        """Stores bypass the caches to tensors of n bytes or more that no task reads.

        If n is open, it is four times the second-level caches of all cores, or the last level if that is
        smaller. A simulated device streams to tensors beyond its shared cache.
        """
        return directed(self, n=least_bytes)

    @policy(effect="test_results_are_the_same")
    def cached(self) -> StorePolicy:
        """Every store goes through the caches."""
        return self

    def engine_settings(self) -> Settings:
        """Return the least bytes of a tensor."""
        return {"streaming_bytes": _MORE_THAN_ANY_TENSOR if self.name == "cached" else self.n}
