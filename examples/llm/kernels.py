"""The kernels of a decoder: each works on what one task sees, whatever the sizes of the batch.

The bits of a row depend on this row and the weights alone: not on other rows of the task, nor on how a prompt
was cut. A key that a query may not see adds exact zeros. Keys lie in columns: products with few and with many
queries then add in the same order.
"""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import sqrt
from typing import Any

from examples.llm.config import Config
from examples.llm.storage import Storage
from pto_wsp import (
    DYN,
    Constexpr,
    In,
    InOut,
    Out,
    Scalar,
    Tensor,
    Tile,
    bf16,
    f32,
    i8,
    i32,
    i64,
    kernel,
    pto,
    u8,
)
from pto_wsp.types.dtype import DType
from pto_wsp.types.quantised import CHUNK, rounded_cols

ROWS = 64
"""Packed tokens per task of the linear layers: they stay in the second cache while panels pass."""

PAGE = 64
"""Positions of a page of the cache, which are the keys whose scores a task holds at a time."""

QUERIES = 64
"""Queries of a request per task of attention."""

UNSEEN = -1e30
"""Score of a key that a query may not see: its weight is exactly 0 once the query has seen another."""


class Activations:
    """How products take their rows: as f32, as bf16, or rounded to i8 in groups of 32.

    Attributes:
        dtype: f32, bf16, or u8 for the bytes of rounded groups.
        taken: inside kernels, returns a tile as products take it.
    """

    def __init__(self, dtype: DType) -> None:
        self.is_rounded = dtype is i8
        self.dtype = u8 if self.is_rounded else dtype
        self.taken: Any = {f32: _same, bf16: _as_bf16, i8: pto.quantise}[dtype]

    def cols(self, count: Any) -> Any:
        """Return the columns that `count` elements take."""
        return count // CHUNK * rounded_cols(CHUNK) if self.is_rounded else count

    def tile(self, cols: int) -> Any:
        """Return the type of rows of that many elements."""
        return Tile[ROWS, self.cols(cols), self.dtype]


class CacheForm:
    """How the cache keeps keys and values: as f32, as bf16, or as i8 with a scale per position and head.

    Attributes:
        dtype: of elements.
        has_scales: elements are numbers of -127 to 127, whose scales are f32 in tensors of their own.
        written: type of a kernel's parameter for the scales that it writes.
        kept: inside kernels, returns rows as the cache keeps them.
        widened: inside kernels, returns elements of the cache as f32.
    """

    def __init__(self, dtype: DType) -> None:
        self.dtype, self.has_scales = dtype, dtype is i8
        scales = Tensor[f32, DYN, PAGE]
        self.written: Any = InOut[scales] if self.has_scales else In[scales]
        self.kept: Any = {f32: _same, bf16: _as_bf16, i8: _as_i8}[dtype]
        self.widened: Any = _same if dtype is f32 else _as_f32


def _as_bf16(x: Any) -> Any:
    """Return a tile as bf16."""
    return pto.cast(x, bf16)


def _as_i8(x: Any) -> Any:
    """Return a tile as i8, rounded half to even; NaN, of a row of zeros, is 0."""
    return pto.cast(x, i8, rmode="rint")


def _as_f32(x: Any) -> Any:
    """Return a tile as f32."""
    return pto.cast(x, f32)


def _same(x: Any) -> Any:
    """Return the tile itself."""
    return x


def product_with(storage: Storage) -> Any:
    """Return a function for kernels: total + x @ panel."""
    FORMAT = storage.kind

    def quantised(total: Any, x: Any, panel: Any) -> Any:
        return pto.matmul_quantised(total, x, panel, FORMAT)

    def floats(total: Any, x: Any, panel: Any) -> Any:
        return pto.matmul(x, panel, acc=total)

    return quantised if storage.form else floats


# --- linear layers: a task has at most ROWS rows, and the panels of one head or one panel ---


