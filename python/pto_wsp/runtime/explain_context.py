"""The details of an error of the engine, with the meaning of their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp import errors
from pto_wsp._native import EngineError
from pto_wsp.interp.regions import scope_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.targets.base import KernelArtifact

Failure = tuple[str, str | None, int]
"""Message, file and line of a failure in a hand-written kernel; no file where it is not known."""


class ErrorContext:
    """The details of one error, with the meaning of their numbers."""

    def __init__(
        self,
        error: EngineError,
        target: str,
        module: Module,
        lowered: Lowered,
        artifact: KernelArtifact,
        arrays: Sequence[np.ndarray],
        failure: Failure | None,
    ) -> None:
        self.code = error.code
        self.details = error.details
        self.message = str(error)
        self.target = target
        self.module = module
        self.lowered = lowered
        self.artifact = artifact
        self.arrays = arrays
        self.failure = failure

    def number(self, key: str) -> int:
        """Return a detail that is one number."""
        value = self.details[key]
        assert isinstance(value, int)
        return value

    def numbers(self, key: str) -> list[int]:
        """Return a detail that is several numbers."""
        values = self.details[key]
        assert isinstance(values, (list, tuple))
        return [int(value) for value in values]

    def tensor(self, key: str = "tensor") -> w.TensorParam:
        """Return the tensor whose number a detail is."""
        return self.module.entry_workload.tensors[self.number(key)]

    @property
    def task(self) -> w.Task:
        """The task that the error is about."""
        node = self.lowered.sites[self.number("pc")]
        assert isinstance(node, w.Task)
        return node

    @property
    def kernel(self) -> KernelFunction:
        """The kernel of that task."""
        return self.module.kernel(self.task.kernel)

    @property
    def param(self) -> Param:
        """The parameter of the kernel that the error is about."""
        return self.kernel.views[self.number("io")]

    @property
    def region_of_argument(self) -> w.Region:
        """The region of the task's argument for the view that the error is about."""
        region = self.task.args[self.kernel.params.index(self.param)]
        assert isinstance(region, w.Region)
        return region

    @property
    def arg_loc(self) -> Location | None:
        """Place of the task's argument for the view that the error is about."""
        index = self.kernel.params.index(self.param)
        return self.task.args[index].loc or self.task.loc

    def where(self, loops: Sequence[w.Loop], registers: str = "registers") -> str:
        """Return the iteration, as messages end."""
        values = self.details.get(registers, [])
        assert isinstance(values, list)
        variables = {name: values[reg] for name, reg in self.lowered.registers.items() if reg < len(values)}
        return scope_text(variables, loops)

    def region(self) -> str:
        """Return the region of the error as text."""
        lo, hi = self.details["lo"], self.details["hi"]
        assert isinstance(lo, list) and isinstance(hi, list)
        dims = [f"{start}:{stop}" for start, stop in zip(lo, hi, strict=True)]
        if self.number("positions") >= 0:
            dims[0] = f"{self.tensor('positions').name}[{dims[0]}]"
        return f"{self.tensor().name}[{', '.join(dims)}]"

    @property
    def enclosing(self) -> Sequence[w.Loop]:
        """The loops around the place of the error."""
        return self.lowered.enclosing[self.number("pc")]

    def fault(self) -> errors.PtoError:
        """Return the error for a code that has no description."""
        return errors.EngineFault(engine_code=self.code, details=f"{self.message} {dict(self.details)}")
