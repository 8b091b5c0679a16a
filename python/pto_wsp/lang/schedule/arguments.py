"""Directives from the arguments that users write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

from pto_wsp.errors import WrongValue
from pto_wsp.ir.scalar import I64_MAX
from pto_wsp.ir.schedule import Bounds, Count, Directive, Key
from pto_wsp.lang.schedule.keys import trace_key
from pto_wsp.location import caller_location

D = TypeVar("D", bound=Directive)


def directed(cls: type[D], **given: Any) -> D:
    """Return a directive of a class, with each argument checked against its parameter.

    Args:
        cls: the class of the directive.
        given: a function of a task as `key`, an integer as `n`, ascending integers as `bounds`.

    Raises:
        WrongValue, BadKey, FrontendError: an argument does not fit.
    """
    fields: dict[str, Any] = {}
    for parameter in cls.parameters:
        value = given[parameter.field]
        match parameter:
            case Key():
                fields["key"] = trace_key(cls.name, value)
            case Count(least=least, most=most):
                fields["n"] = checked_count(f"{cls.name}'s n", value, least, most)
            case Bounds(most_parts=most):
                fields["bounds"] = _bounds(cls.name, value, most)
    return cls(**fields)


def checked_count(name: str, value: object, least: int, most: int) -> int:
    """Return a number that a user gave as `name`, or raise WrongValue."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        expected = f"an integer from {least} to {most}"
        raise WrongValue(name=name, expected=expected, found=repr(value), loc=caller_location())
    return value


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
