"""Programs that grow without end while they are built end with an error that names the line."""

from __future__ import annotations

from textwrap import indent

import pytest

from pto_wsp.errors import NotYetSupported
from tests.python.lang.programs import execute

HEAD = """
@kernel
def put(x: InOut[Tile[4, 8, f32]], v: Scalar[i64]):
    pto.store(x, x + v)

@workload
def w(X: Tensor[f32, 4, 8], L: Tensor[i32, "m"], s: Scalar[i64]):
"""


@pytest.mark.parametrize(
    "step", ["e + e", "e + s", "(e + L[0]) % 7", "-e", "(e > 1).where(e, s)", "e.min(e)"]
)
def test_expressions(step: str) -> None:
    body = f"e = s\nfor k in range(3000):\n    e = {step}\nput(X, e)"
    with pytest.raises(NotYetSupported, match="parts"):
        execute(HEAD + indent(body, "    "))["w"].trace()  # pyright: ignore


def test_alternatives() -> None:
    first = "with P.when(s < 0):\n    put(X, 1)\n"
    body = first + "for k in range(3000):\n    with P.otherwise(s == k):\n        put(X, k)"
    with pytest.raises(NotYetSupported, match="alternatives"):
        execute(HEAD + indent(body, "    "))["w"].trace()  # pyright: ignore
