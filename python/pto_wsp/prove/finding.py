"""What a proof says: findings, each proved, refuted with a counter-example, or unknown with a reason."""

from __future__ import annotations

from pto_wsp.errors.base import excerpt
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.support.record import record

PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"

INDEPENDENT, INSIDE, EDGES, INSTANCES, CHANNELS = "independence", "regions", "edges", "instances", "channels"
"""Claims: iterations of `P` are independent; a region lies in its tensor and fits its parameter; explicit
edges order all conflicts; instances of a kernel with `block_dim` write different elements; no process of a
network waits for ever."""


@record
class TaskText:
    """One task of a counter-example: `scale in iteration i = 1`, and where it is written."""

    text: str
    loc: Location | None = None


@record
class CounterExample:
    """Values of a call that break a claim.

    Attributes:
        sizes: sizes and integer scalars.
        arrays: values of the arrays that decide, as nested lists.
        tasks: the task or the two tasks.
        region: the elements that both touch, or that lie outside.
        problem: what is wrong with them, in a few words.
    """

    sizes: tuple[tuple[str, int], ...]
    arrays: tuple[tuple[str, object], ...]
    tasks: tuple[TaskText, ...]
    region: str
    problem: str

    def lines(self) -> list[str]:
        """Return it as text."""
        values = [f"{name} = {value}" for name, value in (*self.sizes, *self.arrays)]
        found = [f"with {', '.join(values)}:"] if values else []
        found.append(f"{self.problem}: {self.region}")
        for task in self.tasks:
            found += [f"  {task.text}" + (f" --> {task.loc}" if task.loc is not None else "")]
        return found


@record
class Finding:
    """One claim, with its answer.

    Attributes:
        claim: INDEPENDENT, INSIDE, EDGES, INSTANCES or CHANNELS.
        subject: the loop, region or kernel that the claim is about.
        status: PROVED, REFUTED or UNKNOWN.
        loc: where the subject is written.
        counter: of a refuted claim, values that break it; of an unknown one, values that break it unless the
            proposed assumption holds, if any are known.
        reason: of an unknown claim, what no proof can know.
        given: what a proof takes for granted; each run checks it.
        assume: statements that make an unknown claim provable, or none.
    """

    claim: str
    subject: str
    status: str
    loc: Location | None = None
    counter: CounterExample | None = None
    reason: str = ""
    given: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The claim and its subject."""
        return f"{self.claim} of {self.subject}"

    def __str__(self) -> str:
        """Return the finding as text, with its source line unless it is proved."""
        place = f"  {self.loc.file}:{self.loc.line}" if self.loc is not None else ""
        head = f"{self.status}: {self.head}"
        if self.status == PROVED:
            return head + (f", given {' and '.join(self.given)}" if self.given else "") + place
        lines = [head, *excerpt(self.loc, self.reason)]
        if self.counter is not None:
            lines += [f"  {line}" for line in self.counter.lines()]
        if self.assume:
            lines.append(f"help: state {self.advice}")
        return "\n".join(lines)

    @property
    def advice(self) -> str:
        """The statements of `assume` as a list in a sentence."""
        return " and ".join(f"`{statement}`" for statement in self.assume)


@record
class Proof:
    """The findings about the entry of a module, in the order of its text."""

    module: Module
    findings: tuple[Finding, ...]

    def holds(self, claim: str) -> bool:
        """Return whether a claim has findings, and all of them are proved."""
        found = {finding.status for finding in self.findings if finding.claim == claim}
        return found == {PROVED}

    @property
    def status(self) -> str:
        """REFUTED if a finding is, else UNKNOWN if one is, else PROVED."""
        found = {finding.status for finding in self.findings}
        return next((status for status in (REFUTED, UNKNOWN) if status in found), PROVED)

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """The findings with a counter-example."""
        return tuple(f for f in self.findings if f.status == REFUTED)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The findings without an answer."""
        return tuple(f for f in self.findings if f.status == UNKNOWN)

    def count(self, status: str) -> int:
        """Return the number of findings with a status."""
        return sum(finding.status == status for finding in self.findings)

    def __repr__(self) -> str:
        return f"<Proof of {self.summary}>"

    def __str__(self) -> str:
        """Return every finding, and how many there are of each status."""
        return "\n".join([*map(str, self.findings), self.summary])

    @property
    def summary(self) -> str:
        """The number of findings of each status."""
        counts = ", ".join(f"{self.count(status)} {status}" for status in (PROVED, REFUTED, UNKNOWN))
        return f"{self.module.entry}: {counts}"
