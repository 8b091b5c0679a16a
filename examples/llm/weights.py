"""The tensors of a model's matrices in the workload, and the tasks that multiply by them."""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from examples.llm.config import Config
from examples.llm.kernels import ROWS
from examples.llm.storage import Storage
from pto_wsp import P, Tensor, f32, i32
from pto_wsp.types.dtype import DType

SLAB = 8
"""Panels that all tokens are multiplied with before the next ones are read from memory."""


@dataclass(frozen=True)
class Embedding:
    """How the table of embeddings lies: [vocab, hidden] floats, or u8 with scales and minima per group.

    Attributes:
        dtype: element type.
        group: elements that share a scale.
        zero: number of the value 0 where there are no minima.
        has_minima: groups have minima.
    """

    dtype: DType
    group: int = 1
    zero: int = 0
    has_minima: bool = False


@dataclass(frozen=True)
class AdapterPlan:
    """What a program with adapters is compiled for.

    Attributes:
        roles: matrices that some adapter changes.
        rank: of all adapters; smaller ones have zeros.
    """

    roles: tuple[str, ...] = ()
    rank: int = 1


NO_ADAPTERS = AdapterPlan()


@dataclass(frozen=True)
class Plan:
    """What one compiled program is made for.

    Attributes:
        config: the model.
        layers: per role the storages that layers use, most often one.
        head: storage of the matrix that makes scores.
        embedding: how the table of embeddings lies.
        activations: i8, bf16 or f32.
        cache: element type of keys and values: f32, bf16 or i8.
        adapters: matrices that adapters of requests change.
    """

    config: Config
    layers: dict[str, tuple[Storage, ...]]
    head: Storage
    embedding: Embedding
    activations: DType = f32
    cache: DType = f32
    adapters: AdapterPlan = NO_ADAPTERS


class Weights:
    """The tensors of a plan's matrices: parameters of the workload, one per role and storage.

    A layer with another storage than the one before it is a choice of the run, by two tables: of kinds and of
    places, both [layers, roles].
    """

    def __init__(self, plan: Plan) -> None:
        self._roles = plan.config.roles
        shape = (plan.config.layers, len(self._roles))
        self._kinds = Tensor(shape=shape, dtype=i32, name="Kinds")
        self._places = Tensor(shape=shape, dtype=i32, name="Places")
        self._tensors = {
            role: [
                Tensor(shape=(f"{role}_{i}_layers", *s.dims), dtype=s.dtype, name=f"{role}_{i}")
                for i, s in enumerate(storages)
            ]
            for role, storages in plan.layers.items()
        }

    def each(self, role: str, layer: Any, body: Callable[[int, Any], None]) -> None:
        """Trace `body(number of the storage, matrix of the layer)` for every storage of a role."""
        tensors = self._tensors[role]
        if len(tensors) == 1:
            body(0, tensors[0][layer])
            return
        column = self._roles.index(role)
        for i, tensor in enumerate(tensors):
            with P.when(self._kinds[layer, column] == i):
                body(i, tensor[self._places[layer, column]])

    def pairs(self, first: str, second: str, layer: Any, body: Callable[[int, int, Any, Any], None]) -> None:
        """Trace `body` for every pair of storages of two roles: their numbers, and their matrices."""
        self.each(first, layer, lambda i, w: self.each(second, layer, lambda j, u: body(i, j, w, u)))


def tasks(tokens: Any, parts: int) -> Iterator[tuple[Any, Any]]:
    """Yield tiles of tokens and numbers of parts of a matrix: all tokens meet a slab, then the next."""
    for some in P.tiles(parts, SLAB):
        for r in P.tiles(tokens, ROWS):
            for i in P(some.extent):
                yield r, some.start + i


def part(cols: int, number: Any) -> slice:
    """Return the columns of a task."""
    return slice(cols * number, cols * number + cols)
