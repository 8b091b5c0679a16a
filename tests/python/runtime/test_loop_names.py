"""Loops that have the same name: one after another they are two loops, inside each other an error."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import InOut, P, Program, StartPolicy, Tensor, Tile, f32, kernel, parse, pto, workload
from pto_wsp.errors import RegionOutside, RepeatedText
from pto_wsp.ir.module import Module
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy

TARGETS = ("cpu", "interp")


@kernel
def grow(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x * 2.0 + 1.0)


@workload
def in_turn(X: Tensor[f32, "n", 8], Y: Tensor[f32, "m", 8]):
    for a in P("n"):
        grow(x=X[a : a + 1])
    for b in P.tiles("m", 4):
        for _ in P.range(2):
            grow(x=Y[b])
    for d in P.range("n"):
        grow(x=X[d : d + 1])


@workload
def nested(X: Tensor[f32, "n", 8]):
    for a in P("n"):
        for b in P.range(2):
            grow(x=X[a + b : a + b + 1])


def renamed(program: Program, *names: str) -> Module:
    """The module with `%i` for names of loops."""
    text = str(program.module)
    for name in names:
        text = text.replace(f"%{name}:", "%i:").replace(f"%{name} ", "%i ").replace(f"%{name}]", "%i]")
        text = text.replace(f"%{name},", "%i,").replace(f"%{name}.", "%i.")
    return parse(text)


@pytest.mark.parametrize("target", TARGETS)
def test_loops_one_after_another_share_a_name(target: str) -> None:
    module = renamed(in_turn.compile("interp"), "a", "b", "d")
    assert str(module).count("FOR %i:") == 3
    program = Program(module, {}, target)
    by_key = program.schedule.dispatch(DispatchPolicy.affinity(lambda t: t.i))
    for schedule in (program.schedule, by_key, program.schedule.task_graph(start=StartPolicy.after_build())):
        program.reschedule(schedule)
        x, y = np.ones((5, 8), np.float32), np.ones((7, 8), np.float32)
        program.run(X=x, Y=y, workers=2)
        assert (x == 7).all() and (y == 7).all()


def test_an_error_in_one_of_them_says_where_it_is() -> None:
    text = str(renamed(in_turn.compile("interp"), "a", "b", "d"))
    at = text.rindex("%X[%i :+ 1")
    program = Program(parse(text[:at] + text[at:].replace("%X[%i :+ 1", "%X[%i :+ 2", 1)), {}, "cpu")
    with pytest.raises(RegionOutside, match=r"in iteration i.* = 4"):
        program(X=np.ones((5, 8), np.float32), Y=np.ones((7, 8), np.float32))


def test_a_loop_inside_another_has_another_name() -> None:
    with pytest.raises(RepeatedText, match="`i` is declared twice"):
        renamed(nested.compile("interp"), "a", "b")
