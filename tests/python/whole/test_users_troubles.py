"""What users of comparable systems met: wrong results without an error, lost errors, needless compiles.

One test per trouble, through the public interface.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Tensor,
    Tile,
    combine,
    f32,
    i32,
    i64,
    kernel,
    pto,
    sequential,
    workload,
)
from pto_wsp.errors import (
    ArgumentShape,
    PtoError,
    RegionOutside,
    ViewShape,
    WrongDType,
)
from pto_wsp.lang.workload.workload import Workload

TARGETS = pytest.mark.parametrize("target", ["interp", "cpu"])


@kernel
def add_one(x: InOut[Tile[8, 8, f32]]):
    pto.store(x, x + 1.0)


@kernel
def copy(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, x)


@TARGETS
def test_nested_sequential_loops_keep_their_own_variables(target: str) -> None:
    @workload
    def w(X: Tensor[f32, 2, 3, 8, 8]):
        for i in P.seq(2):
            for j in P.seq(3):
                add_one(x=X[i, j])

    x = np.zeros((2, 3, 8, 8), np.float32)
    w.compile(target)(X=x)
    assert (x == 1).all()


@TARGETS
def test_two_kernels_of_one_function_are_two(target: str) -> None:
    def make(factor: float):
        @kernel
        def scale(x: InOut[Tile[8, 8, f32]]):
            pto.store(x, x * factor)

        return scale

    two, three = make(2.0), make(3.0)

    @workload
    def w(X: Tensor[f32, 2, 8, 8]):
        two(x=X[0])
        three(x=X[1])

    x = np.ones((2, 8, 8), np.float32)
    w.compile(target)(X=x)
    assert (x[0] == 2).all() and (x[1] == 3).all()


@TARGETS
def test_a_slice_keeps_its_offset(target: str) -> None:
    @workload
    def w(X: Tensor[f32, 16, 8], Y: Tensor[f32, 4, 8]):
        copy(x=X[2:6], y=Y)

    x = np.random.default_rng(0).random((16, 8), np.float32)
    y = np.zeros((4, 8), np.float32)
    w.compile(target)(X=x, Y=y)
    np.testing.assert_array_equal(y, x[2:6])


@TARGETS
def test_an_array_of_another_type_is_refused(target: str) -> None:
    @workload
    def w(X: Tensor[f32, 8, 8]):
        add_one(x=X)

    x = np.zeros((8, 8), np.float64)
    with pytest.raises(WrongDType):
        w.compile(target)(X=x)
    assert (x == 0).all()


@TARGETS
def test_a_tile_smaller_than_its_tensor_is_refused(target: str) -> None:
    @workload
    def known(X: Tensor[f32, 9, 8]):
        add_one(x=X)

    with pytest.raises(ArgumentShape):
        known.compile(target)

    @workload
    def w(X: Tensor[f32, "n", 8]):
        add_one(x=X)

    x = np.zeros((9, 8), np.float32)
    with pytest.raises(ViewShape):
        w.compile(target)(X=x)
    assert (x == 0).all()


@TARGETS
@pytest.mark.parametrize("lengths", [[1, 1, 1, 0], [0, 0], [], [3, 0, 2]])
def test_ragged_rows_hold_their_own_elements(target: str, lengths: list[int]) -> None:
    @workload
    def w(batch: DenseDyn, kv: Ragged["batch"], X: Tensor[f32, "tokens", 8, 8]):
        for b in P(batch):
            for i in P(kv[b]):
                add_one[b, i](x=X[kv[b][i]])

    x = np.zeros((sum(lengths), 8, 8), np.float32)
    program = w.compile(target)
    program(X=x, kv=Ragged.lengths(np.array(lengths, np.int64)))
    assert (x == 1).all()
    assert program.stats is not None
    assert program.stats.tasks == sum(lengths)


@TARGETS
@pytest.mark.parametrize("rows", [5, 10_000_000])
def test_an_axis_longer_than_its_tensor_is_refused(target: str, rows: int) -> None:
    @workload
    def w(n: DenseDyn, X: Tensor[f32, "rows", 8, 8]):
        for i in P(n):
            add_one(x=X[i])

    x = np.zeros((4, 8, 8), np.float32)
    with pytest.raises(RegionOutside):
        w.compile(target)(X=x, n=rows)
    assert (x == 0).all()


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    @kernel
    def narrow(x: In[Tensor[i32, DYN]], y: Out[Tile[1, 1, f32]]):
        last = x[7]
        pto.store(y, pto.full((1, 1), 1.0) * last)

    @workload
    def w(X: Tensor[i32, "n", "m"], Y: Tensor[f32, "n", 1, 1]):
        for i in P("n"):
            narrow[i](x=X[i], y=Y[i])

    program = w.compile("cpu")
    y = np.zeros((64, 1, 1), np.float32)
    with pytest.raises(PtoError, match="x"):
        program(X=np.ones((64, 3), np.int32), Y=y)
    program(X=np.ones((64, 8), np.int32), Y=y)
    assert (y == 1).all()


def test_other_threads_run_while_a_program_runs() -> None:
    @workload
    def w(n: DenseDyn, X: Tensor[f32, 8, 8]):
        for _ in P.range(n):
            add_one(x=X)

    program = w.compile("cpu")
    program(X=np.zeros((8, 8), np.float32), n=1)
    done = threading.Event()
    beats: list[float] = []

    def beat() -> None:
        while not done.is_set():
            beats.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=beat)
    thread.start()
    start = time.perf_counter()
    try:
        program(X=np.zeros((8, 8), np.float32), n=4_000_000)
        end = time.perf_counter()
    finally:
        done.set()
        thread.join()
    during = [t for t in beats if start < t < end]
    assert len(during) >= 5


@TARGETS
def test_offsets_from_loop_variables(target: str) -> None:
    """A halo: tile i reads the one before and the one after."""

    @kernel
    def middle(a: In[Tile[8, 8, f32]], b: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
        pto.store(y, a + b)

    @workload
    def w(n: DenseDyn, X: Tensor[f32, "m", 8, 8], Y: Tensor[f32, "m", 8, 8]):
        for i in P(n - 2):
            middle[i](a=X[i], b=X[i + 2], y=Y[i + 1])

    x = np.random.default_rng(1).random((6, 8, 8), np.float32)
    y = np.zeros_like(x)
    w.compile(target)(X=x, Y=y, n=6)
    np.testing.assert_array_equal(y[1:5], x[:4] + x[2:])
    assert (y[[0, 5]] == 0).all()


def test_closures_and_postponed_annotations() -> None:
    rows = 8

    @kernel
    def twice(x: InOut[Tile[rows, 8, f32]]):
        pto.store(x, x * 2.0)

    @workload
    def w(X: Tensor[f32, rows, 8]):
        twice(x=X)

    x = np.ones((8, 8), np.float32)
    w.compile("cpu")(X=x)
    assert (x == 2).all()


def test_figures_are_those_of_the_last_run() -> None:
    @workload
    def w(X: Tensor[f32, "n", 8, 8]):
        for i in P("n"):
            add_one(x=X[i])

    program = w.compile("cpu")
    for n in (1, 1000, 0, 3):
        program(X=np.zeros((n, 8, 8), np.float32))
        assert program.stats is not None
        assert program.stats.tasks == n
        assert program.stats.run_ms > 0


@kernel
def add_value(x: InOut[Tile[8, 8, f32]], v: Scalar[i64]):
    pto.store(x, x + v)


@kernel
def set_entry(entry: Out[Tile[1, 1, i32]], v: Scalar[i64]):
    pto.store(entry, pto.full((1, 1), v, dtype=i32))


@TARGETS
def test_figures_count_the_branch_that_ran(target: str) -> None:
    @workload
    def w(kv: Ragged["batch"], L: Tensor[i32, "batch"], X: Tensor[f32, "tokens", 8, 8]):
        for b in P("batch"):
            with P.when(L[b] > 1):
                for i in P(kv[b]):
                    add_one[b, i](x=X[kv[b][i]])
            with P.otherwise(L[b] == 1):
                add_one[b](x=X[0])

    program = w.compile(target)
    for kinds in ([2, 1, 0], [0, 0, 0], [2, 2, 2], [1, 1, 1]):
        lengths = [3, 4, 5]
        x = np.zeros((12, 8, 8), np.float32)
        program(kv=Ragged.lengths(lengths), L=np.array(kinds, np.int32), X=x)
        expected = sum(n if kind == 2 else kind for n, kind in zip(lengths, kinds, strict=True))
        assert program.stats is not None
        assert program.stats.tasks == expected == x[:, 0, 0].sum()


@TARGETS
@pytest.mark.parametrize("name", ["my workload", "class", 'a-b/c;"', "∑", "x" * 300])
def test_any_text_is_the_name_of_a_workload(target: str, name: str) -> None:
    @workload
    def w(X: Tensor[f32, "n", 8, 8]):
        for i in P("n"):
            add_one[i](x=X[i])

    x = np.zeros((2, 8, 8), np.float32)
    program = w.named(name).compile(target)
    program.run(X=x, trace=target == "cpu")
    assert (x == 1).all()
    assert program.dump()


@TARGETS
@pytest.mark.parametrize("compose", [combine, sequential])
def test_workloads_with_axes_of_one_name_are_combined(target: str, compose: Callable[..., Workload]) -> None:
    @workload
    def one(b: DenseDyn, X: Tensor[f32, "rows", 8, 8]):
        for i in P(b):
            add_one[i](x=X[i])

    @workload
    def two(b: DenseDyn, X: Tensor[f32, "rows", 8, 8]):
        for i in P(b):
            for j in P(b):
                add_value[i, j](x=X[j], v=i)

    program = compose(one, two).named("both").compile(target)
    for rows in (0, 1, 5):
        x = np.zeros((6, 8, 8), np.float32)
        program(X=x, b=rows)
        assert x[:, 0, 0].tolist() == [1.0 + sum(range(rows))] * rows + [0.0] * (6 - rows)


@TARGETS
def test_pages_from_a_table_that_the_run_writes(target: str) -> None:
    @workload
    def w(kv: Ragged["batch"], table: Tensor[i32, "batch", "most"], X: Tensor[f32, "pages", 8, 8]):
        for _ in P.seq(2):
            for b in P("batch"):
                for i in P(kv[b]):
                    add_value[b, i](x=X[table[b, i]], v=10 * b + i + 1)
            set_entry(entry=table[0:1, 0:1], v=table[1, 1])

    table = np.array([[4, 0, -9], [2, 1, 3], [-9, -9, -9]], np.int32)
    x = np.zeros((5, 8, 8), np.float32)
    program = w.compile(target)
    program(kv=Ragged.lengths([2, 3, 0]), table=table, X=x)
    assert x[:, 0, 0].tolist() == [4, 24 + 1, 22, 26, 1]
    assert table[0].tolist() == [1, 0, -9]
    assert program.stats is not None
    assert program.stats.tasks == 12


PROGRAM = """
    import numpy as np
    from pto_wsp import InOut, P, Ragged, DenseDyn, Tensor, Tile, f32, kernel, pto, workload

    @kernel
    def add_one(x: InOut[Tile[8, 8, f32]]):
        pto.store(x, x + 1.0)

    @workload
    def w(batch: DenseDyn, kv: Ragged["batch"], X: Tensor[f32, "tokens", 8, 8]):
        for b in P(batch):
            for i in P(kv[b]):
                add_one[b, i](x=X[kv[b][i]])

    program = w.compile("cpu")
    program(X=np.zeros((3, 8, 8), np.float32), kv=Ragged.lengths([1, 2]))
    print("compiles", program.stats.compiles)
