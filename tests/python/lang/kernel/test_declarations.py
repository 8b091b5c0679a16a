"""What kernels declare beside their arithmetic, and what becomes of it in a workload."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Constexpr,
    In,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    lookup_kernel,
    pto,
    registered_kernels,
    workload,
)
from pto_wsp.errors import BadKernelOption, NameClash, UnknownKernel, UnknownName
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.scalar import LoopExtent, LoopStart
from pto_wsp.ir.workload import Task, tasks
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.workload.workload import Workload
from tests.python.lang.programs import execute

TARGETS = ("cpu", "interp")


# --- blocks ---------------------------------------------------------------------------------------------

BLOCKS = 5


@kernel(block_dim=BLOCKS, core="vector")
def double_in_blocks(x: In[Tensor[f32, DYN, 40]], y: Out[Tensor[f32, DYN, 40]]):
    for r in pto.tiles(x.rows, 8):
        if r.start // 8 % pto.block_num() == pto.block_idx():
            pto.store(y[r], x[r] * 2)


@workload
def double_all(X: Tensor[f32, "n", 40], Y: Tensor[f32, "n", 40]):
    for r in P.tiles("n", 64):
        double_in_blocks[r](x=X[r], y=Y[r])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [0, 1, 4, 5, 6, 63, 300])
def test_blocks_share_a_task(target: str, rows: int) -> None:
    x = np.random.default_rng(rows).random((rows, 40), np.float32)
    y = np.full_like(x, 7)
    program = double_all.compile(target)
    program(X=x, Y=y)
    assert np.array_equal(y, x * 2)
    assert program.stats is not None and program.stats.tasks == -(-rows // 64)


def noted(x: np.ndarray, y: np.ndarray) -> None:
    y[:, 0] = np.arange(7) + x[0, 0]


@kernel(
    block_dim=7,
    reference=noted,
    cpp_src="""
    PTO_CHECK(context.block_num == 7, "7 blocks");
    y(context.block_idx, 0) = x(0, 0) + int32_t(context.block_idx);
    """,
)
def note(x: In[Tile[1, 1, i32]], y: Out[Tile[7, 1, i32]]): ...


@workload
def note_one(X: Tensor[i32, 1, 1], Y: Tensor[i32, 7, 1]):
    note(x=X, y=Y)


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_of_a_kernel_in_cpp(target: str) -> None:
    y = np.zeros((7, 1), np.int32)
    note_one.compile(target)(X=np.full((1, 1), 10, np.int32), Y=y)
    assert y[:, 0].tolist() == list(range(10, 17))


def test_the_dump_shows_unit_and_blocks() -> None:
    assert " attributes {unit = vector, block_dim = 5} {" in double_all.compile("interp").dump()


# --- workspace and cost ---------------------------------------------------------------------------------


def reversed_rows(x: np.ndarray, y: np.ndarray, extra: int) -> None:
    y[...] = x[::-1]


@kernel(
    workspace=lambda p: p.x.rows * p.x.cols * 4 + p.extra,
    cost=lambda p: p.x.rows * 3 + 1,
    reference=reversed_rows,
    cpp_src="""
    float* const copy = static_cast<float*>(context.workspace);
    const int64_t rows = x.rows(), cols = x.cols();
    PTO_CHECK(context.workspace_bytes == uint64_t(rows * cols * 4 + extra), "the bytes that were asked for");
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) copy[i * cols + j] = x(i, j);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) y(i, j) = copy[(rows - 1 - i) * cols + j];
    """,
)
def turn(x: In[Tile[64, 32, f32]], y: Out[Tile[64, 32, f32]], extra: Scalar[i64]): ...


@workload
def turn_tiles(X: Tensor[f32, "n", 32], Y: Tensor[f32, "n", 32], extra: Scalar[i64]):
    for r in P.tiles("n", 48):
        turn[r](x=X[r], y=Y[r], extra=extra)


def only_task(w: Workload) -> Task:
    (task,) = tasks(w.compile("interp").module.entry_workload.body)
    return task


def test_amounts_are_expressions_of_the_task() -> None:
    task = only_task(turn_tiles)
    assert task.workspace is not None and task.cost is not None
    scope = {LoopExtent("r"): 13, "extra": 5, "r": 1, LoopStart("r"): 48, "n": 61}
    assert evaluate(task.workspace, scope) == 13 * 32 * 4 + 5
    assert evaluate(task.cost, scope) == 40


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [0, 1, 48, 200])
def test_every_task_gets_its_workspace(target: str, rows: int) -> None:
    x = np.random.default_rng(rows).random((rows, 32), np.float32)
    for workers in (1, 2):
        y = np.full_like(x, 7)
        turn_tiles.compile(target).run(X=x, Y=y, extra=100, workers=workers)
        for start in range(0, rows, 48):
            assert np.array_equal(y[start : start + 48], x[start : start + 48][::-1])


def test_extents_of_all_kinds_of_views() -> None:
    seen: list[tuple[str, ...]] = []

    def note_shapes(p: object) -> int:
        seen.append(tuple(map(repr, (*p.x.shape, *p.y.shape, p.k))))  # type: ignore[attr-defined]
        return 0

    @kernel(cost=note_shapes)
    def shapes(x: In[Tensor], y: In[Tensor[f32, 8, DYN]], o: Out[Tile[8, 8, f32]], k: Constexpr[int]):
        pto.store(o, 0.0)

    @workload
    def w(X: Tensor[f32, "a", "n", 16], Y: Tensor[f32, "n", 20], Z: Tensor[f32, 8, 8]):
        for i in P("a"):
            shapes(x=X[i, 2:4], y=Y[0:8, 3:7], o=Z, k=3)
        shapes(x=X[0], y=Y[0:8], o=Z, k=4)

    w.compile("interp")
    assert seen == [("<2>", "<16>", "<8>", "<4>", "3"), ("<n>", "<16>", "<8>", "<20>", "4")]


# --- names ----------------------------------------------------------------------------------------------


def test_kernels_are_found_by_name() -> None:
    @kernel(name="turn_v1")
    def first(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]):
        pto.store(y, x)

    assert lookup_kernel("turn_v1") is first and registered_kernels()["turn_v1"] is first
    with pytest.raises(UnknownKernel, match="did you mean `turn_v1`"):
        lookup_kernel("turn_v2")

    @kernel(name="turn_v1")
    def second(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]):
        pto.store(y, x)

    with pytest.raises(NameClash) as caught:
        lookup_kernel("turn_v1")
    assert len(caught.value.notes) == 2
    left = weakref.ref(second)
    del caught, second
    for _ in range(100):  # nothing is collected while another thread collects
        gc.collect()
        if left() is None:
            break
        time.sleep(0.01)
    assert lookup_kernel("turn_v1") is first


def test_a_function_that_is_defined_again_takes_its_place() -> None:
    text = "@kernel(name='again_v1')\ndef again(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]):\n"
    kept = [execute(text + f"    pto.store(y, x * {i})")["again"] for i in range(3)]
    assert lookup_kernel("again_v1") is kept[-1]


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("core='npu'", "there is no such core"),
        ("block_dim=0", "`block_dim` is not a count"),
        ("block_dim=True", "`block_dim` is not a count"),
        ("block_dim=2**20", "`block_dim` is not a count"),
        ("workspace=64", "`workspace` is not a function"),
        ("workspace=lambda p: 64", "it asks for workspace"),
        ("cost='much'", "`cost` is not a function"),
        ("name=''", "`name` is not a name"),
        ("reference=print", "`reference` belongs to kernels in C"),
        ("cpp_includes=['<cmath>']", "`cpp_includes` belongs to kernels in C"),
    ],
)
def test_options_that_a_kernel_cannot_have(options: str, problem: str) -> None:
    with pytest.raises(BadKernelOption, match=problem):
        execute(
            f"@kernel({options})\n"
            "def k(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]):\n    pto.store(y, x)\n"
        )


@pytest.mark.parametrize(
    ("cost", "error", "said"),
    [
        ("lambda p: p.x.rows / 2", BadKernelOption, "its `cost` is not a number of ns"),
        ("lambda p: -1", BadKernelOption, "an integer >= 0"),
        ("lambda p: 'much'", BadKernelOption, "found str"),
        ("lambda p: p.z.rows", UnknownName, "`z` is not defined in kernel `k`"),
    ],
)
def test_amounts_that_are_none(cost: str, error: type, said: str) -> None:
    names = execute(
        f"""
        @kernel(cost={cost})
        def k(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]):
            pto.store(y, x)

        @workload
        def w(X: Tensor[f32, 1, 1], Y: Tensor[f32, 1, 1]):
            k(x=X, y=Y)
        """
    )
    w = names["w"]
    assert isinstance(w, Workload) and isinstance(names["k"], Kernel)
    with pytest.raises(error, match=said):
        w.compile("interp")
