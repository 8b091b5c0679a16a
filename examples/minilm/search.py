"""The nearest of many embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from examples.minilm.kernels import HIDDEN
from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload

ROWS = 64


@kernel
def score(x: In[Tile[ROWS, HIDDEN, f32]], query: In[Tile[1, HIDDEN, f32]], y: Out[Tile[ROWS, 1, f32]]):
    """The cosine of every row with the query; all have length 1."""
    pto.store(y, pto.rowsum(x * query))


@workload
def score_all(X: Tensor[f32, "n", HIDDEN], Query: Tensor[f32, 1, HIDDEN], Y: Tensor[f32, "n", 1]):
    """Score every embedding."""
    for rows in P.tiles("n", ROWS):
        score[rows](x=X[rows], query=Query, y=Y[rows])


@dataclass(frozen=True)
class Hit:
    """A sentence's number, from 0, and its cosine with the query."""

    number: int
    cosine: float


class Search:
    """Embeddings [n, 384] of length 1, to be searched."""

    def __init__(self, embeddings: np.ndarray) -> None:
        self._embeddings = embeddings
        self._program = score_all.compile(target="cpu")

    def nearest(self, query: np.ndarray, count: int = 5) -> list[Hit]:
        """Return the `count` embeddings nearest to `query` [1, 384], the nearest first, ties in order."""
        scores = np.empty((len(self._embeddings), 1), np.float32)
        self._program(X=self._embeddings, Query=query, Y=scores)
        order = np.argsort(-scores[:, 0], kind="stable")[:count]
        return [Hit(int(i), float(scores[i, 0])) for i in order]
