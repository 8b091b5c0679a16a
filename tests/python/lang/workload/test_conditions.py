"""Conditionals: what `P.when` and `P.otherwise` mean, and what is refused where."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from pto_wsp.errors import PtoError
from pto_wsp.ir import workload as ir
from pto_wsp.ir.scalar import Const
from tests.python.lang.programs import execute, marked

KERNELS = "from tests.python.lang.workload.control_kernels import *\n"
TARGETS = pytest.mark.parametrize("target", ["interp", "cpu"])


HEAD = """
@workload
def w(n: DenseDyn, X: Tensor[f32, "m", 1, 1], L: Tensor[i32, "m", 1, 1], M: Tensor[b1, "m"]):
"""


def traced(body: str) -> str:
    """Return the text of a workload with this body."""
    program = execute(KERNELS + HEAD + indent(body, "    "))["w"]
    return str(program.trace().module)  # pyright: ignore


def shape(body: str) -> list[object]:
    """Return the nodes of a workload as nested lists: a task is its scalar, a conditional a pair."""

    def of(nodes: tuple[ir.Node, ...]) -> list[object]:
        found: list[object] = []
        for node in nodes:
            match node:
                case ir.Cond():
                    found.append((of(node.then), of(node.other)))
                case ir.Loop():
                    found.append(of(node.body))
                case ir.Task(args=(_, Const(value=value))):
                    found.append(value)
                case _:
                    raise AssertionError(node)
        return found

    program = execute(KERNELS + HEAD + indent(body, "    "))["w"]
    return of(program.trace().module.entry_workload.body)  # pyright: ignore


def test_else_if_is_a_conditional_in_the_else() -> None:
    body = """
with P.when(n < 1):
    put(X[0], 1)
with P.otherwise(n < 2):
    put(X[0], 2)
with P.otherwise(n < 3):
    put(X[0], 3)
with P.otherwise():
    put(X[0], 4)
with P.when(n < 5):
    put(X[0], 5)
"""
    assert shape(body) == [([1], [([2], [([3], [4])])]), ([5], [])]


def test_python_bools_decide_while_the_workload_is_built() -> None:
    body = """
with P.when(False):
    put(X[0], 1)
with P.otherwise(n < 2):
    put(X[0], 2)
with P.otherwise(True):
    put(X[0], 3)
with P.otherwise():
    put(X[0], 4)
with P.when(1 < 2):
    put(X[0], 5)
with P.otherwise(n < 2):
    put(X[0], 6)
"""
    assert shape(body) == [([2], [3]), 5]


def test_the_otherwise_of_an_inner_conditional_is_its_own() -> None:
    body = """
with P.when(n < 1):
    with P.when(n < 2):
        put(X[0], 1)
    with P.otherwise():
        put(X[0], 2)
with P.otherwise():
    with P.when(n < 3):
        put(X[0], 3)
"""
    assert shape(body) == [([([1], [2])], [([3], [])])]


def test_functions_of_the_user_take_part() -> None:
    body = """
def once(value):
    with P.when(n < value):
        put(X[0], value)
for value in (1, 2):
    once(value)
with P.otherwise():
    put(X[0], 3)
"""
    assert shape(body) == [([1], []), ([2], [3])]


@TARGETS
def test_elements_of_bool_tensors_are_truth_values(target: str) -> None:
    body = """
for i in P("m"):
    with P.when(M[i] & ~M[0]):
        put(X[i], 1)
"""
    program = execute(KERNELS + HEAD + indent(body, "    "))["w"].compile(target)  # pyright: ignore
    x, lengths = np.zeros((4, 1, 1), np.float32), np.zeros((4, 1, 1), np.int32)
    program(n=0, X=x, L=lengths, M=np.array([False, True, False, True]))
    assert x.ravel().tolist() == [0, 1, 0, 1]


@TARGETS
def test_elements_are_arguments_of_kernels(target: str) -> None:
    body = """
for i in P("m"):
    put(X[i], L[i, 0, 0])
    bump(L[i], L[i, 0, 0] + i)
"""
    program = execute(KERNELS + HEAD + indent(body, "    "))["w"].compile(target)  # pyright: ignore
    x, lengths = np.zeros((2, 1, 1), np.float32), np.array([[[1]], [[2]]], np.int32)
    program(n=0, X=x, L=lengths, M=np.zeros(2, bool))
    assert x.ravel().tolist() == [1, 2]
    assert lengths.ravel().tolist() == [2, 0]


def test_an_untaken_branch_reads_nothing() -> None:
    """An element outside of its tensor is an error only where its branch is taken."""
    body = """
with P.when(n < 2):
    with P.when(L[n, 0, 0] < 9):
        put(X[0], 1)
