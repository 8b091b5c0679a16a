"""`short-bodies`: tasks take less time than it takes to share them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.rule import Rule, advice, larger_tasks, tasks_of
from pto_wsp.visualize.timeline import duration_text

CODE = "short-bodies"
SHORT_NS = 2_000
"""Tasks that take longer on average are worth sharing."""


def find(case: Case) -> Iterable[Advice]:
    """Return the advice for the call whose short tasks are the most."""
    report = case.report
    if case.num_workers < 2 or not report.tasks or report.busy_ns / report.tasks >= SHORT_NS:
        return []
    # One worker alone needs no dependences. The engine chooses it where sharing is slower.
    attained = min(report.makespan_ns, report.busy_ns)
    counts = np.bincount(case.run.call, minlength=len(case.nodes))
    call = int(counts.argmax())
    body = int(case.took_ns[case.tasks(call)].mean())
    each = report.walking_ns // report.tasks
    rest = report.makespan_ns * case.num_workers - report.busy_ns
    return advice(
        case,
        CODE,
        f"{tasks_of(int(counts[call]), case.nodes[call].kernel)} take {duration_text(body)} on average, "
        "too little to share",
        attained - report.least_ns,
        "give each task more work",
        larger_tasks(case, call),
        case.nodes[call].loc,
        f"{duration_text(body)} per task",
        [
            (f"expanding a task and finding its dependences takes {duration_text(each)}", None),
            (
                f"all tasks take {duration_text(report.busy_ns)}; the workers spend "
                f"{duration_text(rest)} on other things",
                None,
            ),
        ],
    )


RULE = Rule(
    CODE,
    "tasks take less time than it takes to share them",
    f"mean time of a task (below {duration_text(SHORT_NS)}), time per task to expand it and find dependences",
    "give each task more work: larger tiles, several rows per task",
    find,
    is_timed=True,
)