def turned_kernel(
    storage: Storage, activations: Activations, config: Config, form: CacheForm, is_key: bool, has_rows: bool
) -> Any:
    """Return the kernel that makes one head of queries, or of keys in their places of the cache.

    The two panels of a head hold its halves. They get their bias, are normalised, and turn by the angles.

    Args:
        storage: of the matrix.
        activations: how products take their rows.
        config: the model.
        form: of the cache.
        is_key: of keys.
        has_rows: the bias has a row per token.
    """
    DIM, HALF, EPSILON = config.dim, config.dim // 2, config.epsilon
    HAS_BIAS, HAS_NORM, HAS_SCALES = config.has_bias or has_rows, config.has_head_norms, form.has_scales
    BIAS_ROWS = ROWS if has_rows else 1
    kept = form.kept
    product = product_with(storage)

    def head(x: Any, w: Any, bias: Any, gain: Any, cos: Any, sin: Any) -> Any:
        """Return the halves of a head."""
        a = product(pto.zeros((x.rows, HALF)), x, w[0])
        b = product(pto.zeros((x.rows, HALF)), x, w[1])
        if HAS_BIAS:
            a, b = a + bias[:, 0:HALF], b + bias[:, HALF:DIM]
        if HAS_NORM:
            factor = pto.rsqrt((pto.rowsum(a * a) + pto.rowsum(b * b)) * (1 / DIM) + EPSILON)
            a, b = a * factor * gain[:, 0:HALF], b * factor * gain[:, HALF:DIM]
        return a * cos - b * sin, b * cos + a * sin

    @kernel
    def query(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(2)],
        bias: In[Tile[BIAS_ROWS, DIM, f32]],
        gain: In[Tile[1, DIM, f32]],
        cos: In[Tile[ROWS, HALF, f32]],
        sin: In[Tile[ROWS, HALF, f32]],
        out: Out[Tile[ROWS, DIM, f32]],
    ):
        a, b = head(x, w, bias, gain, cos, sin)
        pto.store(out[:, 0:HALF], a)
        pto.store(out[:, HALF:DIM], b)

    @kernel
    def key(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(2)],
        bias: In[Tile[BIAS_ROWS, DIM, f32]],
        gain: In[Tile[1, DIM, f32]],
        cos: In[Tile[ROWS, HALF, f32]],
        sin: In[Tile[ROWS, HALF, f32]],
        place: In[Tensor[i32, DYN, 2]],
        out: InOut[Tensor[form.dtype, DYN, DIM, PAGE]],
        scales: form.written,
    ):
        a, b = head(x, w, bias, gain, cos, sin)
        if HAS_SCALES:
            scale = pto.maximum(pto.rowmax(pto.abs(a)), pto.rowmax(pto.abs(b))) / 127
            a, b = a / scale, b / scale
        for i in range(x.rows):
            page, at = place[i, 0], place[i, 1]
            pto.store(out[page, 0:HALF, at : at + 1], kept(pto.transpose(pto.extract(a, (1, HALF), i, 0))))
            pto.store(out[page, HALF:DIM, at : at + 1], kept(pto.transpose(pto.extract(b, (1, HALF), i, 0))))
            if HAS_SCALES:
                pto.store(scales[page : page + 1, at : at + 1], pto.extract(scale, (1, 1), i, 0))  # pyright: ignore[reportPossiblyUnboundVariable]

    return key if is_key else query


def value_kernel(
    storage: Storage, activations: Activations, config: Config, form: CacheForm, has_rows: bool
) -> Any:
    """Return the kernel that writes one head of values to its places in the cache; see `turned_kernel`."""
    DIM, HAS_BIAS, HAS_SCALES = config.dim, config.has_bias or has_rows, form.has_scales
    BIAS_ROWS = ROWS if has_rows else 1
    product, kept = product_with(storage), form.kept

    @kernel
    def value(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(1)],
        bias: In[Tile[BIAS_ROWS, DIM, f32]],
        place: In[Tensor[i32, DYN, 2]],
        out: InOut[Tensor[form.dtype, DYN, PAGE, DIM]],
        scales: form.written,
    ):
        v = product(pto.zeros((x.rows, DIM)), x, w[0])
        if HAS_BIAS:
            v = v + bias
        if HAS_SCALES:
            scale = pto.rowmax(pto.abs(v)) / 127
            v = v / scale
        for i in range(x.rows):
            page, at = place[i, 0], place[i, 1]
            pto.store(out[page, at : at + 1], kept(pto.extract(v, (1, DIM), i, 0)))
            if HAS_SCALES:
                pto.store(scales[page : page + 1, at : at + 1], pto.extract(scale, (1, 1), i, 0))  # pyright: ignore[reportPossiblyUnboundVariable]

    return value


