"""The schema of a workload as a torch operator: which parameter is which argument, and what is returned."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pto_wsp.errors import BadReturn, UnknownParameter, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType

OFFSETS, INDICES = "_offsets", "_indices"
"""What the arguments of an axis with rows are named after it."""

SPECIAL_NAMES = {"b1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the torch type of an element type."""
    name = str(dtype)
    long = {"i": "int", "u": "uint", "f": "float"}.get(name[0], "")
    return getattr(torch, SPECIAL_NAMES.get(name, long + name[1:]))


@record
class Returned:
    """A tensor that the operator allocates.

    Attributes:
        dims: each a number, or the name of a size.
    """

    name: str
    dtype: torch.dtype
    dims: tuple[int | str, ...]


@record
class Signature:
    """A workload's parameters as the arguments of a torch operator.

    Attributes:
        schema: of the operator, in torch's schema language.
        arguments: names of the operator's arguments, in order.
        axes: the parameters that are axes with rows: one or two arguments each.
        returned: the tensors that it allocates.
        mutated: the arguments that it writes.
        sources: of each size, the argument whose shape gives it, with the dimension, and what to subtract.
        constants: sizes that are bound to the workload.
    """

    schema: str
    arguments: tuple[str, ...]
    axes: Mapping[str, type[Ragged] | type[Sparse]]
    returned: tuple[Returned, ...]
    mutated: frozenset[str]
    sources: Mapping[str, tuple[str, int, int]]
    constants: Mapping[str, int]

    def shapes(self, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the shape of each returned tensor; sizes may be symbolic."""

        def extent(dim: int | str) -> Any:
            if isinstance(dim, int):
                return dim
            if dim not in self.sources:
                return given[dim] if dim in given else self.constants[dim]
            name, at, less = self.sources[dim]
            return given[name].shape[at] - less

        return [tuple(extent(dim) for dim in tensor.dims) for tensor in self.returned]

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a run, of which axes take one or two arguments."""
        values = {name: value for name, value in given.items() if not name.endswith((OFFSETS, INDICES))}
        for name, kind in self.axes.items():
            offsets = given[name + OFFSETS]
            if kind is Ragged:
                values[name] = Ragged.indptr(offsets)
            else:
                values[name] = Sparse.csr(offsets, given[name + INDICES])
        return values


def signature(module: Module, open_params: Mapping[str, Any], returns: Sequence[str]) -> Signature:
    """Return the signature of a compiled workload.

    Args:
        module: the workload's module.
        open_params: its parameters that have no value yet.
        returns: names of the tensors that the operator returns.

    Raises:
        UnknownParameter: `returns` names no tensor of the workload.
        BadReturn: no task writes a tensor that `returns` names.
    """
    tensors = {name: p for name, p in open_params.items() if isinstance(p, w.TensorParam)}
    for name in returns:
        _check_returned(module, tensors, name)
    builder = _Builder(module, returns)
    for name, param in open_params.items():
        builder.add_arrays(name, param)
    for name, param in open_params.items():
        builder.add_numbers(name, param)
    made = tuple(Returned(n, torch_dtype(tensors[n].type.dtype), tensors[n].type.dims) for n in returns)
    result = "Tensor" if len(made) == 1 else f"({', '.join(['Tensor'] * len(made))})"
    schema = f"({', '.join(builder.parts)}) -> {result}"
    mutated = frozenset(name for name in builder.arguments if name in module.written)
    arguments = tuple(builder.arguments)
    return Signature(schema, arguments, builder.axes, made, mutated, builder.sources, builder.constants)


class _Builder:
    """Collects the arguments of an operator: first arrays, then numbers that no array decides."""

    def __init__(self, module: Module, returns: Sequence[str]) -> None:
        self._module = module
        self._returns = returns
        self.parts: list[str] = []
        self.arguments: list[str] = []
        self.axes: dict[str, type[Ragged] | type[Sparse]] = {}
        self.sources: dict[str, tuple[str, int, int]] = {}
        self.constants: dict[str, int] = {}

    def _add(self, name: str, text: str) -> None:
        self.arguments.append(name)
        self.parts.append(f"{text} {name}")

    def add_arrays(self, name: str, param: w.WorkloadParam) -> None:
        """Add the arguments of a tensor, or of an axis with rows."""
        if isinstance(param, w.TensorParam) and name not in self._returns:
            mark = f"({_letter(len(self.arguments))}!)" if name in self._module.written else ""
            for at, dim in enumerate(param.type.dims):
                if isinstance(dim, str):
                    self.sources.setdefault(dim, (name, at, 0))
            self._add(name, f"Tensor{mark}")
        elif isinstance(param, (w.RaggedParam, w.SparseParam)):
            self.sources.setdefault(param.outer, (name + OFFSETS, 0, 1))
            self.axes[name] = Ragged if isinstance(param, w.RaggedParam) else Sparse
            self._add(name + OFFSETS, "Tensor")
            if isinstance(param, w.SparseParam):
                self._add(name + INDICES, "Tensor")

    def add_numbers(self, name: str, param: w.WorkloadParam) -> None:
        """Add the argument of a scalar, or of a size that no array decides."""
        if isinstance(param, w.ScalarParam):
            self._add(name, _scalar_text(param))
        elif isinstance(param, w.SizeParam) and param.default is not None:
            self.constants[name] = param.default
        elif isinstance(param, w.SizeParam) and name not in self.sources:
            self._add(name, "SymInt")


def _check_returned(module: Module, tensors: Mapping[str, w.TensorParam], name: str) -> None:
    if name not in tensors:
        raise UnknownParameter(
            program=module.entry, name=name, advice=did_you_mean(name, [n for n in tensors])
        )
    if name not in module.written:
        raise BadReturn(name=name, reason="no task writes it", loc=tensors[name].loc)


def _letter(number: int) -> str:
    """Return a name of an alias set: a, b, ..., z, aa, ..."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _scalar_text(param: w.ScalarParam) -> str:
    dtype = str(param.type.dtype)
    if dtype == "b1":
        return "bool"
    return "float" if "f" in dtype else "SymInt"
