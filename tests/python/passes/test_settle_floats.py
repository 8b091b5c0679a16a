"""Float arithmetic on symbols in a workload: one value per run, the same on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import InOut, P, Program, Scalar, Tensor, Tile, b1, f32, i64, kernel, pto, symbol_f32, workload
from pto_wsp.errors import NotYetSupported
from tests.generators.drawing import tries


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


def run(target: str, **scalars: Any) -> np.ndarray:
    if target not in PROGRAMS:
        PROGRAMS[target] = decide.compile(target)
    x = np.zeros((5, 8, 8), np.float32)
    PROGRAMS[target](X=x, **scalars)
    return x


NUMBERS = st.floats(-8, 8, width=32) | st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 0.1])


@tries(60)
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


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_integers_as_float_arguments(target: str) -> None:
    """Each is rounded once to the nearest f32, wherever it comes from."""
    numbers = [3, -7, 2**24 + 1, 2**53 + 2**29 + 1, -(2**63), 2**63 - 1]

    @kernel
    def put(x: InOut[Tile[1, 1, f32]], amount: Scalar[f32]):
        pto.store(x, amount)

    @kernel
    def count(x: InOut[Tile[1, 1, i64]]):
        pto.store(x, x + 1)

    @workload
    def w(X: Tensor[f32, 4, "n", 1, 1], N: Tensor[i64, "n"], W: Tensor[i64, "n", 1, 1], big: Scalar[i64]):
        for i in P("n"):
            count[i](x=W[i])
            put[i](x=X[0, i], amount=i)
            put[i](x=X[1, i], amount=N[i])
            put[i](x=X[2, i], amount=big)
            put[i](x=X[3, i], amount=W[i, 0, 0] - 1)

    x = np.zeros((4, len(numbers), 1, 1), np.float32)
    written = np.array([*numbers[:-1], 0], np.int64).reshape(-1, 1, 1)
    w.compile(target)(X=x, N=np.array(numbers, np.int64), W=written.copy(), big=2**53 + 2**29 + 1)
    wanted = np.array(numbers, np.int64).astype(np.float32)
    np.testing.assert_array_equal(x[0, :, 0, 0], np.arange(len(numbers)))
    np.testing.assert_array_equal(x[1, :, 0, 0], wanted)
    assert (x[2] == wanted[3]).all()
    np.testing.assert_array_equal(x[3], written.astype(np.float32))


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_zeros_keep_their_signs(target: str) -> None:
    @workload
    def w(X: Tensor[f32, 2, 8, 8], factor: Scalar[f32]):
        add(x=X[0], amount=factor * 0.0)
        add(x=X[1], amount=factor * -0.0)

    x = np.full((2, 8, 8), -0.0, np.float32)
    w.compile(target)(X=x, factor=1.0)
    assert not np.signbit(x[0]).any()
    assert np.signbit(x[1]).all()


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
