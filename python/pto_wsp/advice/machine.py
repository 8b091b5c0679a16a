"""What an adviser must know of the machine. Every program loads this, so it needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.support.record import record


@record
class Machine:
    """What a worker has.

    Attributes:
        l2_bytes: its second-level cache; 0 where that is not known.
        scratch_bytes: what the tiles of each kernel take in its memory, by kernel.
        cpu_ns: time that the process had cores during the run, or None if that does not matter.
        is_simulated: whether the run took simulated time: advice is about the time of this machine.
    """

    l2_bytes: int
    scratch_bytes: Mapping[str, int]
    cpu_ns: int | None = None
    is_simulated: bool = False
