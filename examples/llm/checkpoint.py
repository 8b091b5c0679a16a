"""A model as files hold it, and the arrays that the program reads, packed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from examples.llm.config import Config, UnknownModel
from examples.llm.storage import FLOATS, Matrix, Storage, divisor
from examples.llm.weights import NO_ADAPTERS, AdapterPlan, Embedding, Plan
from pto_wsp import bf16, f32, i8, panel_cols, u8
from pto_wsp.types.dtype import DType
from pto_wsp.types.quantised import CHUNK, FORMATS


@dataclass
class Checkpoint:
    """A model as it was read, with queries and keys that rotate in pairs (i, i + dim / 2).

    Attributes:
        config: sizes and constants.
        matrix: returns the matrix of a role in a layer.
        embedding: of tokens, [vocab, hidden].
        head: makes scores; the embedding's matrix where they are tied.
        vectors: f32 arrays by the names of the workload's tensors.
        tokenizer: text of a `tokenizer.json`.
        template: Jinja template of conversations, or empty.
        tokens: texts of special tokens that the template uses, by name.
    """

    config: Config
    matrix: Callable[[str, int], Matrix]
    embedding: Matrix
    head: Matrix
    vectors: dict[str, np.ndarray]
    tokenizer: str
    template: str = ""
    tokens: dict[str, str] = field(default_factory=dict)


@dataclass
class Packed:
    """The arrays of the weights, by the names of the workload's tensors, and how they lie.

    Attributes:
        config: sizes and constants.
        layers: per role the storages that layers use.
        head: storage of the matrix that makes scores.
        embedding: how the table of embeddings lies.
        arrays: by name.
    """

    config: Config
    layers: dict[str, tuple[Storage, ...]]
    head: Storage
    embedding: Embedding
    arrays: dict[str, np.ndarray]

    def plan(self, activations: DType = f32, cache: DType = f32, adapters: AdapterPlan = NO_ADAPTERS) -> Plan:
        """Return what a program is compiled for.

        Raises:
            UnknownModel: activations of i8, and a matrix that is not quantised, or sizes that are not in
                whole groups; activations of bf16, and a matrix of another type; or one of both, and adapters.
        """
        if activations is not f32 and adapters.roles:
            raise UnknownModel(f"adapters need activations of f32, found {activations}")
        storages = [*(s for role in self.layers.values() for s in role), self.head]
        plain = {s.kind for s in storages if s.form is None}
        others = {s.kind for s in storages} - {"bf16"}
        if activations is bf16 and others:
            raise UnknownModel(
                f"activations of bf16 need matrices of bf16, found {', '.join(sorted(others))}"
            )
        if activations is i8 and plain:
            raise UnknownModel(f"activations of i8 need quantised matrices, found {', '.join(sorted(plain))}")
        sizes = (self.config.hidden, self.config.dim, self.config.inner, self.config.shared)
        if activations is i8 and any(size % CHUNK for size in sizes):
            raise UnknownModel(f"activations of i8 need sizes in multiples of {CHUNK}, found {sizes}")
        return Plan(self.config, self.layers, self.head, self.embedding, activations, cache, adapters)


def panel_width(role: str, config: Config) -> int:
    """Return the columns of a panel: half a head, a head, or what products read fastest."""
    most = panel_cols()
    match role:
        case "Query" | "Key":
            return config.dim // 2
        case "Value":
            return config.dim
        case "Gate" | "Up":
            return divisor(config.inner, most, 32) or divisor(config.inner, most)
        case "SharedGate" | "SharedUp":
            return divisor(config.shared, most, 32) or divisor(config.shared, most)
        case "Head":
            found = divisor(config.vocab, most)
            return found if 2 * found >= most else most
        case _:
            return divisor(config.hidden, most)


def pack(checkpoint: Checkpoint, progress: Callable[[str], None] = lambda _: None) -> Packed:
    """Return the arrays of a model."""
    config = checkpoint.config
    layers: dict[str, tuple[Storage, ...]] = {}
    arrays: dict[str, np.ndarray] = {}
    kinds, places = np.zeros((2, config.layers, len(config.roles)), np.int32)
    for column, role in enumerate(config.roles):
        progress(role)
        packed: dict[Storage, list[np.ndarray]] = {}
        for layer in range(config.layers):
            matrix = checkpoint.matrix(role, layer)
            storage = matrix.stored(panel_width(role, config))
            parts = packed.setdefault(storage, [])
            kinds[layer, column], places[layer, column] = list(packed).index(storage), len(parts)
            parts.append(storage.pack(matrix))
        layers[role] = tuple(packed)
        arrays |= {f"{role}_{i}": np.stack(parts) for i, parts in enumerate(packed.values())}
    progress("Head")
    if any(len(storages) > 1 for storages in layers.values()):
        arrays |= {"Kinds": kinds, "Places": places}
    head = checkpoint.head.stored(panel_width("Head", config))
    arrays["Head"] = head.pack(checkpoint.head)
    embedding, table = _embedding(checkpoint.embedding)
    return Packed(config, layers, head, embedding, arrays | table | _vectors(checkpoint))


def _embedding(matrix: Matrix) -> tuple[Embedding, dict[str, np.ndarray]]:
    """Return the rows of the table of embeddings."""
    nothing = np.zeros((1, 1), np.float32)
    if matrix.kind in FLOATS:
        return Embedding(FLOATS[matrix.kind]), {
            "Table": matrix.floats(),
            "Scales": nothing,
            "Minima": nothing,
        }
    numbers, form = matrix.numbers(), FORMATS[matrix.kind]
    arrays = {"Table": numbers.q.T, "Scales": numbers.scales.T, "Minima": nothing}
    if numbers.minima is not None:
        arrays["Minima"] = numbers.minima.T
    found = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return Embedding(u8, form.group, form.zero, numbers.minima is not None), found


def _vectors(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Return biases and gains; those that the kernels do not use have one element per column."""
    config, given = checkpoint.config, checkpoint.vectors
    dims: dict[str, tuple[int, ...]] = {
        "FirstGain": (config.layers, 1, config.hidden),
        "SecondGain": (config.layers, 1, config.hidden),
        "LastGain": (1, config.hidden),
        "QueryGain": (config.layers, 1, config.dim),
        "KeyGain": (config.layers, 1, config.dim),
    }
    if config.experts:
        dims["Router"] = (config.layers, config.hidden, config.experts + bool(config.shared))
    for role, heads in (("Query", config.heads), ("Key", config.kv_heads), ("Value", config.kv_heads)):
        dims[f"{role}Bias"] = (config.layers, heads if config.has_bias else 1, 1, config.dim)
    return {
        name: given[name].astype(np.float32, order="C").reshape(shape)
        if name in given
        else np.zeros(shape, np.float32)
        for name, shape in dims.items()
    }
