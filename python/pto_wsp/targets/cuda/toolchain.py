"""The compiler of CUDA C++: nvcc or NVRTC, of a toolkit or of packages of NVIDIA."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pto_wsp.errors import CompilerFailed, CppError, NoCudaCompiler
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.location import Location
from pto_wsp.targets.base import LibraryCache
from pto_wsp.targets.cpu.toolchain import include_directory, run, version_of, which
from pto_wsp.targets.cpu.tree import headers_of
from pto_wsp.targets.cuda.native import kernel_of_place

OPTIONS = ("-std=c++17", "-fmad=false")
"""Options of both compilers. Multiply-adds are fused only where the source says so."""

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n]+?)(?:\((?P<line>\d+)\)|:(?P<own_line>\d+):(?P<col>\d+)): (?:fatal )?error(?: #\S+)?: "
    r"(?P<text>.*)$",
    re.MULTILINE,
)
"""An error of nvcc or NVRTC, or of a C++ compiler."""

_TOOLKIT = "/usr/local/cuda"

_NVRTC_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")

_STDINT = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT64_C(value) value##LL
#define UINT64_C(value) value##ULL
#define INT32_MAX 0x7fffffff
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 0xffffffffu
#define INT64_MAX 0x7fffffffffffffffLL
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 0xffffffffffffffffULL
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
"""
"""Names that NVRTC does not have: those of `stdint.h`, and builtins of the host compiler of nvcc."""


class CudaCompiler(Protocol):
    """A compiler that was found."""

    @property
    def identity(self) -> str:
        """What tells versions apart."""
        ...

    def compile(self, source: Path, architecture: str, output: Path) -> tuple[bool, str]:
        """Write the cubin of a source; return whether that succeeded, and the compiler's output."""
        ...

    def command(self, architecture: str) -> str:
        """Return the name of the call, for errors."""
        ...


class Nvcc:
    """The program nvcc, which needs a C++ compiler of the host."""

    def __init__(self, path: str, version: str) -> None:
        self._path, self.identity = path, version

    def _words(self, architecture: str) -> list[str]:
        return [self._path, *OPTIONS, f"-arch={architecture}", f"-I{include_directory()}", "-cubin"]

    def command(self, architecture: str) -> str:
        """Return the command without its files."""
        return shlex.join(self._words(architecture))

    def compile(self, source: Path, architecture: str, output: Path) -> tuple[bool, str]:
        """Run nvcc."""
        status, text = run([*self._words(architecture), str(source), "-o", str(output)], b"")
        return status == 0 and output.is_file(), text


class Nvrtc:
    """The library NVRTC, which needs no other compiler."""

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")) if folder.name else ():
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC looks for it by its name alone
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.identity = f"NVRTC {major.value}.{minor.value}"

    def command(self, architecture: str) -> str:
        """Return the options."""
        return shlex.join(["nvrtc", *self._options(architecture)])

    def _options(self, architecture: str) -> list[str]:
        return [*OPTIONS, f"-arch={architecture}", f"-I{include_directory()}", "-default-device"]

    def compile(self, source: Path, architecture: str, output: Path) -> tuple[bool, str]:
        """Compile in this process."""
        library, program = self._library, ctypes.c_void_p()
        headers, names = (ctypes.c_char_p * 1)(_STDINT.encode()), (ctypes.c_char_p * 1)(b"stdint.h")
        text = ctypes.c_char_p(source.read_bytes())
        library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 1, headers, names)
        try:
            options = [option.encode() for option in self._options(architecture)]
            array = (ctypes.c_char_p * len(options))(*options)
            status = library.nvrtcCompileProgram(program, len(options), array)
            if status == 0:
                output.write_bytes(self._text(program, "CUBIN"))
            return status == 0, self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        found = ctypes.create_string_buffer(max(1, size.value))
        getattr(self._library, f"nvrtcGet{what}")(program, found)
        return found.raw[: size.value]


def find_cuda_compiler(cache: LibraryCache) -> CudaCompiler:
    """Return nvcc of `CUDA_HOME`, of `PATH`, of the usual folder or of packages; else NVRTC of the same.

    Raises:
        NoCudaCompiler: there is none that works.
    """
    for path in nvcc_paths():
        version = version_of((path,), cache)
        if version is not None:
            return Nvcc(path, version)
    for compiler in nvrtc_libraries():
        return compiler
    tried = "nvcc and libnvrtc in CUDA_HOME, in PATH, in /usr/local/cuda and in packages of NVIDIA"
    raise NoCudaCompiler(tried=tried)


def _toolkits() -> Iterator[Path]:
    """Yield the folders of toolkits."""
    chosen = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    yield from (Path(chosen),) if chosen else ()
    yield Path(_TOOLKIT)
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        yield from sorted((path for path in Path(folder).iterdir() if path.is_dir()), reverse=True)


def nvcc_paths() -> Iterator[str]:
    """Yield the paths of nvcc."""
    first, *others = (os.fspath(folder / "bin" / "nvcc") for folder in _toolkits())
    for path in (first, "nvcc", *others):
        found = which(path)
        if found is not None:
            yield found


def _nvrtc_paths() -> Iterator[str]:
    for folder in _toolkits():
        for lib in ("lib", "lib64"):
            yield from (os.fspath(p) for name in _NVRTC_NAMES if (p := folder / lib / name).is_file())
    yield from _NVRTC_NAMES


def nvrtc_libraries() -> Iterator[Nvrtc]:
    """Yield the libraries that can be loaded."""
    for path in _nvrtc_paths():
        with suppress(OSError):
            yield Nvrtc(path)


def build_cubin(
    text: str, architecture: str, cache: LibraryCache, natives: Sequence[KernelFunction] = ()
) -> tuple[bytes, bool]:
    """Return the cubin of a translation unit, and whether it was compiled now; else it was in the cache.

    Args:
        text: what the target emits, with the shipped headers on the include path.
        architecture: such as `sm_90`.
        cache: keeps cubins between processes.
        natives: kernels of it in C++ of users.

    Raises:
        NoCudaCompiler: there is no compiler.
        CompilerFailed: with the compiler's text; the source is kept.
        CppError: the same, in a kernel of `natives`.
        BadCache: the cache cannot be used.
    """
    compiler = find_cuda_compiler(cache)
    headers: Mapping[str, str] = dict(headers_of([text]))
    parts = (text, *headers, *headers.values(), architecture, compiler.identity, *OPTIONS)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def make(output: Path) -> None:
        source = output.with_suffix(".cu")
        source.write_text(text, encoding="utf-8")
        try:
            is_made, said = compiler.compile(source, architecture, output)
        finally:
            source.unlink()
        if not is_made:
            kept = cache.keep_source(key, text)
            command = compiler.command(architecture)
            raise _refused(said, natives, kept) or CompilerFailed(
                output=said.strip(), command=command, source=kept
            )

    path, was_made = cache.library(key, make, "cubin")
    return path.read_bytes(), was_made


def _refused(said: str, natives: Sequence[KernelFunction], kept: Path) -> CppError | None:
    """Return the first error of the compiler that is in a kernel in C++; None if there is none."""
    for found in _DIAGNOSTIC.finditer(said):
        line = int(found["line"] or found["own_line"])
        kernel = kernel_of_place(natives, found["file"], line)
        if kernel is not None:
            col = int(found["col"] or 0)
            loc = Location(found["file"], line, col, col + 1) if col else Location(found["file"], line)
            return CppError(kernel=kernel.name, message=found["text"], output=said, source=kept, loc=loc)
    return None
