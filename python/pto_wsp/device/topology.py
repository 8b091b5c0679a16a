"""The cores and caches of this machine, as the system describes them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from pto_wsp.support.record import record

CPUS = Path("/sys/devices/system/cpu")


@record
class SystemCache:
    """A cache that holds data.

    Attributes:
        level: 1 is the nearest one.
        size: bytes.
        sharing: usable processors that share one.
    """

    level: int
    size: int
    sharing: int


@record
class Topology:
    """What the system says of the machine.

    Attributes:
        processor: its name.
        cores: processors that this process may use.
        caches: of the first of them, from the nearest one.
    """

    processor: str
    cores: int
    caches: tuple[SystemCache, ...]

    @property
    def about(self) -> str:
        """The machine in a phrase, by which its calibration is recognised."""
        return f"{self.processor}, {self.cores} cores"

    @property
    def own(self) -> tuple[SystemCache, ...]:
        """The caches that a core has of its own: all but the last of three levels."""
        return tuple(cache for cache in self.caches if cache.level < 3)

    @property
    def shared(self) -> SystemCache | None:
        """The cache before memory that cores share, if there is one."""
        return next((cache for cache in self.caches if cache.level >= 3), None)

    @property
    def num_shared(self) -> int:
        """How many of these there are."""
        return -(-self.cores // self.shared.sharing) if self.shared is not None else 0


def read_topology(cpus: Path = CPUS) -> Topology:
    """Return the topology of the machine that runs this.

    Args:
        cpus: the folder in which the system describes processors.
    """
    usable = os.sched_getaffinity(0)
    folder = cpus / f"cpu{min(usable)}" / "cache"
    found = [_cache(path, usable) for path in sorted(folder.glob("index*"))]
    caches = sorted((cache for cache in found if cache is not None), key=lambda cache: cache.level)
    return Topology(processor_name(), len(usable), tuple(caches))


def processor_name() -> str:
    """Return the name of the processor, or of its instruction set where the system has none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _cache(folder: Path, usable: set[int]) -> SystemCache | None:
    """Return a cache, or None if it holds instructions only or the system does not describe it."""
    try:
        kind, level, size, sharing = (
            (folder / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
        )
    except OSError:
        return None
    if kind == "Instruction":
        return None
    return SystemCache(int(level), _bytes(size), len(_cpus(sharing) & usable) or 1)


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _cpus(text: str) -> set[int]:
    """Return the numbers in a list such as `0-3,8`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
