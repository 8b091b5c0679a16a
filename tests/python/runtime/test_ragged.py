"""Ragged axes, from the workload's text to results."""

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Dense,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Tensor,
    Tile,
    errors,
    f32,
    kernel,
    pto,
    workload,
)

RNG = np.random.default_rng(3)


@kernel
def total(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[1, 8, f32]]):
    acc = pto.zeros((1, 8))
    for r in pto.tiles(x.rows, 4):
        acc = acc + pto.colsum(x[r])
    pto.store(y, acc)


@kernel
def double(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x * 2.0)


@kernel
def add_row(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y * 0.5 + x)


@workload
def sums(batch: DenseDyn, rows: Ragged["batch"], X: Tensor[f32, "n", 2, 8], Y: Tensor[f32, "batch", 2, 8]):
    for b, h in P(batch, Dense[2]):
        total[b, h](x=X[rows[b], h], y=Y[b, h : h + 1])


@workload
def doubled(rows: Ragged["batch"], X: Tensor[f32, "n", 8]):
    for b in P("batch"):
        for part in P.tiles(rows[b], 4):
            double[b, part](x=X[rows[b][part]])


@workload
def walked(rows: Ragged["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        for i in P.range(rows[b]):
            add_row[b, i](x=X[rows[b][i] : rows[b][i] + 1], y=Y[b : b + 1])


@workload
def padded(rows: Ragged["batch"], X: Tensor[f32, "batch", "most", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        total[b](x=X[b, rows.local(b)], y=Y[b : b + 1])


LENGTHS = ([3, 0, 17, 1, 4, 8], [0], [0, 0, 0], [], [25])
TARGETS = ("cpu", "interp")


def split(x, lengths):
    ends = np.cumsum(lengths).astype(int)
    return [x[end - n : end] for end, n in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_ranges_of_a_packed_tensor(target):
    program = sums.compile(target)
    for lengths in LENGTHS:
        x = RNG.standard_normal((sum(lengths) + 3, 2, 8)).astype(np.float32)
        y = np.full((len(lengths), 2, 8), np.nan, np.float32)
        program(rows=Ragged.lengths(lengths), X=x, Y=y)
        assert program.stats is not None and program.stats.tasks == 2 * len(lengths)
        for b, part in enumerate(split(x, lengths)):
            np.testing.assert_allclose(y[b], part.sum(0), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_axes_with_clipped_tiles(target):
    program = doubled.compile(target)
    for lengths in LENGTHS:
        x = RNG.standard_normal((sum(lengths) + 3, 8)).astype(np.float32)
        expected = np.r_[x[: sum(lengths)] * 2, x[sum(lengths) :]]
        program(rows=Ragged.lengths(np.array(lengths, np.int32)), X=x)
        assert program.stats is not None and program.stats.tasks == sum(-(-n // 4) for n in lengths)
        assert np.array_equal(x, expected)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_elements_of_rows_keep_their_order(workers):
    program = walked.compile("cpu")
    for lengths in LENGTHS:
        x = RNG.standard_normal((sum(lengths), 8)).astype(np.float32)
        y = RNG.standard_normal((len(lengths), 8)).astype(np.float32)
        expected = y.copy()
        for b, part in enumerate(split(x, lengths)):
            for row in part:
                expected[b] = expected[b] * np.float32(0.5) + row
        program.run(rows=Ragged.lengths(lengths), X=x, Y=y, workers=workers)
        assert np.array_equal(y, expected)


def test_local_ranges_are_for_padded_tensors():
    x = RNG.standard_normal((3, 5, 8)).astype(np.float32)
    y = np.zeros((3, 8), np.float32)
    padded.compile()(rows=Ragged.lengths([5, 0, 2]), X=x, Y=y)
    for b, n in enumerate((5, 0, 2)):
        np.testing.assert_allclose(y[b], x[b, :n].sum(0), atol=1e-5)


def test_lengths_and_indptr_are_the_same_rows():
    assert np.array_equal(Ragged.lengths([3, 0, 2]).offsets, Ragged.indptr([0, 3, 3, 5]).offsets)
    x = np.ones((9, 2, 8), np.float32)
    y = np.zeros((2, 2, 8), np.float32)
    sums.compile()(rows=Ragged.indptr([4, 6, 9]), X=x, Y=y)
    assert (y[0] == 2).all() and (y[1] == 3).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ragged.lengths([1, -1]),
        lambda: Ragged.lengths([[1]]),
        lambda: Ragged.lengths([1.5]),
        lambda: Ragged.lengths([2**62, 2**62]),
        lambda: Ragged.lengths(np.array([2**63], np.uint64)),
        lambda: Ragged.indptr([]),
        lambda: Ragged.indptr([-1, 2]),
        lambda: Ragged.indptr([0, 3, 2]),
        lambda: Ragged.indptr(3),
    ],
)
def test_bad_rows_are_errors(make):
    with pytest.raises(errors.BadRagged):
        make()


@pytest.mark.parametrize("target", TARGETS)
def test_rows_that_do_not_fit_are_errors_and_nothing_runs(target):
    program = sums.compile(target)
    x, y = np.ones((10, 2, 8), np.float32), np.zeros((2, 2, 8), np.float32)
    with pytest.raises(errors.RegionOutside, match="in iteration b = 1"):
        program(rows=Ragged.lengths([5, 6]), X=x, Y=y)
    with pytest.raises(errors.WrongShape):
        program(rows=Ragged.lengths([1, 1, 1]), X=x, Y=y)
    with pytest.raises(errors.WrongShape):
        program(rows=Ragged.lengths([1, 1]), X=x, Y=y, batch=3)
    with pytest.raises(errors.WrongValue, match=r"Ragged\.lengths"):
        program(rows=[1, 1], X=x, Y=y)
    with pytest.raises(errors.UnboundTensor, match="ragged axis `rows`"):
        program(X=x, Y=y)
    assert not y.any()


def test_wrong_uses_in_a_workload_are_named():
    def trace(use):
        @workload
        def wrong(rows: Ragged["batch"], X: Tensor[f32, "n", 8]):
            use(rows, X)

        with pytest.raises(errors.PtoError) as caught:
            wrong.trace()
        return caught.value

    assert isinstance(trace(lambda rows, X: rows["b"]), errors.BadOperand)
    assert isinstance(trace(lambda rows, X: rows[0]["i"]), errors.BadOperand)
    assert isinstance(trace(lambda rows, X: list(P(X))), errors.BadOperand)
    assert isinstance(trace(lambda rows, X: X[rows]), errors.BadIndex)

    @workload
    def unnamed(rows: Ragged[3]):
        pass

    with pytest.raises(errors.BadAnnotation):
        unnamed.trace()
