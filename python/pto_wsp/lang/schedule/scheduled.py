"""What has a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from pto_wsp.errors import WrongValue
from pto_wsp.ir.schedule import Directive, Schedule
from pto_wsp.location import caller_location

S = TypeVar("S", bound="Scheduled")


class Scheduled(ABC):
    """Something with a schedule. A method of a directive returns a copy in which that directive is another.

    Attributes:
        policies: its schedule.
    """

    policies: Schedule

    @abstractmethod
    def _scheduled(self: S, policies: Schedule) -> S:
        """Return a copy with another schedule."""

    def having(self: S, *directives: Directive) -> S:
        """Return a copy with other directives of their kinds; the rest of its schedule stays.

        Raises:
            WrongValue: something is not a directive.
        """
        for directive in directives:
            if not isinstance(directive, Directive):
                found = repr(directive)
                raise WrongValue(name="directive", expected="a directive", found=found, loc=caller_location())
        return self._scheduled(self.policies.having(*directives))
