"""Proofs of the examples, of wrong programs and of mutated programs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Row
from benchmarks.lowerings.wrong import FAMILIES
from examples.pto_programs.bgemm import bgemm_module, bgemm_tree_module
from examples.pto_programs.llama import llama_module
from examples.pto_programs.softmax import softmax_module
from pto_wsp import errors, f32, parse
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Index, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, add
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.prove.finding import INDEPENDENT, PROVED, Finding
from pto_wsp.prove.prove import prove
from pto_wsp.prove.replay import NoReplay, Replay, iteration_of
from pto_wsp.support.record import replace

ROOT = Path(__file__).parents[2]
COOKBOOK = sorted(path.stem for path in (ROOT / "examples" / "cookbook").glob("*.py"))


def run(bench: Bench) -> None:
    """Measure how much of the examples is decided, and that nothing unsafe is proved."""
    start = time.process_time()
    findings = [finding for module in examples() for finding in prove(module).findings]
    bench.rows.append(Row("prove_examples_s", time.process_time() - start, "s", goal="<= 30"))
    bench.rows.append(Row("prove_decidable_pct", 100 * _decided(findings), "%", goal=">= 80"))
    count = sum(map(len, FAMILIES.values()))
    bench.rows.append(Row("prove_refuted", _refuted(), f"of {count} programs", goal=f">= {count}"))
    accepted, tried = _accepted(200 if bench.quick else 5000)
    bench.rows.append(Row("prove_mutants_accepted", accepted, f"of {tried} unsafe", goal="<= 0"))


def examples() -> Iterator[Module]:
    """Yield the modules of the examples."""
    names = ["01_scale_rows.scale_rows", "06_tuned_decode.tuned_decode"]
    for name in [*names, *(f"cookbook.{stem}" for stem in COOKBOOK)]:
        found = vars(import_module(f"examples.{name}")).values()
        yield from (value.trace().module for value in found if isinstance(value, Workload))
    yield import_module("examples.02_paged_decode.paged_decode").paged_decode(f32).trace().module
    yield import_module("examples.minilm.workload").encoder("f32").trace().module
    moe: Any = import_module("examples.03_moe.moe")
    yield moe.moe(moe.Shape()).trace().module
    for made in (softmax_module(), bgemm_module(16), bgemm_tree_module(16, 32, 16), llama_module()):
        yield parse(str(made))


def _decided(findings: list[Finding]) -> float:
    claims = [finding for finding in findings if finding.claim == INDEPENDENT]
    return sum(finding.status == PROVED for finding in claims) / len(claims)


def _refuted() -> int:
    """Return how many wrong programs are refuted, with a counter-example."""
    return sum(is_refuted(program) for family in FAMILIES.values() for program in family)


def is_refuted(program: Workload) -> bool:
    """Return whether a proof refutes a program, or refuses its operator with two tasks that conflict."""
    try:
        return bool(program.prove().refuted)
    except errors.CannotRestructure as error:
        return "two tasks that touch" in str(error)
    except errors.NotYetSupported:
        return False


def _accepted(count: int) -> tuple[int, int]:
    """Return how many unsafe mutants are proved, and how many mutants are unsafe."""
    rng = random.Random(0)
    modules = [module for module in examples() if len([*w.tasks(module.entry_workload.body)]) <= 4]
    accepted = unsafe = 0
    for _ in range(count):
        mutant = _mutated(rng.choice(modules), rng)
        if any(_conflicts(mutant, rng) for _ in range(20)):
            unsafe += 1
            claims = [f for f in prove(mutant).findings if f.claim == INDEPENDENT]
            accepted += all(finding.status == PROVED for finding in claims)
    return accepted, unsafe


def _mutated(module: Module, rng: random.Random) -> Module:
    """Return a module with one index or range of a region moved, widened or fixed, or a loop made `P`."""
    workload = module.entry_workload
    places = [n for n in w.walk_nodes(workload.body) if isinstance(n, (w.Task, w.Loop))]
    chosen = rng.choice(places)

    def nodes(body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
        return tuple(_mutation(n, rng) if n is chosen else w.rebuild(n, nodes) for n in body)

    changed = replace(workload, body=nodes(workload.body))
    kept = (changed if f is workload else f for f in module.workloads)
    return replace(module, workloads=tuple(kept))


def _mutation(node: w.Node, rng: random.Random) -> w.Node:
    if isinstance(node, w.Loop):
        return replace(node, kind=w.PARALLEL)
    assert isinstance(node, w.Task)
    at = rng.choice([i for i, arg in enumerate(node.args) if isinstance(arg, Region)])
    region = node.args[at]
    assert isinstance(region, Region)
    dims = [d for d, dim in enumerate(region.dims) if isinstance(dim, (Index, Range))]
    if not dims:
        return node
    dim = rng.choice(dims)
    changed = (*region.dims[:dim], _moved(region.dims[dim], rng), *region.dims[dim + 1 :])
    args = (*node.args[:at], replace(region, dims=changed), *node.args[at + 1 :])
    return replace(node, args=args)


def _moved(dim: object, rng: random.Random) -> Index | Range:
    """Return an index or range that is moved by one, does not move with the loops, or is one longer."""
    step: Expr = Const(rng.choice((-1, 1)))
    if isinstance(dim, Index):
        return Index(rng.choice((add(dim.at, step), Const(0))))
    assert isinstance(dim, Range)
    changes = (Range(add(dim.start, step), dim.extent), Range(Const(0), dim.extent))
    return rng.choice((*changes, Range(dim.start, add(dim.extent, Const(1)))))


def _conflicts(module: Module, rng: random.Random) -> bool:
    """Return whether iterations of a `P` loop conflict in a call of drawn sizes."""
    replay = _drawn(module, rng)
    if replay is None:
        return False
    loops = [n for n in w.walk_nodes(module.entry_workload.body) if isinstance(n, w.Loop)]
    for loop in (loop for loop in loops if loop.kind == w.PARALLEL):
        placed = [(task, iteration_of(task.task, loop)) for task in replay.tasks]
        inside = [(task, place) for task, place in placed if place is not None]
        for at, (second, there) in enumerate(inside):
            for first, here in inside[:at]:
                apart = here[0] == there[0] and here[1] != there[1]
                if apart and replay.conflict(first, second) is not None:
                    return True
    return False


def _drawn(module: Module, rng: random.Random) -> Replay | None:
    workload = module.entry_workload
    sizes: dict[str, Any] = {p.name: rng.randint(1, 4) for p in workload.symbols}
    arrays: dict[str, np.ndarray] = {}
    for axis in workload.raggeds:
        lengths = [rng.randint(0, 20) for _ in range(sizes[axis.outer])]
        arrays[axis.offsets] = np.cumsum([0, *lengths])
        sizes[axis.count] = len(lengths) + 1
    rows = {d for t in workload.tensors for d in t.type.dims[:1] if isinstance(d, str)}
    outer = {p.outer for p in workload.params if isinstance(p, w.RowsParam)}
    for name in rows - outer - {p.count for p in workload.raggeds}:
        sizes[name] = 80
    for name in w.deciding_tensors(workload.body) - arrays.keys():
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in workload.tensor(name).type.dims)
        arrays[name] = np.arange(np.prod(shape)).reshape(shape) % 4
    try:
        replay = Replay(module, sizes, arrays)
    except (NoReplay, errors.PtoError):
        return None
    return None if replay.outside is not None else replay
