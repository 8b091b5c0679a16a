"""Sparse axes, from the workload's text to results: against numpy, on each target, for random CSR data."""

from __future__ import annotations

from collections.abc import Callable

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
    Program,
    Ragged,
    Sparse,
    Tensor,
    Tile,
    errors,
    f32,
    i32,
    kernel,
    pto,
    workload,
)

TARGETS = ("cpu", "interp")
ROWS, COLS = 12, 8


@kernel
def accumulate(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y * 0.5 + x)


@kernel
def scale(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x * 0.5 + 1.0)


@kernel
def sum_rows(x: In[Tensor[f32, DYN, 8]], y: InOut[Tile[1, 8, f32]]):
    for i in range(x.rows):
        pto.store(y, y * 0.5 + x[i : i + 1])


@kernel
def note_rows(rows: In[Tensor[i32, DYN, 1]], values: In[Tensor[f32, DYN]], y: Out[Tensor[f32, DYN, 8]]):
    for i in range(rows.rows):
        pto.store(y[i : i + 1], pto.full((1, 8), rows[i, 0]) + pto.full((1, 8), 0.5))


@workload
def each_index(routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        for j in P.sel(routing[b]):
            accumulate[b, j](x=X[j : j + 1], y=Y[b : b + 1])


@workload
def all_indices(routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, 1, 8]):
    for j in P.sel(routing):
        accumulate[j](x=X[j : j + 1], y=Y)


