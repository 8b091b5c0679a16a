"""Many workloads as C in one library, which is called in this process."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pto_wsp.ir.module import Module
from pto_wsp.runtime.export import c_library_folder, write_tree
from pto_wsp.support.record import record
from pto_wsp.targets import registry
from pto_wsp.targets.c_orchestration.walk import c_orchestration
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.types.dtype import DTYPES
from tests.python.targets.test_export import shell

RANK = 8
NUMPY = {dtype.to_numpy(): dtype for dtype in DTYPES.values()}


class OrchTensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint8),
        ("bytes", ctypes.c_uint8),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * RANK),
    )


@record
class Orchestrated:
    """What a run did: tasks that it added, the code of its error or an empty text, and its message."""

    tasks: int
    code: str
    message: str


_WARNINGS = "-Wall -Wextra -Werror -Wno-bool-compare -Wno-tautological-compare -Wno-type-limits".split()
"""Random programs compare numbers with truths, and values with themselves."""

_HEAD = '#include "pto/wsp/host/orchestration_tasks.h"\n'
_RUN = """
const OrchLibrary* pto_wsp_kernel_library(void);
void run_program(int number, const int64_t* symbols, const OrchTensor* tensors, int workers, const char* dump,
                 uint64_t* tasks, char* said) {
  Orchestration o = {0};
  o.library = pto_wsp_kernel_library();
  o.symbols = symbols;
  o.tensors = tensors;
  o.workers = workers;
  o.dump = dump;
  programs[number](&o);
  *tasks = o.num_tasks;
  snprintf(said, 700, "%s\\n%s", o.failed == NULL ? "" : o.failed, o.message);
}
"""


class Orchestrations:
    """Prepared modules with the same kernels, in the same order.

    Args:
        modules: the modules.
        folder: where they are compiled.
        kernels: a folder where `build_kernels` has built the kernels.
    """

    def __init__(self, modules: Sequence[Module], folder: Path, kernels: Path) -> None:
        self.modules, self.folder = modules, folder
        text = [_HEAD]
        for number, module in enumerate(modules):
            names = (("build", f"build_{number}"), ("pto_wsp_orchestrate", f"program_{number}"))
            text += [f"#define {name} {own}\n" for name, own in names]
            text += [c_orchestration(module), *(f"#undef {name}\n" for name, _ in names)]
        programs = ", ".join(f"program_{number}" for number in range(len(modules)))
        text += [f"static void (*const programs[])(Orchestration*) = {{{programs}}};\n", _RUN]
        (folder / "programs.c").write_text("".join(text))
        options = [*_WARNINGS, *"-std=c11 -O1 -fPIC -c programs.c -o programs.o".split()]
        _call(["cc", f"-I{include_directory()}", *options], folder)
        objects = ["programs.o", str(kernels / "kernels.o"), str(kernels / "parts.o")]
        library = c_library_folder()
        linked = [f"-L{library}", "-lpto_wsp", f"-Wl,-rpath,{library}", "-pthread"]
        _call(["c++", "-shared", "-Wl,-Bsymbolic", *objects, *linked, "-o", "programs.so"], folder)
        self.run_program = ctypes.CDLL(str(folder / "programs.so")).run_program

    def run(
        self, number: int, arrays: Sequence[np.ndarray], symbols: Sequence[int], workers: int, dump: Path
    ) -> Orchestrated:
        """Run one program on arrays in C order, one per tensor, and write a dump of its tasks."""
        params = self.modules[number].entry_workload.tensors
        tensors = [_tensor(p.name, array) for p, array in zip(params, arrays, strict=True)]
        tasks, said = ctypes.c_uint64(), ctypes.create_string_buffer(700)
        self.run_program(
            number,
            (ctypes.c_int64 * max(len(symbols), 1))(*symbols),
            (OrchTensor * len(tensors))(*tensors),
            workers,
            str(dump).encode(),
            ctypes.byref(tasks),
            said,
        )
        code, _, message = said.value.decode().partition("\n")
        return Orchestrated(tasks.value, code, message)


def build_kernels(module: Module, folder: Path) -> None:
    """Compile the kernels of a prepared module in a folder."""
    write_tree(registry.get("c-orchestration").emit(module), folder)
    assert (done := shell("make kernels.o parts.o", folder)).returncode == 0, done.stderr


def _tensor(name: str, array: np.ndarray) -> OrchTensor:
    assert array.flags.c_contiguous
    dtype = NUMPY[array.dtype]
    shape = (ctypes.c_int64 * RANK)(*array.shape)
    return OrchTensor(name.encode(), array.ctypes.data, dtype.code, array.itemsize, array.ndim, shape)


def _call(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
