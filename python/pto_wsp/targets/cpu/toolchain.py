"""The C++ compiler: found, identified and run."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pto_wsp.errors import NoCompiler
from pto_wsp.support.record import record
from pto_wsp.targets.base import LibraryCache

FLAGS = (
    "-std=c++17",
    "-O2",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fPIC",
    "-pipe",
    "-Wno-psabi",
)
"""Options of every unit of generated code."""

SKIPPED = ("-fno-schedule-insns2", "-fno-tree-ccp", "-fno-tree-vrp")
"""Passes of g++ that are a ninth of its work for a small kernel, and change no loop by over 1 %."""

LIBRARIES = ("-nostdlib", "-lc")
"""What generated code is linked with: compilers call `memcpy` by themselves. Left open, the name would mean
the oldest version of it, which on x86 copies 16 bytes at a time."""

_FALLBACKS = ("g++", "clang++", "c++")
_ELF = b"\x7fELF"


@record
class Compiler:
    """A compiler that works: the command's first words, and what tells its versions apart."""

    command: tuple[str, ...]
    identity: str

    @property
    def text(self) -> str:
        """What two compilers that may build different code differ in: options in `CXX` count."""
        return f"{shlex.join(self.command)} {self.identity}"

    @property
    def is_gcc(self) -> bool:
        """Whether it is g++, whose options not all others know."""
        return "Free Software Foundation" in self.identity


def include_directory() -> Path:
    """Return the folder of the shipped headers: in the package, or in the source tree."""
    package = Path(__file__).resolve().parents[2]
    shipped = package / "include"
    return shipped if shipped.is_dir() else package.parents[1] / "include"


def header_hash() -> str:
    """Return a hash of every shipped header that generated code can include."""
    root = include_directory() / "pto" / "wsp"
    with os.scandir(root / "tile") as entries:
        tile = sorted(entry.path for entry in entries if entry.name.endswith(".hpp"))
    paths = (os.fspath(root / "abi.hpp"), os.fspath(root / "native.hpp"), *tile)
    statuses = [os.stat(path) for path in paths]
    return _hash_of(tuple((p, s.st_mtime_ns, s.st_size) for p, s in zip(paths, statuses, strict=True)))


@functools.lru_cache(maxsize=1)
def _hash_of(files: tuple[tuple[str, int, int], ...]) -> str:
    """Return a hash of files, each with its time of change and size."""
    digest = hashlib.sha256()
    for path, *_ in files:
        name, content = os.path.basename(path), Path(path).read_bytes()
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()


def find_compiler(cache: LibraryCache) -> Compiler:
    """Return the compiler to use: `CXX` if it is set, else g++, clang++, c++ or the ziglang wheel.

    Raises:
        NoCompiler: none works, or the one that `CXX` names does not.
    """
    tried = []
    for name, command in _candidates():
        tried.append(name)
        identity = version_of(command, cache) if command else None
        if identity is not None:
            return Compiler(command, identity)
    raise NoCompiler(tried=", ".join(tried))


def _candidates() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is looked for, and its command: empty where there is no such program."""
    wanted = os.environ.get("CXX")
    if wanted:
        yield f"CXX={wanted}", _for_any_cpu(_located(_words(wanted)))
        return
    for name in _FALLBACKS:
        yield name, _located((name,))
    has_zig = importlib.util.find_spec("ziglang") is not None
    yield "ziglang", _for_any_cpu((sys.executable, "-m", "ziglang", "c++")) if has_zig else ()


def _words(wanted: str) -> tuple[str, ...]:
    """Return the words of `CXX`: one path, or a command as a shell reads it; none where it cannot."""
    if which(wanted):
        return (wanted,)
    try:
        return tuple(shlex.split(wanted))
    except ValueError:
        return ()


def _for_any_cpu(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that builds for the baseline CPU: zig alone takes the building machine's otherwise."""
    is_zig = any(os.path.basename(word) in ("zig", "ziglang") for word in command)
    return (*command, "-mcpu=baseline") if is_zig else command


def _located(words: tuple[str, ...]) -> tuple[str, ...]:
    path = which(words[0]) if words else None
    return (path, *words[1:]) if path else ()


def which(name: str) -> str | None:
    """Return the path of a program, as a shell finds it."""
    folders = [""] if os.sep in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def version_of(command: tuple[str, ...], cache: LibraryCache) -> str | None:
    """Return the version text of a compiler, or None if it does not run.

    Asking costs a process. The answer is kept where the file itself is the compiler (and not a script or a
    wrapper with arguments, whose compiler can change unseen).
    """
    note = _note_name(command)
    known = cache.read_note(note) if note else None
    if known:
        return known
    status, text = run([*command, "--version"], b"")
    if status != 0 or not text.strip():
        return None
    identity = " ".join(text.split())
    if note:
        cache.write_note(note, identity)
    return identity


def _note_name(command: tuple[str, ...]) -> str | None:
    path = os.path.realpath(command[0])
    with open(path, "rb") as file:
        if len(command) > 1 or file.read(4) != _ELF:
            return None
    status = os.stat(path)
    stamp = f"{path}\0{status.st_mtime_ns}\0{status.st_size}\0{status.st_ino}"
    return "compiler-" + hashlib.sha256(stamp.encode()).hexdigest()[:32]


def run(command: Sequence[str], text: bytes) -> tuple[int, str]:
    """Run a program on `text`; return its status (-1 if it cannot be started) and all that it wrote."""
    import subprocess  # here: it costs 10 ms of every start, and most starts compile nothing

    environment = {**os.environ, "LC_ALL": "C"}  # messages are looked for by their English words
    try:
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env=environment,
        )
    except OSError as error:
        return -1, str(error)
    return done.returncode, done.stdout.decode(errors="replace")
