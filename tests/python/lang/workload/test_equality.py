"""`==` between things that are not numbers: Python's own answer would decide while the workload is built."""

from __future__ import annotations

from textwrap import indent

import pytest

from pto_wsp.errors import PtoError
from tests.python.lang.programs import execute

HEAD = """
@kernel
def put(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x + 1)

@workload
def w(
    X: Tensor[f32, "n", 8], L: Tensor[i32, "m", 4],
    kv: Ragged["b"], rt: Sparse["b"], d: Scalar[i64], U: DenseDyn
):
    for r in P.tiles("n", 4):
        with P.when(CONDITION):
            put[r](X[r])
"""


@pytest.mark.parametrize("sign", ["==", "!="])
@pytest.mark.parametrize(
    "one", ["L[0]", "L", "X[0:1]", "r", "kv[0]", "rt[0]", "rt.rows(rt[0])", "d", "U", "L[0, 0]"]
)
@pytest.mark.parametrize("two", ["'relu'", "None", "[1]", "L[0]", "kv[0]", "d"])
def test_python_does_not_decide_what_is_equal(one: str, sign: str, two: str) -> None:
    numbers = ("d", "L[0, 0]", "U")
    text = HEAD.replace("CONDITION", f"{one} {sign} {two}")
    w = execute(text)["w"]
    if one in numbers and two == "d":
        w.trace()  # pyright: ignore
        return
    with pytest.raises(PtoError) as caught:
        w.trace()  # pyright: ignore
    assert caught.value.loc is not None
    assert one in (caught.value.loc.source_line() or "")


@pytest.mark.parametrize(
    "use", ["len(X)", "bool(X)", "bool(X[0])", "not L", "len(L[0])", "3 in L", "sum(L[0])"]
)
def test_tensors_are_no_containers_of_python(use: str) -> None:
    with pytest.raises(PtoError) as caught:
        execute(HEAD.replace("for r", f"size = {use}\n    for r").replace("CONDITION", "d > 0"))["w"].trace()  # pyright: ignore
    assert caught.value.code == "bad-index"


def test_a_tier_needs_a_size() -> None:
    for use in ("t(X[r])", "t[r](X[r])"):
        body = indent("t = tier('t', (put, None))", "    ")
        text = (
            HEAD.replace("    for r", f"{body}\n    for r")
            .replace("CONDITION", "d > 0")
            .replace("put[r](X[r])", use)
        )
        with pytest.raises(PtoError, match="tier t") as caught:
            execute(text)["w"].trace()  # pyright: ignore
        assert "`t.at(size)[...](...)`" in caught.value.caret_text
