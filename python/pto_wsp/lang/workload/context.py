"""Which workload is being built, if any."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from pto_wsp.errors import OutsideWorkload
from pto_wsp.ir.scalar import Expr
from pto_wsp.lang.workload.blocks import Blocks, OpenLoop
from pto_wsp.location import caller_location


class Recording(Protocol):
    """The trace of a workload, as tensors and conditionals know it."""

    name: str
    blocks: Blocks
    loops: dict[str, OpenLoop]

    @property
    def offsets(self) -> frozenset[str]:
        """Names of the tensors that hold offsets of axes."""
        ...

    def element(self, entry: Any) -> Expr:
        """Return an element of a tensor as an expression."""
        ...


ACTIVE: ContextVar[Recording | None] = ContextVar("active_trace", default=None)


def current(what: str, where: str = "workload") -> Recording:
    """Return the trace of the workload that is being built.

    Args:
        what: the construct that needs it.
        where: the decorator of the functions in which `what` has a meaning.

    Raises:
        OutsideWorkload: `what` is used while none is.
    """
    trace = ACTIVE.get()
    if trace is None:
        raise OutsideWorkload(what=what, where=where, loc=caller_location())
    return trace
