"""Modules are written as Python that makes them again."""

from __future__ import annotations

import pytest
from hypothesis import given

from pto_wsp import PTOFunctionBuilder, PTOModule, parse
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Var
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.text import to_python
from pto_wsp.types import ScalarType, f32, i64
from tests.generators.data.programs import Writer
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.modules import random_module
from tests.python.builder.softmax import softmax_module
from tests.python.lang.programs import execute
from tests.python.samples import scale_module
from tests.python.text.test_foreign import LOOPED, ROWMAX, kernel


def made(module: Module) -> str:
    """Return the Python of a module, which makes it again."""
    text = to_python(module)
    names: dict[str, object] = {"__name__": "made"}
    exec(compile(text, "<made>", "exec"), names)
    assert names["ir"] == module, text
    assert isinstance(names["module"], PTOModule)
    return text


def test_programs_of_the_builder_are_calls_of_it() -> None:
    text = made(softmax_module().ir)
    assert "kernel." not in text and "workload." not in text
    assert "function.call('rowmax', {'input': ('input', 'tile_idx', 0), 'output': ('temp_max'," in text


@pytest.mark.parametrize(
    "body",
    [
        "%b = tcmps %a, %0.5 {cmpMode = #pto.cmp<GT>} : T -> T".replace("T -> T", "tile -> tile")
        .replace("%b = ", "%m = alloc_tile : !pto.tile<8x8xb1>\n  %m = ")
        .replace(" : tile -> tile", "\n  %b = tsel %m, %a, %a"),
        "%s = alloc_scalar : i32\n  MOV %s:i32, 4\n  %b = texp %a\n  WHILE\n  DO %s > 0\n"
        "    SUB %s, %s, 1\n    %b = tadd %b, %a\n  ENDWHILE",
        "%b = tmatmul %a, %a\n  %b = tmatmul.acc %b, %a, %a",
    ],
)
def test_forms_of_text_are_calls(body: str) -> None:
    assert "kernel." not in made(parse(kernel("  " + body)))


def test_prefetches_and_extents_are_calls() -> None:
    module = PTOModule("m")
    builder = PTOFunctionBuilder("f", module).memref("x", shape=(None, 16)).memref("y").tile("t", 4, 8)
    builder.for_loop("i", 0, "dim(x, 0) // 4").load("t", "x", "i", 8).prefetch("t", "x", "i + 1")
    builder.store("y", "t", "i").end_for().build()
    text = made(module.ir)
    assert "kernel." not in text and "function.prefetch('t', 'x', 'i + 1', 0)" in text


def test_a_module_of_text() -> None:
    text = made(parse(ROWMAX + LOOPED))
    assert "max_range=8, min_range=2, tile_levels={8: 16, 4: 16, 2: 16, 0: 8}" in text


def test_what_the_builder_lacks_is_nodes() -> None:
    text = made(scale_module())
    assert "module.add_function(workload.WorkloadFunction(name='scale_rows'" in text


@tries(90)
@given(DRAWS)
def test_random_modules(draw: Draw) -> None:
    made(random_module(draw))


@tries(9)
@given(DRAWS)
def test_random_programs(draw: Draw) -> None:
    workload = execute(Writer(draw).program()[0])["w"]
    assert isinstance(workload, Workload)
    made(workload.trace().module)


def test_names_stay_names() -> None:
    """Whatever a module is called, nothing of it runs."""
    for name in ('"""\nraise SystemExit\n"""', "'); raise SystemExit; ('", "{imports}", "\\"):
        module = Module(name, (k.KernelFunction("f", (), body=()),))
        made(module)


def test_deep_nodes_are_written_in_parts() -> None:
    value: Expr = Var("n")
    for number in range(120):
        value = Binary("sub", Const(number), value)
    body: tuple[w.Node, ...] = (w.Set("v", value),)
    for number in range(40):
        body = (w.Loop(w.PARALLEL, f"i{number}", Var("n"), 4, body),)
    params = (w.SizeParam("n"), w.ScalarParam("x", ScalarType(f32)), w.ScalarParam("y", ScalarType(i64)))
    made(Module("deep", (), (w.WorkloadFunction("w", params, body),), "w"))
