"""What users write: directives with arguments, and things that have a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar

from pto_wsp.errors import WrongValue
from pto_wsp.ir.scalar import I64_MAX
from pto_wsp.ir.schedule import Bounds, Count, Directive, Directives, Key, Keys, Policy, Stage, Stages
from pto_wsp.lang.schedule.keys import trace_key
from pto_wsp.location import caller_location
from pto_wsp.support.record import replace

D = TypeVar("D", bound=Directive)


def directed(directive: D, **given: Any) -> D:
    """Return a directive with arguments, each checked against its parameter.

    Args:
        directive: it, without arguments.
        given: a function of a task as `key`, several as `keys`, an integer or None (open) as `n`, ascending
            integers as `bounds`, results of `stage` as `stages`.

    Raises:
        WrongValue, BadKey, FrontendError: an argument does not fit.
    """
    name, fields = directive.name, dict[str, Any]()
    for parameter in directive.policy.takes:
        value = given[parameter.field]
        match parameter:
            case Key():
                fields["key"] = trace_key(name, value)
            case Keys(most=most):
                if not 1 <= len(value) <= most:
                    expected, found = f"1 to {most} keys", f"{len(value)}"
                    raise WrongValue(name=name, expected=expected, found=found, loc=caller_location())
                fields["keys"] = tuple(trace_key(name, key) for key in value)
            case Count(least=least, most=most):
                is_open = value is None and least == 0
                fields["n"] = 0 if is_open else checked_count(f"{name}'s n", value, max(least, 1), most)
            case Stages(least=least, most=most):
                fields["stages"] = _stages(name, value, least, most)
            case Bounds(most_parts=most):
                fields["bounds"] = _bounds(name, value, most)
    return replace(directive, **fields)


def checked_count(name: str, value: object, least: int, most: int = Count.most) -> int:
    """Return a number that a user gave as `name`, or raise WrongValue."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        expected = f"an integer from {least} to {most}"
        raise WrongValue(name=name, expected=expected, found=repr(value), loc=caller_location())
    return value


def count_of(name: str, value: object, policy: Policy[..., Any]) -> int:
    """Return a number that a user gave as `name` for the count of a policy, or raise WrongValue."""
    (count,) = (parameter for parameter in policy.takes if isinstance(parameter, Count))
    return checked_count(name, value, max(count.least, 1), count.most)


def _stages(name: str, stages: Sequence[object], least: int, most: int) -> tuple[Stage, ...]:
    found = tuple(stage for stage in stages if isinstance(stage, Stage))
    if len(found) != len(stages) or not least <= len(found) <= most:
        expected = f"{least} to {most} stages: `stage(kernel, cores=n)`"
        raise WrongValue(name=name, expected=expected, found=repr(tuple(stages)), loc=caller_location())
    kernels = [kernel for stage in found for kernel in stage.kernels]
    twice = next((kernel for kernel in kernels if kernels.count(kernel) > 1), None)
    if twice is not None:
        expected, shown = "each kernel in one stage", f"`{twice}` in two"
        raise WrongValue(name=name, expected=expected, found=shown, loc=caller_location())
    return found


def _bounds(name: str, bounds: object, most_parts: int) -> tuple[int, ...]:
    found = tuple(bounds) if isinstance(bounds, Sequence) and not isinstance(bounds, str) else ()
    are_integers = all(isinstance(b, int) and not isinstance(b, bool) and 0 <= b <= I64_MAX for b in found)
    is_ascending = are_integers and all(a < b for a, b in pairwise(found))
    if not found or len(found) >= most_parts or not is_ascending:
        expected = f"1 to {most_parts - 1} integers >= 0 in ascending order"
        raise WrongValue(
            name=f"{name}'s bounds", expected=expected, found=repr(bounds), loc=caller_location()
        )
    return found


class Scheduled(ABC):
    """Something with a schedule.

    Attributes:
        policies: its schedule.
    """

    policies: Directives

    @abstractmethod
    def _scheduled(self, policies: Directives) -> Self:
        """Return a copy with another schedule."""

    def having(self, **directives: Directive) -> Self:
        """Return a copy with other directives, each given by its kind; the rest of its schedule stays.

        Raises:
            WrongValue: something is not a directive of that kind.
        """
        for kind, directive in directives.items():
            if not isinstance(directive, Directive) or directive.kind != kind:
                expected = f"a policy for `{kind}`"
                found, hint = repr(directive), f"`pto docs {kind}` lists the policies"
                raise WrongValue(name=kind, expected=expected, found=found, hint=hint, loc=caller_location())
        return self._scheduled(self.policies.having(*directives.values()))
