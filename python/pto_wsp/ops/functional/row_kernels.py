"""Kernels over whole rows, of any length: softmax, norms, reductions, losses of classes.

A row is read in tiles of COLS columns, as often as its statistics need; sums are f32. Most rows are one tile:
memory is then read in sequence, and faster than in pieces of every row.
"""

# Annotations depend on the element type, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import inf
from typing import Final

from pto_wsp.lang.annotations import In, Out
from pto_wsp.lang.kernel import pto
from pto_wsp.lang.kernel.kernel import kernel
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload, workload
from pto_wsp.types import DYN, f32, i32
from pto_wsp.types.dtype import DType

ROWS: Final = 16
COLS: Final = 8192


def softmaxes(DT: DType) -> list[Workload]:
    """Return softmax, log_softmax and logsumexp; `a` is the sign of the argument."""

    @kernel
    def rows_softmax(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, DYN]], a: Scalar[f32]):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf)
            for c in pto.tiles(x.cols, COLS):
                top = pto.maximum(top, pto.rowmax(pto.cast(x[r, c], f32) * a))
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.exp(pto.cast(x[r, c], f32) * a - top))
            for c in pto.tiles(x.cols, COLS):
                pto.store(y[r, c], pto.cast(pto.exp(pto.cast(x[r, c], f32) * a - top) / total, DT))

    @kernel
    def rows_log_softmax(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, DYN]]):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf)
            for c in pto.tiles(x.cols, COLS):
                top = pto.maximum(top, pto.rowmax(pto.cast(x[r, c], f32)))
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.exp(pto.cast(x[r, c], f32) - top))
            below = pto.log(total)
            for c in pto.tiles(x.cols, COLS):
                pto.store(y[r, c], pto.cast(pto.cast(x[r, c], f32) - top - below, DT))

    @kernel
    def rows_logsumexp(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf)
            for c in pto.tiles(x.cols, COLS):
                top = pto.maximum(top, pto.rowmax(pto.cast(x[r, c], f32)))
            shift = pto.where(pto.abs(top) == inf, 0.0, top)
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.exp(pto.cast(x[r, c], f32) - shift))
            pto.store(y[r], pto.cast(pto.log(total) + shift, DT))

    @workload
    def softmax(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", "m"], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_softmax[r](x=X[r], y=Y[r], a=a)

    @workload
    def log_softmax(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", "m"]):
        for r in P.tiles("n", ROWS):
            rows_log_softmax[r](x=X[r], y=Y[r])

    @workload
    def logsumexp(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_logsumexp[r](x=X[r], y=Y[r])

    return [softmax, log_softmax, logsumexp]


def norms(DT: DType) -> list[Workload]:
    """Return the norms; `a` keeps divisors from 0."""

    @kernel
    def rows_layer_norm(
        x: In[Tensor[DT, DYN, DYN]],
        w: In[Tensor[DT, 1, DYN]],
        b: In[Tensor[DT, 1, DYN]],
        y: Out[Tensor[DT, DYN, DYN]],
        a: Scalar[f32],
    ):
        for r in pto.tiles(x.rows, ROWS):
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.cast(x[r, c], f32))
            mean = total / x.cols
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                d = pto.cast(x[r, c], f32) - mean
                squares = squares + pto.rowsum(d * d)
            scale = pto.rsqrt(squares / x.cols + a)
            for c in pto.tiles(x.cols, COLS):
                gain, offset = pto.cast(w[:, c], f32), pto.cast(b[:, c], f32)
                normal = (pto.cast(x[r, c], f32) - mean) * scale
                pto.store(y[r, c], pto.cast(normal * gain + offset, DT))

    @kernel
    def rows_rms_norm(
        x: In[Tensor[DT, DYN, DYN]], w: In[Tensor[DT, 1, DYN]], y: Out[Tensor[DT, DYN, DYN]], a: Scalar[f32]
    ):
        for r in pto.tiles(x.rows, ROWS):
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                v = pto.cast(x[r, c], f32)
                squares = squares + pto.rowsum(v * v)
            scale = pto.rsqrt(squares / x.cols + a)
            for c in pto.tiles(x.cols, COLS):
                gain = pto.cast(w[:, c], f32)  # before the rows, which then pass through registers alone
                pto.store(y[r, c], pto.cast(pto.cast(x[r, c], f32) * scale * gain, DT))

    @kernel
    def rows_normalize(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, DYN]], a: Scalar[f32]):
        for r in pto.tiles(x.rows, ROWS):
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                v = pto.cast(x[r, c], f32)
                squares = squares + pto.rowsum(v * v)
            size = pto.maximum(pto.sqrt(squares), a)
            for c in pto.tiles(x.cols, COLS):
                pto.store(y[r, c], pto.cast(pto.cast(x[r, c], f32) / size, DT))

    @kernel
    def group_norm_of_one(
        x: In[Tensor[DT, DYN, DYN]],
        w: In[Tensor[DT, DYN, 1]],
        b: In[Tensor[DT, DYN, 1]],
        y: Out[Tensor[DT, DYN, DYN]],
        a: Scalar[f32],
    ):
        total = pto.full((1, 1), 0.0)
        for r in pto.tiles(x.rows, ROWS):
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.colsum(pto.rowsum(pto.cast(x[r, c], f32)))
        mean = total / (x.rows * x.cols)
        squares = pto.full((1, 1), 0.0)
        for r in pto.tiles(x.rows, ROWS):
            for c in pto.tiles(x.cols, COLS):
                d = pto.cast(x[r, c], f32) - mean
                squares = squares + pto.colsum(pto.rowsum(d * d))
        scale = pto.rsqrt(squares / (x.rows * x.cols) + a)
        for r in pto.tiles(x.rows, ROWS):
            for c in pto.tiles(x.cols, COLS):
                gain, offset = pto.cast(w[r], f32), pto.cast(b[r], f32)
                normal = (pto.cast(x[r, c], f32) - mean) * scale
                pto.store(y[r, c], pto.cast(normal * gain + offset, DT))

    @workload
    def layer_norm(
        X: Tensor[DT, "n", "m"],
        W: Tensor[DT, 1, "m"],
        B: Tensor[DT, 1, "m"],
        Y: Tensor[DT, "n", "m"],
        a: Scalar[f32],
    ):
        for r in P.tiles("n", ROWS):
            rows_layer_norm[r](x=X[r], w=W, b=B, y=Y[r], a=a)

    @workload
    def rms_norm(X: Tensor[DT, "n", "m"], W: Tensor[DT, 1, "m"], Y: Tensor[DT, "n", "m"], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_rms_norm[r](x=X[r], w=W, y=Y[r], a=a)

    @workload
    def normalize(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", "m"], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_normalize[r](x=X[r], y=Y[r], a=a)

    @workload
    def group_norm(
        X: Tensor[DT, "n", "g", "k", "l"],
        W: Tensor[DT, "g", "k", 1],
        B: Tensor[DT, "g", "k", 1],
        Y: Tensor[DT, "n", "g", "k", "l"],
        a: Scalar[f32],
    ):
        for i, g in P("n", "g"):
            group_norm_of_one[i, g](x=X[i, g], w=W[g], b=B[g], y=Y[i, g], a=a)

    return [layer_norm, rms_norm, normalize, group_norm]


def reductions(DT: DType) -> list[Workload]:
    """Return the reductions of rows; `a` is what sums are multiplied with."""

    @kernel
    def rows_sum(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]], a: Scalar[f32]):
        for r in pto.tiles(x.rows, ROWS):
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.cast(x[r, c], f32))
            pto.store(y[r], pto.cast(total * a, DT))

    @kernel
    def rows_amax(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf, DT)
            for c in pto.tiles(x.cols, COLS):
                top = pto.maximum(top, pto.rowmax(x[r, c]))
            pto.store(y[r], top)

    @kernel
    def rows_amin(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            low = pto.full((x[r].rows, 1), inf, DT)
            for c in pto.tiles(x.cols, COLS):
                low = pto.minimum(low, pto.rowmin(x[r, c]))
            pto.store(y[r], low)

    @kernel
    def rows_argmax(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[i32, DYN, 1]], a: Scalar[f32]):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf)
            place = pto.full((x[r].rows, 1), -1, i32)
            first = 0
            for c in pto.tiles(x.cols, COLS):
                v = pto.cast(x[r, c], f32) * a
                best = pto.rowmax(v)
                here = pto.rowargmax(v) + first
                is_nan = (best != best) & (top == top)
                better = (best > top) | is_nan | (place < 0)
                top = pto.where(better, best, top)
                place = pto.where(better, here, place)
                first = first + COLS
            pto.store(y[r], place)

    @kernel
    def rows_var(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]], a: Scalar[f32]):
        for r in pto.tiles(x.rows, ROWS):
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.cast(x[r, c], f32))
            mean = total / x.cols
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                d = pto.cast(x[r, c], f32) - mean
                squares = squares + pto.rowsum(d * d)
            pto.store(y[r], pto.cast(squares / a, DT))

    @kernel
    def rows_norm(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                v = pto.cast(x[r, c], f32)
                squares = squares + pto.rowsum(v * v)
            pto.store(y[r], pto.cast(pto.sqrt(squares), DT))

    @kernel
    def rows_partial(x: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[f32, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            total = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                total = total + pto.rowsum(pto.cast(x[r, c], f32))
            pto.store(y[r], total)

    @kernel
    def rows_total(x: In[Tensor[f32, DYN, 1]], y: Out[Tensor[DT, 1, 1]], a: Scalar[f32]):
        total = pto.full((1, 1), 0.0)
        for r in pto.tiles(x.rows, COLS):
            total = total + pto.colsum(x[r])
        pto.store(y, pto.cast(total * a, DT))

    @workload
    def total(X: Tensor[DT, "n", "m"], Parts: Tensor[f32, "n", 1], Y: Tensor[DT, 1, 1], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_partial[r](x=X[r], y=Parts[r])
        rows_total(x=Parts, y=Y, a=a)

    @workload
    def sum_(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_sum[r](x=X[r], y=Y[r], a=a)

    @workload
    def amax(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_amax[r](x=X[r], y=Y[r])

    @workload
    def amin(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_amin[r](x=X[r], y=Y[r])

    @workload
    def argmax(X: Tensor[DT, "n", "m"], Y: Tensor[i32, "n", 1], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_argmax[r](x=X[r], y=Y[r], a=a)

    @workload
    def var(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            rows_var[r](x=X[r], y=Y[r], a=a)

    @workload
    def norm(X: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_norm[r](x=X[r], y=Y[r])

    return [total, sum_.named("sum"), amax, amin, argmax, var, norm]


def row_losses(DT: DType) -> list[Workload]:
    """Return losses and likenesses of rows."""

    @kernel
    def rows_cross_entropy(
        x: In[Tensor[DT, DYN, DYN]], t: In[Tensor[i32, DYN, 1]], y: Out[Tensor[DT, DYN, 1]]
    ):
        for r in pto.tiles(x.rows, ROWS):
            top = pto.full((x[r].rows, 1), -inf)
            for c in pto.tiles(x.cols, COLS):
                top = pto.maximum(top, pto.rowmax(pto.cast(x[r, c], f32)))
            total = pto.full((x[r].rows, 1), 0.0)
            picked = pto.full((x[r].rows, 1), 0.0)
            left = pto.load(t[r])
            for c in pto.tiles(x.cols, COLS):
                v = pto.cast(x[r, c], f32) - top
                total = total + pto.rowsum(pto.exp(v))
                columns = pto.iota((x[r].rows, x[:, c].cols))
                picked = picked + pto.rowsum(pto.where(columns == left, v, 0.0))
                left = left - COLS
            pto.store(y[r], pto.cast(pto.log(total) - picked, DT))

    @kernel
    def rows_nll_loss(x: In[Tensor[DT, DYN, DYN]], t: In[Tensor[i32, DYN, 1]], y: Out[Tensor[DT, DYN, 1]]):
        for r in pto.tiles(x.rows, ROWS):
            picked = pto.full((x[r].rows, 1), 0.0)
            left = pto.load(t[r])
            for c in pto.tiles(x.cols, COLS):
                columns = pto.iota((x[r].rows, x[:, c].cols))
                picked = picked + pto.rowsum(pto.where(columns == left, pto.cast(x[r, c], f32), 0.0))
                left = left - COLS
            pto.store(y[r], pto.cast(-picked, DT))

    @kernel
    def rows_cosine_similarity(
        x: In[Tensor[DT, DYN, DYN]], t: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]], a: Scalar[f32]
    ):
        for r in pto.tiles(x.rows, ROWS):
            dot = pto.full((x[r].rows, 1), 0.0)
            left = pto.full((x[r].rows, 1), 0.0)
            right = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                v, w = pto.cast(x[r, c], f32), pto.cast(t[r, c], f32)
                dot = dot + pto.rowsum(v * w)
                left = left + pto.rowsum(v * v)
                right = right + pto.rowsum(w * w)
            sizes = pto.maximum(pto.sqrt(left), a) * pto.maximum(pto.sqrt(right), a)
            pto.store(y[r], pto.cast(dot / sizes, DT))

    @kernel
    def rows_pairwise_distance(
        x: In[Tensor[DT, DYN, DYN]], t: In[Tensor[DT, DYN, DYN]], y: Out[Tensor[DT, DYN, 1]], a: Scalar[f32]
    ):
        for r in pto.tiles(x.rows, ROWS):
            squares = pto.full((x[r].rows, 1), 0.0)
            for c in pto.tiles(x.cols, COLS):
                d = pto.cast(x[r, c], f32) - pto.cast(t[r, c], f32) + a
                squares = squares + pto.rowsum(d * d)
            pto.store(y[r], pto.cast(pto.sqrt(squares), DT))

    @workload
    def cross_entropy(X: Tensor[DT, "n", "m"], T: Tensor[i32, "n", 1], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_cross_entropy[r](x=X[r], t=T[r], y=Y[r])

    @workload
    def nll_loss(X: Tensor[DT, "n", "m"], T: Tensor[i32, "n", 1], Y: Tensor[DT, "n", 1]):
        for r in P.tiles("n", ROWS):
            rows_nll_loss[r](x=X[r], t=T[r], y=Y[r])

    @workload
    def cosine_similarity(
        X: Tensor[DT, "n", "m"], T: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1], a: Scalar[f32]
    ):
        for r in P.tiles("n", ROWS):
            rows_cosine_similarity[r](x=X[r], t=T[r], y=Y[r], a=a)

    @workload
    def pairwise_distance(
        X: Tensor[DT, "n", "m"], T: Tensor[DT, "n", "m"], Y: Tensor[DT, "n", 1], a: Scalar[f32]
    ):
        for r in P.tiles("n", ROWS):
            rows_pairwise_distance[r](x=X[r], t=T[r], y=Y[r], a=a)

    return [cross_entropy, nll_loss, cosine_similarity, pairwise_distance]
