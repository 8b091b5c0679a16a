"""Text is read back as what it was printed from."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from pto_wsp import Program, parse
from pto_wsp.errors import PtoError, TextLimit
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import walk
from pto_wsp.ir.workload import node_expressions, walk_nodes
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import Location
from tests.generators.data.programs import Writer
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.modules import random_module
from tests.generators.source.kernels import random_kernel
from tests.generators.source.workloads import random_workload
from tests.python.lang.programs import execute
from tests.python.samples import scale_module

ROOT = Path(__file__).parents[3]


def test_the_file_of_the_page_is_canonical() -> None:
    page = (ROOT / "docs" / "pto_text.md").read_text(encoding="utf-8")
    file = page.split("```text\n")[1].split("\n```")[0]
    module = parse(file)
    assert str(module).strip() == file


def require_round_trip(module: Module) -> None:
    text = str(module)
    found = parse(text)
    assert found == module, text
    assert str(found) == text


def places(node: object) -> Iterator[object]:
    """Yield the places of a record and of everything in it."""
    if isinstance(node, tuple):
        for part in node:
            yield from places(part)
    elif hasattr(type(node), "__match_args__"):
        yield getattr(node, "loc", None)
        yield from places(tuple(vars(node).values()))


REPEATED_OVER_TWO_LINES = """func @f(
  %x: !pto.memref<gm,4x4,f32> {in, tile}, %y: !pto.memref<gm,4x4,f32> {out, tile}
) {
  %a = alloc_tile : !pto.tile<4x4xf32>
  %c = alloc_tile : !pto.tile<4x4xf32>
  %a = tload %x[:, :] : !pto.tile<4x4xf32>
  %c = tmatmul %a, %a : (!pto.tile<4x4xf32>, !pto.tile<4x4xf32>
    ) -> !pto.tile<4x4xf32>
  %c = tmatmul %a, %a : (!pto.tile<4x4xf32>, !pto.tile<4x4xf32>
    ) -> !pto.tile<4x4xf32>
  tstore %c, %y[:, :]
  return
}
"""


def test_a_module() -> None:
    require_round_trip(scale_module())


@tries(250)
@given(DRAWS)
def test_random_modules(draw: Draw) -> None:
    require_round_trip(random_module(draw))


@tries(36)
@given(DRAWS)
def test_random_programs(draw: Draw) -> None:
    workload = execute(Writer(draw).program()[0])["w"]
    assert isinstance(workload, Workload)
    require_round_trip(workload.trace().module)


@tries(12)
@given(DRAWS)
def test_random_kernels(draw: Draw) -> None:
    kernels = [random_kernel(draw, f"k{number}") for number in range(4)]
    text = "\n".join(kernel.text for kernel in kernels) + random_workload(draw, kernels).text
    workload = execute(text)["w"]
    assert isinstance(workload, Workload)
    require_round_trip(workload.trace().module)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/0*/*.py")), ids=lambda path: path.stem)
def test_workloads_of_examples(path: Path) -> None:
    for value in runpy.run_path(str(path)).values():
        if isinstance(value, Workload):
            try:
                module = value.trace().module
            except PtoError:
                continue  # one that others call, with values that it has only there
            require_round_trip(module)


def test_every_node_has_its_place() -> None:
    module = parse(str(scale_module()), "scale.pto")
    kernel, workload = module.kernels[0], module.workloads[0]
    assert kernel.loc == Location("scale.pto", 6, 1, 115)
    assert kernel.params[2].loc == Location("scale.pto", 6, 100, 107)
    assert kernel.body is not None
    assert [stmt.loc and stmt.loc.line for stmt in kernel.body] == [11, 12, 13]
    assert kernel.body[1].loc == Location("scale.pto", 12, 3, 56)
    for node in walk_nodes(workload.body):
        assert node.loc is not None
        for expr in node_expressions(node):
            assert all(part.loc is not None and part.loc.line == node.loc.line for part in walk(expr))


def test_a_text_that_is_read_runs(tmp_path: Path) -> None:
    """Reading C++ does not run it, or look for its files."""
    text = """\
func @k(%x: !pto.memref<gm,1x1,f32> {inout, tile}) {
  CPP body (x)
  INCLUDE "nowhere.hpp"
  FOLDER "/nowhere"
  |#error never compiled
  ENDCPP
}
"""
    module = parse(text)
    assert module.kernels[0].native is not None
    assert module.kernels[0].native.source == "#error never compiled"
    assert not list(tmp_path.iterdir()) and Program is not None


@pytest.mark.parametrize("depth", [90, 3000])
@pytest.mark.parametrize("make", ["({}", "-{}", "not({}", "%n + ({}", "min(1, {}", "dim(%x, 0) + {}"])
def test_nesting_is_bounded(make: str, depth: int) -> None:
    opened, _, _ = make.partition("{}")
    expr = opened * depth + "true" + ")" * (depth * (opened.count("(") - opened.count(")")))
    text = f"func @f(%n: i64) {{\n  %s = alloc_scalar : b1\n  %s = {expr} : b1\n}}\n"
    if depth > 1000:
        with pytest.raises(TextLimit):
            parse(text)
    else:
        try:
            parse(text)
        except PtoError as error:
            assert not isinstance(error, TextLimit)


def test_blocks_are_bounded() -> None:
    with pytest.raises(TextLimit):
        parse("func @f() {\n" + "IF true:u1\n" * 1000)
