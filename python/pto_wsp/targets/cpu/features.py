"""CPU features that code is generated for: always a list of names, never "whatever this machine has"."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.support.record import record

VARIABLE = "PTO_WSP_CPU_FEATURES"
"""Environment variable with the features to use, separated by commas, instead of all that are known."""

_AVX2 = ("avx2", "fma")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
KNOWN = {"x86_64": _AVX512, "aarch64": ()}
"""Features that generated code can use, per machine; those of the machine's baseline are not listed."""


@record
class Features:
    """What code is generated for.

    Attributes:
        machine: name of the instruction set.
        names: features beyond its baseline, sorted as in `KNOWN`.
        lanes: 32-bit lanes of a vector.
    """

    machine: str
    names: tuple[str, ...]
    lanes: int

    @property
    def flags(self) -> tuple[str, ...]:
        """Options for the compiler."""
        return (*(f"-m{name}" for name in self.names), f"-DPTO_LANES={self.lanes}")


def resolve_features() -> Features:
    """Return the features of this machine that generated code uses.

    Raises:
        UnsupportedByTarget: PTO_WSP_CPU_FEATURES names a feature that code cannot use or the CPU lacks.
    """
    machine = os.uname().machine
    known = KNOWN.get(machine, ())
    present = _cpu_flags() if known else frozenset()
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return _features(machine, (name for name in known if name in present))
    names = {name.strip() for name in wanted.split(",")} - {""}
    for name in sorted(names):
        if name not in present or name not in known:
            names_known = ", ".join(known) or "none"
            reason = "this CPU does not have it" if name in known else f"known are {names_known}"
            raise UnsupportedByTarget(target="cpu", what=f"the CPU feature `{name}`", reason=reason)
    return _features(machine, names)


def _features(machine: str, names: Iterable[str]) -> Features:
    chosen = frozenset(names)
    lanes = 16 if chosen.issuperset(_AVX512) else 8 if chosen.issuperset(_AVX2) else 4
    return Features(machine, tuple(n for n in KNOWN.get(machine, ()) if n in chosen), lanes)


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())
