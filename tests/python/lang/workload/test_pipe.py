"""`P.pipe`: a network of a process per kernel."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import Channel, In, Out, P, Scalar, Tensor, Tile, f32, kernel, network, parse, process, pto
from pto_wsp.errors import BadChannel, BadNetwork
from pto_wsp.lang.workload.workload import Workload


@kernel
def scale(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x * 3.0)


@kernel
def fold(a: In[Tile[4, 8, f32]], b: Out[Tile[4, 1, f32]]) -> None:
    pto.store(b, pto.rowsum(a))


@kernel
def shift(x: In[Tile[4, 1, f32]], y: Out[Tile[4, 1, f32]]) -> None:
    pto.store(y, x + 1.0)


@kernel
def widen(x: In[Tile[4, 8, f32]], factor: Scalar[f32], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x * factor)


def written_out() -> Workload:
    scaled = Channel("scale_out", Tensor[f32, 4, 8], 2)
    folded = Channel("fold_out", Tensor[f32, 4, 1], 2)

    @process
    def first(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with scaled.send() as token:
                scale(x=X[i], y=token)

    @process
    def second() -> None:
        for token in scaled.receive():
            with folded.send() as result:
                fold(a=token, b=result)

    @process
    def third(Y: Tensor[f32, "n", 4, 1]) -> None:
        for token in folded.receive():
            shift(x=token, y=Y[token.index])

    return network(first, second, third)


def result(workload: Workload, target: str = "cpu", workers: int = 2) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((9, 4, 8)).astype(np.float32)
    y = np.zeros((9, 4, 1), np.float32)
    workload.compile(target=target)(X=x, Y=y, **({"workers": workers} if target == "cpu" else {}))
    return y


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_pipe_computes_what_the_network_written_out_computes(depth: int) -> None:
    expected = result(written_out())
    pipe = P.pipe(scale, fold, shift, depth=depth)
    assert np.array_equal(result(pipe), expected)
    assert np.array_equal(result(pipe, "sim"), expected)
    np.testing.assert_allclose(result(pipe, "interp"), expected, rtol=1e-5)


def test_text_of_a_pipe_has_its_kernels_and_is_read_back() -> None:
    text = str(P.pipe(scale, scale, fold).trace().module)
    assert all(f"PROCESS @{name}" in text for name in ("scale_0", "scale_1", "fold"))
    assert str(parse(text)) == text


def test_kernels_that_make_no_pipe_are_refused() -> None:
    with pytest.raises(BadNetwork, match="two or more"):
        P.pipe(scale)
    with pytest.raises(BadNetwork, match=r"`scale` does not read what `fold` writes"):
        P.pipe(fold, scale)
    with pytest.raises(BadNetwork, match=r"`widen` cannot be a stage"):
        P.pipe(widen, fold)
    with pytest.raises(BadNetwork, match="takes kernels"):
        P.pipe(scale, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadChannel, match="depth"):
        P.pipe(scale, fold, depth=-1)
