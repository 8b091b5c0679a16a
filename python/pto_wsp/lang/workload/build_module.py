"""From a workload's functions to a module: they run once, with placeholders for their parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pto_wsp.ir.module import Module
from pto_wsp.lang.captured import NOTHING_CAPTURED, Captured, as_run
from pto_wsp.lang.source import MISSING
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.assemble import assemble
from pto_wsp.lang.workload.blocks import tasks_of
from pto_wsp.lang.workload.functions import Body, declarations, record_body
from pto_wsp.lang.workload.packed import require_packed_ranges
from pto_wsp.lang.workload.parameters import Parameter
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.trace import WorkloadTrace
from pto_wsp.support.record import record


@record
class Traced:
    """A workload as IR.

    Attributes:
        module: its module, whose entry it is.
        defaults: arrays and scalars that a program uses unless a call gives others, by parameter.
        captured: the variables that its functions and kernels have read.
    """

    module: Module
    defaults: Mapping[str, np.ndarray | Ragged | Sparse | int | float]
    captured: Captured = NOTHING_CAPTURED


class Tracing:
    """One recording of a workload.

    Attributes:
        body: its functions.
        bound: values given to its parameters before.
        trace: what has been recorded.
        defaults: values of parameters that a program uses unless a call gives others.
    """

    def __init__(self, name: str, body: Body, bound: Mapping[str, object]) -> None:
        self.body = body
        self.bound = bound
        self.trace = WorkloadTrace(name, body.loc)
        self.defaults: dict[str, np.ndarray | Ragged | Sparse | int | float] = {}

    def run(self) -> Traced:
        """Run its functions and return the traced workload.

        Raises:
            FrontendError: something in them has no meaning in a workload.
        """
        arguments = self.arguments()
        token = context.ACTIVE.set(self.trace)
        try:
            record_body(self.trace, self.body, arguments, None)
            self.trace.blocks.finish()
            module = assemble(self.trace)
            require_packed_ranges(module.entry_workload)
        finally:
            context.ACTIVE.reset(token)
        for name, tensor in self.trace.captured.items():
            if isinstance(tensor, Tensor) and tensor.data is not None:
                self.defaults[name] = tensor.data
        return Traced(module, self.defaults, self.captured())

    def captured(self) -> Captured:
        """Return the variables that the workloads, which have just run, and their kernels have read."""
        kernels = {id(task.kernel): task.kernel for task in tasks_of(self.trace.blocks.body)}
        readings = [reading for source in self.trace.sources.values() for reading in as_run(source)]
        readings += [reading for kernel in kernels.values() for reading in kernel.readings]
        return Captured(readings)

    def arguments(self) -> dict[str, object]:
        """Return a placeholder for every parameter; axes first, since tensors may name them."""
        declared = declarations(self.body)
        found: dict[str, object] = {}
        for name in sorted(declared, key=lambda n: declared[n].names_sizes):
            value = self.bound.get(name, declared[name].default)
            parameter = Parameter(self.trace, declared[name], name, self.defaults)
            found[name] = parameter.stand_in(None if value is MISSING else value)
        self.trace.params = {n: self.trace.params[n] for n in declared if n in self.trace.params}
        return found
