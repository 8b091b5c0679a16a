"""Cycles of instructions on a core of this machine, from kernels that repeat one of them.

Each instruction that is measured covers rows of the table that do similar work (`GROUPS`). Vector work is
measured on tiles of three shapes, from which a start, cycles per vector and cycles per row follow.
"""

# Annotations use the shapes: they are evaluated here, and read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from pto_wsp import In, Out, P, Program, Scalar, Tensor, Tile, bf16, f32, i32, i64, kernel, pto, workload
from pto_wsp.device.model import InstructionCost
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.support.record import record, replace
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.types.dtype import DType

Shape = tuple[int, int]

LANES = resolve_features().lanes
"""Elements of f32 in a vector."""

ROWS, COLS = 64, 8 * LANES
"""Of the largest tile of vector work: 32 KB at most."""

SHAPES = ((ROWS, COLS), (ROWS, LANES), (1, LANES))
"""Tiles of vector work."""

INNER, WIDE = 64, 64
"""Inner dimension and columns of products: the right operand takes 16 KB."""

PRODUCTS = (64, 4)
"""Rows of products."""

SIDE = max(ROWS, COLS, INNER, WIDE)
"""Rows and columns of the arrays."""

OUTPUTS = (f32, bf16, i32, i64)
"""Element types of results."""

SHORTEST_S, TRIALS = 4e-4, 25
"""Least seconds of a trial, and trials of which the shortest counts."""

GROUPS: Mapping[str, str] = {
    "add": "add sub mul max min adds subs maxs mins muls neg abs relu prelu lrelu addc addsc subc subsc mov "
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_ands bitwise_ors bitwise_xors shl shr shls shrs "
    "cmp cmps sel sels expands iota colexpand colexpandadd colexpandsub colexpandmul colexpandmax "
    "colexpandmin extract insert extract_topk_values extract_topk_indices take put",
    "div": "div divs rem rems recip colexpanddiv",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exp expm1",
    "log": "log log1p",
    "tanh": "tanh",
    "sigmoid": "sigmoid silu",
    "erf": "erf gelu",
    "rowsum": "rowsum",
    "rowmax": "rowmax rowmin",
    "rowargmax": "rowargmax rowargmin",
    "colsum": "colsum colmax colmin",
    "rowexpandmul": "rowexpand rowexpandadd rowexpandsub rowexpandmul rowexpandmax rowexpandmin",
    "rowexpanddiv": "rowexpanddiv",
    "cvt": "cvt",
    "transpose": "transpose",
    "sort": "sort sort32 mrgsort merge",
}
"""By the row that is measured, the rows that cost the same."""

FREE = "load store gather scatter reshape setval"
"""Rows that move data or do nothing. Their time is that of their transfers."""


def instruction_costs(clock_ghz: float) -> dict[str, InstructionCost]:
    """Return the cost of each row of the instruction table, on one core of this machine.

    Args:
        clock_ghz: cycles per nanosecond.
    """
    times = _Times(clock_ghz)
    found = {name: _vector_cost([times.of(f"{name} {r}x{c}") for r, c in SHAPES]) for name in GROUPS}
    costs = {row: found[name] for name, rows in GROUPS.items() for row in rows.split()}
    costs |= dict.fromkeys(FREE.split(), InstructionCost())
    pairs = times.of("matmul bf16")
    plain, transposed = (
        _product_cost(times.of(f"{name} {PRODUCTS[0]}"), times.of(f"{name} {PRODUCTS[1]}"), pairs)
        for name in ("matmul", "matmul transposed")
    )
    product = replace(plain, transposed=transposed)
    costs |= dict.fromkeys(("matmul", "matmul_acc", "matmul_bias"), product)
    # Assumptions: the packed formats are not measured.
    costs["quantise"] = InstructionCost(start=found["cvt"].start, repeat=4 * found["cvt"].repeat)
    costs["matmul_quantised"] = InstructionCost(
        repeat=2 * found["cvt"].repeat, block=product.block_of_4, right=product.right
    )
    return costs


