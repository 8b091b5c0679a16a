"""Parts of ranges: exact where they lie inside, an error with numbers and a place where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    P,
    Program,
    Ragged,
    Sparse,
    Tensor,
    Tile,
    errors,
    f32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.lang.workload.workload import Workload
from tests.generators.drawing import tries

TARGETS = ("cpu", "interp")
RNG = np.random.default_rng(5)


@kernel
def step(x: In[Tile[4, 8, f32]], s: InOut[Tile[1, 8, f32]]):
    pto.store(s, s * 0.5 + pto.colsum(x))


@kernel
def total(x: In[Tensor[f32, DYN, 8]], s: InOut[Tile[1, 8, f32]]):
    acc = pto.load(s)
    for r in pto.tiles(x.rows, 4):
        acc = acc + pto.colsum(x[r])
    pto.store(s, acc)


@kernel
def add_one(x: InOut[Tile[8, 8, f32]]):
    pto.store(x, x + 1.0)


def scan(order: str) -> Workload:
    """Return a chunked scan: the state of a request passes through its chunks of 4 rows, in order."""

    @workload
    def scan_rows(seq: Ragged["b"], X: Tensor[f32, "n", 8], S: Tensor[f32, "b", 8]):
        for b in P("b"):
            if order == "slices":
                length = seq[b].extent
                for t in P.range((length + 3) // 4):
                    step[b, t](x=X[seq[b][t * 4 : (t * 4 + 4).min(length)]], s=S[b : b + 1])
            else:
                for t in P.tiles(seq[b], 4, order=order):  # pyright: ignore[reportArgumentType]
                    step[b, t](x=X[seq[b][t]], s=S[b : b + 1])

    return scan_rows


def rows_of(x: np.ndarray, lengths: list[int]) -> Iterator[np.ndarray]:
    ends = np.cumsum(lengths).astype(int)
    return (x[end - length : end] for end, length in zip(ends, lengths, strict=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", ["range", "seq", "slices"])
def test_a_scan_reads_every_row_once_in_order(order: str, target: str) -> None:
    program = scan(order).compile(target)
    for lengths in ([9, 3], [0, 1, 4, 0], [5] * 7, [0], []):
        x = RNG.standard_normal((sum(lengths), 8)).astype(np.float32)
        wanted = np.zeros((len(lengths), 8), np.float32)
        for state, row in zip(wanted, rows_of(x, lengths), strict=True):
            for first in range(0, len(row), 4):
                state[:] = state * np.float32(0.5) + row[first : first + 4].sum(0, dtype=np.float32)
        found = np.zeros_like(wanted)
        program(seq=Ragged.lengths(lengths), X=x, S=found)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["range", "seq", "slices"])
def test_a_scan_in_order_passes_the_check_for_hazards(order: str) -> None:
    x, s = np.ones((12, 8), np.float32), np.zeros((2, 8), np.float32)
    scan(order).compile()(seq=Ragged.lengths([9, 3]), X=x, S=s, check="hazards")


def test_the_check_refuses_the_independent_form_and_names_order() -> None:
    x, s = np.ones((12, 8), np.float32), np.zeros((2, 8), np.float32)
    with pytest.raises(errors.IterationsConflict) as caught:
        scan("parallel").compile()(seq=Ragged.lengths([9, 3]), X=x, S=s, check="hazards")
    assert '`order="range"`' in caught.value.help
    assert not s.any()


@workload
def sliced(seq: Ragged["b"], L: Tensor[i64, "m", 3], X: Tensor[f32, "n", 8], S: Tensor[f32, "m", 8]):
    for i in P("m"):
        row = seq[L[i, 0]]
        total[i](x=X[row[L[i, 1] : L[i, 2]]], s=S[i : i + 1])


@workload
def sliced_view(seq: Ragged["b"], L: Tensor[i64, "m", 3], X: Tensor[f32, "n", 8], S: Tensor[f32, "m", 8]):
    for i in P("m"):
        total[i](x=X[seq[L[i, 0]]][L[i, 1] : L[i, 2]], s=S[i : i + 1])


@workload
def sliced_twice(seq: Ragged["b"], L: Tensor[i64, "m", 3], X: Tensor[f32, "n", 8], S: Tensor[f32, "m", 8]):
    for i in P("m"):
        total[i](x=X[seq[L[i, 0]][L[i, 1] :][: L[i, 2] - L[i, 1]]], s=S[i : i + 1])


@workload
def looped(seq: Ragged["b"], L: Tensor[i64, "m", 3], X: Tensor[f32, "n", 8], S: Tensor[f32, "m", 8]):
    for i in P("m"):
        part = seq[L[i, 0]][L[i, 1] : L[i, 2]]
        for t in P.tiles(part, 3, order="range"):
            total[i, t](x=X[part[t]], s=S[i : i + 1])


@workload
def in_tiles(seq: Ragged["b"], L: Tensor[i64, "m", 3], X: Tensor[f32, "n", 8], S: Tensor[f32, "m", 8]):
    for i in P("m"):
        row = seq[L[i, 0]]
        for t in P.tiles(row, 1000, order="seq"):
            total[i, t](x=X[row[t][L[i, 1] : L[i, 2]]], s=S[i : i + 1])


PROGRAMS: dict[tuple[str, str], Program] = {}


def compiled(made: Workload, target: str) -> Program:
    key = made.name, target
    if key not in PROGRAMS:
        PROGRAMS[key] = made.compile(target)
    return PROGRAMS[key]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("made", [sliced, sliced_view, sliced_twice, looped, in_tiles], ids=lambda w: w.name)
@tries(40)
@given(data=st.data())
def test_slices_are_exact_or_an_error(made: Workload, target: str, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    rows = st.tuples(st.integers(0, len(lengths) - 1), st.integers(-1, 7), st.integers(-1, 7))
    wild = data.draw(st.booleans())
    asked = [
        (b, i, j) if wild else (b, min(max(i, 0), lengths[b]), min(max(i, j, 0), lengths[b]))
        for b, i, j in data.draw(st.lists(rows, min_size=1, max_size=4))
    ]
    x = RNG.integers(0, 9, (sum(lengths), 8)).astype(np.float32)
    s = np.zeros((len(asked), 8), np.float32)
    bad = [not 0 <= i <= j <= lengths[b] for b, i, j in asked]
    if made is in_tiles:  # a row without elements has no tile to slice
        bad = [wrong and lengths[b] > 0 for wrong, (b, _, _) in zip(bad, asked, strict=True)]
    run: Callable[[], None] = lambda: compiled(made, target)(  # noqa: E731
        seq=Ragged.lengths(lengths), L=np.array(asked, np.int64), X=x, S=s
    )
    if any(bad):
        with pytest.raises(errors.BadExpression) as caught:
            run()
        assert f"in iteration i = {bad.index(True)}" in str(caught.value)
        assert not s.any()
        return
    run()
    kept = list(rows_of(x, lengths))
    wanted = [kept[b][i:j].sum(0) for b, i, j in asked]
    np.testing.assert_array_equal(s, np.array(wanted))


@pytest.mark.parametrize("target", TARGETS)
def test_a_slice_outside_shows_its_numbers_its_line_and_a_hint(target: str) -> None:
    asked = np.array([[0, 1, 3], [1, 2, 6]], np.int64)
    x, s = np.ones((9, 8), np.float32), np.zeros((2, 8), np.float32)
    with pytest.raises(errors.BadExpression) as caught:
        sliced.compile(target)(seq=Ragged.lengths([4, 5]), L=asked, X=x, S=s)
    text = str(caught.value)
    assert "index 6 of a range is outside 0..5" in text
    assert "row[L[i, 1] : L[i, 2]]" in text and "in iteration i = 1" in text
    assert "`.min(range.extent)`" in text


@pytest.mark.parametrize("target", TARGETS)
def test_the_tile_of_another_row_does_not_reach_the_next_one(target: str) -> None:
    @workload
    def mixed(seq: Ragged["b"], X: Tensor[f32, "n", 8], S: Tensor[f32, "b", 8]):
        for b in P("b"):
            for t in P.tiles(seq[0], 4, order="range"):
                total[b, t](x=X[seq[b][t]], s=S[b : b + 1])

    program, s = mixed.compile(target), np.zeros((2, 8), np.float32)
    program(seq=Ragged.lengths([5, 7]), X=np.ones((12, 8), np.float32), S=s)
    np.testing.assert_array_equal(s, np.full((2, 8), 5, np.float32))
    with pytest.raises(errors.BadExpression, match="index 4 of a range is outside 0"):
        program(seq=Ragged.lengths([4, 3, 4]), X=np.ones((11, 8), np.float32), S=np.zeros((3, 8), np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_an_element_of_a_row_lies_in_the_row(target: str) -> None:
    @workload
    def last(at: DenseDyn, seq: Ragged["b"], X: Tensor[f32, "n", 8], S: Tensor[f32, "b", 8]):
        for b in P("b"):
            row = seq[b][at]
            total[b](x=X[row : row + 1], s=S[b : b + 1])

    program, x, s = last.compile(target), np.arange(72, dtype=np.float32).reshape(9, 8), np.zeros((2, 8), "f")
    program(at=3, seq=Ragged.lengths([4, 5]), X=x, S=s)
    np.testing.assert_array_equal(s, x[[3, 7]])
    with pytest.raises(errors.BadExpression, match="index 4 of a range is outside 0"):
        program(at=4, seq=Ragged.lengths([4, 5]), X=x, S=s)


@workload
def capped(capacity: DenseDyn, routing: Sparse["experts"], X: Tensor[f32, "n", 8]):
    for e in P("experts"):
        rows = routing.rows(routing[e])
        add_one[e](x=X[rows[: rows.extent.min(capacity)]])


@workload
def capped_row(capacity: DenseDyn, routing: Sparse["experts"], X: Tensor[f32, "n", 8]):
    for e in P("experts"):
        for t in P.tiles(routing[e][: routing[e].extent.min(capacity)], 2, order="range"):
            add_one[e, t](x=X[routing.rows(t)])


EXPERTS = ([3, 1, 4], [], [0, 6, 5, 2], [7])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("made", [capped, capped_row], ids=lambda w: w.name)
@pytest.mark.parametrize("capacity", [0, 1, 2, 9])
def test_row_sets_are_capped(made: Workload, capacity: int, target: str) -> None:
    x, wanted = np.zeros((2, 8, 8), np.float32)
    compiled(made, target)(capacity=capacity, routing=Sparse.lists(EXPERTS), X=x)
    for row in EXPERTS:
        wanted[row[:capacity]] += 1
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_set_has_the_rows_of_its_slice(target: str) -> None:
    @workload
    def forced(capacity: DenseDyn, routing: Sparse["experts"], X: Tensor[f32, "n", 8]):
        for e in P("experts"):
            add_one[e](x=X[routing.rows(routing[e])[:capacity]])

    x = np.zeros((8, 8), np.float32)
    with pytest.raises(errors.BadExpression, match="index 2 of a range is outside 0"):
        forced.compile(target)(capacity=2, routing=Sparse.lists(EXPERTS), X=x)
    assert not x.any()


@pytest.mark.parametrize("target", TARGETS)
def test_the_selection_of_a_part_of_a_row(target: str) -> None:
    @workload
    def picked(first: DenseDyn, routing: Sparse["b"], X: Tensor[f32, "n", 8], S: Tensor[f32, "b", 8]):
        for b in P("b"):
            for j in P.range(routing[b][first:].extent):
                part = routing[b][first:]
                total[b, j](x=X[routing.rows(part)][0:1], s=S[b : b + 1])
            for r in P.sel(routing[b][first:]):
                add_one[b, r](x=X[r : r + 1])

    x, s = np.zeros((6, 8), np.float32), np.zeros((2, 8), np.float32)
    picked.compile(target)(first=1, routing=Sparse.lists([[5, 0, 2], [3, 4]]), X=x, S=s)
    wanted = np.zeros((6, 8), np.float32)
    wanted[[0, 2, 4]] = 1
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seq[0][3:1]", "expected 0 <= start <= stop, found `3:1`"),
        ("seq[0][-2:]", "expected 0 <= start <= stop, found `-2:"),
        ("seq[0][::2]", "expected a slice of integers without a step, found a step"),
        ("seq[0][0.5:]", "expected a slice of integers without a step, found other bounds"),
        ("seq[0]['n']", "expected an integer, a slice or a range made by `P.tiles`, found 'n'"),
        ("[i for i in seq[0]]", "expected a loop over `P`"),
        ("P.tiles(seq[0], 4, order='ordered')", '`order=` "parallel", "range" or "seq", found \'ordered\''),
    ],
)
def test_refusals(text: str, expected: str) -> None:
    @workload
    def refused(seq: Ragged["b"]):
        eval(text, {"seq": seq, "P": P})

    with pytest.raises(errors.BadOperand) as caught:
        refused.trace()
    assert expected in str(caught.value)
