"""The driver of NVIDIA's GPUs, `libcuda.so.1`: devices, memory, streams and launches.

Source: the CUDA driver API, cuda.h. Functions with a version have it in their names, such as `cuMemAlloc_v2`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache, cached_property

from pto_wsp.errors import GpuFault, NoGpu
from pto_wsp.support.record import record

LIBRARY = "libcuda.so.1"

LEAST_CAPABILITY = (8, 0)
"""The least compute capability: asynchronous copies, and `mma` of bf16."""

NOT_READY = 600
"""What `cuEventQuery` returns for work that is not complete."""

_NON_BLOCKING = 1
_MULTIPROCESSORS, _CAPABILITY_MAJOR, _CAPABILITY_MINOR, _SHARED_BYTES = 16, 75, 76, 97
_COOPERATIVE = 95
_MAX_DYNAMIC_SHARED, _NUM_REGISTERS, _LOCAL_BYTES = 8, 4, 3
_DEVICE_OF_POINTER = 9

_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuLaunchCooperativeKernel": (
        c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, POINTER(c_void_p),
    ),
}  # fmt: skip


class Driver:
    """The loaded library.

    Raises:
        NoGpu: there is none, or it finds no GPU.
    """

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
            for name, types in _SIGNATURES.items():
                getattr(self._library, name).argtypes = types
        except (OSError, AttributeError) as error:
            raise NoGpu(reason=f"`{path}` cannot be loaded: {error}") from None
        status = self.status("cuInit", 0)
        if status != 0:
            name, text = self._meaning(status)
            raise NoGpu(reason=f"the driver says {name}: {text}")

    def status(self, name: str, *arguments: object) -> int:
        """Call a function; return its result."""
        return getattr(self._library, name)(*arguments)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function.

        Raises:
            GpuFault: it fails.
        """
        status = self.status(name, *arguments)
        if status != 0:
            meaning, text = self._meaning(status)
            raise GpuFault(call=name, name=meaning, number=status, text=text)

    def number(self, name: str, *arguments: object) -> int:
        """Return the `int` that a function stores in its first argument."""
        found = c_int(0)
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def handle(self, name: str, *arguments: object) -> c_void_p:
        """Return the pointer that a function stores in its first argument."""
        found = c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found

    def _meaning(self, status: int) -> tuple[str, str]:
        texts = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            self.status(function, status, ctypes.byref(text))
            texts.append((text.value or b"an unknown error").decode(errors="replace"))
        return texts[0], texts[1]


@record
class KernelFacts:
    """What the driver knows of a loaded kernel.

    Attributes:
        registers: of a thread.
        spilled_bytes: memory of a thread for what its registers do not hold.
        resident: blocks that the GPU runs at the same time.
    """

    registers: int
    spilled_bytes: int
    resident: int


