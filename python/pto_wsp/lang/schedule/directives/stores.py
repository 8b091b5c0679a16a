"""Stores: which stores bypass the caches."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Schedule, Settings
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record

_MORE_THAN_ANY_TENSOR = 2**64 - 1


class StorePolicy(Directive):
    """Which stores bypass the caches: they cost half as much, and leave nothing in the caches."""

    kind, place = "stores", 70

    @staticmethod
    def streaming(least_bytes: int = 0) -> StorePolicy:
        """Those to large tensors that no task of the program reads. The default.

        Args:
            least_bytes: how large; 0: four times the second-level caches of all cores, or the last level if
                that is smaller.
        """
        return directed(StreamingStores, n=least_bytes)

    @staticmethod
    def cached() -> StorePolicy:
        """None."""
        return CachedStores()


@record
class StreamingStores(StorePolicy):
    """Stores bypass the caches to tensors of n bytes or more that no task reads.

    If n is open, it is four times the second-level caches of all cores, or the last level if that is smaller.
    """

    name, parameters, is_initial = "streaming", (Count(0),), True
    effect = "test_the_bound_counts_bytes"
    n: int = 0

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the least bytes of a tensor."""
        return {"streaming_bytes": self.n}


@record
class CachedStores(StorePolicy):
    """Every store goes through the caches."""

    name, settings = "cached", {"streaming_bytes": _MORE_THAN_ANY_TENSOR}
    effect = "test_results_are_the_same"


DIRECTIVES = (StreamingStores, CachedStores)