"""
    program = execute(KERNELS + HEAD + indent(body, "    "))["w"].compile("cpu")  # pyright: ignore
    x, lengths = np.zeros((2, 1, 1), np.float32), np.zeros((2, 1, 1), np.int32)
    arguments = {"X": x, "L": lengths, "M": np.zeros(2, bool)}
    program(n=7, **arguments)
    assert x.ravel().tolist() == [0, 0]
    program(n=1, **arguments)
    assert x.ravel().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("body", "code", "mark", "found"),
    [
        ("if L[0, 0, 0] <= 4: pass", "run-time-condition", "L[0, 0, 0] <= 4", "`with P.when(condition):`"),
        ("with P.when(n): pass", "bad-operand", "P.when(n)", "such as `n != 0`, found `n`, i64"),
        ("with P.when(3): pass", "bad-operand", "P.when(3)", "such as `3 != 0`"),
        ("with P.when(L[0, 0, 0]): pass", "bad-operand", None, "such as `L[0, 0, 0] != 0`"),
        ("with P.when('n'): pass", "bad-operand", "P.when('n')", "expected a comparison, found str"),
        ("with P.when(X[0, 0, 0] > 1): pass", "bad-operand", "X[0, 0, 0]", "found f32"),
        ("with P.when(L[0] > 1): pass", "outside-workload", "L[0] > 1", "only inside a kernel"),
        ("P.when(n < 1)", "unsupported-syntax", "P.when(n < 1)", "no `with` statement"),
        ("c = P.when(n < 1)\nwith c: pass", "unsupported-syntax", "P.when(n < 1)", "no `with` statement"),
        ("with P.otherwise(): pass", "detached-otherwise", "P.otherwise()", "no `P.when` before it"),
        (
            "with P.when(n < 1): pass\nput(X[0], 1)\nwith P.otherwise(): pass",
            "detached-otherwise",
            "P.otherwise()",
            "this is between them",
        ),
        (
            "with P.when(n < 1): pass\nwith P.otherwise(): pass\nwith P.otherwise(): pass",
            "detached-otherwise",
            "P.otherwise()",
            "has its `P.otherwise()` already",
        ),
        (
            "with P.when(n < 1):\n  for i in P(n): pass\n  with P.otherwise(): pass",
            "detached-otherwise",
            None,
            "in this block",
        ),
        ("for i in P(n):\n  with P.when(i < 1): break", "unsupported-syntax", "break", "with `break`"),
        ("for i in P(n):\n  with P.when(i < 1): continue", "unsupported-syntax", "continue", "`continue`"),
        ("with P.when(n < 1): return", "unsupported-syntax", "return", "leaving `P.when` with `return`"),
        (
            "with P.when(n < 1):\n  for i in P(n):\n    if n is None: return",
            "unsupported-syntax",
            "return",
            "with `return`",
        ),
        (
            "try:\n  with P.when(n < 1): put(X[0], 1); raise KeyError\nexcept KeyError: pass",
            "unsupported-syntax",
            "P.when(n < 1)",
            "leaving `P.when` with an exception",
        ),
    ],
)
def test_refusals(body: str, code: str, mark: str | None, found: str | None) -> None:
    with pytest.raises(PtoError) as caught:
        traced(body)
    text = str(caught.value)
    assert caught.value.code == code, text
    assert mark is None or marked(caught.value) == mark, text
    assert found is not None and found in text, text


def test_a_loop_inside_a_body_may_be_left_by_python() -> None:
    """`break` of a Python loop that lies in the body does not leave the body."""
    body = """
with P.when(n < 1):
    for value in (1, 2, 3):
        if value == 2:
            break
        put(X[0], value)
"""
    assert shape(body) == [([1], [])]


def test_outside_a_workload() -> None:
    with pytest.raises(PtoError) as caught:
        execute("with P.when(True): pass")
    assert caught.value.code == "outside-workload"
    assert marked(caught.value) == "P.when(True)"


def test_without_source_text_a_body_cannot_be_seen() -> None:
    names: dict[str, object] = {}
    text = "from pto_wsp import P, workload\n@workload\ndef w(n):\n  with P.when(n < 1):\n    pass\n"
    exec(compile(text, "<nowhere>", "exec"), names)
    with pytest.raises(PtoError) as caught:
        names["w"].trace()  # pyright: ignore
    assert caught.value.code == "unsupported-syntax"


def test_untyped_tensors_of_elements_need_a_type() -> None:
    text = KERNELS + "@workload\ndef w(U):\n    with P.when(U[0] < 2): pass\n"
    with pytest.raises(PtoError) as caught:
        execute(text)["w"].trace()  # pyright: ignore
    assert caught.value.code == "bad-annotation"
    assert marked(caught.value) == "U"
