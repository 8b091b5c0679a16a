"""The four graphs of the attention as workloads; one program runs them all, ordered by data alone.

| graph | needs | provides |
|---|---|---|
| `mla_prolog` | tokens | compressed queries, queries, rows of the cache |
| `index_prolog` | tokens, compressed queries | the indexer's queries, weights, rows of its cache |
| `lightning_indexer` | what `index_prolog` provides | chosen keys of each token |
| `sparse_attention` | queries, cache, chosen keys | output |
"""

# Annotations depend on the sizes, which the language reads.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from typing import Any

from examples.deepseek_v32.config import Config
from examples.deepseek_v32.kernels import (
    ATTENDED_HEADS,
    COLS,
    FEW,
    NORM_ROWS,
    PICKED,
    RANKED,
    ROWS,
    SCORED,
    Linear,
    attention_kernels,
    choice_kernels,
    linear_kernels,
    norm_kernels,
)
from pto_wsp import Dense, DenseDyn, MemLayout, P, Ragged, Tensor, combine, f32, i32, i64, workload
from pto_wsp.types.dtype import DType


def by_rows(config: Config, weights: DType, make: Any) -> Any:
    """Return a function that runs `make(linear, rows)` with the kernels that fit the number of tokens."""
    few, many = (linear_kernels(config, weights, rows) for rows in (FEW, ROWS))

    def run(tokens: Any) -> None:
        with P.when(tokens <= FEW):
            make(few, FEW)
        with P.otherwise():
            make(many, ROWS)

    return run


