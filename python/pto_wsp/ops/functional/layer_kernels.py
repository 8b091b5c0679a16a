"""Kernels of layers: gates, products, tables, positions."""

# Annotations depend on the element type, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from typing import Any, Final

from pto_wsp.lang.annotations import Constexpr, In, Out
from pto_wsp.lang.kernel import pto
from pto_wsp.lang.kernel.kernel import kernel
from pto_wsp.lang.operands import Scalar, Tile
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload, workload
from pto_wsp.ops.functional.tiles import COLS, ROWS
from pto_wsp.types import DYN, f32, i32, i64
from pto_wsp.types.dtype import DType

BLOCK: Final = 64
"""Rows and columns of a tile of a product, and rows of a table that a task looks up."""

DEEP_ROWS: Final = 128
"""Rows of a tile of a product with a transposed matrix, whose turning they share."""

FEW_ROWS: Final = 8
"""Up to this many rows are multiplied with a matrix where it lies."""

DEPTH: Final = 256
MAX_K: Final = 128
"""The most elements that `topk` finds."""

NO_PAIR: Final = -(2**63)


def gates(DT: DType) -> list[Workload]:
    """Return the gated activations of two halves of a row, and what scales columns."""

    @kernel
    def tile_glu(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.cast(pto.cast(x, f32) * pto.sigmoid(pto.cast(t, f32)), DT))

    @kernel
    def tile_swiglu(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.cast(pto.silu(pto.cast(x, f32)) * pto.cast(t, f32), DT))

    @kernel
    def tile_geglu(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.cast(pto.gelu(pto.cast(x, f32)) * pto.cast(t, f32), DT))

    @kernel
    def tile_reglu(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.cast(pto.relu(pto.cast(x, f32)) * pto.cast(t, f32), DT))

    @kernel
    def tile_prelu(x: In[Tile[ROWS, COLS, DT]], w: In[Tile[1, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.prelu(x, w))

    @kernel
    def tile_rope(
        x: In[Tile[ROWS, COLS, DT]],
        t: In[Tile[ROWS, COLS, DT]],
        cos: In[Tile[ROWS, COLS, DT]],
        sin: In[Tile[ROWS, COLS, DT]],
        y: Out[Tile[ROWS, COLS, DT]],
        z: Out[Tile[ROWS, COLS, DT]],
    ):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        c, s = pto.cast(cos, f32), pto.cast(sin, f32)
        pto.store(y, pto.cast(v * c - w * s, DT))
        pto.store(z, pto.cast(w * c + v * s, DT))

    @kernel
    def tile_batch_norm(
        x: In[Tile[ROWS, COLS, DT]],
        mean: In[Tile[ROWS, 1, DT]],
        var: In[Tile[ROWS, 1, DT]],
        w: In[Tile[ROWS, 1, DT]],
        b: In[Tile[ROWS, 1, DT]],
        y: Out[Tile[ROWS, COLS, DT]],
        a: Scalar[f32],
    ):
        scale = pto.rsqrt(pto.cast(var, f32) + a) * pto.cast(w, f32)
        centred = pto.cast(x, f32) - pto.cast(mean, f32)
        pto.store(y, pto.cast(centred * scale + pto.cast(b, f32), DT))

    def gate(tile: Any) -> Workload:
        @workload
        def gated(X: Tensor[DT, "n", 2, "m"], Y: Tensor[DT, "n", "m"]):
            for r in P.tiles("n", ROWS):
                for c in P.tiles("m", COLS):
                    tile[r, c](x=X[r, 0, c], t=X[r, 1, c], y=Y[r, c])

        return gated.named(tile.name.removeprefix("tile_"))

    @workload
    def prelu(X: Tensor[DT, "n", "m"], W: Tensor[DT, 1, "m"], Y: Tensor[DT, "n", "m"]):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                tile_prelu[r, c](x=X[r, c], w=W[:, c], y=Y[r, c])

    @workload
    def rope(
        X: Tensor[DT, "n", 2, "m"],
        Cos: Tensor[DT, "n", "m"],
        Sin: Tensor[DT, "n", "m"],
        Y: Tensor[DT, "n", 2, "m"],
    ):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                x, t = X[r, 0, c], X[r, 1, c]
                tile_rope[r, c](x=x, t=t, cos=Cos[r, c], sin=Sin[r, c], y=Y[r, 0, c], z=Y[r, 1, c])

    @workload
    def batch_norm(
        X: Tensor[DT, "n", "k", "l"],
        Mean: Tensor[DT, "k", 1],
        Var: Tensor[DT, "k", 1],
        W: Tensor[DT, "k", 1],
        B: Tensor[DT, "k", 1],
        Y: Tensor[DT, "n", "k", "l"],
        a: Scalar[f32],
    ):
        for i in P("n"):
            for r in P.tiles("k", ROWS):
                for c in P.tiles("l", COLS):
                    x, y = X[i, r, c], Y[i, r, c]
                    tile_batch_norm[i, r, c](x=x, mean=Mean[r], var=Var[r], w=W[r], b=B[r], y=y, a=a)

    return [*map(gate, (tile_glu, tile_swiglu, tile_geglu, tile_reglu)), prelu, rope, batch_norm]


def products(DT: DType) -> list[Workload]:
    """Return the products of matrices."""

    @kernel
    def block_linear(
        x: In[Tensor[DT, DYN, DYN]],
        w: In[Tensor[DT, DYN, DYN]],
        b: In[Tile[1, BLOCK, DT]],
        y: Out[Tensor[DT, DYN, DYN]],
        AT_ONCE: Constexpr[int],
    ):
        for r in pto.tiles(x.rows, AT_ONCE):
            for c in pto.tiles(w.rows, BLOCK):
                total = pto.full((x[r].rows, w[c].rows), 0.0)
                for k in pto.tiles(x.cols, DEPTH):
                    total = pto.matmul(x[r, k], pto.load(w[c, k]).T, acc=total)
                pto.store(y[r, c], pto.cast(total + pto.cast(b, f32), DT))

    @kernel
    def block_bilinear(
        x: In[Tensor[DT, DYN, DYN]],
        w: In[Tensor[DT, DYN, DYN]],
        t: In[Tensor[DT, DYN, DYN]],
        b: In[Tensor[DT, 1, 1]],
        y: Out[Tensor[DT, DYN, 1]],
    ):
        for r in pto.tiles(x.rows, BLOCK):
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(w.cols, BLOCK):
                part = pto.full((x[r].rows, w[:, c].cols), 0.0)
                for k in pto.tiles(x.cols, DEPTH):
                    part = pto.matmul(x[r, k], w[k, c], acc=part)
                total = total + pto.rowsum(part * pto.cast(t[r, c], f32))
            pto.store(y[r], pto.cast(total + pto.cast(b, f32), DT))

    @workload
    def linear(
        X: Tensor[DT, "n", "k"], W: Tensor[DT, "m", "k"], B: Tensor[DT, 1, "m"], Y: Tensor[DT, "n", "m"]
    ):
        with P.when(X.shape[0] <= FEW_ROWS):
            for c in P.tiles("m", BLOCK):
                block_linear[c](x=X, w=W[c], b=B[:, c], y=Y[:, c], AT_ONCE=FEW_ROWS)
        with P.otherwise():
            for r in P.tiles("n", DEEP_ROWS):
                for c in P.tiles("m", BLOCK):
                    block_linear[r, c](x=X[r], w=W[c], b=B[:, c], y=Y[r, c], AT_ONCE=DEEP_ROWS)

    @workload
    def bilinear(
        X: Tensor[DT, "n", "k"],
        T: Tensor[DT, "n", "l"],
        W: Tensor[DT, "m", "k", "l"],
        B: Tensor[DT, "m", 1, 1],
        Y: Tensor[DT, "m", "n", 1],
    ):
        for i in P("m"):
            for r in P.tiles("n", BLOCK):
                block_bilinear[i, r](x=X[r], w=W[i], t=T[r], b=B[i], y=Y[i, r])

    return [linear, bilinear]


def tables(DT: DType) -> list[Workload]:
    """Return what works with indices."""

    @kernel
    def rows_embedding(w: In[Tensor[DT, DYN, DYN]], i: In[Tile[1, BLOCK, i32]], y: Out[Tensor[DT, DYN, DYN]]):
        for r in pto.tiles(y.rows, BLOCK):
            for c in pto.tiles(w.cols, BLOCK):
                pto.store(y[r, c], pto.gather(w[:, c], i))

    @kernel
    def rows_one_hot(i: In[Tile[BLOCK, 1, i32]], y: Out[Tensor[i64, DYN, DYN]]):
        for r in pto.tiles(y.rows, BLOCK):
            left = pto.load(i)
            for c in pto.tiles(y.cols, BLOCK):
                columns = pto.iota((y[r].rows, y[:, c].cols))
                pto.store(y[r, c], pto.cast(columns == left, i64))
                left = left - BLOCK

    @kernel
    def rows_topk(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, DYN]], i: Out[Tensor[i32, DYN, DYN]]):
        for r in pto.tiles(x.rows, ROWS):
            for k in pto.tiles(y.cols, MAX_K):  # one: no more are asked for
                best = pto.full((x[r].rows, y[:, k].cols), NO_PAIR, i64)
                first = 0
                for c in pto.tiles(x.cols, DEPTH):
                    columns = pto.iota((x[r].rows, x[:, c].cols), first)
                    best = pto.merge(best, pto.sort(x[r, c], columns), y[:, k].cols)
                    first = first + DEPTH
                pto.store(y[r, k], pto.cast(pto.extract_topk_values(best, y[:, k].cols), DT))
                pto.store(i[r, k], pto.extract_topk_indices(best, y[:, k].cols))

    @workload
    def embedding(W: Tensor[DT, "v", "m"], I: Tensor[i32, 1, "n"], Y: Tensor[DT, "n", "m"]):  # noqa: E741
        for r in P.tiles("n", BLOCK):
            rows_embedding[r](w=W, i=I[:, r], y=Y[r])

    @workload
    def one_hot(I: Tensor[i32, "n", 1], Y: Tensor[i64, "n", "m"]):  # noqa: E741
        for r in P.tiles("n", BLOCK):
            rows_one_hot[r](i=I[r], y=Y[r])

    @workload
    def topk(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", "k"], I: Tensor[i32, "n", "k"]):  # noqa: E741
        for r in P.tiles("n", ROWS):
            rows_topk[r](x=X[r], y=Y[r], i=I[r])

    return [embedding, one_hot, topk]
