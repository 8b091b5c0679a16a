"""Shapes of access: who writes which part of what, and who reads it.

A body folds what it reads into one element of what it writes, so the results tell the order of tasks. Then it
computes for about `work` ns. Arrays have rows of one cache line, so tasks of neighbouring rows do not share
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pto_wsp import (
    DYN,
    In,
    InOut,
    P,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    i32,
    i64,
    kernel,
    slot_i64,
    slot_load_i64,
    workload,
)
from pto_wsp.ir.workload import ScalarParam
from pto_wsp.lang.workload.workload import Workload

WIDTH = 16  # elements of a row
Part = Tensor[i32, DYN, DYN]
Rows = Tensor[i32, "n", WIDTH]
Cell = Tensor[i32, 1, WIDTH]
Table = Tensor[i32, "n"]

WORK = """
uint32_t spent = 1;
for (int64_t i = 0; i < work; ++i) {
  spent *= 3;
  asm volatile("" : "+r"(spent));
}
"""
CHANGE = "y(0, 0) = int32_t(uint32_t(y(0, 0)) * 31u + 1u);"
FOLD = """
y(0, 0) = int32_t(uint32_t(y(0, 0)) * 31u + uint32_t(x(0, 0)) * 17u +
                  uint32_t(x(x.rows() - 1, x.cols() - 1)) + 1u);
"""


@kernel(cpp_src=CHANGE + WORK)
def change(y: InOut[Part], work: Scalar[i64]):
    """Change the first element of `y`."""
    ...


@kernel(cpp_src=FOLD + WORK)
def fold(x: In[Part], y: InOut[Part], work: Scalar[i64]):
    """Fold the first and the last element of `x` into `y`."""
    ...


@workload
def independent(A: Rows, work: Scalar[i64]):
    """One task for each row."""
    for i in P("n"):
        change[i](y=A[i : i + 1], work=work)


@workload
def uneven(A: Rows, work: Scalar[i64]):
    """One task for each row; one of 16 is 16 times as long."""
    for i in P("n"):
        change[i](y=A[i : i + 1], work=work // 2 * (1 + (15 - i % 16) // 15 * 15))


@workload
def chain(A: Cell, n: Scalar[i64], work: Scalar[i64]):
    """Each task follows the one before it."""
    for i in P.range(n):
        change[i](y=A, work=work)


@workload
def chains(A: Tensor[i32, 16, WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """Sixteen chains, each walked to its end."""
    for j in P(16):
        for i in P.range(n // 16):
            change[j, i](y=A[j : j + 1], work=work)


@workload
def braid(A: Tensor[i32, 16, WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """Sixteen chains, a step of each in turn."""
    for i in P.range(n // 16):
        for j in P(16):
            change[i, j](y=A[j : j + 1], work=work)


@workload
def fan_out(S: Cell, A: Rows, work: Scalar[i64]):
    """One task, then a reader of its cell for each row, four times."""
    for r in P.range(4):
        change[r](y=S, work=work)
        for i in P("n"):
            fold[r, i](x=S, y=A[i : i + 1], work=work)


@workload
def fan_in(S: Cell, A: Rows, work: Scalar[i64]):
    """A task for each row, then a reader of all rows, four times."""
    for r in P.range(4):
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)
        fold[r](x=A, y=S, work=work)


@workload
def whole_in_place(A: Rows, work: Scalar[i64]):
    """A task that changes everything, then one for each row, four times."""
    for r in P.range(4):
        change[r](y=A, work=work)
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)


@workload
def readers_of_the_whole(A: Rows, B: Rows, work: Scalar[i64]):
    """A writer of each row, then as many readers of all rows, twice."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)
        for i in P("n"):
            fold[r, i](x=A, y=B[i : i + 1], work=work)


@workload
def pool(T: Table, A: Rows, B: Rows, work: Scalar[i64]):
    """Rows that a table names are written; as many readers of the whole follow, twice."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[T[i] : T[i] + 1], work=work)
        for i in P("n"):
            fold[r, i](x=A, y=B[i : i + 1], work=work)


@workload
def pages(T: Table, A: Tensor[i32, "n", 8, 64], B: Tensor[i32, "n", 2, WIDTH], work: Scalar[i64]):
    """One row of a page that a table names is written; two readers of half of the columns of all pages."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[T[i], r : r + 1], work=work)
        for i in P("n"):
            for h in P(2):
                fold[r, i, h](x=A[:, r, h * 32 : h * 32 + 32], y=B[i, h : h + 1], work=work)


