"""The caches of a simulated device: which tasks find what earlier tasks have used."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    In,
    Out,
    P,
    Program,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.simulation import SimulationReport, report_of

paged_decode: Any = importlib.import_module("examples.02_paged_decode.paged_decode")


@kernel
def pages_of(table: In[Tensor[i32, DYN]], k: In[Tensor[f32, DYN, 16, 64]], y: Out[Tile[16, 64, f32]]):
    acc = pto.zeros((16, 64))
    for i in range(table.rows):
        page = table[i]
        acc = acc + k[page]
    pto.store(y, acc)


@kernel
def window_of(k: In[Tensor[f32, DYN, 64]], y: Out[Tile[16, 64, f32]], at: Scalar[i64]):
    pto.store(y, k[at : at + 16])


@kernel
def copy(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x)


@kernel
def front_of(x: In[Tensor[f32, DYN, 64]], y: Out[Tile[16, 64, f32]]):
    acc = pto.zeros((16, 64))
    for r in pto.tiles(x.rows, 16):
        acc = pto.load(x[r])
    pto.store(y, acc)


@kernel
def rows_of(x: In[Tensor[f32, DYN, 64]], y: Out[Tile[1, 64, f32]]):
    acc = pto.zeros((1, 64))
    for i in range(x.rows):
        acc = acc + x[i : i + 1]
    pto.store(y, acc)


@workload
def by_table(Table: Tensor[i32, "n", "pages"], K: Tensor[f32, "all", 16, 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        pages_of[i](table=Table[i], k=K, y=Y[i])


@workload
def by_one_table(Table: Tensor[i32, "pages"], K: Tensor[f32, "all", 16, 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        pages_of[i](table=Table, k=K, y=Y[i])


@workload
def by_offset(K: Tensor[f32, "rows", 64], Y: Tensor[f32, "n", 16, 64], stride: Scalar[i64]):
    for i in P("n"):
        window_of[i](k=K, y=Y[i], at=i * stride)


@workload
def by_page(Table: Tensor[i32, "n"], K: Tensor[f32, "all", 16, 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        copy[i](x=K[Table[i]], y=Y[i])


@workload
def by_columns(K: Tensor[f32, 16, "cols"], Y: Tensor[f32, "n", 16, 64], stride: Scalar[i64]):
    for i in P("n"):
        copy[i](x=K[:, i * stride : i * stride + 64], y=Y[i])


@workload
def by_length(K: Tensor[f32, "rows", 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        front_of[i](x=K[: (i + 1) * 16], y=Y[i])


@workload
def by_row_set(picked: Sparse["n"], X: Tensor[f32, "all", 64], Y: Tensor[f32, "n", 1, 64]):
    for i in P("n"):
        rows_of[i](x=X[picked.rows(picked[i])], y=Y[i])


N, PAGES = 12, 4
PAGE = 16 * 64 * 4  # bytes


def simulated(program: Program, **values: Any) -> SimulationReport:
    dims: tuple[Any, ...] = program.module.entry_workload.tensor("Y").type.dims[1:]
    values["Y"] = np.zeros((N, *dims), np.float32)
    program.run(**values)
    return report_of(program)


def loaded(report: SimulationReport) -> int:
    """Return the bytes of global memory that tasks read, which all store one result."""
    return report.bytes["gm"] - report.tasks * PAGE


def cache_of(pages: int) -> np.ndarray:
    return np.zeros((pages, 16, 64), np.float32)


def table(is_shared: bool) -> np.ndarray:
    return np.arange(N, dtype=np.int32) * (not is_shared)


@pytest.mark.parametrize("is_shared", [False, True])
def test_tasks_that_read_different_parts_of_one_tensor_do_not_share_them(is_shared: bool) -> None:
    """Pages by a view of each, windows by a scalar of the kernel, and columns: each in its own place."""
    k, stride = cache_of(N), 0 if is_shared else 16
    parts = 1 if is_shared else N
    found = {
        "pages": simulated(by_page.compile("sim"), Table=table(is_shared), K=k),
        "windows": simulated(by_offset.compile("sim"), K=k.reshape(-1, 64), stride=stride),
        "columns": simulated(by_columns.compile("sim"), K=k.reshape(16, -1), stride=4 * stride),
    }
    assert {name: loaded(report) for name, report in found.items()} == dict.fromkeys(found, parts * PAGE)


def test_pages_that_a_kernel_finds_in_its_table_are_those_of_the_table() -> None:
    """Each task has a view of the whole cache, and reads the pages that its own row of the table names."""
    pages = np.arange(N * PAGES, dtype=np.int32)
    apart = simulated(by_table.compile("sim"), Table=pages.reshape(N, PAGES), K=cache_of(N * PAGES))
    assert apart.bytes["gm"] >= N * PAGES * PAGE + N * PAGE and apart.hits < 0.1
    shared = simulated(by_one_table.compile("sim"), Table=pages[:PAGES], K=cache_of(N * PAGES))
    assert loaded(shared) < (PAGES + 1) * PAGE


def test_a_longer_view_finds_the_front_that_a_shorter_one_has_left() -> None:
    report = simulated(by_length.compile("sim"), K=np.zeros((N * 16, 64), np.float32))
    assert loaded(report) == N * PAGE


@pytest.mark.parametrize(("step", "rows"), [(0, 8), (1, 8 + N - 1), (8, 8 * N)])
def test_rows_of_row_sets_are_shared_one_by_one(step: int, rows: int) -> None:
    indices = (step * np.arange(N)[:, None] + np.arange(8)).ravel()
    picked = Sparse.csr(np.arange(N + 1) * 8, indices)
    report = simulated(by_row_set.compile("sim"), picked=picked, X=np.zeros((8 * N, 64), np.float32))
    assert report.bytes["gm"] == (rows + N) * 256


def test_paged_decode_reads_each_page_from_global_memory() -> None:
    """Sequences have pages of their own, so nothing is shared."""
    rng = np.random.default_rng(0)
    batch = paged_decode.random_batch(rng, np.array([100, 200, 300]), f32)
    program = paged_decode.paged_decode(f32).compile("sim")
    paged_decode.run(program, batch)
    report = report_of(program)
    tokens = 2 * sum(batch.Lengths) * 8 * 128 * 4
    assert tokens <= report.bytes["gm"] < 1.1 * tokens
