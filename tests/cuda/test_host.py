"""The host's side of the target `cuda`: from `compile` to results and errors, with a substitute for a GPU."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    ArraysInFlight,
    CompilerFailed,
    GpuFault,
    NoCudaCompiler,
    NoGpu,
    OverlappingArrays,
    ReadOnlyArray,
    RunInterrupted,
    TilesTooLarge,
    TimeLimitReached,
    UnsupportedByTarget,
    UnusableArray,
    UnusableFile,
    WrongValue,
)
from pto_wsp.targets.cuda import driver, toolchain
from tests.cuda.launched import launched
from tests.cuda.lent import Lent, LentByDlpack, LentByInterface

pytestmark = pytest.mark.usefixtures("gpu")


@kernel
def scale(x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]], by: Scalar[f32]):
    pto.store(y, x * by)


@workload
def scaled(X: Tensor[f32, "n", 16], Y: Tensor[f32, "n", 16], by: Scalar[f32]):
    for rows in P.tiles("n", 8):
        scale[rows](x=X[rows], y=Y[rows], by=by)


@kernel
def bump(x: InOut[Tile[8, 16, f32]]):
    pto.store(x, x + 1.0)


@workload
def bumped(X: Tensor[f32, 8, 16], k: DenseDyn):
    for i in P.range(k):
        bump[i](x=X)


@workload
def grouped(K: Tensor[i32, "n"], X: Tensor[f32, "n", 16], Y: Tensor[f32, "n", 16]):
    groups = group_by(K, num_groups=3)
    for g in P(3):
        for rows in P.tiles(groups[g], 8):
            scale[g, rows](x=X[groups.rows(rows)], y=Y[groups.rows(rows)], by=2.0)


X = np.arange(20 * 16, dtype=np.float32).reshape(20, 16)


@pytest.fixture
def program() -> Program:
    return scaled.compile("cuda")


# --- building -----------------------------------------------------------------------------------------------


def test_a_cubin_is_kept(program: Program) -> None:
    """A second program with the same code is not compiled again; stats say what was compiled."""
    again, y = scaled.compile("cuda"), np.zeros_like(X)
    again(X=X, Y=y, by=3.0)
    np.testing.assert_array_equal(y, X * 3)
    assert again.stats is not None
    assert again.stats.compiles == 0 and again.stats.tasks == 3
    assert again.stats.workers == 6 and again.stats.run_ms > 0
    assert again.stats.counters["registers"] == 96


def test_without_a_gpu_sources_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libmissing.so.1")
    program = scaled.compile("cuda")
    program.export(tmp_path / "folder")
    assert (tmp_path / "folder" / "program.cu").exists()
    with pytest.raises(NoGpu, match=r"`libmissing.so.1` cannot be loaded"):
        program(X=X, Y=np.zeros_like(X), by=3.0)


def test_what_a_gpu_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    card = driver.Driver(driver.LIBRARY)
    monkeypatch.setenv("PTO_SUBSTITUTE_CAPABILITY", "75")
    with pytest.raises(NoGpu, match=r"expected compute capability 8.0 .*, found 7.5 \(Substitute 1\)"):
        driver.Gpu(card, 1)
    monkeypatch.setenv("PTO_SUBSTITUTE_GPUS", "0")
    with pytest.raises(NoGpu, match="CUDA_ERROR_NO_DEVICE"):
        driver.Driver(driver.LIBRARY)
    with pytest.raises(NoGpu, match="expected GPU 7, found 0 GPUs"):
        driver.find_gpu(7)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_toolkits", lambda: iter([Path("/no-such-folder")]))
    monkeypatch.setattr(toolchain, "_NVRTC_NAMES", ("libmissing.so",))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoCudaCompiler, match=r"pip install pto-wsp\[cuda\]"):
        bumped.compile("cuda")


def test_what_the_compiler_refuses() -> None:
    with pytest.raises(CompilerFailed, match=r"no_such_function[\s\S]*nvcc.*-arch=sm_90"):
        launched(scaled.compile("interp").module, {"run.complete();": "no_such_function();"})


def test_tiles_must_fit_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.find_gpu(), "shared_bytes", 512 + 64)
    with pytest.raises(
        TilesTooLarge, match=r"take 512 bytes, and a core has \d+\n[\s\S]*the walk takes \d+ bytes"
    ):
        grouped.compile("cuda")


# --- arrays -------------------------------------------------------------------------------------------------


def test_arrays_of_the_host_are_copied_both_ways(program: Program) -> None:
    """Any strides of rows; what is not written stays, between rows as well."""
    wide = np.full((20, 40), 7, np.float32)
    program(X=X, Y=wide[:, 8:24], by=2.0)
    np.testing.assert_array_equal(wide[:, 8:24], X * 2)
    assert (wide[:, :8] == 7).all() and (wide[:, 24:] == 7).all()


@pytest.mark.parametrize("lend", [LentByInterface, LentByDlpack])
def test_arrays_on_the_gpu_are_used_in_place(program: Program, lend: Callable[[np.ndarray], Lent]) -> None:
    x, y = lend(X), lend(np.zeros_like(X))
    program(X=x, Y=y, by=2.0)
    np.testing.assert_array_equal(y.array, X * 2)
    program(X=x, Y=y, by=4.0, stream=None)
    np.testing.assert_array_equal(y.array, X * 4)
    if lend is LentByDlpack:
        assert x.streams == [1, 1]  # DLPack's name of the default stream


def test_arrays_of_both_kinds(program: Program) -> None:
    y = LentByDlpack(np.zeros_like(X))
    program(X=X, Y=y, by=2.0)
    np.testing.assert_array_equal(y.array, X * 2)


def test_an_owner_is_waited_for(program: Program) -> None:
    """The array interface names the stream in which an array becomes ready."""
    x = LentByInterface(np.zeros_like(X))
    x.stream = new_stream()
    with driver.find_gpu().current() as card:
        for _ in range(20):
            card.call("cuMemcpyHtoDAsync_v2", x._memory.address, X.ctypes.data, X.nbytes, x.stream)
    y = np.zeros_like(X)
    program(X=x, Y=y, by=2.0)
    np.testing.assert_array_equal(y, X * 2)


def test_other_targets_refuse_arrays_of_a_gpu() -> None:
    with pytest.raises(UnusableArray, match="it lies on another device"):
        scaled.compile("interp")(X=LentByDlpack(X), Y=np.zeros_like(X), by=2.0)
    with pytest.raises(WrongValue, match="stream"):
        scaled.compile("interp")(X=X, Y=np.zeros_like(X), by=2.0, stream=1)


def test_arrays_that_are_refused(program: Program) -> None:
    frozen = np.zeros_like(X)
    frozen.flags.writeable = False
    with pytest.raises(ReadOnlyArray):
        program(X=X, Y=frozen, by=2.0)
    both = X.copy()
    with pytest.raises(OverlappingArrays, match="takes no array twice"):
        program(X=both, Y=both, by=2.0)
    for stream in (-1, "default", True):
        with pytest.raises(WrongValue, match="expected a stream of torch or CuPy"):
            program(X=X, Y=X.copy(), by=2.0, stream=stream)


def test_local_tensors_and_other_sizes() -> None:
    """The groups lie in tensors that the program makes, on the GPU."""
    program, rng = grouped.compile("cuda"), np.random.default_rng(1)
    for n in (5, 40, 3, 0):
        x, keys = rng.standard_normal((n, 16)).astype(np.float32), rng.integers(0, 3, n, np.int32)
        y = np.zeros_like(x)
        program(K=keys, X=x, Y=y)
        np.testing.assert_array_equal(y, x * 2)


def test_memory_is_given_back(gpu: ctypes.CDLL) -> None:
    gc.collect()
    before = gpu.pto_substitute_allocations()
    program = grouped.compile("cuda")
    for _ in range(5):
        x = np.ones((4, 16), np.float32)
        program(K=np.zeros(4, np.int32), X=x, Y=x.copy())
    gc.collect()
    assert gpu.pto_substitute_allocations() == before + 4  # a launch on both sides, and two local tensors
    del program
    gc.collect()
    assert gpu.pto_substitute_allocations() == before


# --- runs ---------------------------------------------------------------------------------------------------


def new_stream() -> int:
    with driver.find_gpu().current() as card:
        found = card.handle("cuStreamCreate", 1).value
    assert found is not None
    return found


LONG = 20_000


def test_submitted_runs() -> None:
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)
    run = program.submit(X=x, k=200)
    assert run.wait().tasks == 200 and run.done
    assert (x == 200).all()


def test_a_run_is_cancelled() -> None:
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)

    def stop(tasks: int) -> None:
        if tasks > 0:
            program.cancel()

    run = program.submit(X=x, k=LONG, progress=stop)
    assert not run.done
    with pytest.raises(RunInterrupted, match="it was cancelled"):
        run.wait()
    assert 0 < x[0, 0] < LONG and (x == x[0, 0]).all()
    run = program.submit(X=x, k=LONG)
    run.cancel()
    with pytest.raises(RunInterrupted):
        run.wait()


def test_a_time_limit() -> None:
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)
    with pytest.raises(TimeLimitReached, match=r"0.05 s"):
        program(X=x, k=LONG, time_limit=0.05)


def test_progress() -> None:
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)
    seen: list[int] = []
    program(X=x, k=3000, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 3000


def test_a_dropped_run_is_cancelled() -> None:
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)
    run = program.submit(X=x, k=LONG)
    del run
    gc.collect()
    program(X=x, k=1)


def test_arrays_in_flight() -> None:
    """Arrays of the host are in use until the run is waited for; a stream orders those of a GPU."""
    program, x = bumped.compile("cuda"), np.zeros((8, 16), np.float32)
    first = program.submit(X=x, k=1)
    with pytest.raises(ArraysInFlight, match="the other run was started here"):
        program.submit(X=x, k=1)
    first.wait()
    lent, stream = LentByDlpack(x), new_stream()
    runs = [program.submit(X=lent, k=300, stream=stream) for _ in range(3)]
    with pytest.raises(ArraysInFlight):
        program.submit(X=lent, k=1)
    for run in runs:
        run.wait()
    assert lent.streams[0] == stream
    assert (lent.array == 901).all()


def test_capture_into_a_graph(gpu: ctypes.CDLL) -> None:
    """What a stream records runs again, with the elements that arrays have then."""
    program = scaled.compile("cuda")
    x, y, stream = LentByDlpack(X), LentByDlpack(np.zeros_like(X)), new_stream()
    with captured(gpu, stream):
        run = program.submit(X=x, Y=y, by=2.0, stream=stream)
        with pytest.raises(UnusableArray, match="does not copy arrays of the host"):
            program.submit(X=X, Y=np.zeros_like(X), by=2.0, stream=stream)
    assert not y.array.any()
    for factor in (1, 3):
        x.array[...] = X * factor
        gpu.pto_substitute_replay(ctypes.c_void_p(stream))
        driver.Driver(driver.LIBRARY).call("cuStreamSynchronize", stream)
        np.testing.assert_array_equal(y.array, X * factor * 2)
    assert run.wait().tasks == 3


@contextmanager
def captured(gpu: ctypes.CDLL, stream: int) -> Iterator[None]:
    gpu.pto_substitute_begin_capture(ctypes.c_void_p(stream))
    try:
        yield
    finally:
        gpu.pto_substitute_end_capture(ctypes.c_void_p(stream))


def test_options_that_are_refused(program: Program) -> None:
    values: dict[str, Any] = {"X": X, "Y": np.zeros_like(X), "by": 2.0}
    with pytest.raises(WrongValue, match=r"expected at most 6, the blocks that Substitute 0 runs"):
        program(**values, workers=7)
    for options in ({"check": "hazards"}, {"check": "values"}):
        with pytest.raises(UnsupportedByTarget, match=r'check="[\s\S]*test_host.py') as caught:
            program(**values, **options)
        assert "compile for `cpu`" in str(caught.value)
    with pytest.raises(UnusableFile, match="compiles no kernels for this machine"):
        program.save_kernels("kernels.so")


def test_faults_of_the_driver() -> None:
    with pytest.raises(GpuFault, match=r"refuses `cuMemFree_v2`: CUDA_ERROR_INVALID_VALUE \(1\)"):
        with driver.find_gpu().current() as card:
            card.call("cuMemFree_v2", 12345)


def test_a_view_that_does_not_fit() -> None:
    @kernel
    def all_rows(x: In[Tensor[f32, DYN, 16]], y: Out[Tile[8, 16, f32]]):
        pto.store(y, x[0:8])

    @workload
    def first(X: Tensor[f32, "n", 16], Y: Tensor[f32, 8, 16]):
        all_rows(x=X, y=Y)

    errors = []
    for target in ("cuda", "interp"):
        with pytest.raises(Exception, match="kernel-failed") as caught:
            first.compile(target)(X=X[:5], Y=np.zeros((8, 16), np.float32))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_many_threads_share_a_program(program: Program) -> None:
    results: list[bool] = []

    def work(by: int) -> None:
        for _ in range(5):
            y = np.zeros_like(X)
            program(X=X, Y=y, by=float(by))
            results.append(bool((y == X * by).all()))

    threads = [threading.Thread(target=work, args=(by,)) for by in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20
