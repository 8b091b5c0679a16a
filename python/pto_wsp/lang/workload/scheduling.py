"""The directives of a schedule as functions that workloads and schedules have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from pto_wsp.errors import NotYetSupported, WrongValue
from pto_wsp.ir.schedule import POLICIES, Policy, Schedule
from pto_wsp.lang.workload.keys import KeyFunction, trace_key
from pto_wsp.location import caller_location

Self = TypeVar("Self", bound="Schedulable")

LATER = frozenset({"spatial_map"})


class Schedulable(ABC):
    """Something with a schedule. Each directive gives a copy in which that directive is another.

    Attributes:
        policies: its schedule.
        kind: what it is, in a message.
        advice: what such a message ends with.
    """

    policies: Schedule
    kind: ClassVar[str]
    advice: ClassVar[str] = ""

    @abstractmethod
    def _having(self: Self, policies: Schedule) -> Self:
        """Return a copy with another schedule."""

    def dispatch(self: Self, policy: Policy) -> Self:
        """Return a copy whose tasks go to dispatchers as a `DispatchPolicy` says.

        Raises:
            WrongValue: something else.
        """
        return self._directed({"dispatch": policy})

    def task_graph(
        self: Self,
        *,
        window: Policy | None = None,
        ready: Policy | None = None,
        start: Policy | None = None,
        deps: Policy | None = None,
        pools: Policy | None = None,
        stores: Policy | None = None,
        trace: Policy | None = None,
    ) -> Self:
        """Return a copy with other policies for the graph of tasks; what is not given stays.

        Args:
            window: a `TaskWindow`.
            ready: a `ReadyPolicy`.
            start: a `StartPolicy`.
            deps: a `Deps`.
            pools: a `Pools`.
            stores: a `StorePolicy`.
            trace: a `TracePolicy`.

        Raises:
            WrongValue: something else.
        """
        given = {
            "window": window,
            "ready": ready,
            "start": start,
            "deps": deps,
            "pools": pools,
            "stores": stores,
            "trace": trace,
        }
        return self._directed({name: policy for name, policy in given.items() if policy is not None})

    def timing(self: Self, policy: Policy) -> Self:
        """Return a copy whose tasks start when a `TimingPolicy` says.

        Raises:
            WrongValue: something else.
        """
        return self._directed({"timing": policy})

    def streams(self: Self, n: int) -> Self:
        """Return a copy whose tasks are in n streams; without `stream_by` they go to them in turn.

        Tasks of one stream start in program order, one at a time.

        Raises:
            WrongValue: n is no integer from 1 on.
        """
        form = POLICIES["streams"]["in_turn"]
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= form.most:
            expected = f"an integer from 1 to {form.most}"
            raise WrongValue(name="streams", expected=expected, found=repr(n), loc=caller_location())
        key = self.policies.streams.key
        return self._directed({"streams": Policy("streams", "by" if key is not None else "in_turn", n, key)})

    def stream_by(self: Self, key: KeyFunction) -> Self:
        """Return a copy whose tasks are in streams by a key: modulo their number, or one stream per key.

        Raises:
            WrongValue, BadKey, FrontendError: the key is no function of a task that gives an integer.
        """
        found = trace_key("stream_by", key)
        return self._directed({"streams": Policy("streams", "by", self.policies.streams.count, found)})

    def _directed(self: Self, policies: dict[str, Policy]) -> Self:
        found = self.policies
        for directive, policy in policies.items():
            if not isinstance(policy, Policy) or policy.directive != directive:
                expected = f"a policy for `{directive}`"
                raise WrongValue(name=directive, expected=expected, found=repr(policy), loc=caller_location())
            found = found.having(policy)
        return self._having(found)

    def __getattr__(self, name: str) -> Any:
        if name in LATER:
            raise NotYetSupported(feature=f"`.{name}`", detail="", advice="", loc=caller_location())
        raise AttributeError(f"a {self.kind} has no attribute {name!r}{self.advice}")
