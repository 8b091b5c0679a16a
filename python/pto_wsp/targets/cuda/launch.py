"""A program on one GPU: its memory, its launches, and their results.

The layouts are those of include/pto/wsp/tile/cuda/waits.hpp and of include/pto/wsp/abi.hpp.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Sequence
from ctypes import c_void_p

import numpy as np

from pto_wsp.errors import TilesTooLarge
from pto_wsp.ir.scalar import Value
from pto_wsp.support.record import record
from pto_wsp.targets.base import LibraryCache
from pto_wsp.targets.cuda.driver import NOT_READY, DeviceMemory, Event, Gpu, PinnedMemory
from pto_wsp.targets.cuda.emit import ENTRY, ProgramCode
from pto_wsp.targets.cuda.order import MAX_POOLS
from pto_wsp.targets.cuda.toolchain import build_cubin

ARRAY = np.dtype([("data", np.uint64), ("shape", np.int64, 8), ("stride", np.int64, 8)])
FAILURE = np.dtype(
    [("order", np.uint64), ("task", np.uint64), ("awaited", np.uint64)]
    + [(name, np.int32) for name in ("cause", "place", "code", "reserved")]
)
MONITOR = np.dtype([("host", np.uint64, 4), ("values", np.int64, 24)])

THREADS = 128
"""Threads of a block: `kBlockThreads` of device.hpp."""

NO_LIMIT = 2**64 - 1

SPAN = np.dtype([(name, np.uint64) for name in ("begin", "end", "block")])

MAX_SPANS = 2**20
"""Tasks of a run that is recorded."""

MAX_POLLS = 10**9
"""Polls of one wait after which a run ends as stuck: minutes at least."""

CAUSES = ("none", "walk", "region", "check", "stuck", "key")
"""Why a run ends early, by `Cause` of waits.hpp."""

MEETING = -1
"""The place where all blocks meet: `kMeeting` of waits.hpp."""


@record
class DeviceFailure:
    """The failure of a run that counts.

    Attributes:
        cause: one of CAUSES.
        task: number of the task, in program order.
        awaited: of `stuck`: tasks before it were waited for; at MEETING this block. Of `key`: the key.
        is_walk: whether it was found between tasks, by the walk.
        place: number of the task in the text, or of the place of the walk.
        code: number of the check, or of the argument that is refused.
        values: what the failed check has kept.
    """

    cause: str
    task: int
    awaited: int
    is_walk: bool
    place: int
    code: int
    values: Sequence[int]


_FILLED = 8
"""Parts of a block that the host fills."""


class Block:
    """The memory that the blocks of a launch share, on the GPU and as the host fills and reads it.

    Parts in order: arrays, symbols, the limit, completed tasks per block, tickets per pool, and per block
    counters of checks and of flush points, and failures. The host fills these. Then the ring of the window,
    which is 0 before a launch, and monitors, whose contents do not matter.
    """

    def __init__(
        self, gpu: Gpu, num_arrays: int, num_symbols: int, blocks: int, window: int, spilled_bytes: int
    ) -> None:
        parts: list[tuple[str, np.dtype, int]] = [
            ("arrays", ARRAY, max(1, num_arrays)),
            ("symbols", np.dtype(np.int64), max(1, num_symbols)),
            ("limit", np.dtype(np.uint64), 1),
            ("completed", np.dtype(np.uint64), blocks),
            ("tickets", np.dtype(np.uint64), MAX_POOLS),
            ("checked", np.dtype(np.uint64), blocks),
            ("flushed", np.dtype(np.uint64), blocks),
            ("failures", FAILURE, blocks),
            ("done", np.dtype(np.uint64), window),
            ("monitors", MONITOR, blocks),
        ]
        self.blocks, self.window, self.places, at = blocks, window, {}, 0
        for name, dtype, count in parts:
            self.places[name] = at
            at += dtype.itemsize * count
        # The host has the parts that it fills, then the results: a graph may run the launch again.
        self._left = self.places["done"]
        self.device, self.pinned = DeviceMemory(gpu, at), PinnedMemory(gpu, self._left + 8 * (1 + blocks))
        every = np.ctypeslib.as_array(self.pinned.bytes)
        self.part = {
            name: every[self.places[name] :][: dtype.itemsize * count].view(dtype)
            for name, dtype, count in parts[:_FILLED]
        }
        self.left = every[self._left :].view(np.uint64)
        self.local: dict[int, DeviceMemory] = {}
        self._spilled_bytes = spilled_bytes
        self._spilled = DeviceMemory(gpu, blocks * spilled_bytes) if spilled_bytes else None
        self.events = Event(gpu), Event(gpu)

    def clear(self) -> None:
        """Set the memory that a launch reads."""
        for name in ("completed", "tickets", "checked", "flushed", "failures"):
            self.part[name].view(np.uint8)[...] = 0
        self.part["limit"][0] = NO_LIMIT

    def argument(self, max_polls: int, pools: Sequence[int], spans: int) -> bytes:
        """Return `Program` of waits.hpp."""
        names = ("arrays", "symbols", "limit", "completed", "tickets", "checked", "flushed", "done")
        places = [self.address(name) for name in (*names, "failures", "monitors")]
        firsts = [*pools, *[self.blocks] * (MAX_POOLS + 1 - len(pools)), len(pools)]
        spilled = 0 if self._spilled is None else self._spilled.address
        numbers = (max_polls, self.window, spans, MAX_SPANS if spans else 0, spilled, self._spilled_bytes)
        return struct.pack(f"<16Q{len(firsts)}I", *places, *numbers, *firsts)

    def address(self, name: str) -> int:
        """Return where a part lies on the GPU."""
        return self.device.address + self.places[name]

    @property
    def host(self) -> int:
        """Where the host has the parts that it fills."""
        assert self.pinned.address.value is not None
        return self.pinned.address.value

    @property
    def host_left(self) -> int:
        """Where the host finds the results of a launch: the limit, and completed tasks per block."""
        return self.host + self._left


@record
class DeviceArray:
    """A tensor of a launch.

    Attributes:
        address: of its first element, on the GPU; 0 for a local tensor, whose memory the launch has.
        num_bytes: of a local tensor.
        shape: its sizes.
        strides: elements between neighbours, per dimension.
    """

    address: int
    num_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class DeviceProgram:
    """A program that was built for one GPU and loaded.

    Attributes:
        gpu: the GPU.
        facts: registers, spilled bytes and resident blocks of its kernel.
        was_built: whether a compiler was called.
        shared_bytes: dynamic shared memory of a block.
        tile_bytes: global memory of a block for tiles that do not fit shared memory.
    """

    def __init__(self, code: ProgramCode, gpu: Gpu, cache: LibraryCache) -> None:
        self.gpu = gpu
        self.shared_bytes = code.shared_bytes
        self.tile_bytes = max(code.kernels.spilled_bytes.values(), default=0)
        if self.shared_bytes > gpu.shared_bytes:
            largest = max(code.kernels.shared_bytes, key=lambda name: code.kernels.shared_bytes[name])
            needed, own = code.kernels.shared_bytes[largest], code.walk.notes_bytes
            live = f"on {gpu.name}, where the walk takes {own} bytes"
            raise TilesTooLarge(kernel=largest, needed=needed, capacity=gpu.shared_bytes - own, live=live)
        cubin, self.was_built = build_cubin(code.text, gpu.architecture, cache, code.kernels.natives)
        self._kernel, self.facts = gpu.load(cubin, ENTRY, THREADS, self.shared_bytes)
        self._order = code.walk.order
        self._spare: deque[Block] = deque(maxlen=4)

    def launch(
        self,
        arrays: Sequence[DeviceArray],
        symbols: Sequence[Value],
        blocks: int,
        stream: int,
        is_recorded: bool,
    ) -> DeviceLaunch:
        """Begin a run; the context of the GPU is current.

        Args:
            arrays: one per tensor.
            symbols: one number per size and scalar.
            blocks: of the launch; they are resident together.
            stream: the stream that it is ordered in, as a number.
            is_recorded: whether it records when tasks run.

        Raises:
            WrongValue: a pool of the schedule has no block.
        """
        pools = self._order.pools(blocks)
        found = next((spare for spare in self._spare if spare.blocks == blocks), None)
        if found is not None:
            self._spare.remove(found)
        sizes = (len(arrays), len(symbols), blocks, self._order.window, self.tile_bytes)
        block = found or Block(self.gpu, *sizes)
        self._fill(block, arrays, symbols)
        return DeviceLaunch(self, block, stream, pools, is_recorded)

    def _fill(self, block: Block, arrays: Sequence[DeviceArray], symbols: Sequence[Value]) -> None:
        for number, (row, array) in enumerate(zip(block.part["arrays"], arrays, strict=False)):
            rank = len(array.shape)
            row["data"] = array.address or _local(block, self.gpu, number, array.num_bytes)
            row["shape"][:rank], row["stride"][:rank] = array.shape, array.strides
        numbers = block.part["symbols"]
        for number, value in enumerate(symbols):
            numbers[number] = 0
            if isinstance(value, float):
                numbers[number : number + 1].view(np.float32)[0] = value
            else:
                numbers[number] = value

    def keep(self, block: Block) -> None:
        """Keep the memory of a launch that has ended, for the next one."""
        self._spare.append(block)

    def begin(self, block: Block, stream: c_void_p, pools: Sequence[int], spans: int) -> None:
        """Enqueue a launch: the copy of its memory, the kernel, and the copy of its results."""
        driver = self.gpu.driver
        block.clear()
        until, ring = block.places["done"], 8 * block.window
        driver.call("cuMemcpyHtoDAsync_v2", block.device.address, block.host, until, stream)
        driver.call("cuMemsetD8Async", block.address("done"), 0, ring, stream)
        argument = ctypes.create_string_buffer(block.argument(MAX_POLLS, pools, spans))
        pointers = (c_void_p * 1)(ctypes.addressof(argument))
        grid = (block.blocks, 1, 1, THREADS, 1, 1)
        driver.call("cuLaunchCooperativeKernel", self._kernel, *grid, self.shared_bytes, stream, pointers)
        num_bytes = block.places["tickets"] - block.places["limit"]
        driver.call("cuMemcpyDtoHAsync_v2", block.host_left, block.address("limit"), num_bytes, stream)


def _local(block: Block, gpu: Gpu, number: int, num_bytes: int) -> int:
    """Return where a local tensor of a launch lies."""
    known = block.local.get(number)
    if known is None or known.num_bytes < num_bytes:
        known = block.local[number] = DeviceMemory(gpu, num_bytes)
    return known.address


def is_capturing(gpu: Gpu, stream: int) -> bool:
    """Return whether a stream records a graph."""
    found = ctypes.c_int(0)
    gpu.driver.call("cuStreamIsCapturing", c_void_p(stream), ctypes.byref(found))
    return found.value != 0


class DeviceLaunch:
    """A launch of a program, which need not have ended.

    Attributes:
        blocks: how many blocks run.
        is_captured: whether the stream records a graph, so that the graph runs the program.
    """

    def __init__(
        self, program: DeviceProgram, block: Block, stream: int, pools: Sequence[int], is_recorded: bool
    ) -> None:
        self._program, self._block, self._stream = program, block, c_void_p(stream)
        self._driver = program.gpu.driver
        self.blocks = block.blocks
        self.is_captured = is_capturing(program.gpu, stream)
        self._spans = DeviceMemory(program.gpu, SPAN.itemsize * MAX_SPANS) if is_recorded else None
        spans = 0 if self._spans is None else self._spans.address
        begin, end = (event.handle for event in block.events)
        if self.is_captured:
            program.begin(block, self._stream, pools, spans)
            return
        self._driver.call("cuEventRecord", begin, self._stream)
        program.begin(block, self._stream, pools, spans)
        self._driver.call("cuEventRecord", end, self._stream)

    @property
    def done(self) -> bool:
        """Whether it has ended; a captured launch is not asked for."""
        if self.is_captured:
            return True
        status = self._driver.status("cuEventQuery", self._block.events[1].handle)
        if status not in (0, NOT_READY):
            self._driver.call("cuEventQuery", self._block.events[1].handle)
        return status == 0

    def stop(self) -> None:
        """Let no further task begin. What is called before the kernel begins is lost."""
        zero = np.zeros(1, np.uint64)
        self._write_limit(zero)

    def _write_limit(self, value: np.ndarray) -> None:
        side, driver = self._program.gpu.side_stream, self._driver
        driver.call("cuMemcpyHtoDAsync_v2", self._block.address("limit"), value.ctypes.data, 8, side)
        driver.call("cuStreamSynchronize", side)

    def completed(self) -> int:
        """Return the tasks that are complete, of a launch that need not have ended."""
        return int(self._read("completed", np.dtype(np.uint64), self._program.gpu.side_stream).sum())

    def finish(self) -> None:
        """Wait until the stream is empty."""
        self._driver.call("cuStreamSynchronize", self._stream)

    @property
    def tasks(self) -> int:
        """The tasks of a launch that has ended."""
        return int(self._block.left[1:].sum())

    def spans(self) -> np.ndarray:
        """Return when and where each task ran, as `SPAN`, of a recorded launch that has ended."""
        assert self._spans is not None
        found = np.empty(self.tasks, SPAN)
        where, driver = (found.ctypes.data, self._spans.address, found.nbytes), self._driver
        if len(found) > 0:
            driver.call("cuMemcpyDtoHAsync_v2", *where, self._stream)
            driver.call("cuStreamSynchronize", self._stream)
        return found

    @property
    def has_stopped(self) -> bool:
        """Whether a launch that has ended did so early."""
        return int(self._block.left[0]) != NO_LIMIT

    @property
    def milliseconds(self) -> float:
        """What a launch that has ended took, from entering the stream to its end; 0 if it was captured."""
        if self.is_captured:
            return 0.0
        found = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(found), *(e.handle for e in self._block.events))
        return found.value

    def failure(self) -> DeviceFailure | None:
        """Return why a launch that has ended did so early; None if it was stopped."""
        failures = self._read("failures", FAILURE, self._stream)
        found = [number for number, failure in enumerate(failures) if failure["cause"] != 0]
        if not found:
            return None
        number = min(found, key=lambda each: failures[each]["order"])
        values = self._read("monitors", MONITOR, self._stream)[number]["values"]
        one = failures[number]
        task, awaited, place, code = (int(one[name]) for name in ("task", "awaited", "place", "code"))
        is_walk, kept = int(one["order"]) % 2 == 0, [int(value) for value in values]
        return DeviceFailure(CAUSES[one["cause"]], task, awaited, is_walk, place, code, kept)

    def _read(self, name: str, dtype: np.dtype, stream: c_void_p) -> np.ndarray:
        """Return a part with an element per block, as the GPU has it now."""
        found = np.empty(self.blocks, dtype)
        address, driver = self._block.address(name), self._driver
        driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, address, found.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)
        return found

    def release(self) -> None:
        """Give the memory of a launch that has ended to the next one."""
        if not self.is_captured:
            self._program.keep(self._block)
