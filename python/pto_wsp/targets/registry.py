"""Every target by name."""

from __future__ import annotations

from pto_wsp.errors import UnknownTarget, did_you_mean
from pto_wsp.targets.base import Target
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.targets.interp.target import InterpTarget

TARGETS: dict[str, Target] = {target.name: target for target in (CpuTarget(), InterpTarget())}


def get(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        UnknownTarget: there is none.
    """
    if name not in TARGETS:
        raise UnknownTarget(name=name, advice=did_you_mean(name, TARGETS))
    return TARGETS[name]
