"""Workloads whose tasks do next to nothing: what remains is deciding."""

from pto_wsp import DYN, In, Out, P, Ragged, Tensor, Tile, f32, i32, kernel, pto, workload

COLS = 8
LIMIT = 2048
MAX_ROW = 4


@kernel
def mark(y: Out[Tile[1, COLS, f32]]):
    """Leave a trace of the task."""
    pto.store(y, pto.full((1, COLS), 1.0))


@workload
def untaken_branches(Lengths: Tensor[i32, "n"], Y: Tensor[f32, "n", COLS]):
    """One task for each length that is within a limit."""
    for i in P("n"):
        with P.when(Lengths[i] <= LIMIT):
            mark[i](y=Y[i : i + 1])


@workload
def empty_rows(rows: Ragged["n"], Y: Tensor[f32, "total", COLS]):
    """One task for each element of each row."""
    for i in P("n"):
        for j in P(rows[i]):
            mark[i, j](y=Y[rows[i][j] : rows[i][j] + 1])


@kernel
def total(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[1, COLS, f32]]):
    """Add up a row of 0 to `MAX_ROW` elements."""
    acc = pto.zeros((1, COLS))
    for r in pto.tiles(x.rows, MAX_ROW):
        acc = acc + pto.colsum(x[r])
    pto.store(y, acc)


@workload
def ragged_rows(rows: Ragged["n"], X: Tensor[f32, "total", COLS], Y: Tensor[f32, "n", COLS]):
    """One task for each row, whatever its length."""
    for i in P("n"):
        total[i](x=X[rows[i]], y=Y[i : i + 1])
