"""Where the tiles of a memory are placed, and which of them have two places.

Transfers overlap with other work where tiles do not share bytes. So a tile that a loop loads has two places,
one for every second iteration, and the other tiles have places of their own, as far as the memory allows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import pairwise

from pto_wsp.analysis.buffers import LiveBuffer, Span, live_at_peak, pack
from pto_wsp.errors import TilesTooLarge
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.emit import too_large

_WHOLE: Span = (-1, 1 << 30)


@record
class Occupant:
    """What takes memory.

    Attributes:
        key: of the result.
        size: bytes of one place.
        span: when it is in use.
        is_loaded: whether a load writes it.
        loop: when the loop runs whose iterations each load it; None if it has one place.
    """

    key: Hashable
    size: int
    span: Span
    is_loaded: bool = False
    loop: Span | None = None


@record
class Arrangement:
    """The first byte of each occupant, how far after it the second place is, and the bytes of all."""

    offsets: Mapping[Hashable, int]
    shifts: Mapping[Hashable, int]
    total: int


def place(occupants: Iterable[Occupant], capacity: int) -> Arrangement:
    """Return places. If nothing fits `capacity`, it is the arrangement that takes least."""
    every = tuple(occupants)
    arrangements = (
        [_buffer(o, _WHOLE, has_two=True) for o in every],
        [_buffer(o, o.loop or o.span, has_two=True) for o in every],
        [_buffer(o, span, has_two=False) for o, span in zip(every, _ahead(every), strict=True)],
        [_buffer(o, o.span, has_two=False) for o in every],
    )
    totals = [pack(buffers) for buffers in arrangements]
    chosen = next((i for i, total in enumerate(totals) if total <= capacity), len(totals) - 1)
    buffers = arrangements[chosen]
    offsets = {buffer.key: buffer.offset for buffer in buffers}
    shifts = {o.key: o.size for o, buffer in zip(every, buffers, strict=True) if buffer.size > o.size}
    return Arrangement(offsets, shifts, totals[chosen])


def unplaced(
    kernel: KernelFunction, occupants: Iterable[Occupant], needed: int, capacity: int
) -> TilesTooLarge:
    """Return the error that a memory has less than `needed` bytes, with the tiles that are in use together.

    Args:
        kernel: with the tiles.
        occupants: what takes the memory; their keys are names of tiles.
        needed: bytes that it takes.
        capacity: bytes of the memory.
    """
    return too_large(
        kernel, needed, capacity, live_at_peak([_buffer(o, o.span, has_two=False) for o in occupants])
    )


def _buffer(occupant: Occupant, span: Span, *, has_two: bool) -> LiveBuffer:
    count = 2 if has_two and occupant.loop else 1
    return LiveBuffer(occupant.key, count * occupant.size, *span)


def _ahead(occupants: tuple[Occupant, ...]) -> list[Span]:
    """Return spans in which each load can start when the load before it does."""
    loads = sorted((o for o in occupants if o.is_loaded), key=lambda o: o.span)
    first = {o.key: last.span[0] for last, o in pairwise(loads)}
    return [(first.get(o.key, o.span[0]), o.span[1]) for o in occupants]
