"""Builds an emitted program with a simulated device, and runs its orchestration and its tasks there."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pto_wsp.ir.module import Module
from pto_wsp.runtime.export import write_tree
from pto_wsp.targets.ascend.orchestration import FAILED_WORDS
from pto_wsp.targets.ascend.target import AscendTarget
from pto_wsp.targets.cpu.toolchain import include_directory
from tests.ascend.standin.build import FLAGS, HERE, StandIn

WORKSPACE = 1 << 16
"""Elements of each memory that phases share."""

MOST_ORDERED = 1 << 12
"""Tasks whose order is kept."""


class _Tensor(ctypes.Structure):
    """`ChipTensor` of the simulated runtime."""

    _fields_ = (
        ("addr", ctypes.c_uint64),
        ("start_offset", ctypes.c_int64),
        ("shapes", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 5),
        ("ndims", ctypes.c_int32),
        ("itemsize", ctypes.c_int32),
    )


def _tensor(array: np.ndarray) -> _Tensor:
    strides = [stride // array.itemsize for stride in array.strides]
    shapes, steps = (ctypes.c_int64 * 5)(*array.shape), (ctypes.c_int64 * 5)(*strides)
    return _Tensor(array.ctypes.data, 0, shapes, steps, array.ndim, array.itemsize)


class Device:
    """A simulated device with a program.

    Args:
        module: the program, prepared.
        target: what emits it.
        folder: where it is emitted and built.
    """

    def __init__(self, module: Module, target: AscendTarget, folder: Path) -> None:
        self._module, self._is_a5 = module, target.generation.arch == "A5"
        tree = target.emit(module)
        write_tree(tree, folder)
        manifest = json.loads(tree.files["manifest.json"])
        named = manifest["orchestration"]["tensors"][len(module.entry_workload.tensors) + 1 :]
        self._workspaces = [np.dtype(f"i{tensor['element_bytes']}") for tensor in named]
        files = [path for path in tree.kernels if path.startswith("kernels/")]
        (folder / "device.cpp").write_text(_unit(files, tree.files))
        include = [f"-I{HERE / 'include'}", f"-I{folder}", f"-I{include_directory()}"]
        sources = [str(folder / name) for name in ("device.cpp", "orchestration.cpp", "walk.cpp")]
        path = folder / "device.so"
        subprocess.run(
            ["g++", *FLAGS, "-O0", "-Wno-unused-variable", *include, *sources, "-o", str(path)], check=True
        )
        self.core = StandIn(path)
        self._run = ctypes.CDLL(str(path)).standin_run_device
        self._run.restype = ctypes.c_int64
        self._order = ctypes.CDLL(str(path)).standin_order
        self._order.restype = ctypes.c_int64
        self.failed = np.zeros(FAILED_WORDS, np.int64)

    @property
    def order(self) -> list[int]:
        """The tasks of the last run as they ran, by their numbers."""
        numbers = (ctypes.c_int64 * MOST_ORDERED)()
        return numbers[: self._order(numbers, ctypes.c_int64(MOST_ORDERED))]

    def run(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], *, last_first: bool) -> int:
        """Run the program; return the number of tasks. `failed` holds what went wrong."""
        entry = self._module.entry_workload
        self.failed = np.zeros(FAILED_WORDS, np.int64)
        given = [arrays[tensor.name] for tensor in entry.tensors] + [self.failed]
        given += [np.zeros(WORKSPACE, dtype) for dtype in self._workspaces]
        tensors = (_Tensor * len(given))(*map(_tensor, given))
        scalars = (ctypes.c_uint64 * len(entry.symbols))(*(sizes[p.name] for p in entry.symbols))
        flags = ctypes.c_bool(self._is_a5), ctypes.c_bool(last_first)
        return self._run(tensors, ctypes.c_int(len(given)), scalars, *flags)


def _unit(files: list[str], texts: Mapping[str, str]) -> str:
    """Return a unit with the functions of cores, each under a name of its own, and the simulated device."""
    lines = ["#define ASCEND_RUNTIME"]
    for number, path in enumerate(files):
        lines += [f"#define kernel_entry entry_{number}", f'#include "{path}"', "#undef kernel_entry"]
    lines += ['#include "device.hpp"', "const standin::Function standin::functions[] = {"]
    for number, path in enumerate(files):
        is_cube = "for a cube core" in texts[path].split("\n")[0]
        lines.append(f"    {{entry_{number}, {str(is_cube).lower()}}},")
    lines += ["};", f"const int standin::num_functions = {len(files)};"]
    return "\n".join(lines) + "\n"