"""


DYNAMIC = """
    import numpy as np
    from pto_wsp import *

    @kernel
    def add(x: InOut[Tile[8, 8, f32]], v: Scalar[i64]):
        pto.store(x, x + v)

    @kernel
    def add_all(x: InOut[Tile[16, 8, f32]], v: Scalar[i64]):
        pto.store(x, x + v)

    chosen = tier("chosen", (add, 1), (add_all, None))

    @workload
    def w(routing: Sparse["experts"], Keys: Tensor[i32, "n"], X: Tensor[f32, "n", 8]):
        slot_load_i64(7, Keys, 0)
        groups = group_by(Keys, num_groups=4)
        for e in P("experts"):
            with P.when(e < symbol_i64("limit")):
                for pick in P.tiles(routing[e], 8):
                    add[e, pick](x=X[routing.rows(pick)], v=slot_i64(7))
            with P.otherwise():
                for i in P.sel(groups[e]):
                    chosen.at(Keys[i])[e, i](x=X[i : i + 1], v=i)

    program = w.compile("cpu")
    for limit in range(3):
        routing = Sparse.lists([[0], [1, 2], list(range(limit))])
        x, keys = np.zeros((3, 8), np.float32), np.arange(3, dtype=np.int32)
        program(routing=routing, Keys=keys, X=x, limit=limit)
        if limit == 0:
            print("compiles", program.stats.compiles)
        assert limit == 0 or program.stats.compiles == 0
"""


def _processes(path: Path, cache: Path, count: int) -> list[str]:
    command = [sys.executable, str(path)]
    environment = {"PTO_WSP_CACHE": str(cache), "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(count)
    ]
    return [process.communicate(timeout=120)[0].strip() for process in running]


@pytest.mark.parametrize(("text", "units"), [(PROGRAM, 1), (DYNAMIC, 2)])
def test_processes_share_what_was_compiled(text: str, units: int, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    cache = tmp_path / "cache"
    at_once = _processes(path, cache, 3)
    assert set(at_once) <= {f"compiles {n}" for n in range(units + 1)}, at_once
    assert _processes(path, cache, 1) == ["compiles 0"]
    assert len(list(cache.rglob("*.so"))) == 2  # the program's, and what all share of the tile library
