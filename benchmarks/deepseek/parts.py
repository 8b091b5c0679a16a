"""The indexer, top-k and sparse attention alone, as programs of the example's kernels."""

# Annotations depend on the sizes, which the language reads.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from typing import Any

from examples.deepseek_v32.config import Config
from examples.deepseek_v32.graphs import blocks
from examples.deepseek_v32.kernels import (
    ATTENDED_HEADS,
    PICKED,
    RANKED,
    SCORED,
    attention_kernels,
    choice_kernels,
)
from pto_wsp import P, Tensor, f32, i32, i64, workload


def indexer(config: Config) -> Any:
    """Return the scores of keys of all tokens that have more than `top_k`."""
    c, choice = config, choice_kernels(config)

    @workload
    def indexer(
        Keys: Tensor[i32, "tokens"],
        Owner: Tensor[i32, "tokens"],
        Indexed: Tensor[f32, "tokens", c.indexed],
        IndexQ: Tensor[f32, "tokens", c.index_heads, c.index_dim],
        IndexK: Tensor[f32, "slots", "longest", c.index_dim],
        Scores: Tensor[f32, "tokens", 1, "longest"],
    ):
        for t in P("tokens"):
            with P.when(Keys[t] > c.top_k):
                for r in P.tiles(Keys[t], SCORED):
                    choice.score[t, r](
                        q=IndexQ[t], weight=Indexed[t : t + 1, c.index_dim : c.indexed],
                        k=IndexK[Owner[t], r], scores=Scores[t, :, r],
                    )  # fmt: skip

    return indexer


def top_k(config: Config) -> Any:
    """Return the choice of keys from their scores."""
    c, choice = config, choice_kernels(config)

    @workload
    def top_k(
        Keys: Tensor[i32, "tokens"],
        Scores: Tensor[f32, "tokens", 1, "longest"],
        Ranked: Tensor[i64, "tokens", "blocks", c.top_k],
        TopK: Tensor[i32, "tokens", 1, c.top_k],
    ):
        for t in P("tokens"):
            n = Keys[t]
            with P.when(n > RANKED):
                for i in P(blocks(n)):
                    start, end = i * n // blocks(n), (i + 1) * n // blocks(n)
                    choice.rank[t, i](
                        scores=Scores[t, :, start:end], first=start, ranked=Ranked[t, i : i + 1]
                    )
            picks = TopK[t, :, : n.min(c.top_k)]
            choice.select.at(n)[t](scores=Scores[t, :, :n], ranked=Ranked[t, : blocks(n)], picks=picks)

    return top_k


def attention(config: Config) -> Any:
    """Return attention over chosen keys, in the latent space."""
    c, kernels = config, attention_kernels(config)
    splits, group = -(-c.top_k // PICKED), min(c.heads, ATTENDED_HEADS)

    @workload
    def attention(
        Keys: Tensor[i32, "tokens"],
        Owner: Tensor[i32, "tokens"],
        Q: Tensor[f32, "tokens", c.heads, c.key],
        Latent: Tensor[f32, "slots", "longest", c.key],
        TopK: Tensor[i32, "tokens", 1, c.top_k],
        Part: Tensor[f32, "tokens", splits, c.heads, c.kv_rank],
        State: Tensor[f32, "tokens", splits, 2, c.heads],
        Summed: Tensor[f32, "tokens", c.heads, c.kv_rank],
    ):
        for t in P("tokens"):
            count = Keys[t].min(c.top_k)
            for g in P.tiles(c.heads, group):
                for r in P.tiles(count, PICKED):
                    i = r.start // PICKED
                    kernels.attend[t, g, i](
                        q=Q[t, g], latent=Latent[Owner[t], : Keys[t]], picks=TopK[t, :, r],
                        part=Part[t, i, g], state=State[t, i, :, g],
                    )  # fmt: skip
                parts = slice(0, (count + (PICKED - 1)) // PICKED)
                kernels.merge[t, g](parts=Part[t, parts, g], states=State[t, parts, :, g], o=Summed[t, g])

    return attention


PARTS = {"indexer": indexer, "top_k": top_k, "attention": attention}
"""By the name of their rows."""
