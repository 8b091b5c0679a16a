"""Float arithmetic on symbols in a workload: one value per run, the same on every target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import InOut, P, Program, Scalar, Tensor, Tile, b1, f32, i64, kernel, pto, symbol_f32, workload
from pto_wsp.errors import NotYetSupported


@kernel
def add(x: InOut[Tile[8, 8, f32]], amount: Scalar[f32]):
    pto.store(x, x + amount)


@workload
def decide(X: Tensor[f32, "n", 8, 8], factor: Scalar[f32], count: Scalar[i64], wanted: Scalar[b1]):
    for i in P("n"):
        with P.when((factor * 2.0 > symbol_f32("limit")) & wanted):
            add[i](x=X[i], amount=factor * 3.0 - 0.1)
        with P.otherwise((i < count) & (factor / 0.0 < 1.0)):
            add[i](x=X[i], amount=factor.max(0.5))
        with P.otherwise():
            add[i](x=X[i], amount=-factor)


PROGRAMS: dict[str, Program] = {}


def run(target: str, **scalars: object) -> np.ndarray:
    if target not in PROGRAMS:
        PROGRAMS[target] = decide.compile(target)
    x = np.zeros((5, 8, 8), np.float32)
    PROGRAMS[target](X=x, **scalars)
    return x


NUMBERS = st.floats(-8, 8, width=32) | st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 0.1])


@settings(max_examples=60, deadline=None)
@given(factor=NUMBERS, limit=NUMBERS, count=st.integers(-1, 6), wanted=st.booleans())
def test_same_on_every_target(factor: float, limit: float, count: int, wanted: bool) -> None:
    scalars = {"factor": factor, "limit": limit, "count": count, "wanted": wanted}
    np.testing.assert_array_equal(run("cpu", **scalars), run("interp", **scalars))


def test_python_agrees() -> None:
    x = run("cpu", factor=0.7, limit=1.0, count=2, wanted=True)
    assert (x == np.float32(0.7) * np.float32(3) - np.float32(0.1)).all()
    x = run("cpu", factor=0.7, limit=2.0, count=2, wanted=True)
    assert (x == np.float32(-0.7)).all()
    x = run("cpu", factor=-0.7, limit=2.0, count=2, wanted=True)
    assert (x[:2] == 0.5).all()
    assert (x[2:] == np.float32(0.7)).all()


def test_what_a_run_may_never_reach_is_left_alone() -> None:
    @workload
    def w(X: Tensor[f32, "n", 8, 8], factor: Scalar[f32]):
        for i in P("n"):
            add[i](x=X[i], amount=factor * 2.0)

    text = w.compile("cpu").dump()
    assert "%number.0: f32 := %factor * 2.0" in text

    @workload
    def with_loop(X: Tensor[f32, "n", 8, 8], factor: Scalar[f32]):
        for i in P("n"):
            with P.when(factor * i > 2.0):
                add[i](x=X[i], amount=factor)

    with pytest.raises(NotYetSupported, match="float"):
        with_loop.compile("cpu")
