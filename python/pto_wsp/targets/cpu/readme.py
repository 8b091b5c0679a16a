"""The README of an emitted program, and the names and options that the files around it share."""

from __future__ import annotations

import re

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.arguments import axes_of, hidden_symbols, read_tensors
from pto_wsp.targets.cpu.native import FREESTANDING
from pto_wsp.targets.cpu.toolchain import FLAGS

WITH_WALK = "the workload as bytecode, with the tables of tensors and tasks"
"""What the bytecode is there for in addition to a walk as source."""
WALK_FILE = "| `walk.cpp` | the walk of the workload as source, which expands it into tasks |"


@record
class BuildText:
    """What a README says of a build.

    Attributes:
        machine: what the program is for.
        needs: the tools.
        commands: what builds it.
        command: what runs it, without its options.
        notes: paragraphs after the commands; empty, or each with an empty line before it.
        files: rows of the table of files that other builds do not have.
        bytecode: what the bytecode is there for.
    """

    machine: str
    needs: str
    commands: tuple[str, ...]
    command: str
    notes: str = ""
    files: tuple[str, ...] = ()
    bytecode: str = "the workload, which the engine expands into tasks"


def kernel_flags(*, is_native: bool) -> list[str]:
    """Return the compiler's options of a unit of kernels, without the version of C++."""
    left_out = ("-std=c++17", "-fPIC", "-pipe", *(FREESTANDING if is_native else ()))
    return [flag for flag in FLAGS if flag not in left_out]


def command_name(module: Module) -> str:
    """Return a file name for the host program."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", module.entry)
    taken = ("include", "clean", "Makefile", "makefile", "GNUmakefile")
    return name if name not in taken else f"{name}_program"


def readme(module: Module, build: BuildText) -> str:
    """Return the README of a program: its commands, arguments and files."""
    has_native = any(kernel.native is not None for kernel in module.kernels)
    entry = module.entry_workload
    read, written = read_tensors(module), module.written
    rows, command = [], [build.command]
    axes = axes_of(entry)
    of_axes = {name for axis in axes for name in axis.tensors}
    for axis in axes:
        command.append(f"--input {axis.name}={axis.name}.npy")
        use = "where each row begins, and where the last one ends"
        rows.append(f"| `{axis.name}` | integers `[{axis.outer} + 1]` | {use} |")
        if isinstance(axis, w.SparseParam):
            command.append(f"--input {axis.indices}={axis.indices}.npy")
            rows.append(f"| `{axis.indices}` | integers | the indices of all rows |")
    for tensor in entry.tensors:
        if tensor.is_local or tensor.name in of_axes:
            continue
        dims = ", ".join(map(str, tensor.type.dims))
        if tensor.name in read:
            command.append(f"--input {tensor.name}={tensor.name}.npy")
        if tensor.name in written:
            command.append(f"--output {tensor.name}={tensor.name}{'_out' * (tensor.name in read)}.npy")
        use = " and ".join(
            word for word, names in (("read", read), ("written", written)) if tensor.name in names
        )
        packed = f"; `{tensor.columns} columns` packed in panels" if tensor.columns is not None else ""
        rows.append(f"| `{tensor.name}` | `{tensor.type.dtype}[{dims}]`{packed} | {use or 'not used'} |")
    known = {dim for tensor in entry.tensors if tensor.name in read for dim in tensor.type.dims}
    hidden = hidden_symbols(entry)
    for param in entry.symbols:
        if param.name in hidden:
            continue
        kind = "size" if isinstance(param, w.SizeParam) else f"`{param.type.dtype}`"
        default = "" if param.default is None else f", {param.default} by default"
        rows.append(f"| `{param.name}` | {kind} | a number{default} |")
        if param.name not in known and param.default is None:
            command.append(f"--set {param.name}=1")
    native = "\n| `k_*.cpp` | kernels that are written in C++ |" if has_native else ""
    files = "".join(f"{row}\n" for row in build.files)
    return f"""# {entry.name}

The program `{entry.name}` as C++17, emitted by PTO-WSP for {build.machine}.
It needs {build.needs}.

```sh
{chr(10).join(build.commands)}
{" ".join(command)}
```
{build.notes}
| argument | type | use |
|---|---|---|
{chr(10).join(rows)}

Arrays are `.npy` files in C order. A tensor that is only written begins as zeros of the size that other
arrays and `--set` decide. `--workers N` sets the number of threads, and `--stats` prints the time.
Results have the same bits for every number of threads.

| file | content |
|---|---|
| `kernels.cpp` | the kernels, one function each |
| `parts.cpp` | instances of the tile library that the kernels call |{native}
| `bytecode.hpp` | {build.bytecode} |
{files}| `main.cpp` | the host program: arguments, schedule, messages of checks |
| `host.cpp` | what runs it: the engine, arrays from and to files |
| `include/` | the engine and the tile library |
"""
