"""What programs are compiled to, kept between processes.

What is kept is bytecode and the name of a library: what a run needs. All that explains a run is made again
when somebody asks for it. A program is known by its text, the same for equal modules, and by everything that
takes part in compiling it: the files of the package, compiler, processor.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pto_wsp import _native
from pto_wsp.ir.module import Module
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.support.record import record

_IMPORTED_NS = time.time_ns()
_KEY_DIGITS = 64


@record
class KeptProgram:
    """What a run needs of a program.

    Attributes:
        library: path of the kernels.
        code: the bytecode.
    """

    library: Path
    code: bytes


def program_key(prepared: Prepared, cache: ArtifactCache) -> str | None:
    """Return the name of a program in the cache, or None where none is safe.

    Kernels in C++ include files that only their compilation finds.
    """
    stamp = package_stamp()
    if stamp is None or any(kernel.native is not None for kernel in prepared.source.kernels):
        return None
    target = prepared.target
    parts = (stamp, target.name, target.build_environment(cache), str(prepared.source))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find_program(key: str, cache: ArtifactCache) -> KeptProgram | None:
    """Return the program that was kept as `key`, if it and its library are as they were written."""
    content = cache.read_program(key)
    if content is None:
        return None
    library = cache.find_library(content[:_KEY_DIGITS].decode("ascii"))
    return None if library is None else KeptProgram(library, content[_KEY_DIGITS:])


def keep_program(key: str, prepared: Prepared, program: KeptProgram, cache: ArtifactCache) -> None:
    """Keep a program, unless its parameters are not those that are written: then binding needs the module."""
    if keeps_parameters(prepared.source, prepared.module):
        cache.write_program(key, program.library.stem.encode("ascii") + program.code)


def keeps_parameters(source: Module, module: Module) -> bool:
    """Return whether passes have left the parameters of the entry as they are written."""
    return source.entry_workload.params == module.entry_workload.params


@cache
def package_stamp() -> str | None:
    """Return what tells this package from any other version of it.

    None if a file has changed since it may have been imported: what runs is not what is on disk then.
    """
    paths = (_native.__file__, *_sources(Path(__file__).parents[1]))
    files = sorted((path, status.st_size, status.st_ctime_ns) for path in paths for status in [os.stat(path)])
    if any(changed_ns >= _IMPORTED_NS for _, _, changed_ns in files):
        return None
    return hashlib.sha256(repr(files).encode()).hexdigest()


def _sources(folder: Path) -> Iterator[str]:
    """Yield the path of every Python file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _sources(Path(entry.path))
            elif entry.name.endswith(".py"):
                yield entry.path
