"""Slots and symbols: what they hold at each place of the program, and what is refused where."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from pto_wsp.errors import BadExpression, PtoError
from tests.python.lang.programs import execute, marked

KERNELS = "from tests.python.lang.workload.control_kernels import *\n"
TARGETS = pytest.mark.parametrize("target", ["interp", "cpu"])
HEAD = """
@workload
def w(X: Tensor[f32, "n", 1, 1], L: Tensor[i64, "n", 2], U: Tensor[u64, "n"], M: Tensor[b1, "n"], A):
    put(A, 0)
"""


def compiled(body: str, target: str = "cpu"):
    names = "from pto_wsp.types import u64\n"
    program = execute(names + KERNELS + HEAD + indent(body, "    "))["w"]
    return program.compile(target)  # pyright: ignore


def run(body: str, target: str, **values: object) -> list[float]:
    """Run a workload with this body and return X."""
    given: dict[str, object] = {
        "L": np.array([[1, 2], [3, 4], [-5, 6]]),
        "U": np.array([7, 8, 2**64 - 1], np.uint64),
        "M": np.array([True, False, True]),
        "A": np.zeros((1, 1), np.float32),
        "X": np.zeros((3, 1, 1), np.float32),
    }
    given |= values
    compiled(body, target)(**given)
    x = given["X"]
    assert isinstance(x, np.ndarray)
    return x.ravel().tolist()


@TARGETS
def test_every_form(target: str) -> None:
    body = """
slot_load_u64(0, L, 1, 1)
slot_load_i64(1, L[2])
slot_load_bool(2, M, 2)
slot_load_u64(3, U[0])
slot_set_u64(255, slot_u64(0) * 10)
slot_set_bool(4, slot_i64(1) > 0)
slot_load_bool(5, L, 2, 0)
put(X[0], slot_u64(255) + slot_u64(3))
put(X[1], slot_i64(1))
with P.when(slot_bool(2) & ~slot_bool(4) & slot_bool(5)):
    put(X[2], slot_i64(4))
    put(X[2], 9)
"""
    assert run(body, target) == [47.0, -5.0, 9.0]


@TARGETS
def test_a_task_sees_the_value_of_its_place(target: str) -> None:
    body = """
slot_set_i64(0, 1)
for i in P.range("n"):
    put(X[i], slot_i64(0))
    slot_set_i64(0, slot_i64(0) * 3)
"""
    assert run(body, target) == [1.0, 3.0, 9.0]


@TARGETS
def test_a_slot_is_0_when_a_run_begins(target: str) -> None:
    program = compiled("with P.when(slot_i64(0) == 0): put(X[0], 1)\nslot_set_i64(0, 1)", target)
    arrays = {
        "L": np.zeros((3, 2), np.int64),
        "U": np.zeros(3, np.uint64),
        "M": np.zeros(3, bool),
        "A": np.zeros((1, 1), np.float32),
    }
    for _ in range(2):
        x = np.zeros((3, 1, 1), np.float32)
        program(X=x, **arrays)
        assert x.ravel().tolist() == [1, 0, 0]


@TARGETS
@pytest.mark.parametrize(
    "body",
    [
        "slot_load_u64(0, L, 2, 0)\nput(X[0], 1)",
        "slot_load_u64(0, U, 2)\nput(X[0], 1)",
        "slot_load_i64(0, U, 2)\nput(X[0], 1)",
        "slot_set_i64(0, 0)\nslot_set_u64(0, slot_i64(0) - 1)\nput(X[0], 1)",
        "slot_set_i64(0, -1)\nput(X[0], slot_u64(0))",
        "slot_set_i64(0, 3)\nslot_load_i64(1, L, slot_i64(0), 0)\nput(X[0], 1)",
    ],
)
def test_values_that_a_slot_cannot_hold(target: str, body: str) -> None:
    x = np.zeros((3, 1, 1), np.float32)
    with pytest.raises(BadExpression):
        run(body, target, X=x)
    assert not x.any()


@pytest.mark.parametrize(
    ("body", "code", "mark", "found"),
    [
        ("slot_set_u64(256, 1)", "bad-operand", "slot_set_u64(256, 1)", "0 to 255, found 256"),
        ("slot_set_u64(-1, 1)", "bad-operand", None, "found -1"),
        ("slot_set_u64(True, 1)", "bad-operand", None, "found bool"),
        ("slot_set_u64(0, -1)", "bad-operand", None, "expected an integer >= 0, found -1"),
        ("slot_set_u64(0, 1.5)", "bad-operand", None, "expected an integer"),
        ("slot_set_bool(0, 1)", "bad-operand", None, "expected a truth value"),
        ("slot_set_i64(0, X)", "bad-operand", None, "found Tensor"),
        ("slot_load_i64(0, X[0])", "bad-operand", None, "found f32"),
        ("slot_load_i64(0, 3)", "bad-operand", None, "expected a tensor or view, found int"),
        ("slot_load_i64(0, U, 1, 1)", "bad-index", None, "`col` of a view with 1 dimension"),
        ("slot_load_i64(0, L[0, 0], 1)", "bad-index", None, "`row` of a view with 0 dimensions"),
        ("slot_load_i64(0, X)", "bad-index", None, "at most two dimensions, found one with 3"),
        ("slot_load_i64(0, L, 0, 2)", "index-outside", None, "expected an index in [0, 2), found 2"),
        ("put(X[0], slot_i64(3))", "unset-slot", "slot_i64(3)", "slot 3 is read and never set"),
    ],
)
def test_refusals(body: str, code: str, mark: str | None, found: str) -> None:
    with pytest.raises(PtoError) as caught:
        compiled(body)
    text = str(caught.value)
    assert caught.value.code == code, text
    assert mark is None or marked(caught.value) == mark, text
    assert found in text, text


@TARGETS
def test_symbols(target: str) -> None:
    text = f"""{KERNELS}
@kernel
def scale(x: InOut[Tile[1, 1, f32]], v: Scalar[f32]):
    pto.store(x, x * v)

@workload
def w(X: Tensor[f32, "n", 1, 1]):
    for i in P(symbol_u64("count")):
        with P.when(i >= symbol_i64("first")):
            scale(X[i], symbol_f32("value"))
            put(X[i], symbol_i64("first"))
"""
    program = execute(text)["w"].compile(target)  # pyright: ignore
    x = np.ones((4, 1, 1), np.float32)
    program(X=x, count=3, first=-1, value=3.0)
    assert x.ravel().tolist() == [0.5, 0.5, 0.5, 1]
    program.set_symbol_u64("count", 1)
    program.set_symbol_i64("first", 0)
    program.set_symbol_f32("value", 2.0)
    program(X=x)
    assert x.ravel().tolist() == [0.5, 0.5, 0.5, 1]
    with pytest.raises(PtoError):
        program(X=x, count=-1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("symbol_u64('a b')", "bad-operand"),
        ("symbol_u64(3)", "bad-operand"),
        ("symbol_u64('X')", "name-clash"),
        ("symbol_u64('n')", "name-clash"),
        ("symbol_u64('k'); symbol_i64('k')", "name-clash"),
    ],
)
def test_refusals_of_symbols(body: str, code: str) -> None:
    with pytest.raises(PtoError) as caught:
        compiled(body)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "call", ["slot_set_i64(0, 1)", "slot_i64(0)", "slot_load_u64(0, 1)", "symbol_i64('n')"]
)
def test_outside_a_workload(call: str) -> None:
    with pytest.raises(PtoError) as caught:
        execute(call)
    assert caught.value.code == "outside-workload"
