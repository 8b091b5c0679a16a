"""An advice: what costs time, where, how much is at stake, and what to do."""

from __future__ import annotations

from pto_wsp.errors.base import excerpt
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.visualize.timeline import duration_text


@record
class Advice:
    """One advice of an adviser.

    Attributes:
        code: which advice it is, `serial-loop`.
        message: what costs time, with its figures.
        gain_ns: what the remedy can save at most, in nanoseconds of the run.
        share: the same as a share of the run.
        remedy: what to do: an imperative sentence.
        example: program text that does it.
        loc: the line of source.
        label: what is to be seen there.
        notes: further evidence, each a sentence with the place that it speaks of, or None.
    """

    code: str
    message: str
    gain_ns: int
    share: float
    remedy: str
    example: str = ""
    loc: Location | None = None
    label: str = ""
    notes: tuple[tuple[str, Location | None], ...] = ()

    def __str__(self) -> str:
        """Return the advice as text, with its line of source and a caret."""
        lines = [f"advice[{self.code}]: {self.message}", *excerpt(self.loc, self.label)]
        lines += [f"note: {text}" + (f" --> {place}" if place else "") for text, place in self.notes]
        lines.append(f"at stake: up to {duration_text(self.gain_ns)}, {self.share:.0%} of the run")
        lines.append(f"help: {self.remedy}" + (":" if self.example else ""))
        return "\n".join([*lines, *(f"    {line}" for line in self.example.splitlines())])


class Advices(tuple[Advice, ...]):
    """What an adviser says of a run, the largest gain first; empty where it has nothing to say."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return all advices as text; nothing if there are none."""
        return "\n\n".join(map(str, self))
