"""From the values of a call to the arrays and scalars of a run."""

from __future__ import annotations

import math
import mmap
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pto_wsp.errors import (
    AssumptionFails,
    BadExpression,
    OutOfMemory,
    UnboundTensor,
    UnknownParameter,
    WrongRank,
    WrongShape,
    WrongValue,
    closest,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.scalar import I64_MAX, Const, Value, Var, walk
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.location import argument_location
from pto_wsp.runtime.dlpack import as_numpy
from pto_wsp.runtime.numbers import integer, number
from pto_wsp.types.dtype import DType
from pto_wsp.types.layout import MemLayout

Arrays = dict[str, np.ndarray]

RUN_OPTIONS = ("workers", "trace", "check", "progress", "time_limit", "stream", "calendar")
"""Arguments of a run that are not parameters of its workload."""

MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0
"""Of `mmap`: addresses without a claim on memory."""

NO_KERNELS = "`values=False` calls no kernel: compile with `values=True`"
"""Why a simulation of time alone refuses what needs kernels."""

_KINDS = {
    w.RaggedParam: (Ragged, "ragged axis", "Ragged.lengths(array)", "Ragged.indptr(array)"),
    w.SparseParam: (Sparse, "sparse axis", "Sparse.csr(indptr, indices)", "Sparse.lists(rows)"),
}
"""What a call gives for an axis with rows: its class, its name, and the two ways to make it."""


@dataclass(slots=True)
class Bound:
    """The values of one run.

    Attributes:
        arrays: one per tensor of the workload, in order.
        scalars: one per size and scalar, in order; None where arrays decide.
        made: the arrays among them that the binder made, by tensor.
    """

    arrays: list[np.ndarray]
    scalars: list[Value | None]
    made: Arrays


class Binder:
    """Knows the parameters of a workload and what they can be.

    Args:
        workload: the workload.
        defaults: values that hold unless a call gives others, by parameter.
        stated: for runs that call no kernel: contents of tensors that tasks would write. A shape then
            replaces an array that nothing reads. None for other runs.

    Attributes:
        params: the parameters that a call can give, by name.
    """

    def __init__(
        self,
        workload: w.WorkloadFunction,
        defaults: Mapping[str, object],
        stated: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._name = workload.name
        self._defaults = {**defaults, **(stated or {})}
        self._stated = stated
        self._body = workload.body
        self._tensors = workload.tensors
        self._symbols = workload.symbols
        self._axes = tuple(p for p in workload.params if isinstance(p, (w.RaggedParam, w.SparseParam)))
        self._size_params = {p.name: p for p in self._symbols if isinstance(p, w.SizeParam)}
        self._derived = {p.name: p for p in self._symbols if p.value is not None}
        self._distinct = tuple(t for t in workload.tensors if t.is_distinct and not t.is_local)
        self._locals = tuple(t for t in self._tensors if t.is_local)
        self._given = tuple((t.name, t.columns is not None) for t in self._tensors if not t.is_local)
        self._spare: deque[Arrays] = deque(maxlen=1)
        hidden = {name for axis in self._axes for name in _hidden(axis)} | self._derived.keys()
        hidden |= {t.name for t in self._locals}
        self.params = {p.name: p for p in workload.params if p.name not in hidden}

    @cached_property
    def _deciding(self) -> frozenset[str]:
        """The tensors whose elements decide what runs."""
        return frozenset(w.deciding_tensors(self._body))

    def set_symbol(self, name: str, value: float, dtype: DType) -> None:
        """Set a scalar that holds in later runs unless a call gives another value.

        Raises:
            UnknownParameter: there is no scalar of that name.
            WrongValue: it is of another type, or cannot be this number.
        """
        param = self._known(name, w.ScalarParam)
        assert isinstance(param, w.ScalarParam)
        if param.type.dtype is not dtype:
            expected = f"`set_symbol_{param.type.dtype}`, or the number in the call"
            raise WrongValue(name=name, expected=expected, found=f"`set_symbol_{dtype}`", loc=param.loc)
        self._defaults[name] = number(name, value, dtype)

    def set_extents(self, extents: Mapping[str, int]) -> None:
        """Set axes and sizes that hold in later runs unless a call gives others.

        Raises:
            UnknownParameter: there is no axis or size of one of these names.
            WrongValue: an extent is not an integer >= 0.
        """
        found = {name: integer(name, extent, 0, I64_MAX) for name, extent in extents.items()}
        for name in found:
            self._known(name, w.SizeParam)
        self._defaults.update(found)

    def _known(self, name: str, kind: type[w.WorkloadParam]) -> w.WorkloadParam:
        known = {n: p for n, p in self.params.items() if isinstance(p, kind)}
        if name not in known:
            raise UnknownParameter(program=self._name, name=name, advice=did_you_mean(name, known))
        return known[name]

    @property
    def numbers(self) -> dict[str, int | float]:
        """The numbers that parameters have unless a call gives others."""
        return {n: v for n, v in self._defaults.items() if isinstance(v, (int, float))}

    def bind(self, values: Mapping[str, Any], stream: int | None = None) -> Bound:
        """Return the values of a run; allocates the tensors that a call does not give.

        Args:
            values: by parameter.
            stream: of a GPU, in which the arrays are used; None where a program runs on the CPU.

        Raises:
            UnboundTensor, UnknownParameter, WrongValue, WrongRank, WrongShape, UnusableArray: they do not
                fit the parameters.
            AssumptionFails: two elements of a tensor are equal that are assumed to differ.
            BadExpression: a size that follows from others is negative, or beyond 64 bits.
            OutOfMemory: the tensors that the program makes are too large.
        """
        if not values.keys() <= self.params.keys():
            name, known = next(n for n in values if n not in self.params), [*self.params, *RUN_OPTIONS]
            advice = did_you_mean(name, known if closest(name, known) else self.params)
            raise UnknownParameter(program=self._name, name=name, advice=advice, loc=argument_location(name))
        for name in (self._stated or {}).keys() & values.keys():
            expected, loc = "no value, because `given` states its elements", argument_location(name)
            raise WrongValue(name=name, expected=expected, found="one", loc=loc)
        given = self._defaults.copy()
        for name, value in values.items():
            if value is not None:
                given[name] = value
        if self._axes:
            given |= self._rows(given)
        scalars = {param.name: self._scalar(param, given.get(param.name)) for param in self._symbols}
        arrays = {}
        for name, is_packed in self._given:
            array = given.get(name)
            is_plain = type(array) is np.ndarray and not is_packed
            arrays[name] = array if is_plain else self._array(name, array, stream)
        for tensor in self._distinct:
            _require_distinct(tensor, arrays[tensor.name])
        if not self._derived and not self._locals:
            return Bound([*arrays.values()], [*scalars.values()], {})
        sizes = self._sizes(scalars, arrays)
        scalars |= {name: sizes[name] for name in self._derived}
        made = self._made(sizes)
        every = {**arrays, **made}
        return Bound([every[t.name] for t in self._tensors], [*scalars.values()], made)

    def with_reserved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return `values`, and for each tensor without one an array that takes no memory.

        Tensors whose elements decide what runs, or whose sizes neither numbers nor other values give, stay
        without an array.
        """
        given = {**self._defaults, **{name: value for name, value in values.items() if value is not None}}
        sizes = {name: value for name, value in given.items() if name in self._size_params}
        for axis in self._axes:
            if isinstance(rows := given.get(axis.name), (Ragged, Sparse)):
                sizes.setdefault(axis.outer, len(rows.offsets) - 1)
        open_tensors: list[w.TensorParam] = []
        for param in self.params.values():
            if not isinstance(param, w.TensorParam):
                continue
            if isinstance(array := given.get(param.name), np.ndarray):
                pairs = zip(param.type.dims, array.shape, strict=False)
                sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
            elif array is None and param.name not in self._deciding and not param.is_distinct:
                open_tensors.append(param)
        found = dict(values)
        for param in open_tensors:
            shape = [sizes.get(dim) if isinstance(dim, str) else dim for dim in param.type.dims]
            if None not in shape:
                lengths = (
                    integer(str(d), n, 0, I64_MAX) for d, n in zip(param.type.dims, shape, strict=True)
                )
                found[param.name] = _reserved(param, tuple(lengths))
        return found

    def keep(self, bound: Bound) -> None:
        """Keep the arrays that were made for a run that has ended, for the next one."""
        if bound.made:
            self._spare.append(bound.made)

    # --- axes with rows ---

    def _rows(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arrays of every axis with rows, and the sizes that follow from their number."""
        found: dict[str, Any] = {}
        for axis in self._axes:
            kind, what, usual, other = _KINDS[type(axis)]
            value = given.get(axis.name)
            if value is None:
                raise UnboundTensor(
                    kind=what, name=axis.name, advice=f"call the program with {axis.name}={usual}"
                )
            if not isinstance(value, kind):
                raise WrongValue(
                    name=axis.name,
                    expected=f"{usual} or {other}",
                    found=type(value).__name__,
                    loc=argument_location(axis.name),
                )
            assert isinstance(value, (Ragged, Sparse))
            rows, known = len(value.offsets) - 1, found.get(axis.outer, self._known_rows(axis.outer, given))
            if known is not None and known != rows:
                expected = f"{axis.outer} = {known}"
                raise WrongShape(name=axis.name, dim=0, expected=expected, found=rows, loc=axis.loc)
            found |= {axis.outer: rows, axis.offsets: value.offsets}
            if isinstance(value, Sparse):
                assert isinstance(axis, w.SparseParam)
                found[axis.indices] = value.indices
        return found

    def _known_rows(self, outer: str, given: Mapping[str, Any]) -> object:
        """Return the number of rows that something other than an axis gives, or None."""
        param = self._size_params[outer]
        if isinstance(param.value, Const):
            return param.value.value
        return self._scalar(param, given.get(outer))

    # --- tensors ---

    def _array(self, name: str, value: Any, stream: int | None) -> np.ndarray:
        if value is None:
            raise UnboundTensor(kind="tensor", name=name, advice=f"call the program with {name}=array")
        param = self.params.get(name)
        if isinstance(value, tuple) and self._stated is not None and isinstance(param, w.TensorParam):
            return self._without_memory(param, value)
        if type(value) is not np.ndarray:
            dtype = param.type.dtype if isinstance(param, w.TensorParam) else None
            value = as_numpy(name, value, None if param is None else param.loc, dtype, stream)
        if isinstance(param, w.TensorParam) and param.columns is not None:
            _require_packed(param, value)
        return value

    def _without_memory(self, param: w.TensorParam, shape: tuple[object, ...]) -> np.ndarray:
        """Return an array of a shape for a run that neither reads nor writes its elements."""
        if param.name in self._deciding or param.is_distinct:
            expected = "an array, since its elements decide what runs"
            raise WrongValue(
                name=param.name,
                expected=expected,
                found=f"the shape {shape}",
                loc=argument_location(param.name),
            )
        sizes = [integer(f"{param.name}'s shape", size, 0, I64_MAX) for size in shape]
        return _reserved(param, tuple(sizes))

    # --- sizes and scalars ---

    def _scalar(self, param: w.SizeParam | w.ScalarParam, value: Any) -> Value | None:
        value = param.default if value is None else value
        if isinstance(param, w.SizeParam):
            return None if value is None else integer(param.name, value, 0, I64_MAX)
        if param.value is not None:
            return None
        if value is None:
            advice = f"call the program with {param.name}=number"
            raise UnboundTensor(kind="scalar", name=param.name, advice=advice)
        return number(param.name, value, param.type.dtype)

    def sizes_of(self, bound: Bound) -> tuple[dict[str, Value], Arrays]:
        """Return the value of every size and scalar of a run, and the lengths of the rows of each axis."""
        arrays = {t.name: array for t, array in zip(self._tensors, bound.arrays, strict=True)}
        scalars = {p.name: value for p, value in zip(self._symbols, bound.scalars, strict=True)}
        lengths = {axis.name: np.diff(arrays[axis.offsets]) for axis in self._axes}
        return self._sizes(scalars, arrays), lengths

    def _sizes(self, scalars: Mapping[str, Value | None], arrays: Arrays) -> dict[str, Value]:
        """Return the value of every size and scalar, those that follow from others included."""
        sizes = {name: value for name, value in scalars.items() if value is not None}
        for tensor in self._tensors:
            if tensor.is_local:
                continue
            shape, dims = arrays[tensor.name].shape, tensor.type.dims
            if len(shape) != len(dims):
                raise WrongRank(name=tensor.name, expected=len(dims), found=len(shape), loc=tensor.loc)
            for dim, size in zip(dims, shape, strict=True):
                if isinstance(dim, str):
                    sizes.setdefault(dim, size)
        for name, param in self._derived.items():
            assert param.value is not None
            for part in walk(param.value):
                if isinstance(part, Var) and part.name not in sizes:
                    raise _unbound_size(part.name)
            value = evaluate(param.value, sizes)
            if isinstance(param, w.SizeParam) and value < 0:
                raise BadExpression(reason=f"the size `{name}` is {value}", loc=param.loc)
            sizes[name] = value
        return sizes

    def _made(self, sizes: Mapping[str, Value]) -> Arrays:
        """Return arrays for the local tensors: those of an earlier run where they have the sizes."""
        try:
            spare = self._spare.pop()
        except IndexError:
            spare = {}
        made: Arrays = {}
        for tensor in self._locals:
            for dim in tensor.type.dims:
                if isinstance(dim, str) and dim not in sizes:
                    raise _unbound_size(dim)
            shape = tuple(d if isinstance(d, int) else int(sizes[d]) for d in tensor.type.dims)
            if self._stated is not None:
                made[tensor.name] = self._of_time_alone(tensor, shape)
                continue
            old = spare.get(tensor.name)
            if old is None or old.shape != shape:
                old = _allocated(tensor, shape)
            if tensor.channel is not None:
                old.fill(0)  # a token that a task writes in part has the same contents in every run
            made[tensor.name] = old
        return made

    def _of_time_alone(self, tensor: w.TensorParam, shape: tuple[int, ...]) -> np.ndarray:
        """Return what a local tensor holds in a run in which no task runs."""
        assert self._stated is not None
        array = self._stated.get(tensor.name)
        if array is None:
            return _reserved(tensor, shape)
        if array.shape != shape:
            found = "x".join(map(str, array.shape))
            raise WrongShape(name=tensor.name, dim=0, expected=str(shape), found=found, loc=tensor.loc)
        return array


def _hidden(axis: w.RaggedParam | w.SparseParam) -> tuple[str, ...]:
    """Return the names of the parameters that hold the rows of an axis."""
    own = (axis.indices, axis.entries) if isinstance(axis, w.SparseParam) else ()
    return axis.offsets, axis.count, *own


def _unbound_size(name: str) -> UnboundTensor:
    return UnboundTensor(kind="size", name=name, advice=f"call the program with {name}=number")


def _require_distinct(param: w.TensorParam, array: np.ndarray) -> None:
    """Refuse an array with equal elements where a workload assumes that there are none."""
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        twice = f": {values[counts > 1][0]} occurs twice"
        raise AssumptionFails(condition=f"distinct({param.name})", where=twice, loc=param.loc)


def _allocated(tensor: w.TensorParam, shape: Sequence[int]) -> np.ndarray:
    try:
        return np.empty(shape, tensor.type.dtype.to_numpy())
    except (MemoryError, ValueError):  # numpy has a limit of its own
        size = f"{'x'.join(map(str, shape))} elements of {tensor.type.dtype}"
        raise OutOfMemory(what=f"`{tensor.name}`", size=size, loc=tensor.loc) from None


def _reserved(tensor: w.TensorParam, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that takes no memory until it is used."""
    dtype = tensor.type.dtype.to_numpy()
    size = math.prod(shape) * dtype.itemsize
    try:
        pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except (OSError, OverflowError, ValueError):
        text = f"{'x'.join(map(str, shape))} elements of {tensor.type.dtype}"
        raise OutOfMemory(what=f"`{tensor.name}`", size=text, loc=tensor.loc) from None
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def _require_packed(param: w.TensorParam, array: np.ndarray) -> None:
    """Refuse an array of another shape than that which stores a tensor in panels, with how to pack it."""
    wanted = param.type.dims
    *leading, _, rows, width = wanted
    assert isinstance(width, int) and param.columns is not None
    layout, dims = MemLayout.panels(width), (*leading, rows, param.columns)
    pairs = enumerate(zip(wanted, array.shape, strict=False))
    wrong = [dim for dim, (size, found) in pairs if isinstance(size, int) and size != found]
    if array.ndim == len(wanted) and not wrong:
        return
    of = f"({layout} stores {_dims(dims)} as {_dims(wanted)})"
    hint = f"pack it once, before the first run: `{layout}.pack(array)`"
    if array.ndim != len(wanted):
        expected = f"{len(wanted)} {of}"
        raise WrongRank(name=param.name, expected=expected, found=array.ndim, loc=param.loc, hint=hint)
    dim = wrong[0]
    expected, found = f"{wanted[dim]} {of}", array.shape[dim]
    raise WrongShape(name=param.name, dim=dim, expected=expected, found=found, loc=param.loc, hint=hint)


def _dims(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"
