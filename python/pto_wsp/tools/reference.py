"""The public interface by subject: what the pages of the reference list, and what `pto docs` searches."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum

from pto_wsp.ir.schedule import Policy
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.ops.functional import OPERATORS
from pto_wsp.support.record import record
from pto_wsp.types import DTYPES

_QUOTED = re.compile(r"(: |-> )'((?:[^'\\]|\\.)*)'")
"""Annotations, which are text since they are deferred."""


@record
class Subject:
    """A page of the reference.

    Attributes:
        title: heading of the page.
        about: what the page is for; Markdown.
        names: dotted names of the classes and functions, in the order of the page.
        shown: names that the page shows in place of the dotted ones.
    """

    title: str
    about: str
    names: tuple[str, ...]
    shown: dict[str, str]

    def heading(self, name: str) -> str:
        """Return how a page calls what the dotted name leads to."""
        called = name.removeprefix("pto_wsp.").replace("ops.functional.", "F.")
        return self.shown.get(name, called)


def _subject(title: str, about: str, names: str, **shown: str) -> Subject:
    dotted = tuple(f"pto_wsp.{name}" for name in names.split())
    by_object = {name: shown[name.rsplit(".", 1)[-1]] for name in dotted if name.rsplit(".", 1)[-1] in shown}
    return Subject(title, about, dotted, by_object)


SUBJECTS: dict[str, Subject] = {
    "kernels": _subject(
        "Kernels",
        "Declaring kernels and their parameters. The functions of a kernel are on the page "
        "[`pto`](pto.md), the Python that a kernel may use on [another](../python_in_kernels.md).",
        """kernel ptoisa_kernel lookup_kernel registered_kernels lang.kernel.kernel.Kernel
        In Out InOut Constexpr Tile""",
        Kernel="Kernel",
    ),
    "workloads": _subject(
        "Workloads",
        "Generating tasks: loops, axes, indices and values that a run decides.",
        """workload lang.workload.workload.Workload sequential combine tier assume distinct
        lang.workload.loops.AllLoops
        lang.workload.broadcast.All lang.workload.tasks.Handle group_by
        slot_set_i64 slot_set_u64 slot_set_bool slot_load_i64 slot_load_u64 slot_load_bool
        slot_i64 slot_u64 slot_bool symbol_i64 symbol_u64 symbol_f32""",
        Workload="Workload",
        AllLoops="P",
        All="ALL",
        Handle="Handle",
    ),
    "networks": _subject(
        "Networks of processes",
        "Processes with program orders of their own, connected by channels. [Processes](../processes.md) is "
        "the guide.",
        "Channel lang.workload.channels.ChannelToken process network replicate wait "
        "lang.workload.networks.ProcessFunction",
        ChannelToken="ChannelToken",
        ProcessFunction="ProcessFunction",
    ),
    "data": _subject(
        "Tensors, axes and element types",
        "Parameters of workloads and kernels. Element types: "
        + ", ".join(f"`{name}`" for name in DTYPES)
        + ". `f64` and `u64` are types of `pto_wsp.types`.",
        "Tensor Scalar Ragged Sparse Dense DenseDyn types.tile._Dyn MemLayout panel_cols empty types.DType",
        _Dyn="DYN",
    ),
    "programs": _subject(
        "Programs, runs and traces",
        "Compiling and running. [Runs](../runs.md) is the guide.",
        """Program Run RunStats runtime.proved.Proved runtime.trace.Trace runtime.trace.TaskEvent
        runtime.task_graph.TaskGraph runtime.task_graph.GraphTask runtime.compiling.compile_module
        Session runtime.session.Launch runtime.session.Wait graph runtime.contracts.ContractGraph""",
        Proved="Proved",
        Trace="Trace",
        TaskEvent="TaskEvent",
        TaskGraph="TaskGraph",
        GraphTask="GraphTask",
        Launch="Launch",
        Wait="Wait",
        ContractGraph="ContractGraph",
    ),
    "simulation": _subject(
        "Simulated time",
        "Devices and reports of the target `sim`. [Simulated time](../simulation.md) is the guide.",
        """simulation.compare simulation.Comparison simulation.expect_cycles simulation.report_of
        simulation.SimulationReport runtime.network_report.NetworkReport
        runtime.network_report.ProcessLine runtime.network_report.ChannelLine
        simulation.get_device simulation.preset_names simulation.Device
        simulation.CoreKind simulation.Route simulation.Cache simulation.Dispatchers simulation.HostLink
        simulation.InstructionCost simulation.CoreCache simulation.Widths""",
    ),
    "schedules": _subject(
        "Schedules",
        "Policies of a schedule. [Schedules](../schedules.md) is the guide, "
        "[Policies](../policies.md) the table by target.",
        """Schedule Strategies stage DispatchPolicy Pools ReadyPolicy StartPolicy TaskWindow WindowMode
        TimingPolicy Deps StorePolicy TracePolicy
        CalendarPolicy Calendar runtime.calendar.CalendarRow""",
    ),
    "builder": _subject(
        "Function builder and text",
        "Generating programs without decorators. [Function builder](../builder.md) and "
        "[`.pto` text](../pto_text.md) are the guides.",
        "PTOFunctionBuilder PTOModule ElementType MemorySpace CompareMode parse text.to_python",
    ),
    "functional": _subject(
        "Functions of arrays",
        "`from pto_wsp.ops import functional as F`. `x` is an array of any shape of f32, f16 or bf16. "
        "The result has its shape and element type unless the function says more. `out` receives the result. "
        "[Operators](../operators.md) lists formulas and error bounds.",
        " ".join(
            f"ops.functional.{name}"
            for name in (*OPERATORS, *(["workload"] if "workload" not in OPERATORS else []), "modules")
        ),
    ),
    "operators": _subject(
        "Attention and products",
        "Operators that plan. [Attention](../attention.md) and [products](../matmul.md) are the guides.",
        "ops.attention.BatchDecode ops.attention.BatchPrefill ops.matmul.matmul ops.matmul.PackedMatrix",
    ),
    "planner": _subject(
        "Work planner",
        "[Planner](../planner.md) is the guide, with the layout of the descriptors.",
        """planner.AttentionPlanner planner.MoEPlanner planner.WorkPlanner planner.PlanConfig planner.Tier
        planner.TierConfig planner.BalancedPlanner planner.BalancedConfig planner.BalancedPlan
        planner.generate planner.get_total_work planner.plan_chunk_size""",
    ),
    "errors": _subject(
        "Error classes",
        "[Errors](../errors.md) has a chapter for each class, with a program that causes it.",
        "PtoError short_errors",
    ),
    "targets": _subject(
        "Targets",
        "[Adding a target](../adding_a_target.md) is the guide.",
        "targets.base.Target targets.base.SourceTree targets.registry.register_target",
    ),
}
"""The pages of the reference by file name."""


def resolve(dotted: str) -> object:
    """Return the class or function that a dotted name leads to."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ImportError(dotted)


