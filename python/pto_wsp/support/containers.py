"""Small containers of scalars, which are compared by value."""

from __future__ import annotations

import copy
from typing import TypeVar

MAX_ITEMS = 64

_ITEMS = (bool, int, float, complex, str, bytes, type(None))

T = TypeVar("T")


def is_plain(value: object) -> bool:
    """Whether a value is a list, set or dict of at most `MAX_ITEMS` scalars."""
    if not isinstance(value, (list, set, dict)) or len(value) > MAX_ITEMS:
        return False
    items = [*value, *value.values()] if isinstance(value, dict) else [*value]
    return all(isinstance(item, _ITEMS) for item in items)


def plain_copy(value: T) -> T:
    """Return a copy of a container of scalars."""
    return copy.copy(value)
