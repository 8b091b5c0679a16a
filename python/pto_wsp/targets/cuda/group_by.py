"""The kernel of `group_by`, which is C++ elsewhere, as a device function."""

from __future__ import annotations

from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.lang.workload.group_by import GROUP_BY_SOURCE
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.spelling import INTEGERS, function_name
from pto_wsp.types.tile import ViewType


def is_group_by(kernel: KernelFunction) -> bool:
    """Return whether a kernel is that of `group_by`."""
    return kernel.native is not None and kernel.native.source == GROUP_BY_SOURCE


def write_group_by(kernel: KernelFunction, out: TextWriter) -> tuple[Check, ...]:
    """Write the device function of a kernel of `group_by`; return what its checks mean."""
    keys = kernel.params[0].type
    assert isinstance(keys, ViewType) and keys.dtype is not None and keys.dims is not None
    parameters = "const View* views, const Scalar*, const TaskContext* context"
    out.line("PTO_DEVICE")
    out.line(f"int32_t {function_name(kernel)}({parameters}) {{")
    call = f"group_by<{INTEGERS[keys.dtype.name]}, {len(keys.dims)}>"
    out.line(f"  return {call}(views[0], views[1], views[2], context);")
    out.line("}")
    return (
        Check(kernel.loc, CheckText("there is not one index per element, or no offset")),
        Check(kernel.loc, CheckText("an element is not a group", "element {0} is {1}, outside [0, {2})"), 3),
    )
