"""Running emitted host programs on arguments as `program.run` takes them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import Ragged, Sparse
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module


class ProgramFailed(Exception):
    """A host program ended with an error, which is the text of the exception."""


def run_host_program(
    command: Sequence[str], module: Module, folder: Path, arguments: Mapping[str, Any]
) -> tuple[int, dict[str, np.ndarray]]:
    """Return the number of tasks, and the tensors that tasks wrote.

    Args:
        command: what starts the program, with its own options.
        module: the prepared module.
        folder: where files of arrays are written and read.
        arguments: arrays, axes, sizes and scalars by name.

    Raises:
        ProgramFailed: the exit status is not 0.
    """
    options, written = ["--stats"], sorted(module.written & arguments.keys())
    for name, value in _files(module, arguments).items():
        np.save(folder / f"{name}.npy", value)
        options += ["--input", f"{name}={name}.npy"]
    for name in written:
        options += ["--output", f"{name}={name}.out.npy"]
    symbols = {p.name for p in module.entry_workload.symbols}
    for name, value in arguments.items():
        if name in symbols:
            options += ["--set", f"{name}={value!r}"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramFailed(done.stderr)
    return int(done.stdout.split()[0]), {name: np.load(folder / f"{name}.out.npy") for name in written}


def _files(module: Module, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for param in module.entry_workload.params:
        value = arguments.get(param.name)
        match param, value:
            case w.SparseParam(), Sparse():
                found[param.name], found[param.indices] = value.offsets, value.indices.reshape(-1)
            case w.RaggedParam(), Ragged():
                found[param.name] = value.offsets
            case w.TensorParam(), np.ndarray():
                found[param.name] = value.view("V2") if value.dtype.kind == "V" else value
            case _:
                pass
    return found
