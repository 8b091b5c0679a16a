"""The target `cuda` for tests: its kernels run on the host, in an emulation of a thread block."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import KernelArtifact, LibraryCache, R, Runnable, table_hash
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu import toolchain
from pto_wsp.targets.cpu.emit import write_table
from pto_wsp.targets.cuda.emit import DeviceCode, emit_device_code
from pto_wsp.targets.cuda.target import CudaTarget

EMULATION = Path(__file__).parent / "emulation"
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-march=native", "-fPIC", "-shared", "-Wall", "-Werror")


def emulated_source(kernels: Sequence[KernelFunction], code: DeviceCode) -> str:
    """Return device code with a table whose functions run blocks of emulated threads."""
    out = TextWriter()
    out.line("#include <vector>")
    out.line("namespace pto::wsp::tile {")
    for kernel in kernels:
        name = function_name(kernel)
        parameters = "const View* views, const Scalar* scalars, const TaskContext* context"
        out.line(f"int32_t {name}({parameters}) {{")
        with out.indented():
            out.line("TaskContext own = *context;")
            out.line(f"const std::vector<char> spilled({max(code.spilled_bytes[kernel.name], 1)}, '\\xff');")
            out.line("own.workspace = const_cast<char*>(spilled.data());")
            out.line("cuda::emulation::shared_begin = static_cast<const char*>(own.scratch);")
            end = f"cuda::emulation::shared_begin + {code.shared_bytes[kernel.name]}"
            out.line(f"cuda::emulation::shared_end = {end};")
            out.line("struct Call {")
            with out.indented():
                out.line("const View* views;")
                out.line("const Scalar* scalars;")
                out.line("const TaskContext* context;")
            out.line("} call{views, scalars, &own};")
            out.line("return cuda::emulation::run_block([](void* of) {")
            with out.indented():
                out.line("const auto& c = *static_cast<Call*>(of);")
                out.line(f"return cuda::{name}(c.views, c.scalars, c.context);")
            out.line("}, &call);")
        out.line("}")
    out.line('extern "C" void pto_wsp_wavefronts(uint64_t* found) {')
    with out.indented():
        out.line("found[0] = cuda::emulation::row_groups;")
        out.line("found[1] = cuda::emulation::wavefronts;")
    out.line("}")
    out.line('extern "C" uint64_t pto_wsp_asked(uint64_t* found) {')
    with out.indented():
        out.line("memcpy(found, cuda::emulation::asked, sizeof(cuda::emulation::asked));")
        out.line("return __atomic_exchange_n(&cuda::emulation::num_asked, 0, __ATOMIC_RELAXED);")
    out.line("}")
    write_table(out, kernels, code.shared_bytes, f"0x{table_hash(kernels):016x}")
    return f"{code.text}\n{out}"


class EmulatedCuda(CudaTarget):
    """Builds the kernels of `cuda` with a C++ compiler and runs them on the engine.

    Args:
        flags: further options of the compiler.
    """

    def __init__(self, flags: tuple[str, ...] = ()) -> None:
        self.flags = (*FLAGS, *flags)

    @property
    def expander(self) -> str:
        """What expands the tasks of a workload."""
        return "bytecode"

    def environment(self, cache: LibraryCache) -> str:
        """Return what two builds of the same kernels can differ in."""
        return " ".join(self.flags)

    def build_walk(self, source: str, cache: LibraryCache) -> Path:
        """Refuse: the emulation walks bytecode."""
        raise AssertionError("the emulation walks bytecode")

    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> KernelArtifact:
        """Return a library of `kernels`."""
        code = emit_device_code(kernels)
        source = emulated_source(kernels, code)
        key = hashlib.sha256("\0".join((source, *self.flags, _headers())).encode()).hexdigest()
        path, was_made = cache.library(key, lambda output: compile_source(source, output, self.flags))
        names = tuple(k.name for k in kernels)
        return KernelArtifact(path, table_hash(kernels), names, code.checks, int(was_made), 0.0, source)

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner on the engine."""
        return program.on_engine(self)


def wavefronts(artifact: KernelArtifact) -> tuple[int, int]:
    """Return what the loads of matrices of a library took so far: groups of 8 rows, and wavefronts."""
    found = (ctypes.c_uint64 * 2)()
    ctypes.CDLL(str(artifact.path)).pto_wsp_wavefronts(found)
    return found[0], found[1]


def asked(artifact: KernelArtifact) -> list[int]:
    """Return the addresses that prefetches of any library asked for since the last call: at most 4,096."""
    found = (ctypes.c_uint64 * 4096)()
    function = ctypes.CDLL(str(artifact.path)).pto_wsp_asked
    function.restype = ctypes.c_uint64
    return list(found[: function(found)])


def compile_source(source: str, output: Path, flags: Sequence[str]) -> None:
    """Compile a library with the emulation on the include path.

    Raises:
        AssertionError: the compiler refuses it.
    """
    text = output.with_suffix(".cpp")
    text.write_text(source)
    includes = (f"-I{toolchain.include_directory()}", f"-I{EMULATION}")
    command = ["g++", *flags, *includes, str(text), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def _headers() -> str:
    folder = toolchain.include_directory() / "pto" / "wsp" / "tile" / "cuda"
    files = sorted((*folder.glob("*.hpp"), *EMULATION.glob("*.hpp")))
    return "".join(file.read_text() for file in files)