@record
class _Repeated:
    """A kernel that repeats an instruction, and the shapes of its operands and of its result.

    `dtype` is the type of the result. The left operand is f32.
    """

    kernel: Kernel
    left: Shape
    right: Shape
    out: Shape
    dtype: DType = f32
    right_dtype: DType = f32


class _Times:
    """Measures kernels of one program: cycles of one repetition each."""

    def __init__(self, clock_ghz: float) -> None:
        self._clock_ghz = clock_ghz
        kernels = dict(_kernels())
        self._numbers = {name: number for number, name in enumerate(kernels)}
        self._program = _program(list(kernels.values()))
        self._arrays: dict[str, Any] = {
            "X": np.full((SIDE, SIDE), 0.5, np.float32),
            "Z": np.full((SIDE, SIDE), 0.5, np.float32),
            "B": np.full((SIDE, SIDE), 0.5, bf16.to_numpy()),
        }
        self._arrays |= {f"Y_{dtype}": np.zeros((SIDE, SIDE), dtype.to_numpy()) for dtype in OUTPUTS}

    def of(self, name: str) -> float:
        """Return the cycles of one repetition of the kernel."""
        return self._cycles[self._numbers[name]]

    @cached_property
    def _cycles(self) -> list[float]:
        """Cycles of one repetition of each kernel.

        All kernels are measured in turn, so that other work of the machine does not disturb all trials of one
        kernel.
        """
        counts = [self._count(which) for which in range(len(self._numbers))]
        many, once = [inf] * len(counts), [inf] * len(counts)
        for _ in range(TRIALS):
            for which, count in enumerate(counts):
                many[which] = min(many[which], self._seconds(which, count))
                once[which] = min(once[which], self._seconds(which, 1))
        ns = (1e9 * max(a - b, 0.0) / (n - 1) for a, b, n in zip(many, once, counts, strict=True))
        return [each * self._clock_ghz for each in ns]

    def _count(self, which: int) -> int:
        """Return how often a kernel repeats its instruction in a trial."""
        count = 16
        while self._seconds(which, count) < SHORTEST_S:
            count *= 2
        return count

    def _seconds(self, which: int, count: int) -> float:
        chosen = np.zeros(len(self._numbers), np.int32)
        chosen[which] = 1
        began = time.thread_time()  # without the time that other programs have the processor
        self._program.run(**self._arrays, Chosen=chosen, count=count, workers=1)
        return time.thread_time() - began


def _program(kernels: list[_Repeated]) -> Program:
    """Return a program that runs one of the kernels, by number."""

    @workload
    def run(
        X: Tensor[f32, SIDE, SIDE],
        Z: Tensor[f32, SIDE, SIDE],
        B: Tensor[bf16, SIDE, SIDE],
        Y_f32: Tensor[f32, SIDE, SIDE],
        Y_bf16: Tensor[bf16, SIDE, SIDE],
        Y_i32: Tensor[i32, SIDE, SIDE],
        Y_i64: Tensor[i64, SIDE, SIDE],
        Chosen: Tensor[i32, len(kernels)],
        count: Scalar[i64],
    ):
        rights = {f32: Z, bf16: B}
        outputs = {f32: Y_f32, bf16: Y_bf16, i32: Y_i32, i64: Y_i64}
        for number, each in enumerate(kernels):
            for _ in P(Chosen[number]):
                (rows, cols), (inner, wide), (top, side) = each.left, each.right, each.out
                each.kernel(
                    x=X[:rows, :cols],
                    z=rights[each.right_dtype][:inner, :wide],
                    y=outputs[each.dtype][:top, :side],
                    count=count,
                )

    return run.compile("cpu")


