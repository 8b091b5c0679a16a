"""Mistakes of new users: each error has a line, says what was found in a few words, and what to write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import P, Program, pto
from pto_wsp.errors import PtoError
from pto_wsp.lang.workload.workload import Workload
from tests.python.lang.programs import execute

HEAD = """
import numpy as np
BIG = np.arange(400, dtype=np.float32)
TABLE = np.arange(4)
@kernel
def inc(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x + 1.0)
"""


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(PtoError) as caught:
        action()
    assert caught.value.loc is not None
    text = str(caught.value)
    assert len(text) < 700
    return text


@pytest.fixture(scope="module")
def program() -> Program:
    text = "@workload\ndef w(X: Tensor[f32, 'n', 8], s: Scalar[f32] = 1.0):\n    inc(x=X[0:4])\n"
    made = execute(HEAD + text)["w"]
    assert isinstance(made, Workload)
    return made.compile("interp")


@pytest.mark.parametrize("value", [[[1.0]], (1, 2), 3.0])
def test_a_list_for_an_array(program: Program, value: object) -> None:
    text = error_of(lambda: program(X=value))
    assert "expected a numpy array, or one with `__dlpack__`" in text and type(value).__name__ in text
    assert "help: make an array of it first: `np.asarray(X, np.float32)`" in text


@pytest.mark.parametrize(("name", "meant"), [("x", "X"), ("S", "s"), ("XX", "X"), ("worker", "workers")])
def test_a_misspelled_argument(program: Program, name: str, meant: str) -> None:
    text = error_of(lambda: program(**{name: np.ones((4, 8), np.float32)}))  # type: ignore[arg-type]
    assert f"help: did you mean `{meant}`?" in text


BODIES = [
    (
        "inc(x=X[TABLE[i] :])",
        "`i` is known only when the program runs",
        "as a parameter `Tensor[dtype, size]`",
    ),
    ("inc(x=X[(TABLE * i)[0] :])", "`i` is known only when the program runs", "loop over it"),
    ("inc(x=Tensor(shape=(4, 8), dtype=f32))", "workload `w` uses <tensor 4x8 f32>", "make it a parameter"),
    ("inc(x=seq[i])", "found <row of a ragged axis>", ""),
    ("inc[seq[i]](x=X[0:4])", "loop variables, ranges or integers, found <row of a ragged axis>", ""),
]


@pytest.mark.parametrize(("line", "found", "hint"), BODIES)
def test_in_workloads(line: str, found: str, hint: str) -> None:
    text = (
        f"@workload\ndef w(X: Tensor[f32, 'n', 8], seq: Ragged['b']):\n    for i in P('b'):\n        {line}\n"
    )
    made = execute(HEAD + text)["w"]
    assert isinstance(made, Workload)
    printed = error_of(made.trace)
    assert found in printed and hint in printed, printed
    assert "0x" not in printed and "kernel `w`" not in printed, printed


def test_scalars_of_numpy_compute_with_loop_variables() -> None:
    lines = "inc(x=X[np.int64(4) * i : np.minimum(i, np.int64(2)) * 4 + np.int64(4)])"
    text = f"@workload\ndef w(X: Tensor[f32, 'n', 8]):\n    for i in P(3):\n        {lines}\n"
    made = execute(HEAD + text)["w"]
    assert isinstance(made, Workload)
    x = np.zeros((12, 8), np.float32)
    made.compile("interp")(X=x)
    assert (x == 1).all()


@pytest.mark.parametrize("use", ["x + BIG", "pto.exp(BIG)"])
def test_an_array_around_a_kernel(use: str) -> None:
    kernel = f"@kernel\ndef k(x: InOut[Tile[4, 8, f32]]):\n    pto.store(x, {use})\n"
    text = error_of(lambda: execute(HEAD + kernel))
    assert "expected a tile, found an array 400 of float32" in text
    assert "help: a kernel gets arrays as arguments of its tasks: add a parameter `In[Tensor[...]]`" in text


def test_mutable_defaults() -> None:
    text = error_of(lambda: execute(HEAD + "@workload\ndef w(steps=[1, 2]): pass\nw.trace()\n"))
    assert "found [1, 2]" in text and "can be a variable around it" in text
    constant = "@kernel\ndef k(x: InOut[Tile[4, 8, f32]], n: Constexpr[int] = [1]):\n    pto.store(x, x)\n"
    text = error_of(lambda: execute(HEAD + constant))
    assert "expected a default that is a constant int, found [1]" in text


def test_a_negative_extent_names_its_iteration() -> None:
    text = "@workload\ndef w(m: DenseDyn):\n    for i in P(3):\n        for t in P(m - i): inc(x=X)\n"
    made = execute(HEAD + "X = Tensor(shape=(4, 8), dtype=f32)\n" + text)["w"]
    assert isinstance(made, Workload)
    for target in ("cpu", "interp"):
        program = made.compile(target)
        printed = error_of(lambda program=program: program(m=1, X=np.ones((4, 8), np.float32)))
        assert "the axis of `t` has extent -1" in printed and "in iteration i = 2" in printed
        assert "end the extent at 0" in printed


def test_a_run_inside_a_run() -> None:
    made = execute(HEAD + "@workload\ndef w(X: Tensor[f32, 4, 8]):\n    inc(x=X)\n")["w"]
    assert isinstance(made, Workload)
    program, x = made.compile(), np.ones((4, 8), np.float32)
    text = error_of(lambda: program(X=x, progress=lambda _: program(X=x.copy())))
    assert "inside a run" in text and "`submit` both before you `wait`" in text


def test_names_that_do_not_exist_are_no_attributes() -> None:
    assert not hasattr(P, "x") and not hasattr(pto, "x")
    with pytest.raises(PtoError, match=r"`P.tile`"):
        _ = P.tile
