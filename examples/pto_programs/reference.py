"""The mathematics of the programs, in numpy."""

from __future__ import annotations

import numpy as np

from examples.pto_programs.llama import DIM, EPS, ROWS

Array = np.ndarray


def softmax(x: Array) -> Array:
    """Softmax of each row, in f64."""
    power = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True, initial=-np.inf))
    return power / power.sum(axis=1, keepdims=True)


def bgemm(a: Array, b: Array) -> Array:
    """Products of matrices given as tiles: [batch, m, k, rows, inner] with [batch, k, n, inner, cols]."""
    return np.einsum("bmkri,bknic->bmnrc", a.astype(np.float64), b.astype(np.float64))


def llama_layer(tensors: dict[str, Array]) -> Array:
    """The layer on [tokens, DIM], in f64; weights that belong to a tile repeat for each."""
    given = {name: array.astype(np.float64) for name, array in tensors.items()}
    x = given["input"]
    tiles = len(x) // ROWS

    def every_tile(name: str) -> Array:
        return np.tile(given[name][:ROWS], (tiles, 1))

    def weight(name: str) -> Array:
        return given[name][:DIM]

    def rmsnorm(a: Array, gamma: Array) -> Array:
        return a / np.sqrt((a * a).mean(axis=1, keepdims=True) + EPS) * gamma

    def rope(a: Array) -> Array:
        return a * every_tile("cos_cache") + a * every_tile("sin_cache")

    norm = rmsnorm(x, every_tile("attn_norm_weights"))
    q, k, v = (norm @ weight(name) for name in ("wq", "wk", "wv"))
    queries, keys = rope(q) / np.sqrt(DIM), rope(k)
    parts = np.array_split(queries, -(-len(x) // 1024))  # all scores together may not fit into memory
    attention = np.concatenate([softmax(part @ keys.T) @ v for part in parts])
    hidden = attention @ weight("wo") + x
    norm = rmsnorm(hidden, every_tile("mlp_norm_weights"))
    gate, up = norm @ weight("w_gate"), norm @ weight("w_up")
    return (gate / (1 + np.exp(-gate)) * up) @ weight("w_down") + hidden
