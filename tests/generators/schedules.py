"""Random schedules for a module: every policy that a target enforces, with keys that its tasks have."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pto_wsp.errors import BadKey, UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import ArgExtent, Binary, Const, Expr, TaskIndex, TaskKernel, binary
from pto_wsp.ir.schedule import Bounds, Count, Directive, Directives, Key, Keys, Stage, Stages
from pto_wsp.ir.workload import Loop, Task, walk_nodes
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.targets.base import Enforced
from pto_wsp.targets.schedules import require_support, support

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
    "interleave": (1, 2, 5),
    "concurrent": (1, 2, 5),
    "prefetch": (1, 2, 5),
}
RATE = 10**5


@st.composite
def schedules(draw: st.DrawFn, module: Module) -> Directives:
    """Draw a schedule."""
    schedule = Directives()
    for kind in DIRECTIVES.values():
        enforced = [
            name
            for name, policy in kind.policies.items()
            if isinstance(support("cpu", policy), Enforced)
            and name not in WITHOUT_RESULTS
            and (len(called(module)) > 1 or not any(isinstance(p, Stages) for p in policy.takes))
        ]
        having = schedule.having(draw(directives(kind, draw(st.sampled_from(enforced)), module)))
        if all(has_key(module, key) for d in having for key in d.key_exprs) and is_supported(having, module):
            schedule = having
    return schedule


def called(module: Module) -> list[str]:
    """Return the kernels that tasks call."""
    return sorted({node.kernel for node in walk_nodes(module.entry_workload.body) if isinstance(node, Task)})


@st.composite
def directives(draw: st.DrawFn, kind: type[Directive], name: str, module: Module) -> Directive:
    """Draw the arguments of a directive."""
    fields: dict[str, Any] = {"name": name}
    for parameter in reversed(kind.policies[name].takes):
        match parameter:
            case Count(least=least):
                counts = [count for count in COUNTS[kind.kind] if count >= least]
                fields["n"] = RATE if name == "rate_limit" else draw(st.sampled_from(counts))
            case Bounds(most_parts=most):
                bounds = sorted(draw(st.sets(st.integers(0, 99), min_size=1)))
                fields["bounds"] = tuple(bounds[: min(8, most - 1)])
            case Stages(most=most):
                names = draw(st.permutations(called(module)))
                parts = draw(st.integers(2, min(most, len(names))))
                fields["stages"] = tuple(
                    Stage(tuple(names[part::parts]), draw(st.integers(1, 3))) for part in range(parts)
                )
            case Keys(most=most):
                fields["keys"] = tuple(draw(st.lists(keys(module), min_size=1, max_size=most)))
            case Key():
                key = draw(keys(module))
                is_number = name == "dispatch_by"
                fields["key"] = binary("mod", key, Const(fields["n"])) if is_number else key
    return kind(**fields)


def is_supported(schedule: Directives, module: Module) -> bool:
    """Whether the policies go together."""
    try:
        require_support("cpu", module.with_schedule(schedule))
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
    leaves: list[Expr] = [TaskKernel(), Const(3), *(TaskIndex(name) for name in loops)]
    leaves += [ArgExtent(p.name, d) for k in module.kernels for p in k.views for d in (0, 1)]
    one, two = draw(st.sampled_from(leaves)), draw(st.sampled_from(leaves))
    op = draw(st.sampled_from(["", "add", "sub", "mul", "min"]))
    return Binary(op, one, two) if op else one
