"""Row sets, workspaces and blocks, as the engine sees them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import _native
from tests.generators.drawing import tries
from tests.python.native.asm import Assembler, Expr
from tests.python.native.conftest import KERNELS, TABLE_HASH

Error = _native.EngineError
Library = _native.KernelLibrary
COPY, REPORT, COUNT_UP = 1, 4, 5


def rows_program(
    start: Expr = 0, extent: Expr | None = None, merged: int = 0, written: str = "from"
) -> bytes:
    """copy(X[rows, :], Y[:extent, :]), or copy(X[:extent, :], Y[rows, :]) if `written` is "to"."""
    a = Assembler(KERNELS, TABLE_HASH)
    n, m, c = a.symbol(), a.symbol(), a.symbol()
    outer = [-1 - a.symbol() for _ in range(1 + merged)]
    lengths = ("symbol", n) if extent is None else extent
    gathered = [("rows", 2, start, lengths), *[("merged",)] * merged, ":"]
    packed = [("range", 0, lengths), ":"]
    is_gather = written == "from"
    a.tensor("f32", [*(outer if is_gather else [-1 - m]), -1 - c], written=False)
    a.tensor("f32", [*([-1 - m] if is_gather else outer), -1 - c])
    a.tensor("i32", [-1 - n, 1], written=False)
    a.task(COPY)
    a.io("INPUT", 0, *(gathered if is_gather else packed))
    a.io("OUTPUT", 1, *(packed if is_gather else gathered))
    return a.bytes()


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int32).reshape(-1, 1)


def failure(
    library: Library, program: bytes, *arrays: np.ndarray, workers: int = 1
) -> tuple[str, dict[str, object]]:
    free = {3: 4, 4: 5}[arrays[0].ndim + arrays[1].ndim - 1]
    with pytest.raises(Error) as caught:
        _native.Executable(program, library).run(arrays, (None,) * free, workers)
    return caught.value.code, dict(caught.value.details)


@tries(60)
@given(data=st.data())
def test_rows_gather_and_scatter(library: Library, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(7,), (1,), (3, 4), (1, 5), (4, 1), (2, 3, 2), (1, 1, 3)]))
    rows = int(np.prod(shape))
    names = data.draw(st.lists(st.integers(0, rows - 1), max_size=12, unique=True))
    gap = data.draw(st.integers(0, 2))
    x = np.random.default_rng(rows).random((*shape, 5 + gap), np.float32)[..., :5]
    y = np.zeros((len(names), 5), np.float32)
    rank = len(shape) - 1
    symbols = (None,) * (4 + rank)
    _native.Executable(rows_program(merged=rank), library).run((x, y, column(*names)), symbols)
    assert np.array_equal(y, x.reshape(rows, 5)[names])
    z = np.zeros((*shape, 5 + gap), np.float32)
    into = z[..., :5]
    _native.Executable(rows_program(merged=rank, written="to"), library).run(
        (y, into, column(*names)), symbols
    )
    expected = np.zeros((rows, 5), np.float32)
    expected[names] = y
    assert np.array_equal(into.reshape(rows, 5), expected) and not z[..., 5:].any()


def test_an_index_that_names_no_row(library: Library) -> None:
    x, y = np.zeros((6, 2), np.float32), np.zeros((3, 2), np.float32)
    for bad in (6, -1, 2**31 - 1, -(2**31)):
        code, details = failure(library, rows_program(), x, y, column(0, bad, 5))
        assert code == "rows-outside"
        expected = {"tensor": 0, "dim": 0, "index_tensor": 2, "position": 1, "index": bad, "size": 6}
        assert {**details, **expected, "io": 0, "pc": 0, "registers": []} == details
    assert not y.any()


def test_indices_that_no_row_set_uses_may_be_anything(library: Library) -> None:
    x, y = np.ones((6, 2), np.float32), np.zeros((9, 2), np.float32)
    indices = column(-1, 3, 4, 99)
    _native.Executable(rows_program(1, 2), library).run((x, y, indices), (None,) * 4)
    assert y.sum() == 4


def test_a_row_written_twice(library: Library) -> None:
    x, y = np.zeros((4, 2), np.float32), np.zeros((6, 2), np.float32)
    code, details = failure(library, rows_program(written="to"), x, y, column(3, 5, 1, 5))
    assert code == "rows-repeat"
    assert (details["tensor"], details["io"], details["index"]) == (1, 1, 5)
    assert (details["first_position"], details["position"]) == (1, 3)
    # Reading a row twice is fine.
    _native.Executable(rows_program(), library).run((y, x, column(3, 5, 1, 5)), (None,) * 4)


def test_a_range_outside_the_indices(library: Library) -> None:
    x, y = np.zeros((6, 2), np.float32), np.zeros((9, 2), np.float32)
    for start, extent in ((0, 5), (5, 0), (-1, 2), (2, -1), (1, 2**62)):
        code, details = failure(library, rows_program(start, extent), x, y, column(0, 1, 2, 3))
        assert code == "region-outside"
        assert (details["tensor"], details["size"], details["start"]) == (2, 4, start)


def test_rows_that_are_not_evenly_apart(library: Library) -> None:
    x = np.zeros((3, 6, 2), np.float32)[:, :4]
    y = np.zeros((2, 2), np.float32)
    code, details = failure(library, rows_program(merged=1), x, y, column(0, 1))
    assert (code, details["tensor"], details["dim"], details["stride"]) == ("rows-stride", 0, 0, 12)
    # Indices may be anywhere: they are copied before the run.
    names = np.array([[2, -7, -7], [1, -7, -7]], np.int32)
    x[0] = np.arange(8).reshape(4, 2)
    _native.Executable(rows_program(), library).run((x[0], y, names[:, :1]), (None,) * 4)
    assert np.array_equal(y, x[0][[2, 1]]), y
    _native.Executable(rows_program(extent=0, merged=1), library).run((x, y, column(0, 1)), (None,) * 5)


def written_program(columns: int = 1) -> bytes:
    """count_up(indices), then for i: copy(X[i : i + 2], Y[rows i : i + 2])."""
    a = Assembler(KERNELS, TABLE_HASH)
    first, step = a.symbol("SCALAR"), a.symbol("SCALAR")
    a.tensor("f32", [8, 3], written=False)
    a.tensor("f32", [12, 3])
    a.tensor("i32", [8, columns])
    a.task(COUNT_UP, [("param_symbol", first), ("param_symbol", step)])
    a.io("OUTPUT", 2, ":", ":")
    i = a.loop("PARALLEL_FOR", 4)
    pair = (("*", ("reg", i), 2), 2)
    a.task(COPY)
    a.io("INPUT", 0, ("range", *pair), ":")
    a.io("OUTPUT", 1, ("rows", 2, *pair), ":")
    a.end()
    return a.bytes()


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_indices_written_in_the_run(library: Library, workers: int) -> None:
    executable = _native.Executable(written_program(), library)
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    y, indices = np.zeros((12, 3), np.float32), column(*[99] * 8)
    for seed in range(20):
        y[:], indices[:] = 0, 99
        executable.run((x, y, indices), (11, -1), workers, False, seed)
        assert np.array_equal(y[11:3:-1], x)
    for first, step in ((5, -1), (8, -2)):
        with pytest.raises(Error) as caught:
            executable.run((x, y, indices), (first, step), workers)
        details = caught.value.details
        assert caught.value.code == "rows-outside"
        assert isinstance(details["index"], int) and details["index"] < 0
        assert details["io"] == 1 and details["tensor"] == 1 and details["index_tensor"] == 2
        assert isinstance(details["task"], int) and details["registers"] == [details["task"] - 1]
        assert details["late"] == details["task"]
    with pytest.raises(Error) as caught:
        executable.run((x, y, indices), (3, 0), workers)
    assert caught.value.code == "rows-repeat" and caught.value.details["kernel"] == "copy"


def two_indices_program(written: bool) -> bytes:
    """copy(X[rows of I], Y[rows of J]); first count_up(J), if `written`."""
    a = Assembler(KERNELS, TABLE_HASH)
    a.tensor("f32", [4, 2], written=False)
    a.tensor("f32", [4, 2])
    a.tensor("i32", [4, 1], written=False)
    a.tensor("i32", [4, 1], written=written)
    if written:
        a.task(COUNT_UP, [0, 1])
        a.io("OUTPUT", 3, ":", ":")
    a.task(COPY)
    a.io("INPUT", 0, ("rows", 2, 0, 4), ":")
    a.io("OUTPUT", 1, ("rows", 3, 0, 4), ":")
    return a.bytes()


def test_one_array_as_two_index_tensors(library: Library) -> None:
    x, y, indices = (
        np.arange(8, dtype=np.float32).reshape(4, 2),
        np.zeros((4, 2), np.float32),
        column(2, 0, 3, 1),
    )
    _native.Executable(two_indices_program(False), library).run((x, y, indices, indices), ())
    assert np.array_equal(x, y)
    with pytest.raises(Error) as caught:
        _native.Executable(two_indices_program(True), library).run((x, y, indices, indices), ())
    assert caught.value.code == "deciding-array-written"


def test_index_tensors_are_columns_of_i32(library: Library) -> None:
    for columns in (0, 2):
        with pytest.raises(Error) as caught:
            _native.Executable(written_program(columns), library)
        assert caught.value.code == "bad-bytecode"


def report_program(size: Expr | None, cost: Expr | None = None) -> bytes:
    """For each i: report(X[i], failing block)."""
    a = Assembler(KERNELS, TABLE_HASH)
    n, fails, amount = a.symbol(), a.symbol("SCALAR"), a.symbol("SCALAR")
    assert (n, fails, amount) == (0, 1, 2)
    a.tensor("i64", [-1 - n, 3, 4])
    i = a.loop("PARALLEL_FOR", ("symbol", n))
    a.task(REPORT, [("param_symbol", fails)])
    a.io("OUTPUT", 0, ("index", ("reg", i)), ":", ":")
    if size is not None:
        a.workspace(size)
    if cost is not None:
        a.cost(cost)
    a.end()
    return a.bytes()


@pytest.mark.parametrize("workers", [1, 3])
def test_workspaces_and_blocks(library: Library, workers: int) -> None:
    x = np.full((40, 3, 4), -1, np.int64)
    size = ("*", ("reg", 0), ("symbol", 2))
    result = _native.Executable(report_program(size, ("reg", 0)), library).run(
        (x,), (None, -1, 1000), workers
    )
    assert result.counters["max_workspace_bytes"] == 39000
    assert np.array_equal(x[:, :, 0], np.arange(40)[:, None] * np.full(3, 1000))
    assert not x[:, :, 1].any()
    assert (x[:, :, 2] == [0, 1, 2]).all() and (x[:, :, 3] == 3).all()
    _native.Executable(report_program(None), library).run((x,), (None, -1, 0), workers)
    assert not x[:, :, 0].any()


def test_a_stated_cost_fills_slices(library: Library) -> None:
    x = np.zeros((200, 3, 4), np.int64)
    slices = {}
    for cost in (None, 0, 1, 5000, 2**62):
        program = _native.Executable(report_program(None, cost), library)
        slices[cost] = program.run((x,), (None, -1, 0), 2, tracks=True).counters["slices"]
    # Nothing has been measured while the only slice is filled.
    assert slices[0] == slices[1] == 1
    assert all(isinstance(n, int) and n > 1 for n in (slices[None], slices[5000], slices[2**62]))


def test_the_first_block_that_fails_ends_its_task(library: Library) -> None:
    x = np.full((1, 3, 4), -1, np.int64)
    with pytest.raises(Error) as caught:
        _native.Executable(report_program(8), library).run((x,), (None, 1, 0))
    assert caught.value.code == "kernel-failed" and caught.value.details["check"] == 9
    assert x[0, :, 2].tolist() == [0, 1, -1]


def test_amounts_below_zero(library: Library) -> None:
    x = np.full((9, 3, 4), -1, np.int64)
    amount = ("-", ("symbol", 2), ("reg", 0))
    for code, program in (
        ("negative-workspace", report_program(amount)),
        ("negative-cost", report_program(8, amount)),
    ):
        with pytest.raises(Error) as caught:
            _native.Executable(program, library).run((x,), (None, -1, 4))
        assert caught.value.code == code
        assert caught.value.details["value"] == -1 and caught.value.details["registers"] == [5]
        assert caught.value.details["pc"] == 1
    assert (x == -1).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_workspace_that_does_not_fit(library: Library, workers: int) -> None:
    executable = _native.Executable(report_program(("symbol", 2)), library)
    x = np.zeros((5, 3, 4), np.int64)
    for size in (2**50, 2**63 - 1):
        with pytest.raises(Error) as caught:
            executable.run((x,), (None, -1, size), workers)
        assert caught.value.code == "out-of-memory"
        details = caught.value.details
        assert details["bytes"] == size and details["pc"] == 1 and details["kernel"] == "report"
    executable.run((x,), (None, -1, 64), workers)
    assert (x[:, :, 0] == 64).all()


def test_one_kernel_called_with_a_workspace(library: Library) -> None:
    x = np.zeros((3, 4), np.int64)
    dtypes = (_native.DTYPES["i64"],)
    assert library.call(REPORT, (x,), (-1,), dtypes, 0, 100)[0] == 0
    assert x.tolist() == [[100, 0, block, 3] for block in range(3)]
    assert library.call(REPORT, (x,), (1,), dtypes)[0] == 9
    assert x[:, 0].tolist() == [0, 0, 100]
