"""Random workloads as C: the tasks of the walk in its order, its bits, and its errors at their places."""

from __future__ import annotations

import functools
import random
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import Program, _native, errors
from pto_wsp.interp.regions import RegionPlace
from pto_wsp.interp.workload import NOTHING_LATE, BoundTask, TaskRunner, TensorReader, Walk
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.flush_points import find_late
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_workload
from pto_wsp.ir.scalar import Expr, Name, Slot, Value, walk
from pto_wsp.ir.verify import verify
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import Location
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.task_dump import read_task_dump
from pto_wsp.support.record import record, replace
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.dynamic_workloads import KERNELS, Sample, random_sample
from tests.generators.source.workloads import WorkloadText, random_arguments, random_workload
from tests.python.lang.programs import execute
from tests.python.lower.test_source import pool
from tests.python.runtime.test_expressions import Case
from tests.python.runtime.test_expressions import cases as expression_cases
from tests.python.targets.orchestrations import Orchestrations, build_kernels
from tests.python.targets.test_c_orchestration import NAME, builds

PER_LIBRARY = 20
SYMBOLS = [5]
CODES = {"row-outside": "rows-outside", "row-repeated": "rows-repeat"}
"""Codes of C for those of the catalogue, where they differ."""
EXPRESSIONS = {
    "division by zero": "division-by-zero",
    "it overflows": "expression-overflow",
    "it shifts": "shift-outside",
    "of a range is outside": "slice-outside",
    "the axis of": "negative-extent",
    "is below 0": "expression-overflow",
}
"""Codes of C for expressions without a value, by part of the reason; of others `element-outside`."""


@record
class Failure:
    """An error: its code and those of others in the statement, the statement's line, and the iteration."""

    codes: frozenset[str]
    line: int
    where: str


def code_of(error: errors.RunError) -> str:
    if not isinstance(error, errors.BadExpression):
        return CODES.get(error.code, error.code)
    reason = str(error.fields["reason"])
    return next((code for text, code in EXPRESSIONS.items() if text in reason), "element-outside")


def codes_of(exprs: Iterable[Expr], scope: dict[Name, Value], reader: TensorReader) -> Iterator[str]:
    """Yield the codes of all parts of expressions that have no value: C evaluates operands in any order."""
    for part in (part for expr in exprs for part in walk(expr)):
        try:
            evaluate(part, scope, reader)
        except errors.BadExpression as error:
            yield code_of(error)


# --- the walk in program order, without the check before the first task ---


class Walked:
    """The tasks of a module, run one after another, and the first error.

    Attributes:
        names: of the kernels of tasks.
        failure: the first error, or None.
    """

    def __init__(self, module: Module, arrays: dict[str, np.ndarray]) -> None:
        self.module, self.names = module, list[str]()
        late = find_late(module.entry_workload, module.written)
        self.run = TaskRunner(module, arrays, late, call, lambda: None, self.seen)
        sizes = dict(zip((p.name for p in module.entry_workload.symbols), SYMBOLS, strict=True))
        self.walk = Walk(
            {**dict.fromkeys(module.entry_workload.variables, 0), **sizes}, self.run.reader, NOTHING_LATE
        )
        self.failure: Failure | None = None
        task: BoundTask | None = None
        try:
            for number, step in enumerate(self.walk.nodes(module.entry_workload.body, ())):
                assert isinstance(step, BoundTask)
                task = step
                self.run.task(task, number)
        except errors.RunError as error:
            self.failure = self.failure_of(error, task)

    def seen(self, task: BoundTask) -> None:
        self.names.append(task.node.kernel)

    def failure_of(self, error: errors.RunError, task: BoundTask | None) -> Failure:
        assert error.loc is not None
        node = statements(self.module)[error.loc.line]
        where = str(error.fields.get("where", "")).strip()
        if isinstance(error, errors.BadExpression):
            where = error.caret_text
        found = {code_of(error), *codes_of(w.node_expressions(node), self.walk.scope, self.run.reader)}
        if task is not None and task.node is node:
            found.update(self.region_codes(task))
        assert node.loc is not None
        return Failure(frozenset(found), node.loc.line, where)

    def region_codes(self, task: BoundTask) -> Iterator[str]:
        """Yield the codes of all regions of a task that are wrong."""
        kernel = self.module.kernel(task.node.kernel)
        for param, arg in zip(kernel.params, task.node.args, strict=True):
            if isinstance(arg, Region):
                try:
                    self.run.regions.view(arg, RegionPlace(kernel, param, task.scope, task.loops, None))
                except errors.RunError as error:
                    yield code_of(error)