@workload
def rows_and_columns(A: Tensor[i32, "n", "n"], work: Scalar[i64]):
    """A task for each row, then one for each column, twice."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)
        for i in P("n"):
            change[r, i](y=A[:, i : i + 1], work=work)


@workload
def scattered_rows_and_columns(T: Table, A: Tensor[i32, "n", "n"], work: Scalar[i64]):
    """The same for rows and columns that a table names."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[T[i] : T[i] + 1], work=work)
        for i in P("n"):
            change[r, i](y=A[:, T[i] : T[i] + 1], work=work)


@workload
def transposed(A: Tensor[i32, "n", "n"], B: Tensor[i32, "n", "n"], work: Scalar[i64]):
    """Each row of one matrix becomes a column of the other, and back."""
    for r in P.range(2):
        for i in P("n"):
            fold[r, i](x=A[i : i + 1], y=B[:, i : i + 1], work=work)
        for i in P("n"):
            fold[r, i](x=B[i : i + 1], y=A[:, i : i + 1], work=work)


@workload
def strided(A: Tensor[i32, "n", 4, WIDTH], B: Rows, work: Scalar[i64]):
    """Each of four interleaved grids is written in turn, then rows that hold all four are read."""
    for k in P.range(4):
        for i in P("n"):
            change[k, i](y=A[i, k : k + 1], work=work)
    for i in P("n"):
        fold[i](x=A[i], y=B[i : i + 1], work=work)


@workload
def overlapping_grids(A: Rows, work: Scalar[i64]):
    """Tiles of 3, 4 and 5 rows, twice."""
    for r in P.range(2):
        for size in (3, 4, 5):
            for t in P.tiles("n", size):
                change[r, t](y=A[t], work=work)