def add_kernel(storage: Storage, activations: Activations) -> Any:
    """Return the kernel that adds a product to the tokens: h + x @ w."""
    product = product_with(storage)

    @kernel
    def add(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(1)],
        h: InOut[Tile[ROWS, storage.cols, f32]],
    ):
        pto.store(h, product(pto.load(h), x, w[0]))

    return add


def gate_kernel(
    gate_storage: Storage, up_storage: Storage, activations: Activations, has_rows: bool = False
) -> Any:
    """Return the kernel of the feed-forward network's inner elements: silu(x @ gate) * (x @ up).

    Where it has rows, they are added to both products.
    """
    COLS = gate_storage.cols
    gate_product, up_product = product_with(gate_storage), product_with(up_storage)
    taken = activations.taken

    @kernel
    def gate(
        x: In[activations.tile(gate_storage.k)],
        gate: In[gate_storage.view(1)],
        up: In[up_storage.view(1)],
        out: Out[activations.tile(COLS)],
    ):
        opened = pto.silu(gate_product(pto.zeros((x.rows, COLS)), x, gate[0]))
        pto.store(out, taken(up_product(pto.zeros((x.rows, COLS)), x, up[0]) * opened))

    @kernel
    def gate_rows(
        x: In[activations.tile(gate_storage.k)],
        gate: In[gate_storage.view(1)],
        up: In[up_storage.view(1)],
        gate_row: In[Tile[ROWS, COLS, f32]],
        up_row: In[Tile[ROWS, COLS, f32]],
        out: Out[activations.tile(COLS)],
    ):
        opened = pto.silu(gate_product(pto.zeros((x.rows, COLS)), x, gate[0]) + gate_row)
        closed = up_product(pto.zeros((x.rows, COLS)), x, up[0]) + up_row
        pto.store(out, taken(closed * opened))

    return gate_rows if has_rows else gate


def logits_kernel(storage: Storage, activations: Activations) -> Any:
    """Return the kernel of the scores of one panel of tokens; the last panel may have fewer."""
    COLS, IS_QUANTISED = storage.cols, storage.form is not None
    product = product_with(storage)

    @kernel
    def score(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(1)],
        out: Out[Tensor[f32, DYN, DYN]],
    ):
        for some in pto.tiles(out.cols, COLS):
            for r in pto.tiles(out.rows, ROWS):
                total = pto.zeros((r.extent, some.extent))
                if IS_QUANTISED:
                    pto.store(out[r, some], product(total, x, w[0]))
                else:
                    pto.store(out[r, some], product(total, x, w[0, :, some]))

    return score


# --- norms, embeddings ---


def normalised_with(config: Config) -> Any:
    """Return a function for kernels: h / rms(h) * gain."""
    HIDDEN, EPSILON = config.hidden, config.epsilon

    def normalised(h: Any, gain: Any) -> Any:
        return h * pto.rsqrt(pto.rowsum(h * h) * (1 / HIDDEN) + EPSILON) * gain

    return normalised


def norm_kernels(config: Config, activations: Activations) -> tuple[Any, Any]:
    """Return the norm of tokens as products take it: of tokens side by side, and of those that are named."""
    HIDDEN, taken, normalised = config.hidden, activations.taken, normalised_with(config)

    @kernel
    def norm(
        h: In[Tile[ROWS, HIDDEN, f32]],
        gain: In[Tile[1, HIDDEN, f32]],
        out: Out[activations.tile(HIDDEN)],
    ):
        pto.store(out, taken(normalised(h, gain)))

    @kernel
    def norm_named(
        h: In[Tensor[f32, DYN, HIDDEN]],
        rows: In[Tile[ROWS, 1, i32]],
        gain: In[Tile[1, HIDDEN, f32]],
        out: Out[activations.tile(HIDDEN)],
    ):
        pto.store(out, taken(normalised(pto.gather(h, rows), gain)))

    return norm, norm_named


