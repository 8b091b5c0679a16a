"""Counter-examples of proofs, tried: the run that they describe ends with the error that they predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import Ragged, errors
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.prove.finding import CHANNELS, EDGES, INDEPENDENT, INSIDE, INSTANCES, CounterExample, Finding
from pto_wsp.runtime.compiling import compile_module

EXPECTED: dict[str, tuple[type[errors.PtoError], ...]] = {
    INDEPENDENT: (errors.IterationsConflict,),
    EDGES: (errors.EdgesMissing,),
    INSIDE: (errors.RegionOutside, errors.ViewShape, errors.BadExpression),
    INSTANCES: (errors.InstancesConflict,),
    CHANNELS: (errors.Deadlock,),
}


def values_of(module: Module, counter: CounterExample) -> dict[str, Any]:
    """Return the arguments of a call with the sizes and arrays of a counter-example."""
    workload, sizes, arrays = module.entry_workload, dict(counter.sizes), dict(counter.arrays)
    for param in workload.symbols:  # that of a kernel has the extents of its views
        if isinstance(param, w.SizeParam) and param.value is None and "." not in param.name:
            sizes.setdefault(param.name, max(sizes.values(), default=0))
    values: dict[str, Any] = {}
    hidden = {name for p in workload.params if isinstance(p, w.RowsParam) for name in p.tensors}
    for param in workload.params:
        match param:
            case w.RaggedParam():
                rows = sizes[param.outer]
                offsets = arrays.get(param.offsets, [0] * (rows + 1))
                values[param.name] = Ragged.indptr(np.array(offsets, np.int64))
            case w.TensorParam() if not param.is_local and param.name not in hidden:
                shape = tuple(d if isinstance(d, int) else sizes[d] for d in param.type.dims)
                given = arrays.get(param.name)
                dtype = param.type.dtype.to_numpy()
                values[param.name] = np.zeros(shape, dtype) if given is None else np.array(given, dtype)
            case w.ScalarParam() if param.value is None:
                values[param.name] = sizes.get(param.name, 1.0)
            case _:
                pass
    dims = {d for t in workload.tensors for d in t.type.dims}
    rows = {p.outer for p in workload.params if isinstance(p, w.RowsParam)}
    open_sizes = [p for p in workload.symbols if isinstance(p, w.SizeParam) and p.value is None]
    return values | {
        p.name: sizes[p.name] for p in open_sizes if p.name not in dims | rows and "." not in p.name
    }


def confirm(module: Module, finding: Finding) -> None:
    """Check that a refuted finding is an error of the run that it describes."""
    assert finding.counter is not None
    program = compile_module(module, "cpu")
    check = None if finding.claim == CHANNELS else "hazards"
    with pytest.raises(EXPECTED[finding.claim]):
        program.run(**values_of(module, finding.counter), check=check, workers=1)
