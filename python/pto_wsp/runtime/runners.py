"""The runner of a program: the target chooses one of those that the runtime has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from pto_wsp.device.model import Device
from pto_wsp.errors import CannotRun
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.prove.waits import Derive
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.interpreted import InterpretedRunner
from pto_wsp.runtime.outcome import Runner, RunRequest, Submitted
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.base import KernelBuilder


def make_runner(prepared: Prepared) -> Runner:
    """Return what runs a module on its target.

    Raises:
        UnsupportedByTarget: the target refuses something in the module.
        NoCompiler, CompilerFailed, CppError, BadCache: the kernels could not be built.
    """
    return prepared.target.runner(_Runnable(prepared))


class _Runnable:
    """The runners of one program, for its target to choose from."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    @property
    def module(self) -> Module:
        return self._prepared.module

    def on_engine(self, builder: KernelBuilder) -> Runner:
        return EngineRunner(self._prepared, builder)

    def interpreted(self) -> Runner:
        return InterpretedRunner(self._prepared.module)

    def simulated(self, builder: KernelBuilder, device: Device, has_values: bool) -> Runner:
        from pto_wsp.runtime.simulated import SimulatedRunner

        self._prepared.target.check(self._prepared.module)
        return SimulatedRunner(EngineRunner(self._prepared, builder), device, has_values)

    def launched(self, emit: Callable[[Module, Derive], Any]) -> Runner:
        from pto_wsp.runtime.launched import LaunchedRunner

        return LaunchedRunner(self._prepared, emit)

    def refused(self) -> Runner:
        self._prepared.target.check(self._prepared.module)
        return RefusedRunner(self._prepared)


class RefusedRunner:
    """The runner of a target that only emits sources."""

    compiles = 0
    compile_ms = 0.0

    def __init__(self, prepared: Prepared) -> None:
        self.workload = prepared.module.entry_workload
        self._target = prepared.target.name

    def run(self, request: RunRequest) -> NoReturn:
        """Refuse to run.

        Raises:
            CannotRun: always.
        """
        raise CannotRun(target=self._target)

    def submit(self, request: RunRequest) -> NoReturn:
        """Refuse to run.

        Raises:
            CannotRun: always.
        """
        raise CannotRun(target=self._target)

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> NoReturn:
        """Refuse to run.

        Raises:
            CannotRun: always.
        """
        raise CannotRun(target=self._target)

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> NoReturn:
        """Refuse to run.

        Raises:
            CannotRun: always.
        """
        raise CannotRun(target=self._target)

    def cancel(self) -> None:
        """Do nothing: no run is under way."""

    def rescheduled(self, module: Module) -> Self:
        """Return itself: the program keeps the schedule for its sources."""
        return self
