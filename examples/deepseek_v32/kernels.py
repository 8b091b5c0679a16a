"""The kernels of the four graphs.

Pairs that turn are the halves of a row everywhere: the packed weights of a model with interleaved pairs have
their columns in another order, which no score sees.
"""

# Annotations depend on the sizes, which the language reads.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import inf
from typing import Any, NamedTuple

from examples.deepseek_v32.config import BLOCK, E4M3_MAX, EPSILON, LEAST_AMAX, Config
from pto_wsp import DYN, Constexpr, In, Out, Scalar, Tensor, Tile, bf16, f32, i32, i64, kernel, pto, tier
from pto_wsp.types.dtype import DType

ROWS = 32
"""Tokens per task of the products with weights."""

FEW = 8
"""Up to this number of tokens, weights are read in place: such products are bound by memory."""

COLS = 64
"""Columns of a panel of weights."""

DEPTH = 512
"""Terms that are added per step."""

NORM_ROWS = 8
"""Tokens per task of the norms."""

SCORED = 2048
"""Keys per task of the indexer."""

RANKED = 8192
"""Keys per task that finds the best of them."""

PICKED = 512
"""Chosen keys per task of attention."""

STEP = 64
"""Keys whose scores are held at a time."""

ATTENDED_HEADS = 64
"""Heads per task of attention."""

LEAST_SCALE = 2.0**-22
"""Of the quantiser: 448 times its half is below `LEAST_AMAX`."""

SCALES = 40
"""Scales that the quantiser tries, each twice the one before."""


class Linear(NamedTuple):
    """Products with weights for one number of rows.

    Attributes:
        multiply: rows times a panel.
        query: the query of one head, its part without position taken to the latent space.
        index_query: the query of one head of the indexer.
        value: the value of one head from the sum of latent vectors.
    """

    multiply: Any
    query: Any
    index_query: Any
    value: Any


def turned(x: Any, cos: Any, sin: Any, pairs: int) -> tuple[Any, Any]:
    """Return the halves of a tile's first 2 * `pairs` columns, turned."""
    left, right = pto.extract(x, (x.rows, pairs)), pto.extract(x, (x.rows, pairs), 0, pairs)
    return left * cos - right * sin, right * cos + left * sin


def rounded(x: Any) -> Any:
    """Return blocks of 128 columns, rounded to 8-bit floats times a power of 2 and back: exact steps of f32.

    Adding and subtracting 1.5 * 2^(e + 20) rounds numbers of exponent e to 4 bits, to nearest even; below
    2^-6, where 8-bit floats are subnormal, the step stays 2^-9.
    """
    amax = pto.maximum(pto.rowmax(pto.abs(x)), LEAST_AMAX)
    scale = pto.full((x.rows, 1), LEAST_SCALE)
    for _ in range(SCALES):
        scale = pto.where(scale * E4M3_MAX < amax, scale * 2.0, scale)
    y = x / scale
    size, shift, least = pto.abs(y), pto.full((x.rows, x.cols), 1.5 * 2.0**14), 2.0**-5
    for _ in range(14):
        shift = pto.where(size >= least, least * (1.5 * 2.0**20), shift)
        least = least * 2.0
    return ((y + shift) - shift) * scale


