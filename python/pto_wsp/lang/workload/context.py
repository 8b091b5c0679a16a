"""Which workload is being built, if any."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from pto_wsp.errors import OutsideWorkload
from pto_wsp.location import caller_location

if TYPE_CHECKING:
    from pto_wsp.lang.workload.trace import Trace

ACTIVE: ContextVar[Trace | None] = ContextVar("active_trace", default=None)


def current(what: str) -> Trace:
    """Return the trace of the workload that is being built.

    Raises:
        OutsideWorkload: `what` is used while none is.
    """
    trace = ACTIVE.get()
    if trace is None:
        raise OutsideWorkload(what=what, where="workload", loc=caller_location())
    return trace
