"""What the caller of an emitted program gives it."""

from __future__ import annotations

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import OUT
from pto_wsp.ir.module import Module


def hidden_symbols(entry: w.WorkloadFunction) -> frozenset[str]:
    """Return the symbols that follow from others, or from the arrays of an axis."""
    found = {param.name for param in entry.symbols if param.value is not None}
    for axis in axes_of(entry):
        found |= {axis.count, axis.outer, *([axis.entries] if isinstance(axis, w.SparseParam) else [])}
    return frozenset(found)


def axes_of(entry: w.WorkloadFunction) -> list[w.RaggedParam | w.SparseParam]:
    """Return the axes of a program whose rows come from arrays."""
    return [param for param in entry.params if isinstance(param, w.RaggedParam | w.SparseParam)]


def read_tensors(module: Module) -> frozenset[str]:
    """Return the tensors whose elements a run reads: tasks do, or they decide what runs."""
    entry = module.entry_workload
    found = set(w.deciding_tensors(entry.body))
    for task in w.tasks(entry.body):
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True):
            if isinstance(arg, Region) and param.role != OUT:
                found.add(arg.tensor)
    return frozenset(found)
