"""From generated code to a shared library: units compiled side by side, then linked."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pto_wsp.errors import BadCache, CompilerFailed, CppError
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.targets.base import LibraryCache
from pto_wsp.targets.c_style.native import GENERATED
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.native import FREESTANDING, TranslationUnit
from pto_wsp.targets.cpu.parts import Instances
from pto_wsp.targets.cpu.toolchain import FLAGS, LIBRARIES, SKIPPED, Compiler, include_directory, run

_LINK = ("-shared", "-fPIC")

_KERNELS_PER_UNIT = 2
_MAX_UNITS = 8

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+):(?P<col>\d+): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_MAX_NOTES = 4


@record
class Build:
    """One build: the compiler, the processor, and the folder for the rest.

    Attributes:
        compiler: the compiler.
        flags: options for the processor.
        environment: all that builds of the same text can differ in.
        cache: keeps the parts and headers that libraries share, and text that does not compile.
    """

    compiler: Compiler
    flags: tuple[str, ...]
    environment: str
    cache: LibraryCache

    def library(self, library: Library, output: Path) -> None:
        """Compile generated code, and the units of hand-written kernels, to the shared library `output`.

        Raises:
            CppError: the compiler refused a hand-written kernel.
            CompilerFailed: with the compiler's text; the source is kept.
        """
        head = self._head(library.includes)
        with _temporary_folder() as folder:
            paths = (Path(folder) / f"{number}.o" for number in range(1_000_000))
            jobs = [_job(self._native, unit, next(paths)) for unit in library.units]
            jobs += [_job(self._unit, text, head, next(paths)) for text in library.split(_num_units(library))]
            jobs += [_job(self._part, part, head) for part in library.parts]
            objects = _side_by_side(jobs)
            libraries = ["-Wl,-z,defs"] if library.units else LIBRARIES
            self._run([*_LINK, *map(str, objects), *libraries], library.source, output)

    def walk(self, source: str, output: Path) -> None:
        """Compile the walk of a workload to the shared library `output`.

        Raises:
            CompilerFailed: with the compiler's text; the source is kept.
        """
        self._run([*FLAGS, *_LINK, "-x", "c++", "-", "-x", "none", *LIBRARIES], source, output)

    def _unit(self, text: str, head: Sequence[str], output: Path) -> Path:
        skipped = SKIPPED if self.compiler.is_gcc else ()
        return self._run([*FLAGS, *self.flags, *skipped, *_FROM_INPUT], text, output, head)

    def _part(self, part: Instances, head: Sequence[str]) -> Path:
        options = [*FLAGS, *self.flags, *_FROM_INPUT]
        return self._kept(part.source, "so", lambda output: self._run(options, part.source, output, head))

    def _head(self, includes: str) -> tuple[str, ...]:
        """Return the options that give a unit its precompiled headers; none where they cannot be written."""
        if not self.compiler.is_gcc:
            return ()

        def make(output: Path) -> None:
            with _temporary_folder() as folder:
                path = Path(folder) / "head.hpp"
                path.write_text(includes)
                self._run([*FLAGS, *self.flags, "-x", "c++-header", str(path)], includes, output)

        with suppress(BadCache, CompilerFailed):  # a full disk: units then read the headers themselves
            return "-include", str(self._kept(includes, "gch", make).with_suffix(""))
        return ()

    def _kept(self, text: str, kind: str, make: Callable[[Path], object]) -> Path:
        """Return what `make` makes of `text`, from the cache where that was done before."""
        key = hashlib.sha256(f"{self.environment}\0{text}".encode()).hexdigest()
        return self.cache.library(key, make, kind)[0]

    def _run(self, options: Sequence[str], source: str, output: Path, head: Sequence[str] = ()) -> Path:
        """Compile or link `source`, again without `head` where that fails; return what was written."""
        plain = [*self.compiler.command, f"-I{include_directory()}", *options, "-o", str(output)]
        status, text = run([*plain, *head], source.encode())
        if status != 0 and head:
            status, text = run(plain, source.encode())
        if status == 0 and output.is_file():
            return output
        said = text.strip() or ("it wrote no library" if status == 0 else f"it ended with status {status}")
        kept = self.cache.keep_source(hashlib.sha256(source.encode()).hexdigest(), source)
        raise CompilerFailed(output=said, command=shlex.join(plain), source=kept)

    def _native(self, unit: TranslationUnit, output: Path) -> Path:
        """Compile the unit of a hand-written kernel."""
        path = output.with_suffix(".cpp")
        path.write_text(unit.text, encoding="utf-8")
        own = [flag for flag in FLAGS if flag not in FREESTANDING]
        quoted = [f"-iquote{unit.native.folder}"] if unit.native.folder else []
        options = [*own, *self.flags, *quoted, f"-I{include_directory()}", "-c", str(path), "-o", str(output)]
        command = [*self.compiler.command, *options]
        status, text = run(command, b"")
        if status != 0 or not output.is_file():
            raise _refused(unit, text, shlex.join(command), self.cache)
        return output


def _temporary_folder() -> AbstractContextManager[str]:
    import tempfile  # here: most programs start with what others have compiled

    return tempfile.TemporaryDirectory(prefix="pto-wsp-")


_FROM_INPUT = ("-c", "-x", "c++", "-")

Job = Callable[[], Path]


def _job(make: Callable[..., Path], *arguments: object) -> Job:
    return lambda: make(*arguments)


def _num_units(library: Library) -> int:
    """Return how many units to make of the generated kernels: each costs a start of the compiler."""
    wanted = -(-len(library.kernels) // _KERNELS_PER_UNIT)
    return max(1, min(wanted, _num_cores(), _MAX_UNITS))


def _num_cores() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def _side_by_side(jobs: Sequence[Job]) -> list[Path]:
    """Return the results of all jobs; the first that fails, in their order, is the error."""
    from concurrent.futures import ThreadPoolExecutor  # here: most programs compile nothing

    with ThreadPoolExecutor(_num_cores()) as pool:
        return list(pool.map(lambda job: job(), jobs))


def _refused(
    unit: TranslationUnit, text: str, command: str, cache: LibraryCache
) -> CompilerFailed | CppError:
    """Return the error of a hand-written kernel that does not compile, at the first place of the user's."""
    kept = cache.keep_source(hashlib.sha256(unit.text.encode()).hexdigest(), unit.text)
    found = [(m["text"], _place(m)) for m in _DIAGNOSTIC.finditer(text)]
    if not found:
        return CompilerFailed(output=text.strip(), command=command, source=kept)
    message, place = next(((m, p) for m, p in found if p is not None), (found[0][0], None))
    notes = [(m, p) for m, p in found if p not in (None, place)][:_MAX_NOTES]
    return CppError(
        kernel=unit.kernel.name,
        message=message,
        output=text,
        source=kept,
        loc=place or unit.kernel.loc,
        notes=notes,
    )


def _place(match: re.Match[str]) -> Location | None:
    """Return the place of a message of the compiler, or None where it is in generated code."""
    if match["file"] == GENERATED:
        return None
    line, col = int(match["line"]), int(match["col"])
    return Location(match["file"], line, col, col + 1)
