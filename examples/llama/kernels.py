"""The kernels of a decoder layer: each works on what one task sees, whatever the sizes of the batch.

Gains of the norms are folded into the weights after them, so that a norm is a factor per row: `measure`
makes it, and products are scaled by it when they are complete.
"""

# Annotations depend on the shape of the layer, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import inf, sqrt
from typing import Any, NamedTuple

from pto_wsp import DYN, Constexpr, In, InOut, Out, Scalar, Tensor, Tile, f32, i64, kernel, panel_cols, pto
from pto_wsp.types.dtype import DType

ROWS = 64
"""Packed tokens per task of the linear layers: they stay in the second cache while panels pass by."""

SLAB = 4
"""Tasks' columns that all tokens are multiplied with before the next ones are read from memory."""

FEW = 8
"""Up to this number of tokens, weights are read in place: products of few rows are bound by memory."""

QUERIES = 128
"""Queries of a request per task of attention."""

STEP = 64
"""Keys whose scores are held at a time."""

EPSILON = 1e-5


class Shape(NamedTuple):
    """The sizes of a layer: those of LLaMA-7B unless said otherwise.

    Attributes:
        heads: of queries, keys and values alike.
        dim: elements of a head, a multiple of 4.
        inner: size of the feed-forward network, a multiple of half of dim.
    """

    heads: int = 32
    dim: int = 128
    inner: int = 11008

    @property
    def hidden(self) -> int:
        """Elements of a token."""
        return self.heads * self.dim

    @property
    def half(self) -> int:
        """Columns of a task: half a head, whose elements turn with the other half."""
        return self.dim // 2

    @property
    def panel(self) -> int:
        """Columns of a panel of weights: those of a task, or half as many."""
        return self.half if self.half <= panel_cols() else self.half // 2

    @property
    def panels(self) -> int:
        """Panels of a task."""
        return self.half // self.panel


class Types(NamedTuple):
    """Element types of a layer: `bf16` twice takes products in pairs, where the processor has them.

    Attributes:
        weights: of the matrices.
        activations: of what products take from the left; sums and what is added to tokens are f32.
    """

    weights: DType = f32
    activations: DType = f32


ALL_F32 = Types()


class Linear(NamedTuple):
    """The kernels of the linear layers for one number of rows."""

    measure: Any
    measure_rounded: Any
    project: Any
    project_turned: Any
    gate: Any
    add: Any
    add_inner: Any


