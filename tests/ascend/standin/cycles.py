"""Cycles of what simulated cores executed, by the costs of a device.

Each pipe executes its instructions in order. A flag is set when all instructions of its pipe before it are
complete, and a pipe starts nothing after a wait until the flag is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pto_wsp.device.model import Device
from pto_wsp.device.scoreboard import ISSUE
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.support.record import record
from pto_wsp.targets.ascend.kernel import AscendKernel
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.types.space import Space

ROWS = {
    "TEXPANDS": "expands",
    "TTRANS": "transpose",
    "TFMOD": "rem",
    "TFMODS": "rems",
    "TAND": "bitwise_and",
    "TOR": "bitwise_or",
    "TNOT": "bitwise_not",
    "TANDS": "bitwise_ands",
    "TORS": "bitwise_ors",
}
"""Rows of the instruction table whose names differ from those of the calls."""

MOVES = {
    ("MTE2", "V"): (Space.GM, Space.UB),
    ("MTE3", "V"): (Space.UB, Space.GM),
    ("MTE2", "M"): (Space.GM, Space.L1),
    ("FIX", "M"): (Space.L0C, Space.GM),
    ("TMOV_L0A", "M"): (Space.L1, Space.L0A),
    ("TMOV_L0B", "M"): (Space.L1, Space.L0B),
}
"""Ends of a move by its pipe, or its call, and the pipe of the arithmetic of its core."""


CoreFunctions = dict[str, tuple[KernelFunction, bool]]
"""Kernels of cores, and whether each is for a cube core, by function and phase."""


@record
class ExecutedTask:
    """What a task executed.

    Attributes:
        function: name and phase.
        shapes: of its views: four extents each.
        scalars: as integers.
        lines: in the order of the code, in the form of `trace.hpp`.
    """

    function: str
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[int, ...]
    lines: tuple[str, ...]


@record
class ExecutedCost:
    """Cycles until all pipes are complete, and cycles that each pipe works."""

    cycles: float
    busy: dict[str, float]


def functions_of(kernels: Iterable[AscendKernel]) -> CoreFunctions:
    """Return the kernels of cores by function and phase."""
    found: CoreFunctions = {}
    for written in kernels:
        for number, part in enumerate(written.parts):
            name = function_name(written.kernel)
            key = f"call_{name} {number}" if written.caller else f"{name} -1"
            found[key] = part.phase.kernel, part.phase.core == "cube"
    return found


def lines_of(functions: CoreFunctions) -> str:
    """Return the functions as the simulated core reads them: name, phase, views, scalars."""
    sizes = {key: (len(kernel.views), len(kernel.scalar_params)) for key, (kernel, _) in functions.items()}
    return "\n".join(f"{key} {views} {scalars}" for key, (views, scalars) in sizes.items())


def executed(traced: str, functions: CoreFunctions) -> Iterator[ExecutedTask]:
    """Yield the tasks that were kept, one per function, shapes and scalars."""
    for text in ("\n" + traced).split("\nt ")[1:]:
        head, *lines = text.splitlines()
        name, *numbers = head.split(";")
        num_views = len(functions[name][0].views)
        shapes = tuple(tuple(map(int, part.split())) for part in numbers[:num_views])
        yield ExecutedTask(name, shapes, tuple(map(int, numbers[num_views:])), tuple(lines))


def cost_of(lines: Sequence[str], device: Device, *, is_cube: bool) -> ExecutedCost:
    """Return the cycles of what a task executed."""
    ends: dict[str, float] = {}
    busy: dict[str, float] = {}
    flags: dict[tuple[str, ...], float] = {}
    issued = 0.0
    for line in lines:
        kind, *words = line.split()
        if kind == "b":
            issued = max((issued, *ends.values()))
        elif kind == "s":
            flags[tuple(words)] = max(ends.get(words[0], 0.0), issued)
        elif kind == "w":
            ends[words[1]] = max(ends.get(words[1], 0.0), flags.pop(tuple(words)))
        else:
            pipe, cycles = words[0], _cycles(words, device, "M" if is_cube else "V")
            ends[pipe] = max(ends.get(pipe, 0.0), issued) + cycles
            busy[pipe] = busy.get(pipe, 0.0) + cycles
            issued += ISSUE
    return ExecutedCost(max((issued, *ends.values())), busy)


def _cycles(words: Sequence[str], device: Device, arithmetic: str) -> int:
    pipe, call = words[:2]
    rows, cols, terms, itemsize = map(int, words[2:])
    ends = MOVES.get((pipe, arithmetic)) or MOVES.get((call, arithmetic))
    if ends is not None:
        return device.ways[ends].cycles(rows * cols * itemsize)
    cost = device.costs[ROWS.get(call, call[1:].lower())]
    if pipe == "M":
        return cost.of_product(rows, terms, cols, itemsize, device.widths)
    return cost.of_vector(rows, cols, itemsize, device.widths)
