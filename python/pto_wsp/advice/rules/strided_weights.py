"""`strided-weights`: products read column blocks of a row-major matrix, whose rows are far apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.rule import Rule, advice
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Range, Region, TileRange
from pto_wsp.ir.kernel import IN, Instr, KernelFunction, Load, walk_statements
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, Var
from pto_wsp.visualize.graph import bytes_text
from pto_wsp.visualize.timeline import duration_text

CODE = "strided-weights"
LEAST_BYTES, LEAST_STRIDE, FAR = 1 << 18, 2048, 2
"""Of the matrix; between its rows; how many times as wide as a block the matrix is."""
SAVED = 1 / 3
"""Share of the time of such tasks that packing saves in measurements, at least for large matrices."""

_RIGHT = {"matmul": 1, "matmul_bias": 1, "matmul_acc": 2}
"""The operand of each product that is its right one."""


def find(case: Case) -> Iterable[Advice]:
    """Yield an advice for each call and weight."""
    written = case.module.written
    for call, node in enumerate(case.nodes):
        kernel = case.kernel(call)
        operands = _right_operands(kernel)
        for param, arg in zip(kernel.params, node.args, strict=True):
            if param.role != IN or param.name not in operands:
                continue
            if isinstance(arg, Region) and arg.tensor not in written:
                yield from _strided(case, call, arg)


def _right_operands(kernel: KernelFunction) -> set[str]:
    """Return the parameters that products of a kernel take as right operand, not transposed."""
    loaded: dict[str, str] = {}
    found: set[str] = set()
    for stmt in walk_statements(kernel.body or ()):
        if isinstance(stmt, Load):
            loaded[stmt.tile] = stmt.region.tensor
        elif isinstance(stmt, Instr) and stmt.op == "cvt" and stmt.tiles[0] in loaded:
            loaded[stmt.dst] = loaded[stmt.tiles[0]]
        elif isinstance(stmt, Instr) and stmt.op in _RIGHT and not stmt.attr("trans_b"):
            found.add(loaded.get(stmt.tiles[_RIGHT[stmt.op]], ""))
    return found


def _strided(case: Case, call: int, arg: Region) -> Iterator[Advice]:
    tensor = case.module.entry_workload.tensor(arg.tensor)
    rows = case.tasks(call)
    if len(arg.dims) != 2 or tensor.columns is not None or not len(rows):
        return
    columns = _columns(case, arg, rows)
    height, width = (_size(case, dim, rows) for dim in tensor.type.dims)
    item = tensor.type.dtype.itemsize
    is_far = columns * FAR <= width and width * item >= LEAST_STRIDE
    if not columns or not isinstance(arg.dims[0], Full) or not is_far:
        return
    if height * width * item < LEAST_BYTES:
        return
    busy = int(case.took_ns[rows].sum())
    name = tensor.name
    yield from advice(
        case,
        CODE,
        f"{len(rows):,} tasks of `{case.nodes[call].kernel}` multiply by columns of `{name}`, "
        f"whose rows are {bytes_text(width * item)} apart",
        SAVED * busy / case.num_workers,
        f"pack `{name}` once into panels of {columns} columns, and say so in its type",
        f"{name}: Tensor[{tensor.type.dtype}, {_dims(tensor)}, MemLayout.panels({columns})]\n"
        f"program.run(..., {name}=MemLayout.panels({columns}).pack({name.lower()}))",
        arg.loc or case.nodes[call].loc,
        f"{height:,} pieces of {bytes_text(columns * item)} per task",
        [
            (
                f"these tasks take {duration_text(busy)}, "
                f"{busy / max(1, case.report.busy_ns):.0%} of the time of all tasks; "
                f"`{name}` has {bytes_text(height * width * item)}",
                None,
            )
        ],
    )


def _columns(case: Case, arg: Region, rows: np.ndarray) -> int:
    """Return how many columns the first task reads, or 0 if all."""
    match arg.dims[1]:
        case TileRange(loop=loop):
            return _value(case, LoopExtent(loop), rows)
        case Range(extent=extent):
            return _value(case, extent, rows)
        case _:
            return 0


def _size(case: Case, dim: int | str, rows: np.ndarray) -> int:
    return _value(case, Const(dim) if isinstance(dim, int) else Var(dim), rows)


def _value(case: Case, expr: Expr, rows: np.ndarray) -> int:
    return int(case.values(expr, rows[:1])[0])


def _dims(tensor: w.TensorParam) -> str:
    return ", ".join(f'"{dim}"' if isinstance(dim, str) else str(dim) for dim in tensor.type.dims)


RULE = Rule(
    CODE,
    "products read column blocks of a row-major matrix",
    f"bytes of the matrix (from {bytes_text(LEAST_BYTES)}), of a piece, between rows; time of the tasks",
    "pack the matrix once: `MemLayout.panels(cols)`, or `ops.matmul.PackedMatrix`",
    find,
)
