"""The target `sim`: a device whose time is simulated."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from pto_wsp.device.kernel_facts import too_large
from pto_wsp.device.model import Device
from pto_wsp.device.reader import get_device
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.targets.base import Enforced, R, Refused, Runnable, Support, Target
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.target import CpuTarget

_REFUSED = {
    ("pools", "by_exec_unit"): "a device has cores of its own for each unit",
    ("deps", "symbolic"): "simulated dispatchers order tasks by hazard maps",
    ("window", "abort"): "a simulated dispatcher waits until its window has room",
    ("window", "benchmark"): "it measures the dispatch of this machine: `values=False` calls no kernel",
}


class SimTarget(Target):
    """Simulates the time of a device; kernels run on the CPU.

    Attributes:
        device: the device.
        has_values: whether kernels run. Otherwise only time is found.
    """

    name = "sim"
    runs_networks = True
    has_clock = True

    def __init__(self, device: Device, has_values: bool) -> None:
        self.device = device
        self.has_values = has_values
        self._cpu = CpuTarget()

    @classmethod
    def of(cls, device: str | Path | Device, has_values: bool) -> SimTarget:
        """Return the target for a device, the name of a preset or the path of a TOML file.

        Raises:
            UnknownDevice, BadDevice: there is no such device.
        """
        return cls(get_device(device), has_values)

    def check(self, module: Module) -> None:
        """Raise for the first thing that the cpu refuses, or that has no place on the device."""
        for kernel in module.kernels:
            if kernel.body is not None or kernel.native is not None:
                check_kernel(kernel, self.name)
            self._check_tiles(kernel)

    def _check_tiles(self, kernel: KernelFunction) -> None:
        """Refuse tiles that do not fit a memory of the cores that run the kernel."""
        if (found := too_large(kernel, self.device, num_buffers=1)) is None:
            return
        space, taken, size = found
        what = f"kernel `{kernel.name}`, whose tiles take {taken:,} bytes of `{space.value}`"
        reason = f"a core of {self.device.name} has {size:,} bytes: use smaller tiles"
        raise UnsupportedByTarget(target=self.name, what=what, reason=reason, loc=kernel.loc)

    def emit(self, module: Module) -> NoReturn:
        """Refuse: the device is simulated."""
        reason = "the device is simulated: `cpu` emits what runs for values"
        raise UnsupportedByTarget(target=self.name, what="emitting sources", reason=reason)

    def policies(self, policy: Policy[..., Directive]) -> Support:
        """Enforce every policy but those that make no sense in simulated time."""
        reason = _REFUSED.get((policy.kind, policy.name))
        return Enforced() if reason is None else Refused(reason)

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner that runs on the cpu and simulates the device."""
        return program.simulated(self._cpu, self.device, self.has_values)
