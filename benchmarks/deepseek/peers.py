"""The same layer in torch, f32, from the arrays of the example.

Weights are f32, because torch multiplies operands of one type. Of several forms of each stage the fastest is
here; notes.md compares them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from examples.deepseek_v32.config import BLOCK, E4M3_MAX, EPSILON, LEAST_AMAX, Config, frequencies
from examples.deepseek_v32.kernels import COLS
from examples.deepseek_v32.model import Cache, Chunk
from pto_wsp import MemLayout


class TorchLayer:
    """Decode steps of the layer; it appends to the same caches.

    Args:
        config: sizes.
        weights: what `pack` returned.
        cache: where keys and values are; its memory is shared.
        threads: that compute.

    Raises:
        ImportError: torch is not installed.
    """

    def __init__(self, config: Config, weights: dict[str, np.ndarray], cache: Cache, threads: int) -> None:
        self.torch = torch = importlib.import_module("torch")
        torch.set_num_threads(threads)
        self.config = c = config
        columns = {"Compress": c.compressed, "Index": c.indexed, "Output": c.hidden}
        unpacked = {
            name: MemLayout.panels(COLS).unpack(array, columns[name]) if name in columns else array
            for name, array in weights.items()
        }
        for name in ("Query", "IndexQuery"):  # one matrix of all heads
            unpacked[name] = unpacked[name].transpose(1, 0, 2).reshape(c.q_rank, -1)
        self.w = {name: torch.from_numpy(array.astype(np.float32)) for name, array in unpacked.items()}
        self.latent, self.index_k = (torch.from_numpy(array) for array in cache)
        self.turn = torch.from_numpy(frequencies(c))

    def plan(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Return what the stages read of a batch of decode steps."""
        torch = self.torch
        past = torch.tensor([chunk.past for chunk in chunks])
        turns = past[:, None] * self.turn
        return {
            "slot": torch.tensor([chunk.slot for chunk in chunks]), "past": past,
            "keys": [chunk.past + 1 for chunk in chunks], "slots": [chunk.slot for chunk in chunks],
            "cos": turns.cos().float(), "sin": turns.sin().float(),
        }  # fmt: skip

    def turned(self, x: Any, plan: dict[str, Any]) -> Any:
        """Turn the halves of the last axis: x [tokens, ..., rope]."""
        pairs = self.config.rope // 2
        cos, sin = (plan[name].view(len(x), *[1] * (x.dim() - 2), pairs) for name in ("cos", "sin"))
        left, right = x[..., :pairs], x[..., pairs:]
        return self.torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def rounded(self, x: Any) -> Any:
        """Round blocks of 128 to 8-bit floats with a scale that is a power of 2, and back."""
        blocks = x.unflatten(-1, (-1, BLOCK))
        amax = blocks.abs().amax(-1, keepdim=True).clamp(min=LEAST_AMAX)
        scale = (amax / E4M3_MAX).log2().ceil().exp2()
        return ((blocks / scale).to(self.torch.float8_e4m3fn).float() * scale).view(x.shape)

    def normed(self, x: Any, gain: Any) -> Any:
        """Divide rows by their root mean square."""
        return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * gain

    def indexed(self, x: Any, plan: dict[str, Any]) -> Any:
        """Return queries or keys of the indexer: turned, transformed, rounded."""
        x = self.torch.cat([self.turned(x[..., : self.config.rope], plan), x[..., self.config.rope :]], -1)
        return self.rounded((x @ self.w["Transform"]).bfloat16().float())

    def prolog(self, x: Any, plan: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Append to both caches; return the queries of attention and of the indexer, and its weights."""
        c, w, torch = self.config, self.w, self.torch
        made = x @ w["Compress"]
        qr = self.normed(made[:, : c.q_rank], w["QueryGain"])
        latent = self.rounded(self.normed(made[:, c.q_rank : -c.rope], w["LatentGain"]))
        row = torch.cat([latent, self.turned(made[:, -c.rope :], plan)], -1)
        self.latent[plan["slot"], plan["past"]] = row
        heads = (qr @ w["Query"]).mul_(c.softmax_scale).view(len(x), c.heads, -1)
        nope = torch.bmm(heads[..., : c.nope].transpose(0, 1), w["ToLatent"]).transpose(0, 1)
        q = torch.cat([nope, self.turned(heads[..., c.nope :], plan)], -1)
        made = x @ w["Index"]
        k = made[:, : c.index_dim]
        k = self.normed(k - k.mean(-1, keepdim=True), w["IndexGain"]) + w["IndexBias"]
        self.index_k[plan["slot"], plan["past"]] = self.indexed(k, plan)
        index_q = self.indexed((qr @ w["IndexQuery"]).view(len(x), c.index_heads, -1), plan)
        return q, index_q, made[:, c.index_dim :]

    def indexer(self, index_q: Any, weights: Any, plan: dict[str, Any]) -> Any:
        """Return scores of the tokens with more than `top_k` keys, padded with -inf: [those, longest]."""
        long = [t for t, n in enumerate(plan["keys"]) if n > self.config.top_k]
        scores = self.torch.full((len(long), max(plan["keys"])), -np.inf)
        for row, t in zip(scores, long, strict=True):
            n = plan["keys"][t]
            found = self.torch.mm(self.index_k[plan["slots"][t], :n], index_q[t].T).relu_()
            self.torch.mv(found, weights[t], out=row[:n])
        return scores

    def top_k(self, scores: Any, plan: dict[str, Any]) -> list[Any]:
        """Return the chosen keys of each token."""
        best = iter(self.torch.topk(scores, self.config.top_k, sorted=False).indices if len(scores) else ())
        every = self.torch.arange(self.config.top_k)
        return [next(best) if n > self.config.top_k else every[:n] for n in plan["keys"]]

    def attention(self, q: Any, picks: list[Any], plan: dict[str, Any]) -> Any:
        """Return the weighted sums of latent vectors: [tokens, heads, kv_rank]."""
        c = self.config
        summed = self.torch.empty(len(q), c.heads, c.kv_rank)
        for t, (slot, chosen) in enumerate(zip(plan["slots"], picks, strict=True)):
            rows = self.latent[slot].index_select(0, chosen)
            weights = self.torch.softmax(q[t] @ rows.T, -1)
            self.torch.mm(weights, rows[:, : c.kv_rank], out=summed[t])
        return summed

    def output(self, summed: Any) -> Any:
        """Return the output of the layer: [tokens, hidden]."""
        heads = self.torch.bmm(summed.transpose(0, 1), self.w["Value"]).transpose(0, 1)
        return heads.reshape(len(summed), -1) @ self.w["Output"]

    def __call__(self, x: Any, chunks: Sequence[Chunk]) -> Any:
        """Plan and run a step."""
        with self.torch.inference_mode():
            plan = self.plan(chunks)
            q, index_q, weights = self.prolog(x, plan)
            picks = self.top_k(self.indexer(index_q, weights, plan), plan)
            return self.output(self.attention(q, picks, plan))
