"""Random schedules for a module: every policy that a target enforces, with keys that its tasks have."""

from __future__ import annotations

from hypothesis import strategies as st

from pto_wsp.errors import BadKey, UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Extent, Var, binary
from pto_wsp.ir.schedule import ARGUMENTS, POLICIES, TASK, Policy, Schedule
from pto_wsp.ir.workload import Loop, walk_nodes
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.targets.schedules import Enforced, require_support, support

WITHOUT_RESULTS = {"abort", "benchmark", "trust", "explicit", "explicit_unchecked"}
"""Policies that end a run, or whose results rest on what a program states."""

COUNTS = {
    "streams": (0, 1, 3),
    "dispatch": (1, 2, 3, 5, 8),
    "window": (1, 2, 3, 7, 64),
    "start": (1, 5, 60),
    "timing": (1, 2, 7, 1000),
    "pools": (0, 1, 2),
    "stores": (0, 1),
}
RATE = 10**5


@st.composite
def schedules(draw: st.DrawFn, module: Module) -> Schedule:
    """Draw a schedule."""
    schedule = Schedule()
    for directive, policies in POLICIES.items():
        enforced = [
            name
            for name in policies
            if isinstance(support("cpu", directive, name), Enforced) and name not in WITHOUT_RESULTS
        ]
        if not enforced:
            continue
        name = draw(st.sampled_from(enforced))
        form = policies[name]
        counts = [c for c in COUNTS.get(directive, ()) if c >= (form.least or 0)]
        count = 0 if form.least is None else draw(st.sampled_from(counts))
        key = draw(keys(module)) if form.takes_key else None
        if name == "rate_limit":
            count = RATE
        if name == "dispatch_by" and key is not None:
            key = binary("mod", key, Const(count))
        if key is not None and not has_key(module, key):
            continue
        bounds = tuple(sorted(draw(st.sets(st.integers(0, 99), min_size=1)))) if form.takes_bounds else ()
        having = schedule.having(Policy(directive, name, count, key, bounds[: min(8, form.most_parts - 1)]))
        if is_supported(having):
            schedule = having
    return schedule


def is_supported(schedule: Schedule) -> bool:
    """Whether the policies go together."""
    try:
        require_support("cpu", schedule)
    except UnsupportedByTarget:
        return False
    return True


def has_key(module: Module, key: Expr) -> bool:
    try:
        TaskKeys(module, key).check()
    except BadKey:
        return False
    return True


@st.composite
def keys(draw: st.DrawFn, module: Module) -> Expr:
    loops = [n.called for n in walk_nodes(module.entry_workload.body) if isinstance(n, Loop)]
    leaves: list[Expr] = [Var("t.kernel"), Const(3), *(Var(TASK + name) for name in loops)]
    leaves += [Extent(f"{ARGUMENTS}{p.name}", d) for k in module.kernels for p in k.views for d in (0, 1)]
    one, two = draw(st.sampled_from(leaves)), draw(st.sampled_from(leaves))
    op = draw(st.sampled_from(["", "add", "sub", "mul", "min"]))
    return Binary(op, one, two) if op else one
