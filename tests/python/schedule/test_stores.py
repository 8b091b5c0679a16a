"""Stores past the caches change no result, and happen where nobody reads what is stored."""

from functools import cache

import numpy as np
import pytest

from pto_wsp import (
    In,
    InOut,
    Out,
    P,
    Schedule,
    StorePolicy,
    Tensor,
    Tile,
    bf16,
    f16,
    f32,
    i8,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.runtime.memory import empty

STREAMING = Schedule().task_graph(stores=StorePolicy.streaming(1))
CACHED = Schedule().task_graph(stores=StorePolicy.cached())
TYPES = (f32, bf16, f16, i32, i64, i8)


@cache
def doubled(dtype):
    """Return a program of two kinds of stores: at the end of a loop, and of a whole tile."""

    @kernel
    def double(x: In[Tile[16, 64, dtype]], fused: Out[Tile[16, 64, dtype]], whole: Out[Tile[64, 16, dtype]]):
        pto.store(fused, x + x)
        pto.store(whole, pto.transpose(x))

    @workload
    def program(X: Tensor[dtype, "n", "m"], Fused: Tensor[dtype, "n", "m"], Whole: Tensor[dtype, "m", "n"]):
        for r in P.tiles("n", 16):
            for c in P.tiles("m", 64):
                double[r, c](x=X[r, c], fused=Fused[r, c], whole=Whole[c, r])

    return program.compile(target="cpu")


def placed(rows, cols, dtype, shift):
    """Return an array that begins `shift` elements behind a line."""
    memory = empty((rows * cols + shift,), dtype)
    memory[...] = 0
    return memory[shift:].reshape(rows, cols)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(64, 128), (33, 70), (16, 63), (1, 1), (5, 200)])
@pytest.mark.parametrize("shift", [0, 1, 16])
def test_results_are_the_same(dtype, shape, shift) -> None:
    program = doubled(dtype)
    n, m = shape
    rng = np.random.default_rng(n * m)
    x = (rng.random((n, m)) * 50).astype(dtype.to_numpy())
    found = {}
    for schedule in (STREAMING, CACHED):
        program.reschedule(schedule)
        fused, whole = placed(n, m, dtype, shift), placed(m, n, dtype, shift)
        program(X=x, Fused=fused, Whole=whole)
        assert program.stats.streamed == (("Fused", "Whole") if schedule is STREAMING else ())
        found[schedule] = fused, whole
    assert found[STREAMING][0].tobytes() == found[CACHED][0].tobytes() == (x + x).tobytes()
    assert found[STREAMING][1].tobytes() == found[CACHED][1].tobytes() == x.T.tobytes()


