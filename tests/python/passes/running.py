"""Modules before and after passes: the same results to the bit, in the interpreter and on the cpu."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pto_wsp.ir import workload as w
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.interpreted import InterpretedRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.program import Program

Arrays = dict[str, np.ndarray]


def random_arrays(module: Module, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    """An array per tensor of the entry, small whole numbers: sums of them are exact."""
    rng = np.random.default_rng(seed)
    found: Arrays = {}
    for tensor in module.entry_workload.tensors:
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in tensor.type.dims)
        found[tensor.name] = rng.integers(-4, 5, shape).astype(tensor.type.dtype.to_numpy())
    return found


def interpret(module: Module, arrays: Arrays, sizes: Mapping[str, Value]) -> int:
    """Run a module in the interpreter on arrays that it changes; return the number of tasks."""
    workload = module.entry_workload
    scalars = [sizes.get(p.name) for p in workload.symbols]
    runner = InterpretedRunner(verify(module))
    figures, _ = runner.run(RunRequest([arrays[t.name] for t in workload.tensors], scalars, 1))
    return figures.tasks


def run_on_cpu(program: Program, arrays: Arrays, sizes: Mapping[str, Value]) -> int:
    """Run a program on arrays that it changes; return the number of tasks."""
    program(**arrays, **sizes)
    assert program.stats is not None
    return program.stats.tasks


def same(a: Arrays, b: Arrays, *names: str) -> None:
    """Assert that arrays hold the same bits; all of them, or those named."""
    for name in names or a:
        assert a[name].tobytes() == b[name].tobytes(), name


def count_tasks(body: tuple[w.Node, ...], scope: Mapping[str, Value]) -> int:
    """The number of tasks, where no count depends on a loop around it."""
    total = 0
    for node in body:
        match node:
            case w.Task():
                total += 1
            case w.Loop(extent=extent, tile=None, body=inner):
                total += int(evaluate(extent, scope)) * count_tasks(inner, scope)
            case w.Cond(condition=condition, then=then, other=other):
                total += count_tasks(then if evaluate(condition, scope) else other, scope)
            case _:
                raise AssertionError(node)
    return total