@workload
def halo(A: Tensor[i32, "rows", WIDTH], B: Tensor[i32, "rows", WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """A stencil of three rows, back and forth."""
    for r in P.range(2):
        for i in P(n):
            fold[r, i](x=A[i : i + 3], y=B[i + 1 : i + 2], work=work)
        for i in P(n):
            fold[r, i](x=B[i : i + 3], y=A[i + 1 : i + 2], work=work)


@workload
def wavefront(A: Tensor[i32, "rows", "cols", WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """Cells of a matrix, each after the one above it and the one to its left."""
    for i in P.range(n // 16):
        for j in P.range(16):
            fold[i, j](x=A[i, j : j + 2], y=A[i + 1, j + 1 : j + 2], work=work)


@workload
def prefixes(A: Rows, B: Rows, work: Scalar[i64]):
    """A writer of each row, then readers of the rows up to each, twice."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)
        for i in P("n"):
            fold[r, i](x=A[0 : i + 1], y=B[i : i + 1], work=work)


@workload
def growing(A: Tensor[i32, "rows", WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """Each task reads all rows before its own."""
    for i in P.range(n):
        fold[i](x=A[0 : i + 1], y=A[i + 1 : i + 2], work=work)


@workload
def hot_cell(S: Cell, A: Rows, work: Scalar[i64]):
    """Each task is followed by one that changes a cell of all."""
    for i in P.range("n"):
        change[i](y=A[i : i + 1], work=work)
        fold[i](x=A[i : i + 1], y=S, work=work)


@workload
def hot_reads(S: Cell, A: Rows, work: Scalar[i64]):
    """One of 16 tasks changes a cell that the others read."""
    for i in P.range("n"):
        with P.when(i % 16 == 0):
            change[i](y=S, work=work)
        with P.otherwise():
            fold[i](x=S, y=A[i : i + 1], work=work)


@workload
def many_tensors(
    A: Rows, B: Rows, C: Rows, D: Rows, E: Rows, F: Rows, G: Rows, H: Rows, S: Tensor[i32, 8, WIDTH],
    work: Scalar[i64],
):  # fmt: skip
    """Eight tensors of few rows each; each task reads one and writes the next."""
    tensors = (A, B, C, D, E, F, G, H)
    for i in P("n"):
        for k, (x, y) in enumerate(pairwise(tensors)):
            fold[i, k](x=x[i : i + 1], y=y[i : i + 1], work=work)
    for k, x in enumerate(tensors):
        fold[k](x=x, y=S[k : k + 1], work=work)


@workload
def nested(A: Tensor[i32, "n", 4, WIDTH], B: Rows, work: Scalar[i64]):
    """Tasks at two depths of P, three times."""
    for r in P.range(3):
        for i in P("n"):
            change[r, i](y=A[i, 0:1], work=work)
            for j in P(3):
                fold[r, i, j](x=A[i, 0:1], y=A[i, j + 1 : j + 2], work=work)
            fold[r, i](x=A[i], y=B[i : i + 1], work=work)


@workload
def barriers(A: Tensor[i32, 16, WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """Sixteen tasks between every two barriers."""
    for i in P.seq(n // 16):
        for j in P(16):
            change[i, j](y=A[j : j + 1], work=work)


@workload
def reversed_rows(A: Rows, B: Rows, work: Scalar[i64]):
    """Rows are written from the first to the last, and read from the last to the first."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[i : i + 1], work=work)
        for i in P("n"):
            k = -i + A.shape[0] - 1
            fold[r, i](x=A[k : k + 1], y=B[i : i + 1], work=work)


@workload
def scattered(T: Table, U: Table, A: Rows, B: Rows, work: Scalar[i64]):
    """Rows that a table names are written, rows that another one names are read, twice."""
    for r in P.range(2):
        for i in P("n"):
            change[r, i](y=A[T[i] : T[i] + 1], work=work)
        for i in P("n"):
            fold[r, i](x=A[U[i] : U[i] + 1], y=B[i : i + 1], work=work)


@workload
def ragged(
    seqs: Ragged["batch"], A: Tensor[i32, "n", WIDTH], B: Tensor[i32, "batch", WIDTH], work: Scalar[i64]
):
    """Tiles of ragged rows, then a reader of each row."""
    for t in P.tiles(seqs, 4):
        change[t](y=A[t], work=work)
    for b in P("batch"):
        fold[b](x=A[seqs[b]], y=B[b : b + 1], work=work)


@workload
def row_sets(routing: Sparse["experts"], A: Rows, B: Rows, work: Scalar[i64]):
    """Rows that a sparse axis names are gathered and changed."""
    for i in P("n"):
        change[i](y=A[i : i + 1], work=work)
    for e in P("experts"):
        for pick in P.tiles(routing[e], 8):
            rows = routing.rows(pick)
            change[e, pick](y=A[rows], work=work)
    for i in P("n"):
        fold[i](x=A[i : i + 1], y=B[i : i + 1], work=work)


@workload
def flush_points(N: Tensor[i32, 1, WIDTH], A: Tensor[i32, 16, WIDTH], n: Scalar[i64], work: Scalar[i64]):
    """The walk reads what a task has written, before each 16 tasks."""
    for r in P.range(n // 16):
        change[r](y=N, work=work)
        slot_load_i64(0, N, row=0, col=0)
        for i in P(16):
            with P.when(slot_i64(0) != 0):
                change[r, i](y=A[i : i + 1], work=work)


@dataclass(frozen=True)
class Shape:
    """A workload and how its arrays are made for a size.

    Attributes:
        workload: `n` is about the number of tasks of one round.
        others: sizes besides `n`, from it.
        most: the largest `n` whose arrays are small.
    """

    workload: Workload
    others: Callable[[int], dict[str, int]] = lambda n: {}
    most: int = 1 << 30

    @property
    def name(self) -> str:
        """How the rows call it."""
        return self.workload.name


SHAPES = (
    *map(Shape, (independent, uneven, chain, chains, braid, fan_out, fan_in, whole_in_place)),
    *map(Shape, (readers_of_the_whole, pool, pages)),
    *(Shape(w, most=1024) for w in (rows_and_columns, scattered_rows_and_columns, transposed)),
    *map(Shape, (strided, overlapping_grids)),
    Shape(halo, lambda n: {"rows": n + 2}),
    Shape(wavefront, lambda n: {"rows": n // 16 + 1, "cols": 17}),
    Shape(prefixes),
    Shape(growing, lambda n: {"rows": n + 1}),
    *map(Shape, (hot_cell, hot_reads, many_tensors, nested, barriers, reversed_rows, scattered)),
    Shape(ragged, lambda n: {"batch": n // 8}),
    *map(Shape, (row_sets, flush_points)),
)


def arguments(shape: Shape, n: int, seed: int) -> dict[str, Any]:
    """Return the arrays and sizes of a shape; tables are permutations."""
    rng, sizes = np.random.default_rng(seed), {"n": n, **shape.others(n)}
    entry = shape.workload.trace().module.entry_workload
    found: dict[str, Any] = {}
    for tensor in entry.tensors:
        dims = tuple(sizes.get(d, 0) if isinstance(d, str) else int(d) for d in tensor.type.dims)
        is_table = len(dims) == 1
        found[tensor.name] = (
            rng.permutation(n).astype(np.int32) if is_table else rng.integers(0, 9, dims, np.int32)
        )
    names = {p.name for p in entry.params}
    if "seqs" in names:
        found["seqs"] = Ragged.lengths([1 + 14 * (b % 2) for b in range(sizes["batch"])])
    if "routing" in names:
        found["routing"] = Sparse.lists([list(rows) for rows in np.array_split(rng.permutation(n), 8)])
    found |= {p.name: n for p in entry.params if isinstance(p, ScalarParam) and p.name == "n"}
    return {name: value for name, value in found.items() if "." not in name}
