"""Python variables in bodies that are described once: what would lose its meaning is refused."""

from __future__ import annotations

from textwrap import indent

import pytest

from pto_wsp.errors import CarriedValue
from tests.python.lang.programs import execute, marked

HEAD = """
@kernel
def put(x: InOut[Tile[1, 8, f32]], v: Scalar[i64]):
    pto.store(x, x + v)

@kernel
def mix(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y + x)

@workload
def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], L: Tensor[i32, "m"]):
"""


def trace(body: str) -> None:
    execute(HEAD + indent(body, "    "))["w"].trace()  # pyright: ignore


@pytest.mark.parametrize(
    ("body", "mark"),
    [
        ("k = 0\nfor i in P(3):\n    k += 1\n    put(X[0:1], k)", "k"),
        ("k = 0\nfor i in P.tiles(3, 1):\n    put(X[0:1], k)\n    k = i.start", "k"),
        ("a, b = X, Y\nfor i in P.seq(3):\n    mix(a[0:1], b[0:1])\n    a, b = b, a", "a"),
        ("h = None\nfor i in P.range(3):\n    h = put(X[0:1], 1, after=[h] if h else [])", "h"),
        ("y = 0\nwith P.when(L[0] > 1):\n    y = 1\nput(X[0:1], y)", "y"),
        ("with P.when(L[0] > 1):\n    y = 1\nwith P.otherwise():\n    y = 2\nput(X[0:1], y)", "y"),
        ("y = 0\nwith P.when(L[0] > 1):\n    y = 1\nwith P.otherwise():\n    put(X[0:1], y)", "y"),
        ("y = 0\nfor i in P(3):\n    with P.when(i > 1):\n        put(X[0:1], y)\n        y = i", "y"),
        ("y = 0\nfor i in P(3):\n    if True:\n        (y := i + 1)\nput(X[0:1], y)", "y"),
        ("L = L[0]\nfor i in P(3):\n    L = L + 1\nput(X[0:1], L)", "L"),
        ("y = 0\nfor _ in range(2):\n    put(X[0:1], y)\n    for i in P(3):\n        y = i", "y"),
        ("def part(y):\n    for i in P(3):\n        y = y + 1\n        put(X[0:1], y)\npart(0)", "y"),
        ("y = 0\nfor i in P(3):\n    z = [y for _ in range(2)]\n    y = 2", "y"),
        ("y = 0\nwith P.when(L[0] > 1):\n    y = 1\nwhile True:\n    put(X[0:1], y)\n    break", "y"),
        ("y = 0\ntry:\n    with P.when(L[0] > 1):\n        y = 1\nfinally:\n    put(X[0:1], y)", "y"),
    ],
)
def test_what_a_run_would_have_to_change(body: str, mark: str) -> None:
    with pytest.raises(CarriedValue) as caught:
        trace(body)
    assert marked(caught.value) == mark
    assert caught.value.notes


@pytest.mark.parametrize(
    "body",
    [
        "for i in P(3):\n    y = i + 1\n    put(X[0:1], y)\nfor i in P(3):\n    y = i\n    put(X[0:1], y)",
        "for i in P(3):\n    y = 4\n    put(X[0:1], y)\nput(X[0:1], y)",
        "for m in range(3):\n    with P.when(L[0] > m):\n        y = m\n        put(X[0:1], y)",
        "for i in P(3):\n    if True:\n        y = 1\n    else:\n        y = 2\n    put(X[0:1], y)",
        "y = 0\nfor i in P(3):\n    y = sum([y for y in range(3)])\n    put(X[0:1], y)",
        "for i in P(3):\n    k = i * 2\n    for j in P(k):\n        m = k + j\n        put(X[0:1], m)",
        "with P.when(L[0] > 1):\n    y = 1\n    put(X, y)\nwith P.otherwise():\n    y = 2\n    put(X, y)",
        "y = 1\nfor i in P(3):\n    put(X[0:1], y)\ny = 2\nput(X[0:1], y)",
        "z = []\nfor i in P(3):\n    y = i\n    z.append(lambda y: y)\n    put(X[0:1], y)",
    ],
)
def test_what_has_one_value(body: str) -> None:
    trace(body)
