"""The encoder as an ONNX graph for one sentence at a time: nothing is padded, so no mask is needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from examples.minilm.kernels import EPSILON, HEAD, HEADS, HIDDEN, LAYERS

CONTRIBUTED = "com.microsoft"


class OnnxGraph:
    """Collects the nodes and constants of a graph."""

    def __init__(self) -> None:
        self._onnx = import_module("onnx")
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def constant(self, value: np.ndarray) -> str:
        """Return the name of a constant."""
        name = f"c{len(self._constants)}"
        self._constants[name] = self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of a node's first result."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def linear(self, x: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """Return x @ weight.T + bias."""
        return self.node("Add", self.node("MatMul", x, self.constant(weight.T)), self.constant(bias))

    def normalised(self, x: str, gain: np.ndarray, shift: np.ndarray) -> str:
        """Return the layer norm of x."""
        return self.node(
            "LayerNormalization", x, self.constant(gain), self.constant(shift), axis=-1, epsilon=EPSILON
        )

    def write(self, path: Path, inputs: tuple[str, ...], result: str) -> None:
        """Write the graph: i64 inputs [1, length], and one f32 result [1, hidden]."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        given = [helper.make_tensor_value_info(name, types.INT64, [1, "length"]) for name in inputs]
        found = [helper.make_tensor_value_info(result, types.FLOAT, [1, HIDDEN])]
        graph = helper.make_graph(self._nodes, "minilm", given, found, list(self._constants.values()))
        versions = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIBUTED, 1)]
        self._onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=9), str(path))


def write_onnx(tensors: Mapping[str, np.ndarray], path: Path, is_fused: bool) -> None:
    """Write the encoder, from ids and positions to the embedding of length 1.

    Args:
        tensors: by the names of the model's file.
        path: of the ONNX file.
        is_fused: attention is one operator of onnxruntime.
    """
    graph = OnnxGraph()

    def tensor(name: str) -> np.ndarray:
        return tensors[name].astype(np.float32)

    def norm(x: str, name: str) -> str:
        return graph.normalised(x, tensor(f"{name}.weight"), tensor(f"{name}.bias"))

    def linear(x: str, name: str) -> str:
        return graph.linear(x, tensor(f"{name}.weight"), tensor(f"{name}.bias"))

    places = tensor("embeddings.position_embeddings.weight")
    places = places + tensor("embeddings.token_type_embeddings.weight")[0]
    words = graph.node("Gather", graph.constant(tensor("embeddings.word_embeddings.weight")), "ids")
    h = norm(
        graph.node("Add", words, graph.node("Gather", graph.constant(places), "positions")),
        "embeddings.LayerNorm",
    )
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        names = [f"{layer}attention.self.{name}" for name in ("query", "key", "value")]
        weights, biases = ([tensor(f"{name}.{kind}") for name in names] for kind in ("weight", "bias"))
        attended = (attention_fused if is_fused else attention)(graph, h, weights, biases)
        out = linear(attended, f"{layer}attention.output.dense")
        h = norm(graph.node("Add", h, out), f"{layer}attention.output.LayerNorm")
        inner = graph.node("Gelu", linear(h, f"{layer}intermediate.dense"))
        h = norm(graph.node("Add", h, linear(inner, f"{layer}output.dense")), f"{layer}output.LayerNorm")
    mean = graph.node("ReduceMean", h, graph.constant(np.array([1], np.int64)), keepdims=0)
    graph.write(path, ("ids", "positions"), graph.node("LpNormalization", mean, axis=-1, p=2))


def attention(graph: OnnxGraph, h: str, weights: list[np.ndarray], biases: list[np.ndarray]) -> str:
    """Return the attention of all heads, of plain operators."""
    split = graph.constant(np.array([1, -1, HEADS, HEAD], np.int64))
    q, k, v = (
        graph.node("Transpose", graph.node("Reshape", graph.linear(h, *pair), split), perm=perm)
        for pair, perm in zip(
            zip(weights, biases, strict=True), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True
        )
    )
    scores = graph.node(
        "Mul", graph.node("MatMul", q, k), graph.constant(np.array(1 / sqrt(HEAD), np.float32))
    )
    heads = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), v)
    whole = graph.constant(np.array([1, -1, HIDDEN], np.int64))
    return graph.node("Reshape", graph.node("Transpose", heads, perm=[0, 2, 1, 3]), whole)


def attention_fused(graph: OnnxGraph, h: str, weights: list[np.ndarray], biases: list[np.ndarray]) -> str:
    """Return the attention of all heads, as one operator of onnxruntime."""
    weight, bias = graph.constant(np.concatenate(weights).T), graph.constant(np.concatenate(biases))
    return graph.node("Attention", h, weight, bias, domain=CONTRIBUTED, num_heads=HEADS)