def call(name: str, args: list[np.ndarray | Value], workspace: int) -> None:
    numbers, compiled = library()
    kernel = next(kernel for kernel in KERNELS if kernel.name == name)
    views = tuple(a for a in args if isinstance(a, np.ndarray))
    scalars = tuple(a for a in args if not isinstance(a, np.ndarray))
    codes = tuple(p.type.dtype.code for p in kernel.scalar_params if p.type.dtype is not None)
    assert compiled.call(numbers[name], views, scalars, codes, 0, workspace)[0] == 0


@functools.cache
def library() -> tuple[dict[str, int], _native.KernelLibrary]:
    artifact = CpuTarget().build(KERNELS, ArtifactCache())
    return {name: n for n, name in enumerate(artifact.kernels)}, _native.KernelLibrary(str(artifact.path))


@functools.cache
def kernel_folder(kernels: tuple[KernelFunction, ...]) -> Path:
    """Return a folder with compiled kernels for libraries of orchestrations."""
    folder = Path(tempfile.mkdtemp(prefix="pto-wsp-tests-"))
    build_kernels(Module("m", kernels, (w.WorkloadFunction("w", (), ()),), "w"), folder)
    return folder


# --- workloads in which data decides ---


def placed(body: tuple[w.Node, ...], lines: Iterator[int]) -> tuple[w.Node, ...]:
    """Return nodes with a line each; tasks have no coordinates, which C does not evaluate."""
    made = (w.rebuild(node, lambda inner: placed(inner, lines)) for node in body)
    made = (replace(node, keys=()) if isinstance(node, w.Task) else node for node in made)
    return tuple(replace(node, loc=Location("w.py", 10_000 + next(lines), 1, 2)) for node in made)


def prepared(sample: Sample) -> Module:
    """Return the module of a sample with all kernels and a line per statement."""
    workload = sample.module.entry_workload
    module = replace(sample.module, workloads=(replace(workload, body=placed(workload.body, count())),))
    return Prepared(verify(module), registry.get(NAME)).module.with_kernels(KERNELS)


def statements(module: Module) -> dict[int, w.Node]:
    """Return the statement that each line of a module is in."""
    found: dict[int, w.Node] = {}
    for node in w.walk_nodes(module.entry_workload.body):
        regions = [arg for arg in node.args if isinstance(arg, Region)] if isinstance(node, w.Task) else []
        parts = [part for expr in w.node_expressions(node) for part in walk(expr)]
        locs = (part.loc for part in (*parts, *regions, node))
        found |= {loc.line: node for loc in locs if loc is not None}
    return found


def check(built: Orchestrations, number: int, sample: Sample, workers: int) -> None:
    module, expected, found = built.modules[number], sample.arrays(), sample.arrays()
    walked = Walked(module, expected)
    dump = built.folder / "tasks.txt"
    ran = built.run(number, [*found.values()], SYMBOLS, workers, dump)
    if walked.failure is not None:
        said = re.fullmatch(r"w\.py:(\d+): .*?( in iteration .*)?", ran.message, re.DOTALL)
        assert said, ran.message
        node = statements(module)[int(said[1])]
        assert node.loc is not None
        place = (node.loc.line, (said[2] or "").strip())
        assert place == (walked.failure.line, walked.failure.where), ran.message
        assert ran.code in walked.failure.codes, ran.message
        return
    assert ran.code == "", ran.message
    dumped = [task.name for task in read_task_dump(dump)]
    assert dumped == walked.names and ran.tasks == len(walked.names)
    for name, array in found.items():
        assert array.tobytes() == expected[name].tobytes(), name


@builds
@tries(8, compiles=True)
@given(st.integers(0, 2**32))
def test_data_decides_as_in_the_walk(seed: int) -> None:
    drawn = [random_sample(random.Random(f"{seed} {number}")) for number in range(PER_LIBRARY)]
    with tempfile.TemporaryDirectory() as folder:
        built = Orchestrations([*map(prepared, drawn)], Path(folder), kernel_folder(KERNELS))
        for number, sample in enumerate(drawn):
            note(print_workload(built.modules[number].entry_workload))
            for workers in (1, 3):
                check(built, number, sample, workers)


