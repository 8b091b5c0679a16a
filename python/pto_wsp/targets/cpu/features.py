"""CPU features that code is generated for: always a list of names, never "whatever this machine has"."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.support.record import record

VARIABLE = "PTO_WSP_CPU_FEATURES"
"""Environment variable with the features to use, separated by commas, instead of all that are known."""

_AVX2 = ("avx2", "fma")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
KNOWN = {
    "x86_64": (*_AVX512, "f16c", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16"),
    "aarch64": ("asimddp", "i8mm", "bf16"),
}
"""Features beyond a machine's baseline that generated code can use, as the system calls them."""

_PAIR_DOTS = {"avx512_bf16": _AVX512, "amx_bf16": _AVX512, "bf16": ()}
"""Features that add two products of bf16 in one instruction, and their operands."""

_FLAGS = {
    "avx_vnni": "-mavxvnni",
    "avx512_vnni": "-mavx512vnni",
    "avx512_bf16": "-mavx512bf16",
    "amx_bf16": "-mamx-bf16",
}
"""Options of the compiler that are not called like their feature."""

_EXTENSIONS = {"asimddp": "dotprod"}
"""Extensions of aarch64 that are not called like their feature."""

_SLOW = {"avx512_bf16": "GenuineIntel"}
"""Features that are used only where they are asked for, by vendor: on the processors of Intel that were
measured a dot product takes as long as four multiply-adds of as many lanes."""

_FAST_SEQUENCES = "AuthenticAMD"
"""Vendor of processors that read memory in sequence at its rate; prefetches on top took a tenth to a sixth
longer (Zen 3 with AVX2, Zen 4 with AVX-512)."""


@record
class Features:
    """What code is generated for.

    Attributes:
        machine: name of the instruction set.
        names: features beyond its baseline, sorted as in `KNOWN`.
        lanes: 32-bit lanes of a vector.
        has_fast_sequences: no prefetches are wanted where memory is read in sequence.
    """

    machine: str
    names: tuple[str, ...]
    lanes: int
    has_fast_sequences: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """Options for the compiler."""
        own = ("-DPTO_FAST_SEQUENCES",) if self.has_fast_sequences else ()
        return (*self._machine_flags, f"-DPTO_LANES={self.lanes}", *own)

    @property
    def _machine_flags(self) -> tuple[str, ...]:
        if self.machine != "aarch64":
            return tuple(_FLAGS.get(name, f"-m{name}") for name in self.names)
        extensions = [_EXTENSIONS.get(name, name) for name in self.names]
        return ("-march=" + "+".join(["armv8.2-a", *extensions]),) if extensions else ()

    @property
    def panel_cols(self) -> int:
        """Columns of a panel of weights (`MemLayout.panels`) that products read fastest.

        With vectors of 512 bits a block of a product has four of them. With shorter vectors, the rows of a
        panel that are longer than two lines share too few sets of the first cache.
        """
        return 64 if self.lanes == 16 else 32

    @property
    def has_pair_dots(self) -> bool:
        """Whether products of two tiles of bf16 are sums of pairs, without widening either."""
        return any(
            name in self.names and set(needed) <= set(self.names) for name, needed in _PAIR_DOTS.items()
        )


def resolve_features() -> Features:
    """Return the features of this machine that generated code uses.

    Raises:
        UnsupportedByTarget: PTO_WSP_CPU_FEATURES names a feature that code cannot use or the CPU lacks.
    """
    machine = os.uname().machine
    known = KNOWN.get(machine, ())
    present, vendor = _cpu_info() if known else (frozenset(), "")
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return _features(machine, (n for n in known if n in present and _SLOW.get(n) != vendor), vendor)
    names = {name.strip() for name in wanted.split(",")} - {""}
    for name in sorted(names):
        if name not in present or name not in known:
            names_known = ", ".join(known) or "none"
            reason = "this CPU does not have it" if name in known else f"known are {names_known}"
            raise UnsupportedByTarget(target="cpu", what=f"`{name}` in {VARIABLE}", reason=reason)
    return _features(machine, names, vendor)


def _features(machine: str, names: Iterable[str], vendor: str) -> Features:
    chosen = frozenset(names)
    lanes = 16 if chosen.issuperset(_AVX512) else 8 if chosen.issuperset(_AVX2) else 4
    used = tuple(n for n in KNOWN.get(machine, ()) if n in chosen)
    return Features(machine, used, lanes, vendor == _FAST_SEQUENCES)


@cache
def _cpu_info() -> tuple[frozenset[str], str]:
    """Return the features of the first processor, and its vendor where the system names one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset(), ""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features", "")
    return frozenset(flags.split()), fields.get("vendor_id", "")
