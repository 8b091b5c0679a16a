"""Small random models, and what numpy computes with them."""

from __future__ import annotations

import numpy as np

from examples.llm.checkpoint import Checkpoint
from examples.llm.config import Config
from examples.llm.storage import Matrix
from pto_wsp.types.dtype import DType

SMALL = Config(layers=2, hidden=32, heads=4, kv_heads=2, dim=16, inner=64, vocab=99, context=512)


def random_checkpoint(
    config: Config, seed: int = 0, dtype: DType | None = None, is_tied: bool = False
) -> Checkpoint:
    """Return a model whose values stay of order 1."""
    rng = np.random.default_rng(seed)

    def matrix(n: int, k: int) -> Matrix:
        values = rng.standard_normal((n, k), np.float32) * np.float32(k**-0.5)
        kind = "f32" if dtype is None else dtype.name
        return Matrix(kind, values if dtype is None else values.astype(dtype.to_numpy()), k)

    q, kv, c, e = config.heads * config.dim, config.kv_heads * config.dim, config, config.experts or 1
    sizes = {
        "Query": (q, c.hidden), "Key": (kv, c.hidden), "Value": (kv, c.hidden), "Output": (c.hidden, q),
        "Gate": (e * c.inner, c.hidden), "Up": (e * c.inner, c.hidden), "Down": (e * c.hidden, c.inner),
        "SharedGate": (c.shared, c.hidden), "SharedUp": (c.shared, c.hidden),
        "SharedDown": (c.hidden, c.shared),
    }  # fmt: skip
    matrices = {(role, i): matrix(*sizes[role]) for role in c.roles for i in range(c.layers)}

    def vector(*dims: int, around: float = 1.0) -> np.ndarray:
        return around + rng.standard_normal(dims, np.float32) / 8

    vectors = {
        "FirstGain": vector(c.layers, c.hidden), "SecondGain": vector(c.layers, c.hidden),
        "LastGain": vector(c.hidden),
        "QueryGain": vector(c.layers, c.dim), "KeyGain": vector(c.layers, c.dim),
        "QueryBias": vector(c.layers, q, around=0), "KeyBias": vector(c.layers, kv, around=0),
        "ValueBias": vector(c.layers, kv, around=0),
        "Router": vector(c.layers, c.hidden, e + bool(c.shared), around=0) * 4,
    }  # fmt: skip
    names = {name for name in vectors if "Gain" in name or ("Bias" in name and c.has_bias)}
    names |= {"Router"} if c.experts else set()
    names -= set() if c.has_head_norms else {"QueryGain", "KeyGain"}
    embedding = matrix(c.vocab, c.hidden)
    head = embedding if is_tied else matrix(c.vocab, c.hidden)
    given = {name: vectors[name] for name in names}
    return Checkpoint(config, lambda role, i: matrices[role, i], embedding, head, given, "")


NETWORK = ("Gate", "Up", "Down")


def network(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return the feed-forward network of tokens; its matrices are [n, k]."""
    opened = x @ gate.T
    return (opened / (1 + np.exp(-opened)) * (x @ up.T)) @ down.T


def experts(model: Checkpoint, x: np.ndarray, layer: int) -> np.ndarray:
    """Return the sum of the chosen experts of tokens, one token after the other."""
    c = model.config

    def matrices(prefix: str, count: int) -> list[list[np.ndarray]]:
        found = [model.matrix(f"{prefix}{role}", layer).values().astype(np.float64) for role in NETWORK]
        return [list(each) for each in zip(*(np.split(m, count) for m in found), strict=True)]

    given, router = matrices("", c.experts), model.vectors["Router"][layer].astype(np.float64)
    result = np.zeros_like(x)
    for t, row in enumerate(x @ router):
        weights = np.exp(row[: c.experts] - row[: c.experts].max())
        best = np.argsort(-weights, kind="stable")[: c.chosen]
        total = weights[best].sum() if c.has_unit_gates else weights.sum()
        for e in best:
            result[t] += weights[e] / total * network(x[t], *given[e])
        if c.shared:
            shared = network(x[t], *matrices("Shared", 1)[0])
            result[t] += shared / (1 + np.exp(-row[c.experts]))
    return result


def scores(model: Checkpoint, ids: list[int]) -> np.ndarray:
    """Return the scores after each of some tokens, [tokens, vocab] f64."""
    c, count = model.config, len(ids)
    cos, sin = (angles[:, None].astype(np.float64) for angles in c.rope.angles(c.dim, count))

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + c.epsilon) * gain.astype(np.float64)

    def matrix(role: str, layer: int) -> np.ndarray:
        return model.matrix(role, layer).values().astype(np.float64)

    def product(x: np.ndarray, role: str, layer: int) -> np.ndarray:
        found = x @ matrix(role, layer).T
        bias = model.vectors.get(f"{role}Bias")
        return found if bias is None else found + bias[layer].astype(np.float64)

    def turned(x: np.ndarray, role: str, layer: int) -> np.ndarray:
        gain = model.vectors.get(f"{role}Gain")
        x = x if gain is None else norm(x, gain[layer])
        a, b = np.split(x, 2, axis=2)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)

    ahead = np.arange(count) - np.arange(count)[:, None]
    is_unseen = (ahead > 0) | ((ahead <= -c.window) if c.window else False)
    h = model.embedding.values()[ids].astype(np.float64)
    for i in range(c.layers):
        x = norm(h, model.vectors["FirstGain"][i])
        q, k, v = (product(x, role, i).reshape(count, -1, c.dim) for role in ("Query", "Key", "Value"))
        q, k = turned(q, "Query", i), turned(k, "Key", i)
        k, v = (np.repeat(a, c.group, axis=1) for a in (k, v))
        s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.dim)
        s[:, is_unseen] = -np.inf
        p = np.exp(s - s.max(axis=2, keepdims=True))
        attended = np.einsum("hqk,khd->qhd", p / p.sum(axis=2, keepdims=True), v).reshape(count, -1)
        h = h + product(attended, "Output", i)
        x = norm(h, model.vectors["SecondGain"][i])
        h = h + (experts(model, x, i) if c.experts else network(x, *(matrix(r, i) for r in NETWORK)))
    return norm(h, model.vectors["LastGain"]) @ model.head.values().T.astype(np.float64)
