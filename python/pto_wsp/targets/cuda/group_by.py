"""The kernel of `group_by`, which is C++ elsewhere, as a device function."""

from __future__ import annotations

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.group_by import group_by_checks, group_by_keys
from pto_wsp.targets.c_style.spelling import function_name


def write_group_by(kernel: KernelFunction, out: TextWriter) -> tuple[Check, ...]:
    """Write the device function of a kernel of `group_by`; return what its checks mean."""
    storage, rank = group_by_keys(kernel)
    parameters = "const View* views, const Scalar*, const TaskContext* context"
    out.line("PTO_DEVICE")
    out.line(f"int32_t {function_name(kernel)}({parameters}) {{")
    out.line(f"  return group_by<{storage}, {rank}>(views[0], views[1], views[2], context);")
    out.line("}")
    return group_by_checks(kernel)