def turned(x: Any, y: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """Return (x, y), turned."""
    return x * cos - y * sin, y * cos + x * sin


def linear_kernels(shape: Shape, types: Types, rows: int) -> Linear:  # noqa: C901  (loops of the kernels, one after the other)
    """Return the kernels whose tasks have at most `rows` tokens.

    Args:
        shape: sizes of the layer.
        types: element types; all else is f32.
        rows: most tokens of a task.
    """
    HIDDEN, INNER, COLS, PANELS = shape.hidden, shape.inner, shape.panel, shape.panels
    weights, TAKEN = types
    hidden_tile, taken_tile = Tile[rows, HIDDEN, f32], Tile[rows, HIDDEN, TAKEN]
    column, columns = Tile[rows, 1, f32], Tile[rows, shape.half, f32]
    panels = Tensor[weights, PANELS, HIDDEN, COLS]

    def factor(h: Any) -> Any:
        """Return the factor of an RMS norm: 1 / sqrt(mean(h * h) + EPSILON)."""
        return pto.rsqrt(pto.rowsum(h * h) * (1 / HIDDEN) + EPSILON)

    @kernel
    def measure(h: In[hidden_tile], scale: Out[column], MOST_ROWS: Constexpr[int] = rows):
        """The factor of the norm."""
        pto.store(scale, factor(h))

    @kernel
    def measure_rounded(
        h: In[hidden_tile], scale: Out[column], out: Out[taken_tile], MOST_ROWS: Constexpr[int] = rows
    ):
        """The same, and what products take."""
        pto.store(scale, factor(h))
        pto.store(out, pto.cast(h, TAKEN))

    @kernel
    def project(
        h: In[taken_tile],
        scale: In[column],
        weight: In[panels],
        out: Out[columns],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """Half of the values of a head."""
        for i in range(PANELS):
            c = i * COLS
            pto.store(out[:, c : c + COLS], pto.matmul(h, weight[i]) * scale)

    @kernel
    def project_turned(
        h: In[taken_tile],
        scale: In[column],
        left: In[panels],
        right: In[panels],
        cos: In[columns],
        sin: In[columns],
        turned_left: Out[columns],
        turned_right: Out[columns],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """Queries or keys of one head, its halves turned by the angles of their positions."""
        for i in range(PANELS):
            c = i * COLS
            x, y = pto.matmul(h, left[i]) * scale, pto.matmul(h, right[i]) * scale
            x, y = turned(x, y, cos[:, c : c + COLS], sin[:, c : c + COLS])
            pto.store(turned_left[:, c : c + COLS], x)
            pto.store(turned_right[:, c : c + COLS], y)

    @kernel
    def gate(
        h: In[taken_tile],
        scale: In[column],
        gate: In[panels],
        up: In[panels],
        out: Out[Tile[rows, shape.half, TAKEN]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """silu(x @ gate) * (x @ up)."""
        for i in range(PANELS):
            c = i * COLS
            opened = pto.silu(pto.matmul(h, gate[i]) * scale)
            x = pto.matmul(h, up[i]) * scale * opened
            pto.store(out[:, c : c + COLS], pto.cast(x, TAKEN))

    @kernel
    def add(x: In[taken_tile], weight: In[panels], h: InOut[columns], MOST_ROWS: Constexpr[int] = rows):
        """Add the output of attention: h + x @ weight."""
        for i in range(PANELS):
            c = i * COLS
            pto.store(h[:, c : c + COLS], pto.matmul(x, weight[i], acc=h[:, c : c + COLS]))

    @kernel
    def add_inner(
        x: In[Tile[rows, INNER, TAKEN]],
        weight: In[Tensor[weights, PANELS, INNER, COLS]],
        h: InOut[columns],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """Add the output of the feed-forward network: h + x @ weight."""
        for i in range(PANELS):
            c = i * COLS
            pto.store(h[:, c : c + COLS], pto.matmul(x, weight[i], acc=h[:, c : c + COLS]))

    return Linear(measure, measure_rounded, project, project_turned, gate, add, add_inner)


def append_kernel(shape: Shape) -> Any:
    """Return the kernel that appends keys and values of a request to those of the cache."""
    DIM = shape.dim

    @kernel
    def append(
        new_k: In[Tile[ROWS, DIM, f32]],
        new_v: In[Tile[ROWS, DIM, f32]],
        k: Out[Tile[ROWS, DIM, f32]],
        v: Out[Tile[ROWS, DIM, f32]],
    ):
        pto.store(k, new_k)
        pto.store(v, new_v)

    return append


def attend_kernel(shape: Shape, activations: DType, rows: int) -> Any:
    """Return causal attention of one head for at most `rows` queries of a request."""
    DIM, TAKEN = shape.dim, activations

    @kernel
    def attend(
        q: In[Tile[rows, DIM, f32]],
        k: In[Tensor[f32, DYN, DIM]],
        v: In[Tensor[f32, DYN, DIM]],
        position: Scalar[i64],
        out: Out[Tile[rows, DIM, TAKEN]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """Query i attends to the keys up to number `position` + i."""
        m, l, acc = pto.full((q.rows, 1), -inf), pto.zeros((q.rows, 1)), pto.zeros((q.rows, DIM))  # noqa: E741
        scaled = q * (1 / sqrt(DIM))
        for r in pto.tiles(k.rows, STEP):
            pto.prefetch(v[r])
            s = pto.matmul(scaled, k[r].T)
            if r.start + STEP > position:
                ahead = pto.iota((s.rows, s.cols), r.start - position) - pto.transpose(
                    pto.iota((1, s.rows), 0)
                )
                s = pto.where(ahead <= 0, s, -inf)
            m_new = pto.maximum(m, pto.rowmax(s))
            p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
            l = l * alpha + pto.rowsum(p)  # noqa: E741
            pto.prefetch(k, pto.minimum(pto.iota((1, STEP), r.start + STEP), k.rows - 1))
            acc = pto.matmul(p, v[r], acc=acc * alpha)
            m = m_new
        pto.store(out, pto.cast(acc / l, TAKEN))

    return attend
