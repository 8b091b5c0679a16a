"""`shared-cores`: other threads of the machine use the workers' cores, so that times mean little."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.rule import Rule, advice
from pto_wsp.visualize.timeline import duration_text

CODE = "shared-cores"
LEAST_SHARE = 0.1
"""Share of the time of tasks and expanding in which their threads had no core."""


def is_disturbed(case: Case) -> bool:
    """Whether workers had no core for so long that times of tasks are not their own."""
    worked_ns = case.report.busy_ns + case.report.walking_ns
    return case.report.stolen_ns > LEAST_SHARE * worked_ns


def find(case: Case) -> Iterable[Advice]:
    """Return the advice if workers had no core."""
    if not is_disturbed(case):
        return []
    report = case.report
    worked_ns = report.busy_ns + report.walking_ns
    return advice(
        case,
        CODE,
        f"workers had no core for {report.stolen_ns / worked_ns:.0%} of the time in which they had work: "
        f"{duration_text(report.stolen_ns)} of {duration_text(worked_ns)}",
        min(report.stolen_ns, report.makespan_ns),
        "end other work on the machine, or use fewer workers; then record the run again",
        f'program.run(..., workers={max(1, case.num_workers - 1)}, trace="full")',
        notes=[("advice that compares times is left out", None)],
    )


RULE = Rule(
    CODE,
    "other threads of the machine use the workers' cores",
    f"time in which workers had work and no core (from {LEAST_SHARE:.0%}); then `timed` advices are left out",
    "end other work on the machine, or use fewer workers",
    find,
)
