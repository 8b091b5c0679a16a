"""Arrays of the layer: packed weights, caches, batches; and a compiled layer that takes any batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from examples.deepseek_v32.config import Config, frequencies, hadamard
from examples.deepseek_v32.graphs import graphs, whole
from examples.deepseek_v32.kernels import COLS, FEW, PICKED, RANKED, ROWS
from examples.deepseek_v32.reference import Weights
from pto_wsp import MemLayout, Ragged, Session, f32, graph
from pto_wsp.types.dtype import DType

Pairs = Literal["interleaved", "halves"]
"""Which elements of a row with position turn together: (2i, 2i + 1), or (i, i + pairs)."""


def as_halves(matrix: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return columns with position in the order of halves: [..., rope]."""
    if pairs == "halves":
        return matrix
    return np.concatenate([matrix[..., 0::2], matrix[..., 1::2]], -1)


def pack(
    config: Config, w: Weights, weights: DType = f32, *, attention_rope: Pairs = "interleaved",
    index_rope: Pairs = "halves",
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the arrays of the workloads' weights.

    Args:
        config: sizes.
        w: the parameters.
        weights: element type of the matrices.
        attention_rope: pairs of attention's queries and keys in the model: interleaved for DeepSeek V3.2.
        index_rope: pairs of the indexer's: halves for DeepSeek V3.2.
    """
    c, stored, layout = config, weights.to_numpy(), MemLayout.panels(COLS)
    kv = w.wkv_a.T
    kv = np.concatenate([kv[:, : c.kv_rank], as_halves(kv[:, c.kv_rank :], attention_rope)], 1)
    q = w.wq_b.T.reshape(c.q_rank, c.heads, -1)
    q = np.concatenate([q[..., : c.nope], as_halves(q[..., c.nope :], attention_rope)], -1)
    index_q = w.index_wq_b.T.reshape(c.q_rank, c.index_heads, -1)
    index_k = w.index_wk.T
    index_q, index_k, index_gain, index_bias = (
        np.concatenate([as_halves(x[..., : c.rope], index_rope), x[..., c.rope :]], -1)
        for x in (index_q, index_k, w.index_gain, w.index_bias)
    )
    expand = w.wkv_b.reshape(c.heads, c.nope + c.value, c.kv_rank)
    index = np.concatenate([index_k, w.index_w.T * np.float32(c.index_scale)], 1)
    return {
        "Compress": layout.pack(np.concatenate([w.wq_a.T, kv], 1).astype(stored)),
        "QueryGain": w.q_gain[None],
        "LatentGain": w.kv_gain[None],
        "Query": np.ascontiguousarray(q.transpose(1, 0, 2).astype(stored)),
        "ToLatent": np.ascontiguousarray(expand[:, : c.nope].astype(stored)),
        "Index": layout.pack(index.astype(stored)),
        "IndexGain": np.ascontiguousarray(index_gain[None]),
        "IndexBias": np.ascontiguousarray(index_bias[None]),
        "IndexQuery": np.ascontiguousarray(index_q.transpose(1, 0, 2).astype(stored)),
        "Transform": hadamard(c.index_dim).astype(np.float32),
        "Value": np.ascontiguousarray(expand[:, c.nope :].transpose(0, 2, 1).astype(stored)),
        "Output": layout.pack(w.wo.T.astype(stored)),
    }


class Cache(NamedTuple):
    """What later tokens read of earlier ones; a slot belongs to one request.

    Attributes:
        Latent: [slots, longest, kv_rank + rope] f32.
        IndexK: [slots, longest, 128] f32.
    """

    Latent: np.ndarray
    IndexK: np.ndarray

    @classmethod
    def of(cls, config: Config, slots: int, longest: int) -> Cache:
        """Return an empty cache; elements that are not written are NaN."""
        sizes = (config.key, config.index_dim)
        return cls(*(np.full((slots, longest, size), np.nan, np.float32) for size in sizes))


class Chunk(NamedTuple):
    """The tokens of one request in a batch: the slot of its cache, and how many tokens are in it already."""

    slot: int
    past: int
    tokens: int


def batch_arrays(config: Config, chunks: Sequence[Chunk], longest: int) -> dict[str, Any]:
    """Return what the workloads read of a batch, and its intermediate arrays."""
    c, counts = config, [chunk.tokens for chunk in chunks]
    positions = np.concatenate([chunk.past + np.arange(chunk.tokens) for chunk in chunks])
    turns, tokens = positions[:, None] * frequencies(c), len(positions)
    splits = -(-c.top_k // PICKED)
    empty: dict[str, Any] = {
        "Compressed": (c.compressed,), "Qr": (c.q_rank,), "Q": (c.heads, c.key), "Indexed": (c.indexed,),
        "IndexQ": (c.index_heads, c.index_dim), "Scores": (1, longest),
        "Part": (splits, c.heads, c.kv_rank), "State": (splits, 2, c.heads), "Summed": (c.heads, c.kv_rank),
        "Heads": (c.heads * c.value,), "Y": (c.hidden,),
    }  # fmt: skip
    arrays: dict[str, Any] = {n: np.empty((tokens, *shape), np.float32) for n, shape in empty.items()}
    return arrays | {
        "request": Ragged.lengths(counts),
        "Slot": np.array([chunk.slot for chunk in chunks], np.int32),
        "Past": np.array([chunk.past for chunk in chunks], np.int32),
        "Keys": (positions + 1).astype(np.int32),
        "Owner": np.repeat([chunk.slot for chunk in chunks], counts).astype(np.int32),
        "Cos": np.cos(turns).astype(np.float32),
        "Sin": np.sin(turns).astype(np.float32),
        "Ranked": np.empty((tokens, -(-longest // RANKED), c.top_k), np.int64),
        "TopK": np.empty((tokens, 1, c.top_k), np.int32),
    }


class Layer:
    """A compiled attention layer with its weights; any batch runs on the same program.

    Args:
        config: sizes.
        weights: what `pack` returned.
        dtype: element type of the matrices.
        is_quantised: what the model keeps in 8-bit floats is rounded to them.
        target: of the programs.

    Attributes:
        program: the four graphs in one program, which order their tasks by data alone.
    """

    def __init__(
        self, config: Config, weights: dict[str, np.ndarray], dtype: DType = f32, is_quantised: bool = True,
        target: str = "cpu",
    ) -> None:  # fmt: skip
        self.config = config
        self.weights = weights
        self.program = whole(config, dtype, is_quantised).compile(target=target)

    def __call__(
        self, x: np.ndarray, chunks: Sequence[Chunk], cache: Cache, **options: Any
    ) -> dict[str, Any]:
        """Append the tokens of a batch to the caches and return all arrays of the run, `Y` among them.

        Args:
            x: the tokens of all chunks, one chunk after the other: [tokens, hidden] f32.
            chunks: prefill chunks of any length and decode steps of one token, in any order.
            cache: where their keys and values are and go.
            **options: of the program's run.
        """
        arrays = batch_arrays(self.config, chunks, cache.Latent.shape[1])
        given = self.weights | arrays | cache._asdict() | {"X": x}
        self.program.run(**given, **options)
        return given


class Graphs:
    """The same layer as four programs with contracts, which a session runs.

    Args: as `Layer` takes them.

    Attributes:
        graphs: by name, in the order in which they are launched.
    """

    def __init__(
        self, config: Config, weights: dict[str, np.ndarray], dtype: DType = f32, is_quantised: bool = True,
        target: str = "cpu",
    ) -> None:  # fmt: skip
        self.config = config
        self.weights = weights
        made = graphs(config, dtype, is_quantised)
        mla, index, indexer, attention = (graph(made[name].compile(target=target), name) for name in made)
        flag = "_quantised" if is_quantised else ""
        mla.provides("Qr", after="compress").provides("Latent", after=f"append{flag}")
        mla.provides("Q", after=[f"query_{rows}" for rows in (FEW, ROWS)])
        index.requires("Qr", from_=mla).provides("IndexK", after=f"append_index{flag}")
        index.provides("IndexQ", after=[f"index_query_{rows}{flag}" for rows in (FEW, ROWS)])
        indexer.requires("IndexQ", from_=index).requires("IndexK", from_=index)
        indexer.provides("TopK", after=["select_all", "select_8k", "select_64k"])
        attention.requires("Q", from_=mla).requires("Latent", from_=mla).requires("TopK", from_=indexer)
        self.graphs = {g.name: g for g in (mla, index, indexer, attention)}

    def __call__(self, x: np.ndarray, chunks: Sequence[Chunk], cache: Cache) -> dict[str, Any]:
        """Do what `Layer.__call__` does."""
        arrays = batch_arrays(self.config, chunks, cache.Latent.shape[1])
        given: dict[str, Any] = {**self.weights, **arrays, **cache._asdict(), "X": x}
        with Session() as session:
            for made in self.graphs.values():
                names = [t.name for t in made.program.module.entry_workload.params]
                session.launch(made, **{name: given[name] for name in names if name in given})
        return given
