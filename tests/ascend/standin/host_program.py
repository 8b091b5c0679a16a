"""Builds the host program of an emitted folder with simulated cores."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.ascend.standin.build import HERE

COMMON = ("-O0", "-DPTO_LANES=4", "-Wno-psabi", "-pthread")
KERNELS = ("-std=c++20", "-D__CPU_SIM", "-DPTO_CPU_MAX_THREADS=1", "-includestdint.h", "-includestddef.h")
"""What `CMakeLists.txt` says of `kernels.cpp`."""


def build_host_program(folder: Path, objects: Path) -> Path:
    """Return the host program of an emitted folder.

    Args:
        folder: with a program.
        objects: a folder with objects of other programs; those of equal sources are used again.
    """
    files = {path: path.read_bytes() for path in sorted((folder / "kernels").iterdir())}
    kernels = hashlib.sha256(b"\0".join(files.values())).hexdigest()
    made = [_compiled(folder / "kernels.cpp", KERNELS, objects, kernels)]
    made += [_compiled(folder / f"{name}.cpp", ("-std=c++17",), objects) for name in ("walk", "main", "host")]
    program = folder / "program"
    subprocess.run(["g++", *map(str, made), "-pthread", "-ldl", "-o", str(program)], check=True)
    return program


def _compiled(source: Path, options: tuple[str, ...], objects: Path, included: str = "") -> Path:
    text = source.read_bytes()
    key = hashlib.sha256(repr((options, included, source.name)).encode() + text).hexdigest()
    output, folder = objects / f"{key}.o", source.parent
    if not output.exists():
        include = [f"-I{folder / 'include'}", f"-I{folder}", f"-I{HERE / 'include'}"]
        command = ["g++", *COMMON, *options, *include, "-c", str(source), "-o", str(output)]
        subprocess.run(command, check=True)
    return output
