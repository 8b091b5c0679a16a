"""Extents that were found equal, in whatever order."""

from __future__ import annotations

import random

import pytest

from pto_wsp import parse
from pto_wsp.analysis.extents import ExtentTable, Symbol
from pto_wsp.analysis.steps import StepReader
from pto_wsp.ir.kernel import KernelFunction, Load, Store

STORED = """\
func @k(%x: !pto.memref<gm,?x8,f32> {{in}}, %y: !pto.memref<gm,?x8,f32> {{out}}) {{
  %t = alloc_tile : !pto.tile<8x8xf32>
  %t = tload %x[0 :+ 8, :] : !pto.tile<8x8xf32>
  tstore %t, %y[0 :+ {}, :]
  return
}}
"""


def test_two_numbers_stay_apart() -> None:
    table = ExtentTable(KernelFunction("k", ()))
    table.equate(8, 4)
    assert table.resolve((8, 4)) == (8, 4)


def test_equal_extents_have_one_symbol() -> None:
    rng = random.Random(3)
    for _ in range(200):
        table = ExtentTable(KernelFunction("k", ()))
        names: list[Symbol] = [*"abcdef", 4, 8]
        for _ in range(rng.randrange(12)):
            pair = rng.choice(names), rng.choice(names)
            table.equate(*pair)
            a, b = table.resolve(pair)
            assert a == b or {a, b} == {4, 8}


@pytest.mark.parametrize(("rows", "compared"), [("4", [0]), ("8", []), ("dim(%y, 0)", [0])])
def test_a_tile_is_stored_to_a_region_of_another_size(rows: str, compared: list[int]) -> None:
    (kernel,) = parse(STORED.format(rows)).kernels
    reader, extents = StepReader(kernel), ExtentTable(kernel)
    steps = [reader.step(stmt, extents) for stmt in kernel.body or () if isinstance(stmt, (Load, Store))]
    assert isinstance(steps[1].stmt, Store)
    assert [valid.dim for valid, _ in steps[1].unequal] == compared
