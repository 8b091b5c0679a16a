"""The README of emitted device code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.targets.cuda.emit import DeviceCode, ProgramCode
from pto_wsp.targets.cuda.memory import SHARED_BYTES

_KERNELS = f"""\
All threads of a block call a kernel with the same arguments: `(views, scalars, context)`, as
`include/pto/wsp/abi.hpp` declares them. `context->scratch` is the shared memory of the block, aligned to
64 bytes, and `context->workspace` its global memory for tiles that do not fit. `context->monitor` keeps
the values of a failed check. A block has 128 threads. A kernel returns 0, or the number of the check that
failed, in all threads.

```sh
nvcc -std=c++17 -arch=sm_90a -fmad=false -Iinclude -cubin {{file}}
```

`-fmad=false` is needed: multiply-adds are fused only where the source says so. A block has up to
{SHARED_BYTES} bytes of shared memory; above 48 KB, a launch must ask for it. In a loop with n stages,
loads begin n - 1 iterations ahead.
"""

_PROGRAM = """\
One launch of `pto_wsp_program(Program)` runs the whole workload. Its blocks expand the tasks, wait for
each other by counters in global memory, and run the tasks.

| a launch has | because |
|---|---|
| 128 threads in a block | the kernel is compiled for them |
| as many blocks as are resident together, or fewer | a block waits for tasks of the others |
| {shared} bytes of dynamic shared memory | the walk and the largest kernel use as many |

Launch it cooperatively: the driver then refuses blocks that are not resident together.
`include/pto/wsp/tile/cuda/waits.hpp` declares `Program` and what its memory contains before a launch.
All pointers are to device memory. Arrays of a call must not overlap. The last dimension of an array is
contiguous. Local tensors are arrays, too, with any contents.

After the launch, `limit` is `kNoLimit` if the run has succeeded. Otherwise, of the failures with a cause,
the one with the lowest `order` counts.
"""


def kernels_readme(code: DeviceCode) -> str:
    """Return the README of kernels: how they are compiled and called, their memory and their checks."""
    return f"# Kernels as device functions\n\n{_KERNELS.format(file='kernels.cu')}{_tables(code)}"


def program_readme(module: Module, program: ProgramCode) -> str:
    """Return the README of a program: how it is compiled and launched, and what its numbers mean."""
    entry, walk = module.entry_workload, program.walk
    arrays = ((t.name, _shape(t), "local" if t.is_local else "given") for t in entry.tensors)
    symbols = ((p.name, "scalar" if isinstance(p, w.ScalarParam) else "size") for p in entry.symbols)
    sites = ((i, f"`{task.kernel}`", _place(task.loc)) for i, task in enumerate(walk.sites))
    places = ((i, what, _place(loc)) for i, (what, loc) in enumerate(walk.places))
    tables = [
        _table(("`arrays`", "tensor", "shape", "made by"), ((i, *row) for i, row in enumerate(arrays))),
        _table(("`symbols`", "name", "kind"), ((i, *row) for i, row in enumerate(symbols))),
        _table(("`place` of a task", "kernel", "source"), sites),
        _table(("`place` of the walk", "what fails", "source"), places),
    ]
    parts = [
        f"# The program `{entry.name}`\n",
        _PROGRAM.format(shared=program.shared_bytes),
        *filter(None, tables),
    ]
    kernels = f"## Kernels\n\n{_KERNELS.format(file='program.cu')}{_tables(program.kernels)}"
    return "\n".join([*parts, kernels])


def _tables(code: DeviceCode) -> str:
    names = ("kernel", "shared memory, bytes", "global memory of a block, bytes", "stages of loops")
    stages = {name: ", ".join(map(str, found)) for name, found in code.stages.items()}
    rows = ((f"`{k}`", n, code.spilled_bytes[k], stages.get(k, "")) for k, n in code.shared_bytes.items())
    sizes = _table(names, rows)
    rows = (
        (f"`{name}`", number, f"{_place(check.loc)}: {check.text.message}".removeprefix(": "))
        for name, found in code.checks.items()
        for number, check in enumerate(found, start=1)
    )
    checks = _table(("kernel", "returns", "means"), rows)
    return "".join(f"\n{table}" for table in (sizes, checks) if table)


def _shape(tensor: w.TensorParam) -> str:
    return f"`{tensor.type.dtype} [{', '.join(map(str, tensor.type.dims))}]`"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; nothing without rows."""
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows]
    rule = "|".join("---" for _ in head)
    return f"| {' | '.join(head)} |\n|{rule}|\n{''.join(lines)}" if lines else ""


def _place(loc: Location | None) -> str:
    return f"{PurePath(loc.file).name}:{loc.line}" if loc else ""
