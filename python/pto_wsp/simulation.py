"""Simulated time: devices, and what-if comparisons of schedules and devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pto_wsp.device.model import (
    Cache,
    CoreCache,
    CoreKind,
    Device,
    Dispatchers,
    HostLink,
    InstructionCost,
    Route,
    Widths,
)
from pto_wsp.device.reader import get_device, preset_names
from pto_wsp.errors import CyclesDiffer, NotSimulated, WrongValue
from pto_wsp.lang.schedule.schedule import Schedule
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import argument_location, caller_location
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.simulation_report import SimulationReport
from pto_wsp.support.record import record, replace
from pto_wsp.support.text import table
from pto_wsp.visualize.drawing import escaped

__all__ = [
    "Cache",
    "Comparison",
    "CoreCache",
    "CoreKind",
    "Device",
    "Dispatchers",
    "HostLink",
    "InstructionCost",
    "Route",
    "SimulationReport",
    "Widths",
    "compare",
    "expect_cycles",
    "get_device",
    "preset_names",
    "replace",
    "report_of",
]

Variant = Schedule | Device | str | Path


@record
class Comparison:
    """The reports of several variants by their names, in the order of the call. `str` of it is a table."""

    reports: Mapping[str, SimulationReport]

    @property
    def fastest(self) -> str:
        """Name of the variant with the fewest microseconds."""
        return min(self.reports, key=lambda name: self.reports[name].time_us)

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Yield the cells of the table: one row for each variant, ratios to the first one."""
        first = next(iter(self.reports.values())).time_us
        for name, report in self.reports.items():
            busy = " ".join(f"{kind} {share:.0%}" for kind, share in report.busy.items())
            ratio = f"{first / max(report.time_us, 1e-9):.3f}"
            yield name, f"{report.cycles:,}", f"{report.time_us:,.1f}", ratio, busy, report.bound[0]

    def __str__(self) -> str:
        return "\n".join(table(_HEADER, list(self.rows())))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escaped(name)}</th>" for name in _HEADER)
        cells = ("".join(f"<td>{escaped(cell)}</td>" for cell in row) for row in self.rows())
        return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


_HEADER = ("variant", "cycles", "us", "speedup", "busy", "nearest bound")


def report_of(program: Program) -> SimulationReport:
    """Return the report of the last run of a program, with the figures of the device.

    Raises:
        NotSimulated: the target is not `sim`, or the program has not run.
    """
    if program.target != "sim" or program.stats is None:
        reason = "has not run" if program.target == "sim" else f'is compiled for target "{program.target}"'
        name = program.module.entry_workload.name
        raise NotSimulated(program=name, reason=reason, loc=caller_location())
    report = program.report()
    assert isinstance(report, SimulationReport)
    return report


def expect_cycles(program: Program, cycles: int, tolerance: float = 0.05) -> None:
    """Check the makespan of the last run of a program on a simulated device.

    Args:
        program: compiled for the target `sim`; it has run.
        cycles: the makespan that is expected.
        tolerance: share of it by which the run may differ.

    Raises:
        CyclesDiffer: the makespan differs by more.
        NotSimulated: the target is not `sim`, or the program has not run.
        WrongValue: `cycles` or `tolerance` is not a number >= 0.
    """
    report = report_of(program)
    for name, value in (("cycles", cycles), ("tolerance", tolerance)):
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            expected = "a number >= 0"
            raise WrongValue(name=name, expected=expected, found=repr(value), loc=argument_location(name))
    if abs(report.cycles - cycles) > tolerance * cycles:
        raise CyclesDiffer(
            device=report.device.name,
            expected=f"{cycles:,}",
            tolerance=f"{tolerance:.0%}",
            found=f"{report.cycles:,}",
            loc=caller_location(),
        )


def compare(
    workload: Workload,
    variants: Mapping[str, Variant],
    *,
    device: str | Path | Device | None = None,
    values: bool = False,
    given: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Comparison:
    """Simulate a workload once for each variant, with the same arguments.

    Args:
        workload: what runs.
        variants: by name a `Schedule`, or a device (an object, a preset's name or the path of a TOML file).
        device: the device that schedules are compared on.
        values: whether kernels run.
        given: without `values`, arrays by the names of tensors that tasks write and that decide what runs,
            and `Sparse` values by the names of axes that `group_by` makes.
        arguments: values by name, as `Program.run` takes them. Where kernels run, they write the arrays.

    Returns:
        The reports, which print as a table.

    Raises:
        WrongValue: there is no variant, or one is neither a schedule nor a device.
        PtoError: as `compile` and `run` raise.
    """
    if not variants:
        raise WrongValue(
            name="variants", expected="schedules or devices by name", found="none", loc=caller_location()
        )
    reports: dict[str, SimulationReport] = {}
    for name, variant in variants.items():
        if not isinstance(variant, Variant):
            expected = "a Schedule, or a device"
            raise WrongValue(name=name, expected=expected, found=repr(variant), loc=caller_location())
        is_schedule = isinstance(variant, Schedule)
        program = workload.compile(
            "sim", device=device if is_schedule else variant, values=values, given=given
        )
        if is_schedule:
            program.reschedule(variant)
        program.run(**arguments)
        reports[name] = report_of(program)
    return Comparison(reports)
