"""Every target by name. A target is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pto_wsp.errors import UnknownTarget, did_you_mean
from pto_wsp.targets.base import Target


def _cpu() -> Target:
    from pto_wsp.targets.cpu.target import CpuTarget

    return CpuTarget()


def _interp() -> Target:
    from pto_wsp.targets.interp.target import InterpTarget

    return InterpTarget()


TARGETS: dict[str, Callable[[], Target]] = {"cpu": _cpu, "interp": _interp}


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
