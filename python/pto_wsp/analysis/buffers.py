"""Buffers of tiles: their lifetimes, and a placement in which disjoint lifetimes share memory.

A lifetime is an interval of moments; a loop at whose head a tile is live belongs to it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pto_wsp.analysis.liveness import names_at_head, names_before
from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import For, If, Instr, KernelFunction, Stmt, While, walk_statements
from pto_wsp.isa.forms import ELEMENTWISE
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.record import record

ALIGN = 64

Span = tuple[int, int]
"""The first and the last moment at which something is in use."""


@record
class Use:
    """A moment at which tiles are in use."""

    node: Hashable
    tiles: frozenset[str]


@record
class Nest:
    """A loop at whose head the tiles `live` are needed, or, where that is empty, any other block."""

    node: Hashable
    parts: tuple[Use | Nest, ...]
    live: frozenset[str] = frozenset()


@dataclass(slots=True)
class Lifetimes:
    """When each tile, and each node, is in use."""

    clock: int = 0
    spans: dict[str, Span] = field(default_factory=dict)
    nodes: dict[Hashable, Span] = field(default_factory=dict)

    def visit(self, parts: Iterable[Use | Nest]) -> None:
        """Add what comes next."""
        for part in parts:
            start = self.clock
            self.clock += 1
            match part:
                case Use(tiles=tiles):
                    for tile in tiles:
                        self.touch(tile, start)
                case Nest(parts=inner, live=live):
                    self.visit(inner)
                    for tile in live & self.spans.keys():
                        if self.spans[tile][1] >= start:
                            self.touch(tile, start)
                            self.touch(tile, self.clock)
            self.nodes[part.node] = (start, self.clock)
            self.clock += 1

    def touch(self, tile: str, moment: int) -> None:
        """Note that a tile is in use at a moment."""
        first, last = self.spans.get(tile, (moment, moment))
        self.spans[tile] = (min(first, moment), max(last, moment))


@dataclass(slots=True)
class LiveBuffer:
    """Memory that is in use from moment `first` to `last`, except in the gaps, which lie between."""

    key: Hashable
    size: int
    first: int
    last: int
    offset: int = 0
    gaps: tuple[Span, ...] = ()

    def meets(self, other: LiveBuffer) -> bool:
        """Return whether both are in use at a moment; a buffer may lie in a gap of the other as a whole."""
        if self.last < other.first or other.last < self.first:
            return False
        return not (_fits_gap(self, other) or _fits_gap(other, self))

    def is_live(self, moment: int) -> bool:
        """Return whether the memory is in use at a moment."""
        return self.first <= moment <= self.last and not any(a <= moment <= b for a, b in self.gaps)


def _fits_gap(inner: LiveBuffer, outer: LiveBuffer) -> bool:
    return any(first <= inner.first and inner.last <= last for first, last in outer.gaps)


def pack(blocks: Sequence[LiveBuffer]) -> int:
    """Give every block the lowest offset that no block in use at the same time covers; return the size."""
    placed: list[LiveBuffer] = []
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, str(b.key))):
        taken = sorted((b.offset, b.offset + b.size) for b in placed if b.meets(block))
        for start, end in taken:
            if block.offset + block.size <= start:
                break
            block.offset = max(block.offset, round_up(end, ALIGN))
        placed.append(block)
    return round_up(max((b.offset + b.size for b in blocks), default=0), ALIGN)


def live_at_peak(blocks: Sequence[LiveBuffer]) -> list[LiveBuffer]:
    """Return the blocks in use at the moment at which they take most together, the largest first."""
    found: list[LiveBuffer] = []
    for moment in {block.first for block in blocks}:
        live = [block for block in blocks if block.is_live(moment)]
        if sum(b.size for b in live) > sum(b.size for b in found):
            found = live
    return sorted(found, key=lambda b: (-b.size, b.first))


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


# --- kernels as they are written ---------------------------------------------------------------------------


@record
class BufferUse:
    """What the tiles of a kernel take.

    Attributes:
        separate: bytes where every tile has a buffer of its own.
        shared: bytes where tiles share memory that are not in use together.
        peak: the tiles that are in use together when they take most, largest first, with what each takes.
    """

    separate: int
    shared: int
    peak: tuple[tuple[str, int], ...]


def is_elementwise(instr: Instr) -> bool:
    """Return whether element [i, j] of a result depends on operands at [i, j], [i, 0] and [0, j] alone."""
    return TABLE[instr.op].form in ELEMENTWISE


def kernel_lifetimes(
    kernel: KernelFunction, is_in_place: Callable[[Instr], bool] = is_elementwise
) -> Lifetimes:
    """Return when tiles of a kernel are in use, and when its loops run, by `id` of the statement.

    Args:
        kernel: with a body.
        is_in_place: whether the result of an instruction begins after the last use of its operands.
    """
    lifetimes = Lifetimes()
    lifetimes.visit(_parts(kernel.body or (), frozenset(), is_in_place))
    return lifetimes


def tile_spans(kernel: KernelFunction) -> Mapping[str, Span]:
    """Return when each tile that a kernel's body names is in use."""
    lifetimes = kernel_lifetimes(kernel)
    return {name: lifetimes.spans[name] for name, _ in kernel.tiles if name in lifetimes.spans}


def _parts(
    body: Sequence[Stmt], live_after: frozenset[str], is_in_place: Callable[[Instr], bool]
) -> tuple[Use | Nest, ...]:
    """Return what statements have in use; who reads the valid shape of a tile uses it too."""
    found: list[Use | Nest] = []
    for number, stmt in enumerate(body):
        live = names_before(body[number + 1 :], live_after)
        read, result = names_read(stmt), tile_written(stmt)
        written = frozenset() if result is None else frozenset({result})
        match stmt:
            case For(body=inner) | While(body=inner):
                head = names_at_head(inner, live | read)
                found += [
                    Use((id(stmt), "bounds"), read),
                    Nest(id(stmt), _parts(inner, head, is_in_place), head),
                ]
            case If(then=then, other=other):
                found.append(Use((id(stmt), "condition"), read))
                arms = (_parts(arm, live, is_in_place) for arm in (then, other))
                found.append(Nest(id(stmt), tuple(part for arm in arms for part in arm)))
            case Instr() if is_in_place(stmt):
                found += [Use((id(stmt), "read"), read), Use(id(stmt), written)]
            case _:
                found.append(Use(id(stmt), read | written))
    return tuple(found)


def buffer_use(kernel: KernelFunction, copies: Mapping[str, int] | None = None) -> BufferUse:
    """Return what the tiles of a kernel take, each a multiple of ALIGN bytes.

    Args:
        kernel: a verified kernel.
        copies: how many buffers each tile has, other tiles left out; None means one for every tile.
    """
    types = dict(kernel.tiles)
    spans = tile_spans(kernel)
    counts = dict.fromkeys(spans, 1) if copies is None else copies
    blocks = [
        LiveBuffer(name, counts[name] * round_up(types[name].num_bytes, ALIGN), *span)
        for name, span in spans.items()
        if name in counts
    ]
    peak = tuple((str(block.key), block.size) for block in live_at_peak(blocks))
    return BufferUse(sum(b.size for b in blocks), pack(blocks), peak)


def first_writes(kernel: KernelFunction) -> Mapping[str, Location | None]:
    """Return where each tile of a kernel is written first."""
    found: dict[str, Location | None] = {}
    for stmt in walk_statements(kernel.body or ()):
        tile = tile_written(stmt)
        if tile is not None:
            found.setdefault(tile, stmt.loc)
    return found
