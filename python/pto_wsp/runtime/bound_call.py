"""A call of a program whose arrays are bound and checked, and which has not begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pto_wsp.runtime.run import Run
from pto_wsp.support.record import record


@record
class ArrayAccess:
    """What a call does with the memory of one array.

    Attributes:
        tensor: name of the tensor.
        array: its array.
        is_written: whether tasks write it.
        span: addresses of its first byte and of the byte after its last.
    """

    tensor: str
    array: np.ndarray
    is_written: bool
    span: tuple[int, int]

    def conflicts_with(self, other: ArrayAccess) -> bool:
        """Whether the spans overlap, and one of the two calls writes."""
        is_apart = self.span[1] <= other.span[0] or other.span[1] <= self.span[0]
        return (self.is_written or other.is_written) and not is_apart


@record
class BoundCall:
    """A call that `submit` begins, once.

    Attributes:
        name: of the workload.
        accesses: what it does with its arrays.
        submit: begins the run; takes earlier runs of a session. Their tasks go first where tasks of the two
            conflict. Returns None if the run must begin after they have ended.
    """

    name: str
    accesses: Sequence[ArrayAccess]
    submit: Callable[[Sequence[Run]], Run | None]


def access_of(tensor: str, array: np.ndarray, is_written: bool) -> ArrayAccess:
    """Return the access to a whole array."""
    span = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
    return ArrayAccess(tensor, array, is_written, span)
