"""Functions that kernels call: the same kernel as with their statements in place, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.interp.kernels import run_kernel
from tests.python.lang.programs import error_of, execute, ir_of, marked

SIGNATURE = "x: In[Tile[4, 8, f32]], k: In[Tensor[f32, DYN, 8]], n: Scalar[i64], y: Out[Tile[4, 8, f32]]"
X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
K = np.arange(56, dtype=np.float32).reshape(7, 8)


def result(functions: str, body: str, n: int = 3) -> np.ndarray:
    text = f"{functions}\n@kernel\ndef f({SIGNATURE}):\n" + "".join(
        f"    {line}\n" for line in body.split("\n")
    )
    out = np.full((4, 8), 77, np.float32)
    run_kernel(ir_of(execute(text)["f"]), [X, K, n, out])
    return out


def f32(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32)


def test_tiles_scalars_views_and_constants_go_in_and_tuples_come_out() -> None:
    functions = """
FACTOR = 3
def sums(view, tile, by, times=2, *, shift=1.0):
    total = pto.zeros((1, 8))
    for r in pto.tiles(view.rows, 4):
        total = total + pto.colsum(view[r])
    for i in range(by):
        tile = tile * times
    return tile + shift, total * FACTOR
"""
    found = result(functions, "x2, total = sums(k, x, n, shift=0.5)\npto.store(y, x2 + total)")
    np.testing.assert_array_equal(found, f32(X * 8 + np.float32(0.5) + 3 * K.sum(axis=0)))


def test_a_function_stores_and_returns_nothing() -> None:
    functions = "def write(view, tile):\n    pto.store(view, -tile)\n"
    np.testing.assert_array_equal(result(functions, "write(y, x)"), -X)


def test_names_of_a_function_are_its_own() -> None:
    functions = """
a = 5
def g(x, n):
    a = x * 10
    x = a + n
    n = n + 1
    return x
"""
    body = "b = g(x, n)\nfor i in range(n):\n    b = g(b, i)\npto.store(y, b + x * a)"
    expected = X * 10 + 3
    for i in range(3):
        expected = expected * 10 + i
    np.testing.assert_allclose(result(functions, body), expected + X * 5, rtol=1e-6)


def test_constants_choose() -> None:
    functions = """
def make(sign):
    def signed(t):
        if sign > 0:
            t = t + 1
        else:
            t = unknown(t)
        return t
    return signed
plus = make(1)
def half(t, how):
    return t * (0.5 if how == "down" else 2.0)
"""
    found = result(functions, "pto.store(y, half(plus(x), 'down') + half(plus(x), how='up'))")
    np.testing.assert_array_equal(found, f32((X + 1) * np.float32(0.5) + (X + 1) * 2))


def test_functions_call_functions_in_branches_and_loops() -> None:
    functions = """
def add(t, u):
    return t + u
def twice(t):
    return add(t, t)
"""
    body = "b = x\nfor i in range(n):\n    if i > 0:\n        b = twice(b)\npto.store(y, b)"
    np.testing.assert_array_equal(result(functions, body), X * 4)


@pytest.mark.parametrize(
    ("functions", "call", "mark", "text"),
    [
        ("def g(t):\n    if n:\n        return t\n    return t", "g(x)", "n", "not defined"),
        (
            "def g(t, n):\n    if n:\n        return t\n    return t",
            "g(x, n)",
            "return t",
            "return at the end",
        ),
        ("def g(t):\n    return g(t)", "g(x)", "g(t)", "`g`, which calls itself,"),
        ("def g(t):\n    return h(t)\ndef h(t):\n    return g(t)", "g(x)", "g(t)", "calls itself"),
        ("def g(t):\n    return t", "g()", "g()", "missing a required argument: 't'"),
        ("def g(t):\n    return t", "g(x, x)", "g(x, x)", "too many positional arguments"),
        ("def g(t):\n    return t", "g(u=x)", "g(u=x)", "missing a required argument: 't'"),
        ("def g(*t):\n    return t", "g(x)", "g", "name each parameter"),
        ("def g(t):\n    yield t", "g(x)", "yield t", "not supported"),
        ("def g(t):\n    return t + pto.zeros((3, 3))", "g(x)", "t + pto.zeros((3, 3))", "[4, 8] and [3, 3]"),
        ("import functools\n@functools.cache\ndef g(t):\n    return t", "g(x)", "g(x)", "a call of `g`"),
        ("g = lambda t: t", "g(x)", "g(x)", "a call of `g`"),
        ("g = eval('lambda t: t')", "g(x)", "g(x)", "a call of `g`"),
        (
            "@kernel\ndef g(a: In[Tile[4, 8, f32]], b: Out[Tile[4, 8, f32]]):\n    pto.store(b, a)",
            "g(a=x, b=y)",
            "g(a=x, b=y)",
            "leave out the decorator of `g`",
        ),
        ("async def g(t):\n    return t", "g(x)", "g(x)", "a call of `g`"),
        ("def g(t):\n    pto.store(t, 1.0)", "g(x)", "t", "an Out or InOut parameter, found `x`, an input"),
    ],
)
def test_refusals(functions: str, call: str, mark: str, text: str) -> None:
    error = error_of(f"{functions}\n@kernel\ndef f({SIGNATURE}):\n    b = {call}\n    pto.store(y, b)\n")
    assert marked(error) == mark and text in str(error), str(error)


def test_an_error_inside_says_who_calls() -> None:
    functions = "def g(t):\n    return t.data\ndef h(t):\n    return g(t)\n"
    error = error_of(f"{functions}@kernel\ndef f({SIGNATURE}):\n    pto.store(y, h(x))\n")
    assert [text for text, _ in error.notes] == ["`g` is called here", "`h` is called here"]
    assert [place.source_line() for _, place in error.notes if place] == [
        "    return g(t)",
        "    pto.store(y, h(x))",
    ]
