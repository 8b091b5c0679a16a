"""`finding-dependences`: workers spend their time on finding dependences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.rule import Rule, advice, has_flush_points, larger_tasks
from pto_wsp.advice.rules.short_bodies import SHORT_NS
from pto_wsp.visualize.timeline import duration_text

CODE = "finding-dependences"
LEAST_SHARE, SLOW_NS, NUM_PAIRS = 0.15, 500, 3
"""Share of the workers' time, and time per task, from which finding dependences is slow; pairs shown."""

KEEP = "program.reschedule(program.schedule.task_graph(start=StartPolicy.after_build()))"


def find(case: Case) -> Iterable[Advice]:
    """Return the advice, if finding dependences takes long, and long per task."""
    report = case.report
    if case.num_workers < 2 or not report.tasks:
        return []
    share = report.walking_ns / (report.makespan_ns * case.num_workers)
    each = report.walking_ns / report.tasks
    is_short = report.busy_ns / report.tasks < SHORT_NS and each < SLOW_NS
    if share < LEAST_SHARE or is_short:
        return []
    pairs = list(_pairs(case))
    call = pairs[0][1] if pairs else int(np.bincount(case.run.call).argmax())
    kept = any(d.kind == "start" and d.name != "immediate" for d in case.module.schedule)
    if has_flush_points(case) or kept:
        remedy, example = "give each task more work", larger_tasks(case, call)
    else:
        remedy, example = "keep the graph of tasks for later runs of equal sizes", KEEP
    notes = [(_text(case, *pair), case.nodes[pair[0]].loc) for pair in pairs]
    return advice(
        case,
        CODE,
        f"expanding tasks and finding dependences takes {share:.0%} of the workers' time: "
        f"{duration_text(int(each))} per task",
        report.makespan_ns - report.least_ns,
        remedy,
        example,
        case.nodes[call].loc,
        "waits for the most tasks" if pairs else "is expanded most often",
        notes,
    )


def _pairs(case: Case) -> Iterable[tuple[int, int, int, int]]:
    """Yield calls before and after, tensor and number of dependences of the pairs that have the most."""
    found = case.run.dependences
    if not len(found):
        return
    rows = np.stack([case.run.call[found[:, 0]], case.run.call[found[:, 1]], found[:, 3]], axis=1)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:NUM_PAIRS].tolist():
        before, after, tensor = kinds[i].tolist()
        yield before, after, tensor, int(counts[i])


def _text(case: Case, before: int, after: int, tensor: int, count: int) -> str:
    through = f" through `{case.run.tensors[tensor]}`" if tensor >= 0 else ""
    first, second = (case.nodes[call].kernel for call in (before, after))
    all_of_them = f"{count:,} of {len(case.run.dependences):,} dependences"
    return f"`{second}` waits for `{first}`{through}: {all_of_them}"


RULE = Rule(
    CODE,
    "workers spend their time on expanding tasks and finding dependences",
    f"share of the workers' time (from {LEAST_SHARE:.0%}), time per task, the pairs of calls with the most "
    "dependences and their tensors",
    "keep the graph (`StartPolicy.after_build()`); larger tasks if the run reads what its tasks write",
    find,
    is_timed=True,
)
