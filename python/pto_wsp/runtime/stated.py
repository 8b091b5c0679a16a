"""What runs without kernels are told of the tensors and axes that tasks would write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_wsp.errors import NotSimulated, UnknownParameter, WrongValue, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.location import argument_location
from pto_wsp.runtime.dlpack import as_numpy

_OF_AXIS = "`Sparse.csr(indptr, indices)` or `Sparse.lists(rows)`"


def stated_arrays(given: Mapping[str, Any], module: Module) -> dict[str, np.ndarray]:
    """Return the contents of tensors by name. An axis has a tensor of offsets and one of indices.

    Args:
        given: arrays by the names of tensors, and `Sparse` values by the names of axes.
        module: the program.

    Raises:
        WrongValue: a value is not an array, or not one that `group_by` could make.
    """
    axes = _made_axes(module)
    found: dict[str, np.ndarray] = {}
    for name, value in given.items():
        if isinstance(value, Ragged):
            raise _wrong(name, "a tensor or an axis that tasks write", "an axis that a run is given")
        if name in axes or isinstance(value, Sparse):
            found |= _rows_of(name, value, axes)
        else:
            found[name] = as_numpy(name, value, None, None)
    return found


def require_stated(module: Module, stated: Mapping[str, np.ndarray]) -> None:
    """Refuse a program in which no task runs, if tasks decide what runs and nothing is stated of it.

    Args:
        module: the program.
        stated: what tensors hold that its tasks would write.

    Raises:
        NotSimulated: it reads another tensor to decide what runs.
        UnknownParameter: one of `stated` is not a tensor of the program.
        WrongValue: no task writes one of `stated`, or its elements are of another type.
    """
    entry = module.entry_workload
    tensors = {tensor.name: tensor for tensor in entry.tensors}
    for name, array in stated.items():
        if name not in tensors:
            advice = did_you_mean(name, module.written)
            raise UnknownParameter(
                program=entry.name, name=name, advice=advice, loc=argument_location("given")
            )
        if name not in module.written:
            raise _wrong(name, "a tensor or an axis that tasks write", "one that a run is given")
        expected = tensors[name].type.dtype.to_numpy()
        if array.dtype != expected:
            raise _wrong(name, f"elements of {expected}", str(array.dtype))
    decided = sorted(w.deciding_tensors(entry.body) & module.written - stated.keys())
    if decided:
        axis_of = {tensor: name for name, axis in _made_axes(module).items() for tensor in axis.tensors}
        name, value = axis_of.get(decided[0], decided[0]), "array"
        if decided[0] in axis_of:
            value = "Sparse.lists(rows)"
        raise NotSimulated(
            program=entry.name,
            reason=f"reads `{name}` to decide what runs; its tasks write it, and none runs",
            loc=tensors[decided[0]].loc,
            hint=f"compile with `given={{{name!r}: {value}}}`, or with `values=True`",
        )


def _made_axes(module: Module) -> dict[str, w.SparseParam]:
    """Return the axes that the program makes, by name."""
    names = (tensor.axis for tensor in module.entry_workload.tensors if tensor.axis is not None)
    return {name: w.SparseParam(name, "") for name in names}


def _rows_of(name: str, value: object, axes: Mapping[str, w.SparseParam]) -> dict[str, np.ndarray]:
    """Return the offsets and indices that an axis has after `group_by`."""
    if name not in axes:
        expected = f"one of the axes that `group_by` makes: {', '.join(axes)}" if axes else "arrays alone"
        raise _wrong(name, expected, "a sparse axis")
    if not isinstance(value, Sparse):
        raise _wrong(name, _OF_AXIS, type(value).__name__)
    lengths = np.diff(value.offsets)
    positions = value.indices[value.offsets[0] :, 0]
    row_of = np.full(len(positions), -1)
    if len(positions) and positions.max() < len(positions):
        row_of[positions] = np.repeat(np.arange(len(lengths)), lengths)
    if value.offsets[0] != 0 or not np.array_equal(np.argsort(row_of, kind="stable"), positions):
        expected = "each position of the keys in one row, ascending in it, as `group_by` gives them"
        raise _wrong(name, expected, repr(value))
    axis = axes[name]
    return {axis.offsets: value.offsets.copy(), axis.indices: value.indices.copy()}


def _wrong(name: str, expected: str, found: str) -> WrongValue:
    loc = argument_location("given")
    return WrongValue(name=f"given[{name!r}]", expected=expected, found=found, loc=loc)
