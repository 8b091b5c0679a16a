"""What a device is: the only table of capacities, rates, latencies and cycles.

Figures are those of a machine, or assumptions about it; each names its source. Simulated time and kernel
costs read nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

from pto_wsp.support.record import record
from pto_wsp.types.space import Space


def is_cycles(value: object) -> TypeGuard[float]:
    """Whether a stated cost is a number that is not negative."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


@record
class Widths:
    """How much the units of a core work on at a time.

    Attributes:
        vector: bytes of a vector instruction.
        rows: rows of the block of a product.
        cols: columns of that block.
        inner: bytes of the inner dimension of that block.
    """

    vector: int = 256
    rows: int = 16
    cols: int = 16
    inner: int = 32


@record
class InstructionCost:
    """Cycles of an instruction.

    A vector instruction takes `start` + `repeat` x (repeats) + `row` x (rows). It repeats once for each
    `Widths.vector` bytes of each row of its largest operand. A product takes `start` + `block` x (blocks) +
    `right` x (blocks of the right operand); `block_of_4` replaces `block` where elements have 4 bytes.

    Attributes:
        start: cycles that do not depend on the shape.
        repeat: cycles per repeat.
        row: cycles per row.
        block: cycles per block of a product.
        block_of_4: cycles per block for elements of 4 bytes.
        right: cycles per block of the right operand of a product, whatever the rows of the left one.
        wide: a number of columns, and the cost from this number on.
        transposed: the cost of a product whose right operand is transposed; the same by default.
    """

    start: float = 0.0
    repeat: float = 0.0
    row: float = 0.0
    block: float = 0.0
    block_of_4: float = 0.0
    right: float = 0.0
    wide: tuple[int, InstructionCost] | None = None
    transposed: InstructionCost | None = None

    def of_vector(self, rows: int, cols: int, itemsize: int, widths: Widths) -> int:
        """Return the cycles of an instruction on tiles.

        Args:
            rows: valid rows of the largest operand.
            cols: its valid columns.
            itemsize: bytes of an element.
            widths: of the core.
        """
        if self.wide is not None and cols >= self.wide[0]:
            return self.wide[1].of_vector(rows, cols, itemsize, widths)
        repeats = rows * -(-cols * itemsize // widths.vector)
        return max(math.floor(self.start + self.repeat * repeats + self.row * rows), 1)

    def of_product(self, rows: int, inner: int, cols: int, itemsize: int, widths: Widths) -> int:
        """Return the cycles of a product of [rows, inner] and [inner, cols]."""
        right = -(-inner * itemsize // widths.inner) * -(-cols // widths.cols)
        blocks = -(-rows // widths.rows) * right
        block = self.block_of_4 if itemsize == 4 else self.block
        return max(math.floor(self.start + block * blocks + self.right * right), 0)


@record
class CoreKind:
    """Cores that are alike.

    Attributes:
        name: of the kind.
        count: cores of the kind.
        units: kernels that they run: `vector`, `cube`, `control` or `mixed`.
        pipes: parts of a core that work at the same time.
        memories: bytes of each memory of a core: `ub`, `l1`, `l0a`, `l0b`, `l0c`.
    """

    name: str
    count: int
    units: tuple[str, ...]
    pipes: tuple[str, ...]
    memories: Mapping[Space, int]


@record
class Route:
    """A way between two memories of a core, or between one of them and global memory.

    Attributes:
        source: memory from which data comes, such as `gm`.
        target: memory to which it goes, such as `ub`.
        pipe: the pipe that moves it.
        rate: bytes per cycle, for one core.
        start: cycles before the first byte.
    """

    source: Space
    target: Space
    pipe: str
    rate: float
    start: float = 0.0

    def cycles(self, num_bytes: int) -> int:
        """Return the cycles that a transfer takes alone."""
        return math.floor(self.start + num_bytes / self.rate)


@record
class Cache:
    """The cache that all cores share. A size of 0 means that there is none.

    Attributes:
        size: bytes of the cache; 0 for none.
        block: bytes that are fetched at a time.
        rate: bytes per cycle, for all cores together.
        hit: cycles until the first byte of an access that it holds.
        miss: cycles that a miss takes in addition.
        core_rate: bytes per cycle that one core can take of the rate.
    """

    size: int = 0
    block: int = 512
    rate: float = math.inf
    core_rate: float = math.inf
    hit: float = 0.0
    miss: float = 0.0


@record
class CoreCache:
    """A cache that each core has of its own.

    Attributes:
        size: bytes of the cache.
        rate: bytes per cycle that the core reads from it.
    """

    size: int
    rate: float


@record
class Dispatchers:
    """What makes tasks on the device and sends them to cores. Times are in nanoseconds.

    Attributes:
        count: number of dispatchers.
        generate: time to make one task.
        skip: time to pass over a task of another dispatcher.
        dispatch: time until a core sees a task.
        complete: time until a dispatcher sees that a task is complete.
        records: tasks that a dispatcher can have made and not seen complete.
    """

    count: int
    generate: float = 0.0
    skip: float = 0.0
    dispatch: float = 0.0
    complete: float = 0.0
    records: int = 1024


@record
class HostLink:
    """The host of a device. Times are in nanoseconds.

    Attributes:
        latency: time until the device sees what the host sends.
        rate: bytes per nanosecond.
        generate: time to make one task on the host.
    """

    latency: float = 0.0
    rate: float = math.inf
    generate: float = 0.0


@record
class Device:
    """A machine whose time is simulated.

    Attributes:
        name: as in `compile(target="sim", device=...)`.
        about: what it is, in a phrase.
        clock_ghz: cycles per nanosecond.
        cores: kinds of cores.
        groups: cores of each kind in a group, a cluster that shares a kernel of unit `mixed`.
        transfers: ways between memories, of one core.
        gm_rate: bytes per cycle of global memory, shared by all cores.
        gm_core_rate: bytes per cycle that one core can take of that rate.
        l2: the cache before global memory.
        core_caches: caches of each core, from the nearest one.
        dispatchers: what makes tasks.
        host: the link to the host.
        costs: cycles by instruction row (`isa.TABLE`).
        cost_table: name of the table of costs; `none` where the device states them all.
        widths: how much the units of a core work on at a time.
        sources: where each figure comes from, by its path.
        unknown: figures that are not known of the machine, and are those of another.
    """

    apart = ("costs", "sources")

    name: str
    about: str
    clock_ghz: float
    cores: tuple[CoreKind, ...]
    groups: Mapping[str, int]
    transfers: tuple[Route, ...]
    gm_rate: float
    l2: Cache
    dispatchers: Dispatchers
    host: HostLink
    costs: Mapping[str, InstructionCost]
    cost_table: str
    sources: Mapping[str, str]
    unknown: tuple[str, ...] = ()
    widths: Widths = Widths()
    gm_core_rate: float = math.inf
    core_caches: tuple[CoreCache, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def by_unit(self) -> Mapping[str, CoreKind]:
        """The kind of core that runs kernels of a unit."""
        return {unit: kind for kind in self.cores for unit in kind.units}

    @property
    def ways(self) -> Mapping[tuple[Space, Space], Route]:
        """Transfers by their ends."""
        return {(way.source, way.target): way for way in self.transfers}

    @property
    def is_flat(self) -> bool:
        """Whether a core has one memory and one pipe for all arithmetic: no core has a pipe `cube`."""
        return not any("cube" in kind.pipes for kind in self.cores)

    @property
    def product_pipe(self) -> str:
        """The pipe of products."""
        return "vector" if self.is_flat else "cube"

    def load_cycles(self, way: Route, num_bytes: int, view_bytes: int) -> int:
        """Return the cycles in which a core loads bytes of a view, from the nearest memory that holds it.

        Args:
            way: from global memory.
            num_bytes: that are loaded.
            view_bytes: of the whole view.
        """
        if not self.core_caches:
            return way.cycles(num_bytes)
        holding = [cache.rate for cache in self.core_caches if view_bytes <= cache.size]
        return math.floor(way.start + num_bytes / (holding[0] if holding else self.l2.core_rate))

    @property
    def num_groups(self) -> int:
        """Groups of cores that the device has."""
        counts = [kind.count // n for kind in self.cores if (n := self.groups.get(kind.name, 0)) > 0]
        return min(counts, default=0)

    def cycles(self, ns: float) -> float:
        """Return a time in cycles."""
        return ns * self.clock_ghz

    def microseconds(self, cycles: float) -> float:
        """Return cycles as microseconds."""
        return cycles / self.clock_ghz / 1e3
