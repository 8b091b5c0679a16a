"""Lowered programs, kept between processes with their kernel libraries.

A kept program is bytecode and the name of a library: what a run needs. The sources of errors and traces are
made again when one asks for them. The key covers the text of the module, which equal modules share, and all
that takes part in compiling it: the files of the package, the target, the compiler and the processor.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from pto_wsp import _native
from pto_wsp.errors import BadCache
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.support.record import record
from pto_wsp.targets.base import KernelBuilder

_IMPORTED_NS = time.time_ns()
_KIND = "program"
_KEY_BYTES = 32


@record
class KeptProgram:
    """What a run needs of a program.

    Attributes:
        library: path of the kernels.
        code: the bytecode.
    """

    library: Path
    code: bytes


def program_key(prepared: Prepared, builder: KernelBuilder, cache: ArtifactCache) -> str | None:
    """Return the name of a program in the cache, or None where no name is safe.

    Kernels in C++ include files that their compilation alone finds. A program with a compiled walk has a
    second library.
    """
    stamp = package_stamp() if builder.expander == "bytecode" else None
    if stamp is None or any(kernel.native is not None for kernel in prepared.source.kernels):
        return None
    parts = (stamp, builder.name, builder.environment(cache), str(prepared.source))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find_program(key: str, cache: ArtifactCache) -> KeptProgram | None:
    """Return the program that was kept as `key`, if it and its library are as they were written."""
    content = cache.read(key, _KIND)
    if content is None or content[:_KEY_BYTES].hex() != key:
        return None
    library = cache.find(content[_KEY_BYTES : 2 * _KEY_BYTES].hex(), "so")
    return None if library is None else KeptProgram(library, content[2 * _KEY_BYTES :])


def keep_program(key: str, prepared: Prepared, program: KeptProgram, cache: ArtifactCache) -> None:
    """Keep a program, where the disk can be written.

    A program whose parameters passes have changed is not kept: binding needs the module then.
    """
    if prepared.source.entry_workload.params == prepared.module.entry_workload.params:
        content = bytes.fromhex(key) + bytes.fromhex(program.library.stem) + program.code
        with suppress(BadCache):
            cache.library(key, lambda path: path.write_bytes(content), _KIND)


@cache
def package_stamp() -> str | None:
    """Return a digest that differs for any two states of the package's files.

    None if a file has changed since it may have been imported: the running code is not on disk then.
    """
    paths = (_native.__file__, *_sources(Path(__file__).parents[1]))
    files = sorted((path, status.st_size, status.st_ctime_ns) for path in paths for status in [os.stat(path)])
    if any(changed_ns >= _IMPORTED_NS for _, _, changed_ns in files):
        return None
    return hashlib.sha256(repr(files).encode()).hexdigest()


def _sources(folder: Path | str) -> Iterator[str]:
    """Yield the path of every Python file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path
