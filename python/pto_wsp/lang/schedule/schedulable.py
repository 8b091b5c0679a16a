"""The methods by which workloads and schedules take directives."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pto_wsp.errors import NotYetSupported
from pto_wsp.lang.schedule.directives.calendar import CalendarPolicy
from pto_wsp.lang.schedule.directives.concurrent import ConcurrentMethods
from pto_wsp.lang.schedule.directives.deps import Deps
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.interleave import InterleaveMethods
from pto_wsp.lang.schedule.directives.load_balance import LoadBalanceMethods
from pto_wsp.lang.schedule.directives.pools import PoolMethods, Pools
from pto_wsp.lang.schedule.directives.prefetch import PrefetchMethods
from pto_wsp.lang.schedule.directives.ready import ReadyMethods, ReadyPolicy
from pto_wsp.lang.schedule.directives.start import StartPolicy
from pto_wsp.lang.schedule.directives.stores import StorePolicy
from pto_wsp.lang.schedule.directives.streams import StreamMethods
from pto_wsp.lang.schedule.directives.timing import TimingPolicy
from pto_wsp.lang.schedule.directives.trace import TracePolicy
from pto_wsp.lang.schedule.directives.window import Window
from pto_wsp.location import caller_location

OPERATORS = frozenset({"tile", "reorder", "fuse_tasks", "split_tasks"})
LATER = frozenset({"spatial_map"})


class Schedulable(
    ReadyMethods,
    StreamMethods,
    InterleaveMethods,
    LoadBalanceMethods,
    ConcurrentMethods,
    PoolMethods,
    PrefetchMethods,
):
    """Something with a schedule. Each method returns a copy in which the directives of its kinds are others.

    Attributes:
        kind: what it is, in a message.
        advice: what such a message ends with.
    """

    kind: ClassVar[str]
    advice: ClassVar[str] = ""

    def dispatch(self, policy: DispatchPolicy) -> Self:
        """Return a copy whose tasks go to dispatchers as a `DispatchPolicy` says.

        Raises:
            WrongValue: something else.
        """
        return self.having(dispatch=policy)

    def task_graph(
        self,
        *,
        window: Window | None = None,
        ready: ReadyPolicy | None = None,
        start: StartPolicy | None = None,
        deps: Deps | None = None,
        pools: Pools | None = None,
        stores: StorePolicy | None = None,
        trace: TracePolicy | None = None,
        calendar: CalendarPolicy | None = None,
    ) -> Self:
        """Return a copy with other directives for the graph of tasks; what is not given stays.

        Raises:
            WrongValue: something is not a directive of its kind.
        """
        given = {"window": window, "ready": ready, "start": start, "deps": deps, "pools": pools}
        given |= {"stores": stores, "trace": trace, "calendar": calendar}
        return self.having(**{kind: policy for kind, policy in given.items() if policy is not None})

    def timing(self, policy: TimingPolicy) -> Self:
        """Return a copy whose tasks start when a `TimingPolicy` says.

        Raises:
            WrongValue: something else.
        """
        return self.having(timing=policy)

    def __getattr__(self, name: str) -> Any:
        if name in LATER:
            raise NotYetSupported(feature=f"`.{name}`", detail="", advice="", loc=caller_location())
        if name in OPERATORS:
            raise AttributeError(
                f"`{name}` changes the loops and tasks of a workload: call it on the workload"
            )
        raise AttributeError(f"a {self.kind} has no attribute {name!r}{self.advice}")