# --- expressions ---


def keeping(case: Case) -> Module:
    """Return a module that keeps the value of an expression."""
    return Prepared(verify(case.module(False)), registry.get(NAME)).module


def check_value(built: Orchestrations, number: int, case: Case) -> None:
    module = built.modules[number]
    arrays = {"Y": np.full((1, 1), 77, np.int64), **case.arrays}
    scope: dict[Name, Value] = {Slot(3): -9, **case.numbers}
    reader = TensorReader(arrays)
    ran = built.run(number, [*arrays.values()], [*case.numbers.values()], 1, built.folder / "tasks.txt")
    try:
        expected = int(evaluate(case.expr, scope, reader))
    except errors.BadExpression:
        assert ran.code in {*codes_of([case.expr], scope, reader)}, f"{module}\n{ran.message}"
        expected = 77
    assert arrays["Y"][0, 0] == expected and (ran.code == "") == (ran.tasks == 1), f"{module}\n{ran}"


@builds
@tries(20, compiles=True)
@given(st.lists(expression_cases(), min_size=8, max_size=8))
def test_expressions_have_the_value_of_evaluate(drawn: Sequence[Case]) -> None:
    modules = [keeping(case) for case in drawn]
    with tempfile.TemporaryDirectory() as folder:
        built = Orchestrations(modules, Path(folder), kernel_folder(modules[0].kernels))
        for number, case in enumerate(drawn):
            check_value(built, number, case)


# --- workloads as Python writes them ---


def contiguous(values: dict[str, object]) -> dict[str, object]:
    """Return arguments with copies of arrays in C order; one array stays one."""
    made: dict[int, np.ndarray] = {}
    for value in values.values():
        if isinstance(value, np.ndarray):
            made[id(value)] = np.array(value, order="C")
    return {name: made.get(id(value), value) for name, value in values.items()}


def symbols_of(module: Module, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]) -> list[int]:
    """Return sizes and scalars as C takes them."""
    sizes: dict[str, int] = {}
    for tensor, array in zip(module.entry_workload.tensors, arrays, strict=True):
        pairs = zip(tensor.type.dims, array.shape, strict=True)
        sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    found: list[int] = []
    for param, value in zip(module.entry_workload.symbols, scalars, strict=True):
        value = sizes[param.name] if value is None else value
        found.append(struct.unpack("<i", struct.pack("<f", value))[0] if isinstance(value, float) else value)
    return found


def compiled(drawn: WorkloadText, kernels: str) -> Program:
    made = execute(f"{kernels}\n{drawn.text}")["w"]
    assert isinstance(made, Workload)
    return made.compile()


@builds
@pytest.mark.slow
@tries(4, compiles=True)
@given(st.integers(0, 2**32))
def test_programs_are_those_of_the_engine(seed: int) -> None:
    kernels = pool(0)
    texts = [random_workload(random.Random(f"{seed} {number}"), kernels) for number in range(PER_LIBRARY)]
    programs = [compiled(text, "\n".join(kernel.text for kernel in kernels)) for text in texts]
    modules = [Prepared(program.module, registry.get(NAME)).module for program in programs]
    with tempfile.TemporaryDirectory() as folder:
        built = Orchestrations(modules, Path(folder), kernel_folder(modules[0].kernels))
        for number, (text, program) in enumerate(zip(texts, programs, strict=True)):
            note(text.text)
            given_values = random_arguments(text, seed)
            expected, found = contiguous(given_values), contiguous(given_values)
            bound = program._binder.bind(found)
            symbols = symbols_of(modules[number], bound.arrays, bound.scalars)
            try:
                program.run(**expected, workers=1)
                said = ""
            except errors.RunError as error:
                said = code_of(error)
            ran = built.run(number, bound.arrays, symbols, 2, built.folder / "tasks.txt")
            assert ran.code == said, ran.message
            if not said:
                assert program.stats is not None and ran.tasks == program.stats.tasks
                for name, array in expected.items():
                    assert not isinstance(array, np.ndarray) or array.tobytes() == found[name].tobytes()
