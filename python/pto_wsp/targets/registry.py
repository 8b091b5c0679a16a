"""Every target by name. A target of this package is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from pto_wsp.device.model import Device
from pto_wsp.errors import NameClash, UnknownTarget, WrongValue, did_you_mean
from pto_wsp.location import caller_location
from pto_wsp.targets.base import Target


def _cpu() -> Target:
    from pto_wsp.targets.cpu.target import CpuTarget

    return CpuTarget()


def _interp() -> Target:
    from pto_wsp.targets.interp.target import InterpTarget

    return InterpTarget()


def _sim() -> Target:
    return simulator(DEFAULT_DEVICE)


TARGETS: dict[str, Callable[[], Target]] = {"cpu": _cpu, "interp": _interp, "sim": _sim}

DEFAULT_DEVICE = "ascend_910b"
"""What `sim` simulates unless a device is given."""


def simulator(device: str | Path | Device, has_values: bool = True) -> Target:
    """Return the target `sim` for a device.

    Raises:
        UnknownDevice, BadDevice: there is none of this name, or its description cannot be used.
    """
    from pto_wsp.targets.sim.target import SimTarget

    return SimTarget.of(device, has_values)


def register_target(target: Target) -> None:
    """Make a target of another package known by its name, in this process.

    Raises:
        WrongValue: it is not an instance of a subclass of `Target`.
        NameClash: a target has this name already.
    """
    if not isinstance(target, Target):
        raise WrongValue(
            name="target", expected="an instance of Target", found=repr(target), loc=caller_location()
        )
    if target.name in TARGETS:
        raise NameClash(kind="targets", name=target.name)
    TARGETS[target.name] = lambda: target


def get(name: str) -> Target:
    """Return the target called `name`, the same object every time.

    Raises:
        UnknownTarget: there is none.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise UnknownTarget(name=name, advice=did_you_mean(str(name), TARGETS))
    return _made(name)


@cache
def _made(name: str) -> Target:
    return TARGETS[name]()