@cache
def several():
    """Return a program whose loops store two tensors, fold what they store, and keep it in scratch."""

    @kernel
    def shaped(x: In[Tile[16, 64, f32]], a: Out[Tile[16, 64, f32]], b: Out[Tile[16, 64, bf16]]):
        pto.store(a, pto.exp(x))
        pto.store(b, pto.cast(pto.exp(x) * 2, bf16))

    @kernel
    def folded(x: In[Tile[16, 64, f32]], c: Out[Tile[16, 64, f32]], d: Out[Tile[1, 64, f32]]):
        y = x * 3
        pto.store(c, y)
        pto.store(d, pto.colsum(y))

    @workload
    def program(
        X: Tensor[f32, "n", "m"],
        A: Tensor[f32, "n", "m"],
        B: Tensor[bf16, "n", "m"],
        C: Tensor[f32, "n", "m"],
        D: Tensor[f32, "k", "m"],
    ):
        for r in P.tiles("n", 16):
            for c in P.tiles("m", 64):
                shaped[r, c](x=X[r, c], a=A[r, c], b=B[r, c])
                folded[r, c](x=X[r, c], c=C[r, c], d=D[r.start // 16 : r.start // 16 + 1, c])

    return program.compile(target="cpu")


@pytest.mark.parametrize("shape", [(64, 128), (33, 70), (16, 13), (1, 1)])
@pytest.mark.parametrize("shifts", [(0, 0), (1, 3), (15, 16), (5, 31)])
def test_loops_that_begin_anywhere(shape, shifts) -> None:
    program = several()
    n, m = shape
    x = np.random.default_rng(n).standard_normal((n, m), np.float32)
    found = {}
    for schedule in (STREAMING, CACHED):
        program.reschedule(schedule)
        made = {
            "A": placed(n, m, f32, shifts[0]),
            "B": placed(n, m, bf16, shifts[1]),
            "C": placed(n, m, f32, shifts[1]),
            "D": placed(-(-n // 16), m, f32, shifts[0]),
        }
        program(X=x, **made)
        found[schedule] = {name: array.tobytes() for name, array in made.items()}
        assert np.allclose(made["A"], np.exp(x), rtol=1e-5) and (made["C"] == x * 3).all()
    assert found[STREAMING] == found[CACHED]


@pytest.mark.parametrize("shift", [0, 1, 15])
def test_columns_of_any_length(shift) -> None:
    """Columns are loops along their rows, of which there may be none: then nothing is stored."""

    @kernel
    def double(x: In[Tile[64, 1, f32]], y: Out[Tile[64, 1, f32]]):
        pto.store(y, x + x)

    @workload
    def program(X: Tensor[f32, "n", 1], Starts: Tensor[i32, "k"], Y: Tensor[f32, "n", 1]):
        for i in P("k"):
            rows = slice(Starts[i], Starts[i] + i % 41)
            double[i](x=X[rows], y=Y[rows])

    compiled = program.compile(target="cpu")
    lengths = np.arange(100) % 41
    starts = (np.cumsum(lengths + 1) - lengths - 1).astype(np.int32)
    x = np.random.default_rng(0).random((int(starts[-1]) + 64, 1), np.float32)
    expected = np.zeros_like(x)
    for start, length in zip(starts, lengths, strict=True):
        expected[start : start + length] = 2 * x[start : start + length]
    compiled.reschedule(STREAMING)
    y = placed(*x.shape, f32, shift)
    compiled(X=x, Starts=starts, Y=y)
    assert (y == expected).all()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_one_task_stores_another_thread_reads(workers) -> None:
    """A run right behind another reads what the first one streamed, on other threads."""
    program = doubled(f32)
    program.reschedule(STREAMING)
    x = np.ones((256, 256), np.float32)
    a, b = placed(256, 256, f32, 0), placed(256, 256, f32, 0)
    for _ in range(20):
        program.run(workers=workers, X=x, Fused=a, Whole=b)
        program.run(workers=workers, X=a, Fused=x, Whole=b)
        assert (x == 4).all()
        x[...] = 1


@kernel
def increase(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x + 1.0)


@kernel
def increase_in_place(y: InOut[Tile[16, 64, f32]]):
    pto.store(y, y + 1.0)


@workload
def chain(
    X: Tensor[f32, "n", 64],
    Read: Tensor[f32, "n", 64],
    Updated: Tensor[f32, "n", 64],
    Last: Tensor[f32, "n", 64],
):
    for r in P.tiles("n", 16):
        increase[r](x=X[r], y=Read[r])
        increase[r](x=Read[r], y=Updated[r])
        increase_in_place[r](y=Updated[r])
        increase[r](x=Updated[r], y=Last[r])


def test_what_the_program_reads_is_cached() -> None:
    program = chain.compile(target="cpu")
    program.reschedule(STREAMING)
    x, read, updated, last = (np.zeros((40, 64), np.float32) for _ in range(4))
    program(X=x, Read=read, Updated=updated, Last=last)
    assert program.stats.streamed == ("Last",)
    assert (read == 1).all() and (updated == 3).all() and (last == 4).all()


def test_one_array_under_two_names_is_read_under_one() -> None:
    @workload
    def twice(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
        for r in P.tiles("n", 16):
            increase[r](x=X[r], y=Y[r])

    program = twice.compile(target="cpu")
    program.reschedule(STREAMING)
    x = np.zeros((40, 64), np.float32)
    program(X=x, Y=x)
    assert program.stats.streamed == () and (x == 1).all()


def test_small_tensors_are_cached_by_default() -> None:
    program = doubled(f32)
    program.reschedule(Schedule())
    x = np.ones((64, 64), np.float32)
    program(X=x, Fused=np.empty_like(x), Whole=np.empty_like(x))
    assert program.stats.streamed == ()
    assert "past the caches" not in str(program.stats)


def test_the_bound_counts_bytes() -> None:
    program = doubled(bf16)
    x = placed(64, 64, bf16, 0)
    for least, streamed in ((64 * 64 * 2, ("Fused", "Whole")), (64 * 64 * 2 + 1, ())):
        program.reschedule(Schedule().task_graph(stores=StorePolicy.streaming(least)))
        program(X=x, Fused=placed(64, 64, bf16, 0), Whole=placed(64, 64, bf16, 0))
        assert program.stats.streamed == streamed
    program.reschedule(STREAMING)
    program(X=x, Fused=placed(64, 64, bf16, 0), Whole=placed(64, 64, bf16, 0))
    assert "Fused, Whole past the caches" in str(program.stats)
    program.reschedule(Schedule())


COPY = """
Arena arena(context);
const auto t = arena.tile<float>(x.rows(), x.cols());
load(t, x);
store(y, t);
"""


def test_kernels_in_cpp_stream_through_the_tile_library() -> None:
    @kernel(cpp_src=COPY, workspace=lambda p: p.x.rows * 64 * 4 + 256)
    def copied(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]): ...

    @workload
    def copy(X: Tensor[f32, "n", "m"], Y: Tensor[f32, "n", "m"]):
        for r in P.tiles("n", 16):
            for c in P.tiles("m", 64):
                copied[r, c](x=X[r, c], y=Y[r, c])

    program = copy.compile(target="cpu")
    program.reschedule(STREAMING)
    x = np.random.default_rng(0).random((50, 150), np.float32)
    y = placed(50, 150, f32, 0)
    program(X=x, Y=y)
    assert program.stats.streamed == ("Y",) and (y == x).all()


def test_rows_that_are_named_are_streamed() -> None:
    @kernel
    def scattered(x: In[Tile[16, 64, f32]], rows: In[Tile[16, 1, i32]], y: Out[Tensor[f32, 64, 64]]):
        pto.scatter(y, rows, x)

    @workload
    def scatter(X: Tensor[f32, 16, 64], Rows: Tensor[i32, 16, 1], Y: Tensor[f32, 64, 64]):
        scattered(x=X, rows=Rows, y=Y)

    program = scatter.compile(target="cpu")
    program.reschedule(STREAMING)
    x = np.random.default_rng(0).random((16, 64), np.float32)
    rows = np.arange(16, dtype=np.int32).reshape(16, 1) * 3
    y = placed(64, 64, f32, 0)
    program(X=x, Rows=rows, Y=y)
    expected = np.zeros_like(y)
    expected[rows[:, 0]] = x
    assert program.stats.streamed == ("Y",) and (y == expected).all()
