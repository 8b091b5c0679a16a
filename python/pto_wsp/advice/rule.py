"""What every advice is made of: one entry of the table of advices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.ir import workload as w
from pto_wsp.ir.flush_points import find_late
from pto_wsp.ir.printer import loop_text
from pto_wsp.ir.scalar import Var
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace

MIN_SHARE, MIN_GAIN_NS = 0.1, 200_000
"""What an advice must save at least: of the run, and in nanoseconds."""


@record
class Rule:
    """One advice that the adviser can give.

    Attributes:
        code: its name, `serial-loop`.
        says: what it says, for the table of advices.
        evidence: the figures that it is given for.
        remedy: what it recommends.
        find: returns the advices of a run.
        is_timed: whether the figures mean nothing if other threads used the workers' cores.
    """

    code: str
    says: str
    evidence: str
    remedy: str
    find: Callable[[Case], Iterable[Advice]]
    is_timed: bool = False


def advice(
    case: Case,
    code: str,
    message: str,
    gain_ns: float,
    remedy: str,
    example: str = "",
    loc: Location | None = None,
    label: str = "",
    notes: Iterable[tuple[str, Location | None]] = (),
) -> list[Advice]:
    """Return an advice, or nothing where it would save too little."""
    share = gain_ns / case.report.makespan_ns
    if gain_ns < MIN_GAIN_NS or share < MIN_SHARE:
        return []
    return [Advice(code, message, int(gain_ns), share, remedy, example, loc, label, tuple(notes))]


def larger_tasks(case: Case, call: int) -> str:
    """Return program text in which a task does the work of several tasks of a call."""
    node, loops = case.nodes[call], case.loops[call]
    if not loops:
        return f"{node.kernel}(...)  # on larger regions"
    loop = replace(loops[-1], kind=w.PARALLEL, tile=8 * (loops[-1].tile or 8))
    return f"{loop_source(case, loop)}\n    {node.kernel}[{loop.called}](...)"


def loop_source(case: Case, loop: w.Loop) -> str:
    """Return the line of a loop as a workload has it: sizes are in quotes there."""
    text = loop_text(loop)
    sizes = {p.name for p in case.module.entry_workload.params if isinstance(p, w.SizeParam)}
    if isinstance(loop.extent, Var) and loop.extent.name in sizes:
        text = text.replace(f"({loop.extent.name}", f'("{loop.extent.name}"', 1)
    return f"for {text}:"


def tasks_of(count: int, kernel: str) -> str:
    """Return `1 task of `scale``, `64 tasks of `scale``."""
    return f"{count:,} task{'' if count == 1 else 's'} of `{kernel}`"


def has_flush_points(case: Case) -> bool:
    """Whether the program reads elements that its tasks write, so that its graph cannot be kept."""
    late = find_late(case.module.entry_workload, case.module.written)
    return any(late.has(*w.node_expressions(n)) for n in w.walk_nodes(case.module.entry_workload.body))
