"""A call of a program whose arrays are bound and checked, and which has not begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pto_wsp.location import Location
from pto_wsp.runtime.run import Run


class ArrayAccess:
    """What a call does with the memory of one array.

    Attributes:
        tensor: name of the tensor.
        array: its array.
        is_written: whether tasks write it.
    """

    def __init__(self, tensor: str, array: np.ndarray, is_written: bool) -> None:
        self.tensor = tensor
        self.array = array
        self.is_written = is_written

    @cached_property
    def span(self) -> tuple[int, int]:
        """Addresses of its first byte and of the byte after its last. A launch that is alone needs none."""
        return np.lib.array_utils.byte_bounds(self.array) if self.array.size else (0, 0)

    def conflicts_with(self, other: ArrayAccess) -> bool:
        """Whether the spans overlap, and one of the two calls writes."""
        if not (self.is_written or other.is_written):
            return False
        return other.span[0] < self.span[1] and self.span[0] < other.span[1]


@dataclass(slots=True)
class BoundCall:
    """A call that `submit` begins, once.

    Attributes:
        name: of the workload.
        accesses: what it does with its arrays.
        location: where a user's program called.
        submit: begins the run; takes earlier runs of a session. Their tasks go first where tasks of the two
            conflict. Returns None if the run must begin after they have ended.
    """

    name: str
    accesses: tuple[ArrayAccess, ...]
    location: Location | None
    submit: Callable[[Sequence[Run]], Run | None]
