"""Task calls of a program: what tasks are grouped by."""

from __future__ import annotations

from pto_wsp.support.record import record


@record
class CallSite:
    """A place of a program that makes tasks.

    Attributes:
        kernel: name of the kernel.
        loops: the loops around it, outermost first, as text: `b in P(batch)`.
        location: `file:line:col`, or empty.
        nest: that of the innermost loop, which tells loops of equal text apart.
    """

    kernel: str
    loops: tuple[str, ...] = ()
    location: str = ""
    nest: str = ""

    @property
    def around(self) -> str:
        """The loops as one line: `for b in P(batch), h in P(8)`; empty outside loops."""
        return f"for {', '.join(self.loops)}" if self.loops else ""
