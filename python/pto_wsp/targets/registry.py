"""Every target by name: those of this package, of installed packages, and of this process.

A target is loaded when it is first asked for. A package lists its targets as entry points of `GROUP`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pto_wsp.device.model import Device
from pto_wsp.errors import NameClash, UnknownTarget, WrongValue, did_you_mean
from pto_wsp.location import argument_location, caller_location
from pto_wsp.targets.base import Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def _cpu() -> Target:
    from pto_wsp.targets.cpu.target import CpuTarget

    return CpuTarget()


def _arm64() -> Target:
    from pto_wsp.targets.arm64.target import Arm64Target

    return Arm64Target()


def _c_orchestration() -> Target:
    from pto_wsp.targets.c_orchestration.target import COrchestrationTarget

    return COrchestrationTarget()


def _cuda() -> Target:
    from pto_wsp.targets.cuda.target import CudaTarget

    return CudaTarget()


def _interp() -> Target:
    from pto_wsp.targets.interp.target import InterpTarget

    return InterpTarget()


def _sim() -> Target:
    return simulator(DEFAULT_DEVICE)


def _ascend(name: str) -> Target:
    from pto_wsp.targets.ascend.target import AscendTarget

    return AscendTarget.of(name)


TARGETS: dict[str, Callable[[], Target]] = {
    "cpu": _cpu,
    "arm64": _arm64,
    "c-orchestration": _c_orchestration,
    "ascend_a2a3": lambda: _ascend("ascend_a2a3"),
    "ascend_a5": lambda: _ascend("ascend_a5"),
    "interp": _interp,
    "sim": _sim,
    "cuda": _cuda,
}

_OURS = frozenset(TARGETS)

DEFAULT_DEVICE = "ascend_910b"
"""What `sim` simulates unless a device is given."""


GROUP = "pto_wsp.targets"
"""Entry points of installed packages: the name of a target, and its class."""


def simulator(device: str | Path | Device, has_values: bool = True) -> Target:
    """Return the target `sim` for a device.

    Raises:
        UnknownDevice, BadDevice: there is none of this name, or its description cannot be used.
    """
    from pto_wsp.targets.sim.target import SimTarget

    return SimTarget.of(device, has_values)


@cache
def compiled_walk() -> Target:
    """Return the target `cpu` whose programs are walked by generated source."""
    from pto_wsp.targets.cpu.target import CpuTarget

    return CpuTarget("source")


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
    if target.name in names():
        raise NameClash(kind="targets", name=target.name)
    TARGETS[target.name] = lambda: target


_OTHER_NAMES = {"gpu": "cuda", "nvidia": "cuda", "npu": "ascend_a2a3", "aarch64": "arm64"}
"""Other names of targets, for hints."""


def get(name: str) -> Target:
    """Return the target called `name`, the same object every time.

    Raises:
        UnknownTarget: there is none.
    """
    if not isinstance(name, str) or (name not in TARGETS and name not in _installed()):
        other = _OTHER_NAMES.get(str(name))
        guess = f"did you mean `{other}`?" if other else did_you_mean(str(name), names())
        known = f"known: {', '.join(f'`{each}`' for each in sorted(names()))}"
        advice = known if guess.startswith("known") else f"{guess} {known}"
        raise UnknownTarget(name=name, advice=advice, loc=argument_location("target"))
    return _made(name)


def names() -> tuple[str, ...]:
    """Return the names of all targets."""
    return *TARGETS, *(name for name in _installed() if name not in TARGETS)


@cache
def _made(name: str) -> Target:
    return TARGETS[name]() if name in TARGETS else _loaded(_installed()[name])


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the targets of installed packages.

    Raises:
        NameClash: two have one name, or one has the name of a target of this package.
    """
    from importlib.metadata import entry_points  # reads the list of packages: only where a name is not ours

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found or point.name in _OURS:
            raise NameClash(kind="targets of installed packages", name=point.name)
        found[point.name] = point
    return found


def _loaded(point: EntryPoint) -> Target:
    """Make the target of an entry point.

    Raises:
        WrongValue: it is not a target of this name.
    """
    kind = point.load()
    made = kind() if isinstance(kind, type) and issubclass(kind, Target) else kind
    if not isinstance(made, Target) or made.name != point.name:
        expected = f"a subclass of Target with the name `{point.name}`"
        raise WrongValue(name=f"entry point {point.value}", expected=expected, found=repr(kind))
    return made