@workload
def whole_rows(routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        sum_rows[b](x=X[routing.rows(routing[b])], y=Y[b : b + 1])


@workload
def tiles_of_rows(routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        for pick in P.tiles(routing[b], 4):
            sum_rows[b, pick](x=X[routing.rows(pick)], y=Y[b : b + 1])


@workload
def tiles_of_all(routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, 1, 8]):
    for pick in P.tiles(routing, 4):
        sum_rows[pick](x=X[routing.rows(pick)], y=Y)


@workload
def written(routing: Sparse["batch"], X: Tensor[f32, "n", 8]):
    for b in P("batch"):
        for pick in P.tiles(routing[b], 4):
            scale[b, pick](x=X[routing.rows(pick)])


def random_rows(rng: np.random.Generator, rows: int) -> list[list[int]]:
    """Rows of random lengths, often 0, with duplicates."""
    return [rng.integers(0, ROWS, rng.choice([0, 0, 1, 3, 4, 9])).tolist() for _ in range(rows)]


def expected_sums(rows: list[list[int]], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    result = y.copy()
    for b, row in enumerate(rows):
        for j in row:
            result[b] = result[b] * np.float32(0.5) + x[j]
    return result


def random_values(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.standard_normal((rows, COLS)).astype(np.float32)


CASES = [[], [[]], [[3]], [[], [], []], [[1, 1, 1, 1, 1]], None, None, None]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [each_index, whole_rows, tiles_of_rows], ids=lambda w: w.name)
def test_rows_of_indices(make, target: str) -> None:
    rng = np.random.default_rng(1)
    program = make.compile(target)
    for case in CASES:
        rows = random_rows(rng, 7) if case is None else case
        x, y = random_values(rng, ROWS), random_values(rng, len(rows))
        expected = expected_sums(rows, x, y)
        for workers in (1, 2, 4):
            found = y.copy()
            program.run(routing=Sparse.lists(rows), X=x, Y=found, workers=workers)
            assert np.array_equal(found, expected), rows
        tiles = {"each_index": sum(map(len, rows)), "whole_rows": len(rows)}
        assert program.stats is not None
        assert program.stats.tasks == tiles.get(make.name, sum(-(-len(row) // 4) for row in rows))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [all_indices, tiles_of_all], ids=lambda w: w.name)
def test_indices_of_all_rows(make, target: str) -> None:
    rng = np.random.default_rng(2)
    program = make.compile(target)
    for case in CASES:
        rows = random_rows(rng, 7) if case is None else case
        flat = [j for row in rows for j in row]
        x, y = random_values(rng, ROWS), random_values(rng, 1)
        first = int(rng.integers(0, 3))
        indptr = first + np.cumsum([0, *map(len, rows)])
        pool = np.array([*[-7] * first, *flat, -9, 2**40])
        expected = expected_sums([flat], x, y)
        program(routing=Sparse.csr(indptr, pool), X=x, Y=y)
        assert np.array_equal(y, expected), rows


@pytest.mark.parametrize("target", TARGETS)
def test_row_sets_are_written_in_place(target: str) -> None:
    rng = np.random.default_rng(3)
    program = written.compile(target)
    for rows in (0, 1, 5):
        cut = np.sort(rng.integers(0, ROWS + 1, max(rows - 1, 0)))
        lists = [part.tolist() for part in np.split(rng.permutation(ROWS), cut)][:rows]
        x = random_values(rng, ROWS)
        expected = x.copy()
        chosen = [j for row in lists for j in row]
        expected[chosen] = x[chosen] * np.float32(0.5) + np.float32(1)
        for workers in (1, 2, 4):
            found = x.copy()
            program.run(routing=Sparse.lists(lists), X=found, workers=workers)
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_that_meet_keep_program_order(target: str) -> None:
    rng = np.random.default_rng(4)
    program = written.compile(target)
    for _ in range(5):
        lists = [rng.permutation(ROWS)[: rng.integers(0, 9)].tolist() for _ in range(9)]
        x = random_values(rng, ROWS)
        expected = x.copy()
        for row in lists:
            expected[row] = expected[row] * np.float32(0.5) + np.float32(1)
        for workers in (1, 2, 4):
            found = x.copy()
            program.run(routing=Sparse.lists(lists), X=found, workers=workers)
            assert np.array_equal(found, expected)


PAGE = 4


@kernel
def append_row(x: In[Tile[1, 8, f32]], place: Out[Tile[1, 8, f32]]):
    pto.store(place, x)


@kernel
def sum_pages(pages: In[Tensor[f32, DYN, PAGE, 8]], y: Out[Tile[1, 8, f32]]):
    acc = pto.zeros((1, 8))
    for i in range(pages.shape[0]):
        acc = acc + pto.colsum(pages[i])
    pto.store(y, acc)


@workload
def append_and_sum(
    owned: Sparse["batch"], Last: Tensor[i32, "batch", 2], X: Tensor[f32, "batch", 8],
    Cache: Tensor[f32, "places", PAGE, 8], Y: Tensor[f32, "batch", 8],
):  # fmt: skip
    for b in P("batch"):
        append_row[b](x=X[b : b + 1], place=Cache[Last[b, 0], Last[b, 1] : Last[b, 1] + 1])
        sum_pages[b](pages=Cache[owned.rows(owned[b])], y=Y[b : b + 1])


@pytest.mark.parametrize("shares_page", [False, True])
def test_pages_of_a_row_conflict_with_what_is_written_in_them(shares_page: bool) -> None:
    rng = np.random.default_rng(3)
    places = rng.permutation(20)
    rows = [[int(page) for page in places[2 * b : 2 * b + 2]] for b in range(8)]
    last = np.array([(row[-1], b % PAGE) for b, row in enumerate(rows)], np.int32)
    if shares_page:
        rows[6].append(rows[1][-1])  # iteration 6 reads the page that iteration 1 writes
    program = append_and_sum.compile("cpu")
    for _ in range(2):
        cache, x = (rng.random(shape).astype(np.float32) for shape in ((20, PAGE, 8), (8, 8)))
        expected, y = cache.copy(), np.empty((8, 8), np.float32)
        expected[last[:, 0], last[:, 1]] = x
        arrays = {"owned": Sparse.lists(rows), "Last": last, "X": x, "Cache": cache, "Y": y}
        program.run(**arrays, workers=2, trace="full")
        np.testing.assert_array_equal(cache, expected)
        np.testing.assert_allclose(y, [expected[row].sum(axis=(0, 1)) for row in rows], rtol=1e-5)
        assert program.trace is not None
        pairs = {(int(a), int(b)) for a, b, *_ in program.trace.dependences}
        assert pairs == {(2 * b, 2 * b + 1) for b in range(8)} | ({(2, 13)} if shares_page else set())
    if shares_page:
        with pytest.raises(errors.IterationsConflict):
            program.run(**arrays, check="hazards")
    else:
        program.run(**arrays, check="hazards")


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_set_as_an_argument_is_its_indices(target: str) -> None:
    @workload
    def noted(routing: Sparse["batch"], Values: Tensor[f32, "entries"], Y: Tensor[f32, "entries", 8]):
        for b in P("batch"):
            row = routing[b]
            note_rows[b](rows=routing.rows(row), values=Values[row], y=Y[row])

    rows = [[5, 2], [], [7, 7, 0]]
    y = np.zeros((5, 8), np.float32)
    noted.compile(target)(routing=Sparse.lists(rows), Values=np.ones(5, np.float32), Y=y)
    assert np.array_equal(y[:, 0], np.array([5, 2, 7, 7, 0]) + np.float32(0.5))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.int8])
def test_arrays_of_every_integer_type_and_their_copies(dtype: type) -> None:
    indptr, indices = np.array([0, 2, 2, 3], dtype), np.array([5, 1, 0], dtype)
    made = Sparse.csr(indptr, indices)
    indptr[:] = 9
    indices[:] = 9
    lists = Sparse.lists([[5, 1], [], [0]])
    for value in (made, lists):
        assert value.offsets.tolist() == [0, 2, 2, 3] and value.indices.tolist() == [[5], [1], [0]]
        assert value.offsets.dtype == np.int64 and value.indices.dtype == np.int32
        for array in (value.offsets, value.indices):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    assert repr(made) == "<Sparse: 3 rows, 3 indices>"


BAD: list[tuple[Callable[[], Sparse], str]] = [
    (lambda: Sparse.csr([], []), "indptr.*at least one element"),
    (lambda: Sparse.csr([0, 3, 2], [1, 1, 1]), "indptr.*expected >= 3, found 2 at 2"),
    (lambda: Sparse.csr([-1, 2], [1, 1]), "indptr.*expected >= 0, found -1 at 0"),
    (lambda: Sparse.csr([[0, 1]], [1]), "indptr.*flat sequence"),
    (lambda: Sparse.csr([0.0, 1.0], [1]), "indptr.*flat sequence"),
    (lambda: Sparse.csr(np.array([0, 2**63], np.uint64), [1]), "indptr.*found 9223372036854775808 at 1"),
    (lambda: Sparse.csr([0, 3], [1, 1]), "indices.*at least 3 elements.*found 2"),
    (lambda: Sparse.csr([0, 2**62], [1, 1]), "indices.*at least 4611686018427387904 elements"),
    (lambda: Sparse.csr([0, 2], [[1, 1]]), "indices.*flat sequence"),
    (lambda: Sparse.csr([0, 2], [1, 1.5]), "indices.*flat sequence"),
    (lambda: Sparse.csr([0, 2], [True, False]), "indices.*flat sequence"),
    (lambda: Sparse.csr([1, 3], [-1, 5, -2]), r"indices.*in \[0, 2\^31\), found -2 at 2"),
    (lambda: Sparse.csr([0, 2], [1, 2**31]), "indices.*found 2147483648 at 1"),
    (
        lambda: Sparse.csr([0, 1], np.array([2**64 - 1], np.uint64)),
        "found 18446744073709551615 at 0",
    ),
    (lambda: Sparse.lists([[1], [2, -3]]), "row 1.*found -3 at 1"),
    (lambda: Sparse.lists([[1], 2]), "row 1.*flat sequence"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("make", "text"), BAD)
def test_bad_arrays_name_the_array_the_place_and_the_value(make: Callable[[], Sparse], text: str) -> None:
    with pytest.raises(errors.BadSparse, match=f"(?s){text}"):
        make()


def test_axes_are_made_by_name() -> None:
    for kind, values, text in (
        (Ragged, [[3, 0, 2]], r"Ragged\.lengths"),
        (Ragged, [], r"Ragged\.lengths"),
        (Sparse, [np.zeros(2), np.zeros(2)], r"Sparse\.csr"),
    ):
        with pytest.raises(errors.WrongValue, match=text):
            kind(*values)


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_do_not_fit_are_errors_and_nothing_runs(target: str) -> None:
    x, y = np.ones((ROWS, 8), np.float32), np.zeros((2, 8), np.float32)
    for make in (each_index, whole_rows, tiles_of_rows):
        program: Program = make.compile(target)
        with pytest.raises(errors.RunError) as caught:
            program(routing=Sparse.lists([[1], [2, ROWS]]), X=x, Y=y)
        assert str(ROWS) in str(caught.value) and "b = 1" in str(caught.value)
        with pytest.raises(errors.WrongShape, match="routing"):
            program(routing=Sparse.lists([[1]]), X=x, Y=y, batch=2)
        with pytest.raises(errors.WrongShape):
            program(routing=Sparse.lists([[1]]), X=x, Y=y)
        with pytest.raises(errors.WrongValue, match=r"Sparse\.csr"):
            program(routing=Ragged.lengths([1, 1]), X=x, Y=y)
        with pytest.raises(errors.UnboundTensor, match="sparse axis `routing`"):
            program(X=x, Y=y)
    twice = written.compile(target)
    with pytest.raises(errors.RunError):
        twice(routing=Sparse.lists([[1], [2, 3, 2]]), X=x)
    assert not y.any() and (x == 1).all()


def test_two_axes_of_one_size_have_to_agree() -> None:
    @workload
    def both(a: Sparse["batch"], b: Ragged["batch"], X: Tensor[f32, "n", 8]):
        for i in P("batch"):
            for j in P.sel(a[i]):
                for k in P.range(b[i]):
                    accumulate(x=X[j : j + 1], y=X[k : k + 1])

    program = both.compile("interp")
    with pytest.raises(errors.WrongShape, match="batch = 1"):
        program(a=Sparse.lists([[]]), b=Ragged.lengths([0, 0]), X=np.ones((1, 8), np.float32))
    program.set_axis_sizes({"batch": 3})
    with pytest.raises(errors.WrongShape, match="batch = 3"):
        program(a=Sparse.lists([[]]), b=Ragged.lengths([0]), X=np.ones((1, 8), np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_a_fixed_axis_are_counted(target: str) -> None:
    @workload
    def fixed(batch: Dense[3], routing: Sparse["batch"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8]):
        for b in P(batch):
            for j in P.sel(routing[b]):
                accumulate[b, j](x=X[j : j + 1], y=Y[b : b + 1])

    program = fixed.compile(target)
    x, y = np.ones((2, 8), np.float32), np.zeros((3, 8), np.float32)
    for rows in (0, 2, 4):
        with pytest.raises(errors.WrongShape, match="batch = 3"):
            program(routing=Sparse.lists([[0]] * rows), X=x, Y=y)
    program(routing=Sparse.lists([[0], [], [1, 1]]), X=x, Y=y)
    assert y[:, 0].tolist() == [1, 0, 1.5]


@pytest.mark.parametrize("target", TARGETS)
def test_values_by_default_by_position_and_in_the_call(target: str) -> None:
    first = Sparse.lists([[1], [2]])

    @workload
    def defaulted(X: Tensor[f32, "n", 8], Y: Tensor[f32, "batch", 8], routing: Sparse["batch"] = first):
        for b in P("batch"):
            for j in P.sel(routing[b]):
                accumulate[b, j](x=X[j : j + 1], y=Y[b : b + 1])

    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    second = Sparse.lists([[0], [0]])
    for made, value, rows in (
        (defaulted, None, [1, 2]),
        (defaulted(routing=second), None, [0, 0]),
        (each_index(second), None, [0, 0]),
        (defaulted(routing=second), first, [1, 2]),
    ):
        y = np.zeros((2, 8), np.float32)
        made.compile(target)(X=x, Y=y, routing=value)
        assert np.array_equal(y, x[rows])
    with pytest.raises(errors.WrongValue, match=r"Sparse\.csr"):
        defaulted(routing=Ragged.lengths([1])).trace()


@pytest.mark.parametrize("target", TARGETS)
def test_loops_over_all_elements_of_a_ragged_axis(target: str) -> None:
    @workload
    def each(kv: Ragged["batch"], X: Tensor[f32, "n", 8]):
        for i in P(kv):
            scale[i](x=X[i : i + 1])

    @workload
    def tiled(kv: Ragged["batch"], X: Tensor[f32, "n", 8], total: DenseDyn):
        for part in P.tiles(kv, 4):
            scale[part](x=X[part])
        for i in P.tiles(kv.extent - total, 4):
            scale[i](x=X[i])

    for lengths in ([3, 0, 5], [], [0], [0, 0, 7, 0]):
        for first in (0, 2):
            indptr = first + np.cumsum([0, *lengths])
            end = int(indptr[-1])
            x = random_values(np.random.default_rng(5), end + 3)
            expected = x.copy()
            expected[first:end] = x[first:end] * np.float32(0.5) + np.float32(1)
            for program, more in (
                (each.compile(target), {}),
                (tiled.compile(target), {"total": sum(lengths)}),
            ):
                found = x.copy()
                program(kv=Ragged.indptr(indptr), X=found, **more)
                assert np.array_equal(found, expected)


MASKED = np.ma.array([1, 2], mask=[False, True])


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: Ragged.lengths(MASKED), "masked"),
        (lambda: Ragged.indptr(MASKED), "masked"),
        (lambda: Sparse.csr([0, 2], MASKED), "masked"),
        (lambda: Sparse.csr(MASKED, [0, 0]), "masked"),
        (lambda: Sparse.lists([MASKED]), "masked"),
        (lambda: Sparse.lists(None), "NoneType"),  # pyright: ignore
        (lambda: Sparse.lists({1: [2]}), "dict"),  # pyright: ignore
        (lambda: Sparse.csr([0, 1], [[1], [2, 3]]), "rank 2"),
        (lambda: Sparse.csr([0, 1], None), "rank 0"),
    ],
)
def test_what_holds_no_rows(make: Callable[[], object], found: str) -> None:
    with pytest.raises(errors.BadRagged) as caught:
        make()
    assert found in caught.value.caret_text