def multiply(linear: Linear, rows: int, tokens: Any, x: Any, w: Any, y: Any, cols: int) -> None:
    """Make the tasks of y = x @ w: a panel of the weights meets all tokens, then the next one."""
    for panel in P(-(-cols // COLS)):
        for r in P.tiles(tokens, rows):
            columns = slice(panel * COLS, (panel * COLS + COLS).min(cols))
            linear.multiply[r, panel](x=x[r], w=w.panels[panel], y=y[r, columns])


def mla_prolog(config: Config, weights: DType, is_quantised: bool) -> Any:
    """Return the graph that makes queries and appends to the cache of attention."""
    c, norms = config, norm_kernels(config)

    @workload
    def mla_prolog(
        tokens: DenseDyn,
        request: Ragged["batch"],
        Slot: Tensor[i32, "batch"],
        Past: Tensor[i32, "batch"],
        X: Tensor[f32, "tokens", c.hidden],
        Cos: Tensor[f32, "tokens", c.rope // 2],
        Sin: Tensor[f32, "tokens", c.rope // 2],
        Compress: Tensor[weights, c.hidden, c.compressed, MemLayout.panels(COLS)],
        QueryGain: Tensor[f32, 1, c.q_rank],
        LatentGain: Tensor[f32, 1, c.kv_rank],
        Query: Tensor[weights, c.heads, c.q_rank, c.nope + c.rope],
        ToLatent: Tensor[weights, c.heads, c.nope, c.kv_rank],
        Compressed: Tensor[f32, "tokens", c.compressed],
        Qr: Tensor[f32, "tokens", c.q_rank],
        Q: Tensor[f32, "tokens", c.heads, c.key],
        Latent: Tensor[f32, "slots", "longest", c.key],
    ):
        """`Compressed` is intermediate."""

        def compress(linear: Linear, rows: int) -> None:
            multiply(linear, rows, tokens, X, Compress, Compressed, c.compressed)

        def query(linear: Linear, rows: int) -> None:
            for h in P(Dense[c.heads]):
                for r in P.tiles(tokens, rows):
                    linear.query[r, h](
                        qr=Qr[r], w=Query[h], to_latent=ToLatent[h], cos=Cos[r], sin=Sin[r], q=Q[r, h]
                    )

        by_rows(c, weights, compress)(X.shape[0])
        for r in P.tiles(tokens, NORM_ROWS):
            norms.compress[r](x=Compressed[r, 0 : c.q_rank], gain=QueryGain, qr=Qr[r])
        for b in P("batch"):
            for t in P.tiles(request[b], NORM_ROWS):
                chunk, first = request[b][t], Past[b] + t.start
                norms.append[b, t](
                    x=Compressed[chunk, c.q_rank : c.compressed], gain=LatentGain, cos=Cos[chunk],
                    sin=Sin[chunk], row=Latent[Slot[b], first : first + t.extent], is_quantised=is_quantised,
                )  # fmt: skip
        by_rows(c, weights, query)(X.shape[0])

    return mla_prolog


def index_prolog(config: Config, weights: DType, is_quantised: bool) -> Any:
    """Return the graph that makes the indexer's queries and appends to its cache."""
    c, norms = config, norm_kernels(config)

    @workload
    def index_prolog(
        tokens: DenseDyn,
        request: Ragged["batch"],
        Slot: Tensor[i32, "batch"],
        Past: Tensor[i32, "batch"],
        X: Tensor[f32, "tokens", c.hidden],
        Cos: Tensor[f32, "tokens", c.rope // 2],
        Sin: Tensor[f32, "tokens", c.rope // 2],
        Transform: Tensor[f32, c.index_dim, c.index_dim],
        Index: Tensor[weights, c.hidden, c.indexed, MemLayout.panels(COLS)],
        IndexGain: Tensor[f32, 1, c.index_dim],
        IndexBias: Tensor[f32, 1, c.index_dim],
        IndexQuery: Tensor[weights, c.index_heads, c.q_rank, c.index_dim],
        Qr: Tensor[f32, "tokens", c.q_rank],
        Indexed: Tensor[f32, "tokens", c.indexed],
        IndexQ: Tensor[f32, "tokens", c.index_heads, c.index_dim],
        IndexK: Tensor[f32, "slots", "longest", c.index_dim],
    ):
        """`Indexed` holds the weights of the indexer's heads after its keys."""

        def index(linear: Linear, rows: int) -> None:
            multiply(linear, rows, tokens, X, Index, Indexed, c.indexed)

        def query(linear: Linear, rows: int) -> None:
            for h in P(Dense[c.index_heads]):
                for r in P.tiles(tokens, rows):
                    linear.index_query[r, h](
                        qr=Qr[r], w=IndexQuery[h], cos=Cos[r], sin=Sin[r], transform=Transform,
                        q=IndexQ[r, h], is_quantised=is_quantised,
                    )  # fmt: skip

        by_rows(c, weights, index)(X.shape[0])
        for b in P("batch"):
            for t in P.tiles(request[b], NORM_ROWS):
                chunk, first = request[b][t], Past[b] + t.start
                norms.append_index[b, t](
                    x=Indexed[chunk, 0 : c.index_dim], gain=IndexGain, bias=IndexBias, cos=Cos[chunk],
                    sin=Sin[chunk], transform=Transform, row=IndexK[Slot[b], first : first + t.extent],
                    is_quantised=is_quantised,
                )  # fmt: skip
        by_rows(c, weights, query)(X.shape[0])

    return index_prolog


def blocks(n: Any) -> Any:
    """Return how many tasks rank `n` keys."""
    return (n + (RANKED - 1)) // RANKED


def lightning_indexer(config: Config) -> Any:
    """Return the graph that chooses the keys of each token."""
    c, choice = config, choice_kernels(config)

    @workload
    def lightning_indexer(
        Keys: Tensor[i32, "tokens"],
        Owner: Tensor[i32, "tokens"],
        Indexed: Tensor[f32, "tokens", c.indexed],
        IndexQ: Tensor[f32, "tokens", c.index_heads, c.index_dim],
        IndexK: Tensor[f32, "slots", "longest", c.index_dim],
        Scores: Tensor[f32, "tokens", 1, "longest"],
        Ranked: Tensor[i64, "tokens", "blocks", c.top_k],
        TopK: Tensor[i32, "tokens", 1, c.top_k],
    ):
        """Token t attends to the first `Keys[t]` positions of slot `Owner[t]`; only `TopK` is a result."""
        for t in P("tokens"):
            n = Keys[t]
            with P.when(n > c.top_k):
                for r in P.tiles(n, SCORED):
                    choice.score[t, r](
                        q=IndexQ[t], weight=Indexed[t : t + 1, c.index_dim : c.indexed],
                        k=IndexK[Owner[t], r], scores=Scores[t, :, r],
                    )  # fmt: skip
            with P.when(n > RANKED):
                for i in P(blocks(n)):  # of nearly the same length, so that each has `top_k` keys
                    start, end = i * n // blocks(n), (i + 1) * n // blocks(n)
                    choice.rank[t, i](
                        scores=Scores[t, :, start:end], first=start, ranked=Ranked[t, i : i + 1]
                    )
            picks = TopK[t, :, : n.min(c.top_k)]
            choice.select.at(n)[t](scores=Scores[t, :, :n], ranked=Ranked[t, : blocks(n)], picks=picks)

    return lightning_indexer


def sparse_attention(config: Config, weights: DType) -> Any:
    """Return the graph that attends to the chosen keys and makes the output."""
    c, attention = config, attention_kernels(config)
    splits, group = -(-c.top_k // PICKED), min(c.heads, ATTENDED_HEADS)

    @workload
    def sparse_attention(
        tokens: DenseDyn,
        Keys: Tensor[i32, "tokens"],
        Owner: Tensor[i32, "tokens"],
        Q: Tensor[f32, "tokens", c.heads, c.key],
        Latent: Tensor[f32, "slots", "longest", c.key],
        TopK: Tensor[i32, "tokens", 1, c.top_k],
        Value: Tensor[weights, c.heads, c.kv_rank, c.value],
        Output: Tensor[weights, c.heads * c.value, c.hidden, MemLayout.panels(COLS)],
        Part: Tensor[f32, "tokens", splits, c.heads, c.kv_rank],
        State: Tensor[f32, "tokens", splits, 2, c.heads],
        Summed: Tensor[f32, "tokens", c.heads, c.kv_rank],
        Heads: Tensor[f32, "tokens", c.heads * c.value],
        Y: Tensor[f32, "tokens", c.hidden],
    ):
        """`Y` is the result; the four before it are intermediate."""

        def value(linear: Linear, rows: int) -> None:
            for h in P(Dense[c.heads]):
                for r in P.tiles(tokens, rows):
                    o = Heads[r, h * c.value : h * c.value + c.value]
                    linear.value[r, h](latent=Summed[r, h], w=Value[h], o=o)

        def output(linear: Linear, rows: int) -> None:
            multiply(linear, rows, tokens, Heads, Output, Y, c.hidden)

        for t in P("tokens"):
            count = Keys[t].min(c.top_k)
            for g in P.tiles(c.heads, group):
                for r in P.tiles(count, PICKED):
                    i = r.start // PICKED
                    attention.attend[t, g, i](
                        q=Q[t, g], latent=Latent[Owner[t], : Keys[t]], picks=TopK[t, :, r],
                        part=Part[t, i, g], state=State[t, i, :, g],
                    )  # fmt: skip
                parts = slice(0, (count + (PICKED - 1)) // PICKED)
                attention.merge[t, g](parts=Part[t, parts, g], states=State[t, parts, :, g], o=Summed[t, g])
        by_rows(c, weights, value)(Keys.shape[0])
        by_rows(c, weights, output)(Keys.shape[0])

    return sparse_attention


def graphs(config: Config, weights: DType = f32, is_quantised: bool = True) -> dict[str, Any]:
    """Return the four workloads by name.

    Args:
        config: sizes.
        weights: f32 or bf16, of the matrices.
        is_quantised: what the model keeps in 8-bit floats is rounded to them.
    """
    return {
        "mla_prolog": mla_prolog(config, weights, is_quantised),
        "index_prolog": index_prolog(config, weights, is_quantised),
        "lightning_indexer": lightning_indexer(config),
        "sparse_attention": sparse_attention(config, weights),
    }


def whole(config: Config, weights: DType = f32, is_quantised: bool = True) -> Any:
    """Return all four as one workload."""
    return combine(*graphs(config, weights, is_quantised).values())
