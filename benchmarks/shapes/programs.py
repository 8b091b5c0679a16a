"""Workloads that two workers could share, whose bodies wait for `ns` by the clock."""

from __future__ import annotations

from pto_wsp import (
    DYN,
    In,
    InOut,
    P,
    Scalar,
    Tensor,
    i32,
    i64,
    kernel,
    slot_i64,
    slot_load_i64,
    workload,
)

WIDTH = 16  # elements of a row: rows do not share a line of the cache

Part = Tensor[i32, DYN, DYN]
Rows = Tensor[i32, "n", WIDTH]
Cell = Tensor[i32, 1, WIDTH]

WAIT = """
const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
y(0, 0) = int32_t(uint32_t(y(0, 0)) * 31u + 1u);
while (std::chrono::steady_clock::now() < end) {
}
"""


@kernel(cpp_src=WAIT, cpp_includes=["<chrono>"])
def change(y: InOut[Part], ns: Scalar[i64]): ...


@kernel(cpp_src=WAIT, cpp_includes=["<chrono>"])
def read(x: In[Part], y: InOut[Part], ns: Scalar[i64]): ...


@kernel(cpp_src=WAIT, cpp_includes=["<chrono>"])
def read2(w: In[Part], x: In[Part], y: InOut[Part], ns: Scalar[i64]): ...


SUM = """
typedef uint32_t Line __attribute__((vector_size(64), aligned(4), may_alias));
Line sums[8] = {};
for (int64_t r = 0; r < x.rows(); ++r) {
  const auto* row = reinterpret_cast<const Line*>(&x(r, 0));
  for (int64_t i = 0; i < x.cols() / 16; i += 8) {
    for (int k = 0; k < 8; ++k) sums[k] += row[i + k];
  }
}
for (const Line& sum : sums) y(0, 0) = int32_t(uint32_t(y(0, 0)) + sum[0]);
"""
"""Waits for memory and for no clock."""


@kernel(cpp_src=SUM)
def total(x: In[Part], y: InOut[Part]): ...


@workload
def streamed(X: Tensor[i32, "n", 1024, 1024], A: Rows):
    """One task for each block of 4 MiB, which it reads."""
    for i in P("n"):
        total[i](x=X[i], y=A[i : i + 1])


@workload
def independent(A: Rows, ns: Scalar[i64]):
    """One task for each row."""
    for i in P("n"):
        change[i](y=A[i : i + 1], ns=ns)


@workload
def mixed(A: Rows, ns: Scalar[i64]):
    """One task for each row; one of 7 is 7 times as long."""
    for i in P("n"):
        change[i](y=A[i : i + 1], ns=ns * (1 + (6 - i % 7) // 6 * 6))


@workload
def one_long_row(Length: Tensor[i32, "batch"], A: Tensor[i32, "batch", "n", WIDTH], ns: Scalar[i64]):
    """Rows of independent tasks; almost all tasks are in one row."""
    for b in P("batch"):
        for j in P.range(Length[b]):
            change[b, j](y=A[b, j : j + 1], ns=ns)


@workload
def chains(A: Tensor[i32, 2, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Two chains, one after the other in program order."""
    for c in P(2):
        for i in P.range(n):
            change[c, i](y=A[c : c + 1], ns=ns)


@workload
def gated_chains(S: Cell, A: Tensor[i32, 2, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """The same after a task that both wait for."""
    change(y=S, ns=ns)
    for c in P.range(2):
        for i in P.range(n):
            read[c, i](x=S, y=A[c : c + 1], ns=ns)


@workload
def braid(A: Tensor[i32, 2, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Two chains, a step of each in turn."""
    for i in P.range(n):
        for c in P(2):
            change[i, c](y=A[c : c + 1], ns=ns)


@workload
def fan(S: Cell, A: Rows, ns: Scalar[i64]):
    """A task, its readers, and a reader of all of them, four times."""
    for r in P.range(4):
        change[r](y=S, ns=ns)
        for i in P("n"):
            read[r, i](x=S, y=A[i : i + 1], ns=ns)
        read[r](x=A, y=S, ns=ns)


@workload
def heads(A: Rows, B: Rows, ns: Scalar[i64]):
    """Layers of an encoder: tiles of tokens, heads that read all tiles, tiles that read all heads."""
    for layer in P.range(4):
        for i in P("n"):
            read[layer, i](x=B[i : i + 1], y=A[i : i + 1], ns=ns)
        for h in P(16):
            read2[layer, h](w=A, x=A, y=B[:, h : h + 1], ns=ns)
        for i in P("n"):
            read[layer, i](x=A[i : i + 1], y=B[i : i + 1], ns=ns)


@workload
def wavefront(A: Tensor[i32, "rows", "rows", 1, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Every cell after the one above it and the one to its left."""
    for i in P.range(n):
        for j in P.range(n):
            read2[i, j](w=A[i, j + 1], x=A[i + 1, j], y=A[i + 1, j + 1], ns=ns)


@workload
def stencil(A: Tensor[i32, "rows", WIDTH], B: Tensor[i32, "rows", WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Eight steps, in which a row reads its neighbours of the step before."""
    for t in P.range(4):
        for i in P(n):
            read[t, i](x=A[i : i + 3], y=B[i + 1 : i + 2], ns=ns)
        for i in P(n):
            read[t, i](x=B[i : i + 3], y=A[i + 1 : i + 2], ns=ns)


@workload
def sequence(A: Tensor[i32, 2, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Two tasks at a time."""
    for i in P.seq(n):
        change[i](y=A[0:1], ns=ns)
        change[i](y=A[1:2], ns=ns)


@workload
def units(A: Rows, B: Rows, ns: Scalar[i64]):
    """Two independent tasks and a third that reads what both wrote, for each of few rows."""
    for i in P("n"):
        change[i](y=A[i : i + 1, 0:4], ns=ns)
        change[i](y=A[i : i + 1, 4:8], ns=ns)
        read[i](x=A[i : i + 1], y=B[i : i + 1], ns=ns)


@workload
def decided(A: Tensor[i64, 1, WIDTH], B: Tensor[i32, 4, WIDTH], n: Scalar[i64], ns: Scalar[i64]):
    """Each step reads an element that a short task writes, then runs four tasks."""
    for t in P.range(n):
        count[t](y=A)
        slot_load_i64(0, A)
        for i in P(4):
            change[t, i](y=B[i : i + 1], ns=ns + slot_i64(0) * 0)


@kernel(cpp_src="y(0, 0) = y(0, 0) + 1;")
def count(y: InOut[Tensor[i64, DYN, DYN]]): ...


@workload
def short_between(A: Rows, B: Rows, ns: Scalar[i64]):
    """Before each long task 50 short ones, which it reads."""
    for i in P("n"):
        for j in P.range(50):
            change[i, j](y=A[i : i + 1], ns=0)
        read[i](x=A[i : i + 1], y=B[i : i + 1], ns=ns)