def entries() -> Iterator[tuple[str, str, str]]:
    """Yield page, heading and text of everything in the reference: signature, then docstring."""
    for name, function in FUNCTIONS.items():
        yield "api/pto.md", f"pto.{name}", f"pto.{name}{function.__signature__}\n{function.__doc__}"
    for slug, subject in SUBJECTS.items():
        for dotted in subject.names:
            heading, found = subject.heading(dotted), resolve(dotted)
            yield f"api/{slug}.md", heading, f"{heading}{signature_text(found)}\n{inspect.getdoc(found)}"
            for name, member in members(found):
                text = f"{heading}.{name}{signature_text(member)}\n{inspect.getdoc(member)}"
                yield f"api/{slug}.md", f"{heading}.{name}", text


HIDDEN = frozenset(
    """engine_settings engine_keys engine_operand refusal default require_unscheduled specialise among having
    is_current is_generic identity called accepts physical_dims pack_into trace at key_exprs policy
    title expr where loc""".split()
)
"""Members that other layers of the package call, and users do not."""


def members(found: object) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, those of its bases last; none of a function."""
    if not inspect.isclass(found) or issubclass(found, (Enum, BaseException)):
        return
    seen: set[str] = set(HIDDEN)
    for base in found.__mro__:
        if not base.__module__.startswith("pto_wsp"):
            continue
        for name, declared in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(declared, (property, Policy)) or inspect.isroutine(getattr(found, name)):
                yield name, getattr(found, name)


def signature_text(found: object) -> str:
    """Return the parameters of a function or class as Python writes them, or nothing if it has none."""
    if not callable(found) or (isinstance(found, type) and issubclass(found, Enum)):
        return ""
    try:
        shown = _QUOTED.sub(r"\1\2", str(inspect.signature(found)))
    except (TypeError, ValueError):
        return ""
    return shown.replace("(self, ", "(").replace("(self)", "()")
