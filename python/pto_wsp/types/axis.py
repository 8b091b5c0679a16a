"""Axes: what loops of a workload run over."""

from __future__ import annotations

from pto_wsp.support.record import record


class _DenseMeta(type):
    def __getitem__(cls, extent: int) -> Dense:
        return Dense(extent)


@record
class Dense(metaclass=_DenseMeta):
    """An axis whose extent is known when the workload is built: `Dense[8]`."""

    extent: int


@record
class DenseDyn:
    """An axis whose extent is bound when the program runs.

    As an annotation of a workload parameter the class itself is an extent taken from the arrays or
    given by name in the call; an instance fixes a value for every call that gives no other.
    """

    extent: int | None = None
