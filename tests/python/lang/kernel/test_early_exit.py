"""`break` and `continue` in kernels: random programs against Python's own meaning of the same lines."""

from __future__ import annotations

import random
from textwrap import indent

import numpy as np
import pytest
from hypothesis import given

from pto_wsp import PTOFunctionBuilder, errors
from pto_wsp.lang.workload.workload import Workload
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.builder.test_early_exit import Programs
from tests.python.lang.programs import execute

HEAD = """
@kernel
def k(out: Out[Tile[1, 1, i32]]):
"""
TAIL = """    pto.store(out, pto.full((1, 1), s, i32))

@workload
def w(Y: Tensor[i32, 1, 1]):
    k(Y)
"""


def stored_by(lines: list[str], target: str, before: str = "") -> int:
    workload = execute(before + HEAD + indent("\n".join(lines), "    ") + "\n" + TAIL)["w"]
    assert isinstance(workload, Workload)
    out = np.zeros((1, 1), np.int32)
    workload.compile(target)(Y=out)
    return int(out[0, 0])


def random_lines(draw: Draw) -> tuple[list[str], int] | None:
    """Return lines of Python and the number that they compute; None where some of them never run."""
    builder = PTOFunctionBuilder("f").memref("out", shape=(1, 1))
    program = Programs(draw, builder)
    program.block(0, "")
    try:
        builder.build()
    except errors.BadBlock:
        return None
    scope: dict[str, int] = {}
    exec("\n".join(program.lines), scope)
    return program.lines, scope["s"]


def test_random_loops() -> None:
    checked: list[bool] = []

    @tries(120)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        found = random_lines(draw)
        checked.append(found is not None and any("break" in line for line in found[0]))
        if found is not None:
            assert stored_by(found[0], "interp") == found[1], "\n".join(found[0])

    check()
    assert True in checked


@pytest.mark.parametrize("seed", range(3))
def test_random_loops_on_the_cpu(seed: int) -> None:
    draw = random.Random(seed)
    found = next(each for each in iter(lambda: random_lines(draw), 0) if each is not None)
    assert stored_by(found[0], "cpu") == found[1]


def test_names_of_the_rewriting_are_new() -> None:
    lines = ["left, stays, s = 5, 7, 0", "for i in range(9):", "    s = s + left + stays", "    if s > 30:"]
    assert stored_by([*lines, "        break"], "interp") == 36


def test_a_condition_is_not_read_after_the_break() -> None:
    lines = [
        "s, d = 0, 3",
        "while 12 // d > 0:",
        "    s, d = s + 1, d - 1",
        "    if d == 0:",
        "        break",
    ]
    assert stored_by(lines, "interp") == stored_by(lines, "cpu") == 3


FIRST_ABOVE = """
def first_above(bound):
    found = 0
    while True:
        found = found + 7
        if found > bound:
            break
    return found
"""


def test_a_function_that_a_kernel_calls_leaves_loops() -> None:
    assert stored_by(["s = first_above(20) + first_above(6)"], "interp", FIRST_ABOVE) == 28


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_conditions_that_are_numbers(target: str) -> None:
    lines = [
        "n, m, s = pto.block_num() + 8, pto.block_idx(), 0",
        "while n:",
        "    n = n - 1",
        "    if n == 3:",
    ]
    lines += ["        break", "    if n and not m or m and (n or m):", "        s = s + n"]
    assert stored_by(lines, target) == 8 + 7 + 6 + 5 + 4
