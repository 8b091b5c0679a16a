"""The kernel of `group_by`, which is C++ for a CPU, as other targets know it."""

from __future__ import annotations

from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.lang.workload.group_by import GROUP_BY_SOURCE
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.spelling import INTEGERS
from pto_wsp.types.tile import ViewType


def is_group_by(kernel: KernelFunction) -> bool:
    """Return whether a kernel is that of `group_by`."""
    return kernel.native is not None and kernel.native.source == GROUP_BY_SOURCE


def group_by_keys(kernel: KernelFunction) -> tuple[str, int]:
    """Return the type of an element of the keys of a kernel of `group_by`, and their dimensions."""
    keys = kernel.params[0].type
    assert isinstance(keys, ViewType) and keys.dtype is not None and keys.dims is not None
    return INTEGERS[keys.dtype.name], len(keys.dims)


def group_by_checks(kernel: KernelFunction) -> tuple[Check, Check]:
    """Return what the numbers mean that a function for `group_by` returns."""
    return (
        Check(kernel.loc, CheckText("there is not one index per element, or no offset")),
        Check(kernel.loc, CheckText("an element is not a group", "element {0} is {1}, outside [0, {2})"), 3),
    )
