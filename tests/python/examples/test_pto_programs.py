"""The programs of the function builder: right for any size, with the tasks that the seed counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from examples.pto_programs import llama_kernels
from examples.pto_programs.__main__ import TOLERANCE, llama_tensors, run_bgemm, run_bgemm_tree, run_softmax
from examples.pto_programs.bgemm import bgemm_module, bgemm_tree_module
from examples.pto_programs.llama import ROWS, llama_module
from examples.pto_programs.reference import llama_layer
from examples.pto_programs.softmax import softmax_module
from pto_wsp import Program, PTOModule, parse
from pto_wsp.interp.workload import expand
from pto_wsp.ir.module import Module
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.passes.canonical_names import canonical_names
from pto_wsp.passes.pipeline import prepare
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.text import to_python


def num_tasks(program: Program) -> int:
    assert program.stats is not None
    return program.stats.tasks


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 64, 203])
def test_softmax_takes_any_number_of_rows(rows: int) -> None:
    program, distance = run_softmax(rows, None)
    assert num_tasks(program) == 5 * -(-rows // 8)
    assert distance < TOLERANCE


def test_batched_products() -> None:
    program, distance = run_bgemm(1024, None)
    assert num_tasks(program) == 2 * 2 * 4 * 4 * 3
    assert distance < TOLERANCE
    program, distance = run_bgemm_tree(512, None)
    assert num_tasks(program) == 15 * 2 * 2 * 2
    assert distance < TOLERANCE


@pytest.fixture(scope="module")
def layer() -> Program:
    """The layer, from text to code."""
    return compile_module(parse(str(llama_module(min_range=32))), "cpu")


@pytest.mark.parametrize(("num_tiles", "tasks"), [(32, 1024), (33, 1139), (64, 3584)])
def test_llama_layer(layer: Program, num_tiles: int, tasks: int) -> None:
    tensors = llama_tensors(num_tiles, np.random.default_rng(num_tiles))
    layer(**tensors, seq_len=num_tiles * ROWS, num_tiles=num_tiles)
    assert num_tasks(layer) == tasks
    np.testing.assert_allclose(tensors["output"], llama_layer(tensors), atol=TOLERANCE)


def tasks_of(module: Module, num_tiles: int) -> int:
    """How many tasks the expanded layer has, walked without data."""
    return sum(1 for _ in expand(module.entry_workload, {"num_tiles": num_tiles, "seq_len": 0}))


@pytest.mark.parametrize(
    ("min_range", "num_tiles", "iterations"),
    [(32, 128, 64), (256, 32, 32), (256, 64, 64), (256, 128, 128), (256, 256, 128), (256, 300, 172)],
)
def test_tasks_of_the_llama_layer(min_range: int, num_tiles: int, iterations: int) -> None:
    """D9 and the seed's table: 16 M + 3 M^2, where blocks of at least `min_range` tiles take half as many."""
    tasks = tasks_of(prepare(llama_module(min_range).ir), num_tiles)
    assert tasks == 16 * iterations + 3 * iterations**2


def test_both_ways_of_writing_the_layer_are_one_program() -> None:
    built = llama_module().ir
    kernels: list[Kernel] = [getattr(llama_kernels, kernel.name) for kernel in built.kernels]
    traced = llama_kernels.llama_layer_dynamic.trace().module
    functions = tuple(kernel.specialise({}, {}) for kernel in kernels)
    written = Module(built.name, functions, traced.workloads, built.entry)
    assert len(built.kernels) == 25
    assert str(canonical_names(built)) == str(canonical_names(written))


@pytest.mark.parametrize("make", [softmax_module, bgemm_module, bgemm_tree_module, llama_module])
def test_text_and_builder_say_the_same(make: Callable[[], PTOModule]) -> None:
    """Text reads back, and the Python that is written for it is builder calls alone."""
    module = make()
    assert parse(str(module)) == module
    python = to_python(module.ir)
    assert "add_function" not in python
    names: dict[str, object] = {}
    exec(python, names)
    assert names["ir"] == module.ir
