"""The directives of a schedule as functions that workloads and schedules have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from pto_wsp.errors import NotYetSupported, WrongValue
from pto_wsp.ir.schedule import Policy, Schedule
from pto_wsp.location import caller_location

Self = TypeVar("Self", bound="Schedulable")

LATER = frozenset({"streams", "stream_by", "timing", "spatial_map"})


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
    ) -> Self:
        """Return a copy with other policies for the graph of tasks; what is not given stays.

        Args:
            window: a `TaskWindow`.
            ready: a `ReadyPolicy`.
            start: a `StartPolicy`.
            deps: a `Deps`.

        Raises:
            WrongValue: something else.
        """
        return self._directed({"window": window, "ready": ready, "start": start, "deps": deps})

    def _directed(self: Self, policies: dict[str, Policy | None]) -> Self:
        found = self.policies
        for directive, policy in policies.items():
            if policy is None and directive != "dispatch":
                continue
            if not isinstance(policy, Policy) or policy.directive != directive:
                expected = f"a policy for `{directive}`"
                raise WrongValue(name=directive, expected=expected, found=repr(policy), loc=caller_location())
            found = found.having(policy)
        return self._having(found)

    def __getattr__(self, name: str) -> Any:
        if name in LATER:
            raise NotYetSupported(feature=f"`.{name}`", detail="", advice="", loc=caller_location())
        raise AttributeError(f"a {self.kind} has no attribute {name!r}{self.advice}")