def linear_kernels(config: Config, weights: DType, rows: int) -> Linear:
    """Return the products whose tasks have at most `rows` tokens."""
    Q_RANK, KV_RANK, NOPE, ROPE, VALUE = config.q_rank, config.kv_rank, config.nope, config.rope, config.value
    KEY, PAIRS, INDEX_DIM = config.key, config.rope // 2, config.index_dim
    SCALE = config.softmax_scale
    angle = In[Tile[rows, PAIRS, f32]]

    @kernel
    def multiply(
        x: In[Tensor[f32, DYN, DYN]],
        w: In[Tensor[weights, DYN, COLS]],
        y: Out[Tensor[f32, DYN, DYN]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        for r in pto.tiles(y.rows, rows):
            for c in pto.tiles(y.cols, COLS):
                total = pto.zeros((r.extent, c.extent))
                for k in pto.tiles(x.cols, DEPTH):
                    total = pto.matmul(x[r, k], w[k, c], acc=total)
                pto.store(y[r, c], total)

    @kernel
    def query(
        qr: In[Tile[rows, Q_RANK, f32]],
        w: In[Tile[Q_RANK, NOPE + ROPE, weights]],
        to_latent: In[Tile[NOPE, KV_RANK, weights]],
        cos: angle,
        sin: angle,
        q: Out[Tile[rows, KEY, f32]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """The query of one head, times the factor of the scores."""
        made = pto.matmul(qr, w) * SCALE
        left, right = turned(pto.extract(made, (made.rows, ROPE), 0, NOPE), cos, sin, PAIRS)
        pto.store(q[:, 0:KV_RANK], pto.matmul(pto.extract(made, (made.rows, NOPE)), to_latent))
        pto.store(q[:, KV_RANK : KV_RANK + PAIRS], left)
        pto.store(q[:, KV_RANK + PAIRS : KEY], right)

    @kernel
    def index_query(
        qr: In[Tile[rows, Q_RANK, f32]],
        w: In[Tile[Q_RANK, INDEX_DIM, weights]],
        cos: angle,
        sin: angle,
        transform: In[Tile[INDEX_DIM, INDEX_DIM, f32]],
        q: Out[Tile[rows, INDEX_DIM, f32]],
        MOST_ROWS: Constexpr[int] = rows,
        is_quantised: Constexpr[bool] = True,
    ):
        """The query of one head of the indexer: turned, transformed, rounded."""
        made = pto.matmul(qr, w)
        pto.store(q, indexed(made, cos, sin, transform, config, is_quantised))

    @kernel
    def value(
        latent: In[Tile[rows, KV_RANK, f32]],
        w: In[Tile[KV_RANK, VALUE, weights]],
        o: Out[Tile[rows, VALUE, f32]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """The output of one head."""
        pto.store(o, pto.matmul(latent, w))

    return Linear(multiply, query, index_query, value)


def indexed(x: Any, cos: Any, sin: Any, transform: Any, config: Config, is_quantised: bool) -> Any:
    """Return queries or keys of the indexer: turned, transformed, rounded as 8-bit floats."""
    pairs = config.rope // 2
    left, right = turned(x, cos, sin, pairs)
    x = pto.insert(pto.insert(x, left), right, 0, pairs)
    x = pto.matmul(x, transform)
    if is_quantised:
        x = rounded(pto.cast(pto.cast(x, bf16), f32))
    return x


class Norms(NamedTuple):
    """What follows the first products of a token.

    Attributes:
        compress: the compressed query.
        append: a row of attention's cache.
        append_index: a row of the indexer's cache.
    """

    compress: Any
    append: Any
    append_index: Any


def norm_kernels(config: Config) -> Norms:
    """Return the kernels of the norms, which also append to the caches."""
    Q_RANK, KV_RANK, KEY, PAIRS = config.q_rank, config.kv_rank, config.key, config.rope // 2
    INDEX_DIM = config.index_dim
    angle = In[Tile[NORM_ROWS, PAIRS, f32]]

    def norm(x: Any, gain: Any, size: int) -> Any:
        return x * pto.rsqrt(pto.rowsum(x * x) * (1 / size) + EPSILON) * gain

    @kernel
    def compress(
        x: In[Tile[NORM_ROWS, Q_RANK, f32]],
        gain: In[Tile[1, Q_RANK, f32]],
        qr: Out[Tile[NORM_ROWS, Q_RANK, f32]],
    ):
        pto.store(qr, norm(x, gain, Q_RANK))

    @kernel
    def append(
        x: In[Tile[NORM_ROWS, KEY, f32]],
        gain: In[Tile[1, KV_RANK, f32]],
        cos: angle,
        sin: angle,
        row: Out[Tile[NORM_ROWS, KEY, f32]],
        is_quantised: Constexpr[bool] = True,
    ):
        """The latent vector, normed and rounded in blocks, then the part with position, turned."""
        latent = norm(pto.extract(x, (x.rows, KV_RANK)), gain, KV_RANK)
        for block in range(KV_RANK // BLOCK):
            c = block * BLOCK
            part = pto.extract(latent, (x.rows, BLOCK), 0, c)
            if is_quantised:
                part = rounded(part)
            pto.store(row[:, c : c + BLOCK], part)
        left, right = turned(pto.extract(x, (x.rows, 2 * PAIRS), 0, KV_RANK), cos, sin, PAIRS)
        pto.store(row[:, KV_RANK : KV_RANK + PAIRS], left)
        pto.store(row[:, KV_RANK + PAIRS : KEY], right)

    @kernel
    def append_index(
        x: In[Tile[NORM_ROWS, INDEX_DIM, f32]],
        gain: In[Tile[1, INDEX_DIM, f32]],
        bias: In[Tile[1, INDEX_DIM, f32]],
        cos: angle,
        sin: angle,
        transform: In[Tile[INDEX_DIM, INDEX_DIM, f32]],
        row: Out[Tile[NORM_ROWS, INDEX_DIM, f32]],
        is_quantised: Constexpr[bool] = True,
    ):
        """The indexer's key: layer norm, turned, transformed, rounded."""
        x = x - pto.rowsum(x) * (1 / INDEX_DIM)
        x = norm(x, gain, INDEX_DIM) + bias
        pto.store(row, indexed(x, cos, sin, transform, config, is_quantised))

    return Norms(compress, append, append_index)


class Choice(NamedTuple):
    """The lightning indexer.

    Attributes:
        score: scores of some keys.
        rank: the best of many keys.
        select: the chosen keys, by tiers of the number of keys.
    """

    score: Any
    rank: Any
    select: Any


def choice_kernels(config: Config) -> Choice:
    """Return the indexer: it scores keys and chooses the best `top_k` of them."""
    HEADS, DIM, TOP_K = config.index_heads, config.index_dim, config.top_k

    @kernel
    def score(
        q: In[Tile[HEADS, DIM, f32]],
        weight: In[Tile[1, HEADS, f32]],
        k: In[Tile[SCORED, DIM, f32]],
        scores: Out[Tile[1, SCORED, f32]],
    ):
        """While the keys of one step are multiplied, those of the next come from memory."""
        queries = pto.transpose(q)
        for r in pto.tiles(k.rows, STEP):
            pto.prefetch(k, pto.minimum(pto.iota((1, STEP), r.start + STEP), k.rows - 1))
            weighted = pto.relu(pto.matmul(k[r], queries)) * weight
            pto.store(scores[:, r], pto.transpose(pto.rowsum(weighted)))

    @kernel
    def rank(scores: In[Tensor[f32, 1, DYN]], first: Scalar[i64], ranked: Out[Tile[1, TOP_K, i64]]):
        """The best `TOP_K` of at least as many keys, from number `first` on, as sorted pairs."""
        best = pto.sort(scores[:, 0:TOP_K], pto.iota((1, TOP_K), first))
        for r in pto.tiles(scores.cols, TOP_K):
            if r.start > 0:
                numbers = pto.iota((1, r.extent), first + r.start)
                best = pto.merge(best, pto.sort(scores[:, r], numbers), TOP_K)
        pto.store(ranked, best)

    @kernel
    def select_all(
        scores: In[Tile[1, TOP_K, f32]],
        ranked: In[Tensor[i64, DYN, TOP_K]],
        picks: Out[Tile[1, TOP_K, i32]],
    ):
        """No more keys than `TOP_K`: all of them."""
        pto.store(picks, pto.iota((1, scores.cols)))

    @kernel
    def select_8k(
        scores: In[Tile[1, RANKED, f32]],
        ranked: In[Tensor[i64, DYN, TOP_K]],
        picks: Out[Tile[1, TOP_K, i32]],
    ):
        """Sort the scores of all keys."""
        pto.store(picks, pto.extract_topk_indices(pto.sort(scores), picks.cols))

    @kernel
    def select_64k(
        scores: In[Tensor[f32, 1, DYN]],
        ranked: In[Tensor[i64, DYN, TOP_K]],
        picks: Out[Tile[1, TOP_K, i32]],
    ):
        """Merge what other tasks have ranked."""
        best = pto.load(ranked[0:1])
        for i in range(1, ranked.rows):
            best = pto.merge(best, ranked[i : i + 1], TOP_K)
        pto.store(picks, pto.extract_topk_indices(best, picks.cols))

    select = tier("select", (select_all, TOP_K), (select_8k, RANKED), (select_64k, 65536))
    return Choice(score, rank, select)


class Attention(NamedTuple):
    """Attention over chosen keys.

    Attributes:
        attend: over some of them, for some heads.
        merge: puts such parts together.
    """

    attend: Any
    merge: Any


def attention_kernels(config: Config) -> Attention:
    """Return attention in the latent space: keys are whole rows of the cache, values their first part.

    The state of a head is a maximum m, a sum of weights l and a weighted sum of values.
    """
    HEADS, KEY, VALUE = min(config.heads, ATTENDED_HEADS), config.key, config.kv_rank

    @kernel
    def attend(
        q: In[Tile[HEADS, KEY, f32]],
        latent: In[Tensor[f32, DYN, KEY]],
        picks: In[Tile[1, PICKED, i32]],
        part: Out[Tile[HEADS, VALUE, f32]],
        state: Out[Tile[2, HEADS, f32]],
    ):
        """While the values of one step are added up, the keys of the next come from memory."""
        m, l, acc = pto.full((q.rows, 1), -inf), pto.zeros((q.rows, 1)), pto.zeros((q.rows, VALUE))  # noqa: E741
        for r in pto.tiles(picks.cols, STEP):
            rows = picks[:, r]
            s = pto.matmul(q, pto.gather(latent, rows).T)
            m_new = pto.maximum(m, pto.rowmax(s))
            p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
            l = l * alpha + pto.rowsum(p)  # noqa: E741
            after = pto.minimum(pto.iota((1, STEP), r.start + STEP), picks.cols - 1)
            pto.prefetch(latent, pto.take(picks, after))
            acc = pto.matmul(p, pto.gather(latent[:, 0:VALUE], rows), acc=acc * alpha)
            m = m_new
        pto.store(part, acc)
        pto.store(state[0:1], pto.transpose(m))
        pto.store(state[1:2], pto.transpose(l))

    @kernel
    def merge(
        parts: In[Tensor[f32, DYN, DYN, VALUE]],
        states: In[Tensor[f32, DYN, 2, DYN]],
        o: Out[Tile[HEADS, VALUE, f32]],
    ):
        """Fold the parts in their order."""
        m, l, acc = pto.full((o.rows, 1), -1e30), pto.zeros((o.rows, 1)), pto.zeros((o.rows, VALUE))  # noqa: E741
        for i in range(parts.rows):
            for r in pto.tiles(o.rows, HEADS):
                m_part = pto.transpose(states[i, 0:1, r])
                m_new = pto.maximum(m, m_part)
                before, here = pto.exp(m - m_new), pto.exp(m_part - m_new)
                l = l * before + pto.transpose(states[i, 1:2, r]) * here  # noqa: E741
                acc = acc * before + parts[i, r] * here
                m = m_new
        pto.store(o, acc / l)

    return Attention(attend, merge)
