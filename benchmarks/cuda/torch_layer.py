"""Layers of a LLaMA decoder in torch: the peer of a decode step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from examples.llm.checkpoint import Checkpoint
from examples.llm.config import ROLES
from examples.llm.storage import Matrix

WARM_UP = 3
"""Steps before a graph is captured, as torch advises."""


class Decoder:
    """One decode step of requests of equal length, from tokens to scores, in bf16.

    Args:
        checkpoint: the weights, of bf16.
        ids: a token per request.
        keys, values: [layers, requests, heads, positions + 1, dim]; the step writes the last position.
        put: turns an array into a tensor where torch computes.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ids: Sequence[int],
        keys: Any,
        values: Any,
        put: Callable[[np.ndarray], Any],
    ) -> None:
        self._config = config = checkpoint.config
        self._keys, self._values = keys, values
        self._position = keys.shape[3] - 1
        self._matrices = [
            {role: put(_floats(checkpoint.matrix(role, i))) for role in ROLES} for i in range(config.layers)
        ]
        self._gains = {n: put(v).to(torch.bfloat16) for n, v in checkpoint.vectors.items()}
        self._embedding, self._head = put(_floats(checkpoint.embedding)), put(_floats(checkpoint.head))
        self._ids = put(np.array(ids))
        cos, sin = config.rope.angles(config.dim, config.context)
        self._cos, self._sin = (put(x[self._position]).to(torch.bfloat16) for x in (cos, sin))

    def step(self) -> Any:
        """Return the scores [requests, vocab]."""
        x = self._embedding[self._ids]
        for layer, matrices in enumerate(self._matrices):
            x = x + self._attention(self._normed(x, self._gains["FirstGain"][layer]), layer)
            y = self._normed(x, self._gains["SecondGain"][layer])
            opened = functional.silu(y @ matrices["Gate"].T) * (y @ matrices["Up"].T)
            x = x + opened @ matrices["Down"].T
        return self._normed(x, self._gains["LastGain"]) @ self._head.T

    def _normed(self, x: Any, gain: Any) -> Any:
        return functional.rms_norm(x, (x.shape[-1],), gain, self._config.epsilon)

    def _attention(self, x: Any, layer: int) -> Any:
        config, matrices = self._config, self._matrices[layer]
        q, k, v = ((x @ matrices[role].T).unflatten(1, (-1, config.dim)) for role in ROLES[:3])
        self._keys[layer, :, :, self._position] = self._turned(k)
        self._values[layer, :, :, self._position] = v
        attended = functional.scaled_dot_product_attention(
            self._turned(q)[:, :, None], self._keys[layer], self._values[layer], enable_gqa=True
        )
        return attended.flatten(1) @ matrices["Output"].T

    def _turned(self, x: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        turned = (first * self._cos - second * self._sin, second * self._cos + first * self._sin)
        return torch.cat(turned, dim=-1)

    def compiled(self) -> Callable[[], Any]:
        """Return the step as `torch.compile` has it with the least overhead."""
        step = torch.compile(self.step, mode="reduce-overhead", fullgraph=True)
        for _ in range(WARM_UP):
            step()
        return step

    def captured(self) -> Callable[[], None]:
        """Return the replay of the step as a graph of the card."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def _floats(matrix: Matrix) -> np.ndarray:
    assert isinstance(matrix.array, np.ndarray)
    return matrix.array
