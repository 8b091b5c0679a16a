"""How notebooks show workloads, schedules and programs."""

from __future__ import annotations

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_policy
from pto_wsp.ir.schedule import Directives
from pto_wsp.visualize.drawing import escaped
from pto_wsp.visualize.report import html_table


def schedule_html(schedule: Directives) -> str:
    """Return what a schedule says, with what it means."""
    rows = [(directive.kind, print_policy(directive), directive.policy.meaning) for directive in schedule]
    return html_table(("directive", "policy", "meaning"), rows) if rows else "<p>the default schedule</p>"


def module_html(title: str, module: Module, *parts: str) -> str:
    """Return the parameters of a module's entry, its schedule, further parts and, folded away, its text."""
    table = html_table(("parameter", "type"), [(p.name, _type(p)) for p in module.entry_workload.open_params])
    text = f"<details><summary>.pto</summary><pre>{escaped(str(module))}</pre></details>"
    shown = "".join((table, schedule_html(module.schedule), *parts, text))
    return f"<div><b>{escaped(title)}</b>{shown}</div>"


def _type(param: w.WorkloadParam) -> str:
    match param:
        case w.SizeParam():
            return "size"
        case w.TensorParam() | w.ScalarParam():
            return str(param.type)
        case w.RaggedParam():
            return "ragged axis"
        case w.SparseParam():
            return "sparse axis"
