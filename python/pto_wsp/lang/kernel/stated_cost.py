"""The parts of a stated cost of a kernel: compute, memory, and their total."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from pto_wsp.device.model import is_cycles

Part = Callable[..., object]


class CostParts:
    """A function of views and scalars that returns the total of two parts, in cycles.

    Args:
        compute: cycles of arithmetic, a function of some parameters of the kernel.
        memory: cycles of transfers, a function of some parameters of the kernel.
        total: the cycles of both: `max` where they overlap.
    """

    def __init__(self, compute: Part, memory: Part, total: Part) -> None:
        self._parts = [(part, tuple(inspect.signature(part).parameters)) for part in (compute, memory)]
        self._total = total
        names = dict.fromkeys(name for _, asked in self._parts for name in asked)
        kind = inspect.Parameter.KEYWORD_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def __call__(self, **values: object) -> object:
        """Return the total, or the first part that is not a number of cycles."""
        cycles = [part(**{name: values[name] for name in asked}) for part, asked in self._parts]
        wrong = [found for found in cycles if not is_cycles(found)]
        return wrong[0] if wrong else self._total(*cycles)
