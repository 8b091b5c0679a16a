"""The target `interp`: kernels run as their numpy meaning, and nothing is compiled."""

from __future__ import annotations

from typing import NoReturn

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.targets.base import Idle, R, Runnable, Target


class InterpTarget(Target):
    """Interprets programs in numpy, slowly: the reference for results."""

    name = "interp"
    evaluates_floats = True
    runs_networks = True

    def check(self, module: Module) -> None:
        """Return: every instruction has a numpy meaning."""

    def emit(self, module: Module) -> NoReturn:
        """Refuse: there is no code to show."""
        raise UnsupportedByTarget(target=self.name, what="emitting sources", reason="kernels run in numpy")

    def policies(self, policy: Policy[..., Directive]) -> Idle:
        """Accept: tasks run in program order on the calling thread, as directives allow."""
        return Idle()

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner in Python."""
        return program.interpreted()
