"""Programs that blocks run themselves, with blocks as threads of the host."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.runtime.binding import Binder
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cuda.emit import emit_device_code, emit_program
from pto_wsp.targets.cuda.memory import SHARED_BYTES
from tests.cuda.emulated import FLAGS, EmulatedCuda, compile_source
from tests.python.targets.ctypes_abi import Monitor, Scalar

NO_LIMIT = 2**64 - 1
CAUSES = ("none", "walk", "region", "check", "stuck")

_ENTRY = """
#include <thread>
#include <vector>

namespace pto::wsp::cuda {
struct Launch {
  const Program* program;
  char* scratch;
};
static int32_t block_body(void* of) {
  const auto& launch = *static_cast<Launch*>(of);
  run_program(*launch.program, launch.scratch);
  return 0;
}
}  // namespace pto::wsp::cuda

extern "C" __attribute__((visibility("default"))) void pto_wsp_emulate(
    const pto::wsp::cuda::Program* program, uint32_t blocks, uint64_t shared_bytes) {
  using namespace pto::wsp::cuda;
  std::vector<std::thread> threads;
  for (uint32_t b = 0; b < blocks; ++b) {
    threads.emplace_back([=] {
      emulation::own_number = b;
      emulation::own_blocks = blocks;
      char* const scratch = static_cast<char*>(aligned_alloc(64, shared_bytes));
      memset(scratch, 0xff, shared_bytes);
      Launch launch{program, scratch};
      emulation::run_block(block_body, &launch);
      free(scratch);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
"""


class Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 8), ("stride", ctypes.c_int64 * 8))


class Failure(ctypes.Structure):
    _fields_ = (
        ("order", ctypes.c_uint64),
        ("task", ctypes.c_uint64),
        ("awaited", ctypes.c_uint64),
        ("cause", ctypes.c_int32),
        ("place", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class DeviceProgram(ctypes.Structure):
    _fields_ = (
        ("arrays", ctypes.POINTER(Array)),
        ("symbols", ctypes.POINTER(Scalar)),
        ("limit", ctypes.POINTER(ctypes.c_uint64)),
        ("completed", ctypes.POINTER(ctypes.c_uint64)),
        ("checked", ctypes.POINTER(ctypes.c_uint64)),
        ("flushed", ctypes.POINTER(ctypes.c_uint64)),
        ("failures", ctypes.POINTER(Failure)),
        ("monitors", ctypes.POINTER(Monitor)),
        ("max_polls", ctypes.c_uint64),
    )


class EmulatedProgram:
    """A program whose blocks walk it on threads of the host."""

    def __init__(self, module: Module, flags: tuple[str, ...] = (), change: Mapping[str, str] = {}) -> None:
        self.module = Prepared(module, EmulatedCuda()).module
        self.code = emit_program(self.module, emit_device_code(self.module.kernels), "cuda")
        self.binder = Binder(self.module.entry_workload, {})
        text = self.code.text
        for old, new in change.items():
            assert old in text
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "program.so"
            compile_source(text + _ENTRY, output, (*FLAGS, "-pthread", *flags))
            self.library = ctypes.CDLL(str(output))

    def __call__(self, blocks: int, values: Mapping[str, object], max_polls: int = 10**7) -> Failure | None:
        """Run the program; return the failure that counts, if there is one."""
        bound = self.binder.bind(values)
        sizes = self.binder.sizes_of(bound)[0]
        arrays = (Array * max(1, len(bound.arrays)))()
        for array, value in zip(arrays, bound.arrays, strict=False):
            array.data = value.ctypes.data
            for dim in range(value.ndim):
                array.shape[dim], array.stride[dim] = value.shape[dim], value.strides[dim] // value.itemsize
        symbols = (Scalar * max(1, len(self.module.entry_workload.symbols)))()
        for symbol, param in zip(symbols, self.module.entry_workload.symbols, strict=False):
            is_float = isinstance(param, w.ScalarParam) and param.type.dtype.is_float
            setattr(symbol, "f32" if is_float else "i64", sizes[param.name])
        counters = [(ctypes.c_uint64 * blocks)() for _ in range(3)]
        limit, failures = ctypes.c_uint64(NO_LIMIT), (Failure * blocks)()
        self.monitors = (Monitor * blocks)()
        program = DeviceProgram(
            arrays, symbols, ctypes.pointer(limit), *counters, failures, self.monitors, max_polls
        )
        self.library.pto_wsp_emulate(ctypes.byref(program), blocks, ctypes.c_uint64(SHARED_BYTES))
        self.completed = list(counters[0])
        if limit.value == NO_LIMIT:
            return None
        return min((f for f in failures if f.cause), key=lambda failure: failure.order)
