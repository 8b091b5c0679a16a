"""Programs of the target `cuda` in a process of their own: under ThreadSanitizer, with delays, or broken."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from pto_wsp import Program
from pto_wsp.ir.module import Module
from pto_wsp.runtime.interpreted import InterpretedFigures, InterpretedRunner, bind
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.targets.base import R, Runnable
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda.emit import ProgramCode
from pto_wsp.targets.cuda.launch import ARRAY, FAILURE
from pto_wsp.targets.cuda.order import MAX_POOLS
from pto_wsp.targets.cuda.target import CudaTarget
from tests.cuda.emulated import EMULATION
from tests.cuda.substitute.nvcc import ENTRY

HEADERS = "pto/wsp/tile/cuda"
ALIGNMENT = 64

MAIN = """
#include <stdio.h>
#include <vector>

/// Runs the program of a file; writes tasks per block, the failures and the arrays to another one.
int main(int, char** paths) {
  using namespace pto::wsp;
  using namespace pto::wsp::cuda;
  FILE* const from = fopen(paths[1], "rb");
  const auto read = [from](void* to, size_t bytes) { return fread(to, 1, bytes, from) == bytes; };
  uint64_t head[8];
  Program program{};
  if (!read(head, sizeof head) || !read(program.pools, sizeof program.pools)) return 3;
  const auto [blocks, num_arrays, num_symbols, window, spilled, shared, num_pools, bytes] = head;
  std::vector<Array> arrays(num_arrays + 1);
  std::vector<Scalar> symbols(num_symbols + 1);
  char* const memory = static_cast<char*>(aligned_alloc(64, bytes + 64));
  const size_t most = num_arrays * sizeof(Array);
  if (!read(arrays.data(), most) || !read(symbols.data(), num_symbols * 8) || !read(memory, bytes)) return 4;
  for (Array& array : arrays) array.data = memory + reinterpret_cast<uint64_t>(array.data);
  std::vector<uint64_t> completed(blocks), tickets(kMaxPools), checked(blocks), flushed(blocks), done(window);
  std::vector<Failure> failures(blocks);
  std::vector<Monitor> monitors(blocks);
  std::vector<char> tiles(blocks * spilled + 1);
  uint64_t limit = kNoLimit;
  program.arrays = arrays.data();
  program.symbols = symbols.data();
  program.limit = &limit;
  program.completed = completed.data();
  program.tickets = tickets.data();
  program.checked = checked.data();
  program.flushed = flushed.data();
  program.done = done.data();
  program.failures = failures.data();
  program.monitors = monitors.data();
  program.max_polls = 200000;
  program.window = window;
  program.spilled = tiles.data();
  program.spilled_bytes = spilled;
  program.num_pools = static_cast<uint32_t>(num_pools);
  pto_wsp_emulate(&program, static_cast<uint32_t>(blocks), shared);
  FILE* const to = fopen(paths[2], "wb");
  fwrite(completed.data(), 8, blocks, to);
  fwrite(failures.data(), sizeof(Failure), blocks, to);
  fwrite(memory, 1, bytes, to);
  return fclose(to);
}
"""

DELAYED = ("-DPTO_EMULATION_DELAY_US=400",)
SANITIZED = ("-g", "-fsanitize=thread", *DELAYED)


class Broken(AssertionError):
    """A process that ended with a message: of ThreadSanitizer, or of the emulation."""


class AloneCuda(CudaTarget):
    """The target, whose programs run in a process of their own.

    Args:
        folder: for the program and its arrays.
        options: of the C++ compiler.
        headers: texts to replace in headers of the tile library for blocks, by their names.
        text: texts to replace in the program.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        headers: Mapping[str, Mapping[str, str]] = {},
        text: Mapping[str, str] = {},
    ) -> None:
        self.folder, self.options, self.headers, self.text = folder, options, headers, text

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner that starts a process per run."""
        code = self.program_code(program.module)
        return cast(R, AloneRunner(program.module, code, self._built(code)))

    def _built(self, code: ProgramCode) -> Path:
        includes = [f"-I{self.folder}", f"-I{include_directory()}", f"-I{EMULATION}"]
        for name, changes in self.headers.items():
            header = self.folder / HEADERS / name
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(changed((include_directory() / HEADERS / name).read_text(), changes))
        source, output = self.folder / "program.cpp", self.folder / "program"
        source.write_text(changed(code.text, self.text) + ENTRY + MAIN)
        fixed = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-march=native", "-pthread"]
        command = [*fixed, *self.options, *includes, str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return output


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return a text with others replaced, all of which it has."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def alone(
    module: Module,
    folder: Path,
    options: Sequence[str] = (),
    headers: Mapping[str, Mapping[str, str]] = {},
    text: Mapping[str, str] = {},
) -> Program:
    """Return a program that runs in a process of its own."""
    return Program(module, {}, AloneCuda(folder, options, headers, text))


class AloneRunner(InterpretedRunner):
    """Starts a process per run. A failed run raises `Broken` with the cause that a block has found."""

    def __init__(self, module: Module, code: ProgramCode, path: Path) -> None:
        super().__init__(module)
        self._code, self._path = code, path

    def run(self, request: RunRequest) -> tuple[InterpretedFigures, None]:
        """Write the arrays, run the program, and read them again."""
        arrays, sizes = bind(self._module, request.arrays, request.scalars)
        blocks, order, kernels = request.workers or 3, self._code.walk.order, self._code.kernels
        blocks = order.blocks or blocks
        rows, data = np.zeros(len(arrays), ARRAY), b""
        for row, array in zip(rows, arrays.values(), strict=True):
            rank = array.ndim
            row["data"], row["shape"][:rank] = len(data), array.shape
            row["stride"][:rank] = np.empty(array.shape, np.int8).strides
            data += array.tobytes()
            data += bytes(-len(data) % ALIGNMENT)
        symbols = np.zeros(len(self.workload.symbols), np.int64)
        for number, param in enumerate(self.workload.symbols):
            value = sizes[param.name]
            is_float = isinstance(value, float)
            symbols[number] = np.float32(value).view(np.int32) if is_float else value
        pools = order.pools(blocks)
        firsts = np.array([*pools, *[blocks] * (MAX_POOLS + 1 - len(pools))], np.uint32)
        spilled = max(kernels.spilled_bytes.values(), default=0)
        head = [
            blocks,
            len(rows),
            len(symbols),
            order.window,
            spilled,
            self._code.shared_bytes,
            len(pools),
            len(data),
        ]
        parts = (np.array(head, np.uint64), firsts, rows, symbols)
        given, found = self._path.with_suffix(".in"), self._path.with_suffix(".out")
        given.write_bytes(b"".join(part.tobytes() for part in parts) + data)
        done = run_fixed([str(self._path), str(given), str(found)])
        if done.returncode != 0:
            raise Broken(done.stderr[:6000])
        return self._read(found.read_bytes(), blocks, rows, arrays)

    def _read(
        self, content: bytes, blocks: int, rows: np.ndarray, arrays: Mapping[str, np.ndarray]
    ) -> tuple[InterpretedFigures, None]:
        tasks = int(np.frombuffer(content, np.uint64, blocks).sum())
        failures = np.frombuffer(content, FAILURE, blocks, 8 * blocks)
        memory = content[(8 + FAILURE.itemsize) * blocks :]
        for row, (name, array) in zip(rows, arrays.items(), strict=True):
            if name in self._module.written:
                result = np.frombuffer(memory, array.dtype, array.size, int(row["data"]))
                array[...] = result.reshape(array.shape)
        if failures["cause"].any():
            raise Broken(f"the run failed: {failures[failures['cause'] != 0]}")
        return InterpretedFigures(tasks, 0), None


def run_fixed(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program, whose addresses are not randomised: ThreadSanitizer needs some for itself."""
    fixed = ["setarch", "-R"]
    may_fix = shutil.which("setarch") and subprocess.run([*fixed, "true"], check=False).returncode == 0
    command = [*(fixed if may_fix else []), *command]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
