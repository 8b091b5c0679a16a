"""A roofline of each kernel: its time by the clock of the GPU, against reading and products of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_wsp import Program
from pto_wsp.ir import kernel as k
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.simulation import report_of
from pto_wsp.support.record import record
from pto_wsp.types.dtype import bf16, f16


@record
class Limits:
    """What a card reaches, measured with torch.

    Attributes:
        read: bytes per nanosecond.
        wide: operations per nanosecond of products of f32.
        narrow: the same of bf16.
    """

    read: float
    wide: float
    narrow: float

    def ns(self, kernel: k.KernelFunction, operations: int, moved: int) -> float:
        """Return the time that a card needs for operations and bytes."""
        types = {view.type.dtype for view in kernel.views}
        return max(moved / self.read, operations / (self.narrow if types & {bf16, f16} else self.wide))


def percent_of_limits(program: Program, values: Mapping[str, Any], limits: Limits) -> dict[str, float]:
    """Return for each kernel how much of the limits its tasks reach, in percent.

    A block that runs the kernel counts as its share of the card. Operations and bytes come from the target
    `sim`, which takes the same values.

    Args:
        program: compiled for `cuda`; it can be traced.
        values: those of a run; arrays of torch or numpy.
        limits: of the card.
    """
    program.run(**values, trace=True)
    assert program.trace is not None and program.stats is not None
    spent: dict[str, int] = {}
    for task in program.trace:
        spent[task.kernel] = spent.get(task.kernel, 0) + task.end_ns - task.start_ns
    simulated = compile_module(program.module, "sim", device="ascend_950", values=False)
    simulated.run(**{name: on_host(value) for name, value in values.items()})
    kernels = {kernel.name: kernel for kernel in program.module.kernels}
    blocks, found = program.stats.workers, {}
    for line in report_of(simulated).kernels:
        if line.tasks and spent[line.kernel] > 0:
            limit = limits.ns(kernels[line.kernel], line.operations, line.bytes)
            found[line.kernel] = 100 * limit / (spent[line.kernel] / blocks)
    return found


def on_host(value: Any) -> Any:
    """Return numbers and rows as they are; of arrays, integers, and the shapes of all others."""
    if not hasattr(value, "shape"):
        return value
    is_float = getattr(value, "is_floating_point", lambda: value.dtype.kind not in "iu")()
    if is_float:
        return tuple(value.shape)
    return value if isinstance(value, np.ndarray) else value.cpu().numpy()