class Gpu:
    """One GPU, with its primary context, which other libraries of the process share.

    Attributes:
        number: its number among the visible GPUs.
        name: its name.
        capability: its compute capability, such as (9, 0).
        multiprocessors: how many it has.
        shared_bytes: the shared memory that a block can have.
    """

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver, self.number = driver, number
        device = driver.number("cuDeviceGet", number)
        text = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", text, len(text), device)
        self.name = text.value.decode(errors="replace")

        def fact(attribute: int) -> int:
            return driver.number("cuDeviceGetAttribute", attribute, device)

        self.capability = fact(_CAPABILITY_MAJOR), fact(_CAPABILITY_MINOR)
        self.multiprocessors, self.shared_bytes = fact(_MULTIPROCESSORS), fact(_SHARED_BYTES)
        if self.capability < LEAST_CAPABILITY or not fact(_COOPERATIVE):
            (found, least) = (f"{major}.{minor}" for major, minor in (self.capability, LEAST_CAPABILITY))
            expected = f"expected compute capability {least} or higher and cooperative launches"
            raise NoGpu(reason=f"{expected}, found {found} ({self.name})")
        self._context = driver.handle("cuDevicePrimaryCtxRetain", device)

    @property
    def architecture(self) -> str:
        """What code for it is compiled for, such as `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @contextmanager
    def current(self) -> Iterator[Driver]:
        """Make its context that of this thread."""
        self.driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield self.driver
        finally:
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))

    @cached_property
    def side_stream(self) -> c_void_p:
        """A stream that waits for no other stream: it sends and reads values while a kernel runs."""
        return self.driver.handle("cuStreamCreate", _NON_BLOCKING)

    def load(self, cubin: bytes, entry: str, threads: int, shared_bytes: int) -> tuple[c_void_p, KernelFacts]:
        """Return a kernel of a cubin, and its registers and memory.

        Args:
            cubin: what a compiler wrote for `architecture`.
            entry: name of the kernel.
            threads: of a block.
            shared_bytes: dynamic shared memory of a block.
        """
        with self.current() as driver:
            module = driver.handle("cuModuleLoadData", cubin)
            kernel = driver.handle("cuModuleGetFunction", module, entry.encode())
            driver.call("cuFuncSetAttribute", kernel, _MAX_DYNAMIC_SHARED, shared_bytes)
            name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            resident = driver.number(name, kernel, threads, shared_bytes) * self.multiprocessors
            registers = driver.number("cuFuncGetAttribute", _NUM_REGISTERS, kernel)
            return kernel, KernelFacts(
                registers, driver.number("cuFuncGetAttribute", _LOCAL_BYTES, kernel), resident
            )


class DeviceMemory:
    """Memory of a GPU, which is freed with this object.

    Attributes:
        address: on the GPU.
        num_bytes: its size.
    """

    address = 0

    def __init__(self, gpu: Gpu, num_bytes: int) -> None:
        self._gpu, self.num_bytes = gpu, num_bytes
        found = c_uint64()
        gpu.driver.call("cuMemAlloc_v2", ctypes.byref(found), max(1, num_bytes))
        self.address = found.value

    def __del__(self) -> None:
        if self.address:
            with self._gpu.current() as driver:
                driver.status("cuMemFree_v2", self.address)


class PinnedMemory:
    """Memory of the host that the GPU copies from and to while the host goes on."""

    address = c_void_p()

    def __init__(self, gpu: Gpu, num_bytes: int) -> None:
        self._gpu = gpu
        self.address = gpu.driver.handle("cuMemHostAlloc", num_bytes, 0)
        assert self.address.value is not None
        self.bytes = (ctypes.c_uint8 * num_bytes).from_address(self.address.value)

    def __del__(self) -> None:
        if self.address:
            with self._gpu.current() as driver:
                driver.status("cuMemFreeHost", self.address)


class Event:
    """A mark in a stream, with its time."""

    handle = c_void_p()

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.handle = gpu.driver.handle("cuEventCreate", 0)

    def __del__(self) -> None:
        if self.handle:
            with self._gpu.current() as driver:
                driver.status("cuEventDestroy_v2", self.handle)


@cache
def _driver(path: str) -> Driver:
    return Driver(path)


@cache
def _gpu(path: str, number: int) -> Gpu:
    driver = _driver(path)
    count = driver.number("cuDeviceGetCount")
    if number >= count:
        raise NoGpu(reason=f"expected GPU {number}, found {count} GPUs")
    return Gpu(driver, number)


def find_gpu(number: int = 0) -> Gpu:
    """Return a GPU by its number.

    Raises:
        NoGpu: there is none, or it cannot run programs.
    """
    return _gpu(LIBRARY, number)


def gpu_of_address(address: int) -> int:
    """Return the number of the GPU that memory belongs to.

    Raises:
        NoGpu: there is none.
        GpuFault: no GPU knows the memory.
    """
    found = c_int(0)
    _driver(LIBRARY).call("cuPointerGetAttribute", ctypes.byref(found), _DEVICE_OF_POINTER, address)
    return found.value