def embed_kernel(config: Config, dtype: DType, group: int, zero: int, has_minima: bool) -> Any:
    """Return the kernel that writes the embeddings of tokens.

    Args:
        config: the model.
        dtype: element type of the table.
        group: elements of u8 that share a scale and a minimum.
        zero: number of the value 0 where there are no minima.
        has_minima: groups have minima.
    """
    HIDDEN, GROUP, ZERO, IS_QUANTISED, HAS_MINIMA = config.hidden, group, zero, dtype is u8, has_minima

    @kernel
    def embed(
        ids: In[Tile[ROWS, 1, i32]],
        table: In[Tensor[dtype, DYN, HIDDEN]],
        scales: In[Tensor[f32, DYN, DYN]],
        minima: In[Tensor[f32, DYN, DYN]],
        out: Out[Tile[ROWS, HIDDEN, f32]],
    ):
        if IS_QUANTISED:
            for g in range(HIDDEN // GROUP):
                c = g * GROUP
                numbers = pto.cast(pto.gather(table[:, c : c + GROUP], ids), f32)
                part = (numbers - ZERO) * pto.gather(scales[:, g : g + 1], ids)
                if HAS_MINIMA:
                    part = part + pto.gather(minima[:, g : g + 1], ids)
                pto.store(out[:, c : c + GROUP], part)
        else:
            pto.store(out, pto.cast(pto.gather(table, ids), f32))

    return embed


# --- attention ---


def attend_kernel(config: Config, activations: Activations, form: CacheForm, is_one: bool) -> Any:
    """Return causal attention over pages: one query of all heads of a group, or many queries of one head."""
    DIM, GROUP, WINDOW, IS_ONE = config.dim, config.group, config.window, is_one
    MOST = GROUP if is_one else QUERIES
    taken, widened, HAS_SCALES = activations.taken, form.widened, form.has_scales
    out_tile = Tile[
        1 if is_one else QUERIES, activations.cols(GROUP * DIM if is_one else DIM), activations.dtype
    ]

    @kernel
    def attend(
        q: In[Tile[MOST, DIM, f32]],
        k: In[Tensor[form.dtype, DYN, DIM, PAGE]],
        v: In[Tensor[form.dtype, DYN, PAGE, DIM]],
        k_scales: In[Tensor[f32, DYN, PAGE]],
        v_scales: In[Tensor[f32, DYN, PAGE]],
        pages: In[Tensor[i32, DYN]],
        position: Scalar[i64],
        out: Out[out_tile],
        MOST_ROWS: Constexpr[int] = MOST,
    ):
        """The first query is at `position`, and sees the keys up to there."""
        m, l, acc = pto.full((q.rows, 1), UNSEEN), pto.zeros((q.rows, 1)), pto.zeros((q.rows, DIM))  # noqa: E741
        scaled = q * (1 / sqrt(DIM))
        seen = position + 1 if IS_ONE else position + q.rows
        first = max(position - WINDOW + 1, 0) // PAGE if WINDOW else 0
        for i in range(first, (seen + PAGE - 1) // PAGE):
            page = pages[i]
            for r in pto.tiles(min(seen - PAGE * i, PAGE), PAGE):
                s = pto.matmul(scaled, widened(k[page, :, r]))
                if HAS_SCALES:
                    s = s * k_scales[page : page + 1, r]
                if not IS_ONE or WINDOW:
                    ahead = pto.iota((s.rows, s.cols), PAGE * i - position)
                    if not IS_ONE:
                        ahead = ahead - pto.transpose(pto.iota((1, s.rows), 0))
                    s = pto.where(ahead <= 0, s, UNSEEN)
                    if WINDOW:
                        s = pto.where(ahead > -WINDOW, s, UNSEEN)
                m_new = pto.maximum(m, pto.rowmax(s))
                p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
                l = l * alpha + pto.rowsum(p)  # noqa: E741
                if HAS_SCALES:
                    p = p * v_scales[page : page + 1, r]
                acc = pto.matmul(p, widened(v[page, r]), acc=acc * alpha)
                m = m_new
        o = acc / l
        if IS_ONE:
            pto.store(out, taken(pto.reshape(o, (1, GROUP * DIM))))
        else:
            pto.store(out, taken(o))

    return attend