def _kernels() -> Iterator[tuple[str, _Repeated]]:
    for rows, cols in SHAPES:
        full, column, row, at = (rows, cols), (rows, 1), (1, cols), f"{rows}x{cols}"
        for name in ("sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "erf"):
            yield f"{name} {at}", _unary(getattr(pto, name), full, full)
        for name, out in (
            ("rowsum", column),
            ("rowmax", column),
            ("colsum", row),
            ("transpose", (cols, rows)),
        ):
            yield f"{name} {at}", _unary(getattr(pto, name), full, out)
        yield f"rowargmax {at}", _unary(pto.rowargmax, full, column, i32)
        yield f"sort {at}", _unary(pto.sort, full, full, i64)
        yield f"cvt {at}", _unary(_to_bf16, full, full, bf16)
        for name, op, right in (
            ("add", pto.add, full),
            ("div", pto.div, full),
            ("rowexpandmul", pto.mul, column),
            ("rowexpanddiv", pto.div, column),
        ):
            yield f"{name} {at}", _binary(op, full, right)
    for rows in PRODUCTS:
        yield f"matmul {rows}", _product(rows)
        yield f"matmul transposed {rows}", _product(rows, is_transposed=True)
    yield "matmul bf16", _product(PRODUCTS[0], dtype=bf16)


def _to_bf16(x: Any) -> Any:
    return pto.cast(x, bf16)


def _unary(op: Any, left: Shape, out: Shape, dtype: DType = f32) -> _Repeated:
    (rows, cols), (top, side) = left, out

    @kernel
    def unary(
        x: In[Tile[rows, cols, f32]],
        z: In[Tile[1, 1, f32]],
        y: Out[Tile[top, side, dtype]],
        count: Scalar[i64],
    ):
        result = op(x)
        for _ in range(count):
            result = op(x)
        pto.store(y, result)

    return _Repeated(unary, left, (1, 1), out, dtype)


def _binary(op: Any, left: Shape, right: Shape) -> _Repeated:
    (rows, cols), (inner, wide) = left, right

    @kernel
    def binary(
        x: In[Tile[rows, cols, f32]],
        z: In[Tile[inner, wide, f32]],
        y: Out[Tile[rows, cols, f32]],
        count: Scalar[i64],
    ):
        result = op(x, z)
        for _ in range(count):
            result = op(x, z)
        pto.store(y, result)

    return _Repeated(binary, left, right, left)


def _product(rows: int, is_transposed: bool = False, dtype: DType = f32) -> _Repeated:
    inner, wide = right = (WIDE, INNER) if is_transposed else (INNER, WIDE)

    @kernel
    def product(
        x: In[Tile[rows, INNER, f32]],
        z: In[Tile[inner, wide, dtype]],
        y: Out[Tile[rows, WIDE, f32]],
        count: Scalar[i64],
    ):
        total, left = pto.zeros((rows, WIDE)), pto.cast(x, dtype)
        for _ in range(count):
            if is_transposed:
                total = pto.matmul_acc(total, left, z.T)
            else:
                total = pto.matmul_acc(total, left, z)
        pto.store(y, total)

    return _Repeated(product, (rows, INNER), right, (rows, WIDE), right_dtype=dtype)


def _vector_cost(cycles: list[float]) -> InstructionCost:
    """Return the cost that explains the cycles on tiles of SHAPES, without negative parts."""
    large, narrow, least = cycles
    repeats = [rows * cols // LANES for rows, cols in SHAPES]
    repeat = max((large - narrow) / (repeats[0] - repeats[1]), 0.0)
    row = max((narrow - least) / (ROWS - 1) - repeat, 0.0)
    return InstructionCost(start=max(least - repeat - row, 0.0), repeat=repeat, row=row)


def _product_cost(many: float, few: float, many_bf16: float) -> InstructionCost:
    """Return the cost of products from the cycles with PRODUCTS rows.

    A block is one row, one element or pair of the inner dimension, and a vector of columns.
    """
    right = INNER * WIDE // LANES
    block = (many - few) / (right * (PRODUCTS[0] - PRODUCTS[1]))
    rest = max(few / right - block * PRODUCTS[1], 0.0)
    pair = max((many_bf16 / (right / 2) - rest) / PRODUCTS[0], 0.0)
    return InstructionCost(block=pair, block_of_4=block, right=rest)
