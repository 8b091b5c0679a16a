"""Programs that blocks run themselves, emulated: the bits of the same kernels in program order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note

from examples.cookbook import mixture_of_experts as mixture
from pto_wsp import (
    DYN,
    Dense,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    Scalar,
    Schedule,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import BadExpression, KernelFailed, RegionOutside, RunError, Stuck
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Region, Rows
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_workload
from pto_wsp.ir.scalar import Binary, Const, Element
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.support.record import replace
from pto_wsp.targets import registry
from pto_wsp.targets.cuda import launch
from pto_wsp.types.tile import TensorType
from tests.cuda.emulated import EmulatedCuda
from tests.cuda.launched import launched
from tests.generators import dynamic_workloads, workloads
from tests.generators.drawing import tries

BLOCKS = (1, 2, 3, 5)

pytestmark = pytest.mark.usefixtures("gpu")


@kernel
def add(a: In[Tile[4, 32, f32]], b: In[Tile[4, 32, f32]], y: Out[Tile[4, 32, f32]]):
    pto.store(y, a + b)


@kernel
def scale(a: In[Tile[4, 32, f32]], y: Out[Tile[4, 32, f32]], by: Scalar[f32]):
    pto.store(y, a * by)


@kernel
def attend(
    q: In[Tile[4, 32, f32]],
    k: In[Tensor[f32, DYN, 32]],
    v: In[Tensor[f32, DYN, 32]],
    o: Out[Tile[4, 32, f32]],
):
    m, total, acc = pto.full((4, 1), -np.inf), pto.zeros((4, 1)), pto.zeros((4, 32))
    for r in pto.tiles(k.rows, 16):
        s = pto.matmul(q, k[r].T) * 0.2
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        total, acc, m = total * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / total)


@workload
def chain(X: Tensor[f32, "n", 4, 32], Y: Tensor[f32, "n", 4, 32], Z: Tensor[f32, "n", 4, 32]):
    for i in P("n"):
        scale[i](a=X[i], y=Y[i], by=2.0)
    for i in P("n"):
        add[i](a=X[i], b=Y[i], y=Z[i])
    for i in P.range(3):
        add[i](a=Z[0], b=Z[i], y=Z[0])


@workload
def decode(
    kv: Ragged["batch"],
    Q: Tensor[f32, "batch", 2, 4, 32],
    K: Tensor[f32, "tokens", 2, 32],
    V: Tensor[f32, "tokens", 2, 32],
    Y: Tensor[f32, "batch", 2, 4, 32],
):
    for b, h in P("batch", Dense[2]):
        attend[b, h](q=Q[b, h], k=K[kv[b], h], v=V[kv[b], h], o=Y[b, h])


def test_a_chain_of_loops() -> None:
    program = chain.compile("cuda")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((7, 4, 32)).astype(np.float32)
    z = x + x * 2
    for i in range(3):
        z[0] = z[0] + z[i]
    for blocks in BLOCKS:
        found = {"X": x.copy(), "Y": np.empty_like(x), "Z": np.empty_like(x)}
        program(workers=blocks, **found)
        np.testing.assert_array_equal(found["Z"], z)
        assert program.stats is not None and program.stats.tasks == 7 + 7 + 3


def test_ragged_decode() -> None:
    program = decode.compile("cuda")
    rng = np.random.default_rng(2)
    lengths = [5, 33, 0, 16]
    q = rng.standard_normal((4, 2, 4, 32)).astype(np.float32)
    k, v = rng.standard_normal((2, sum(lengths), 2, 32)).astype(np.float32)
    results = []
    for blocks in BLOCKS:
        o = np.zeros_like(q)
        program(workers=blocks, kv=Ragged.lengths(lengths), Q=q, K=k, V=v, Y=o)
        results.append(o)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    wanted = np.zeros_like(q)
    decode.compile("interp")(kv=Ragged.lengths(lengths), Q=q, K=k, V=v, Y=wanted)
    np.testing.assert_allclose(results[0], wanted, rtol=1e-5, atol=1e-6)


def without_workspaces(module: Module) -> Module:
    """Return a module whose tasks ask for no workspace, which the target refuses."""

    def change(body: Iterable[w.Node]) -> Iterable[w.Node]:
        for node in body:
            yield replace(node, workspace=None) if isinstance(node, w.Task) else w.rebuild(node, change)

    entry = module.entry_workload
    return replace(module, workloads=(replace(entry, body=tuple(change(entry.body))),))


def failure_of(program: Program, **values: Any) -> RunError | None:
    """Run a program; return why it failed, if it did."""
    try:
        program(**values)
    except RunError as error:
        return error
    return None


def is_either(failure: RunError | None) -> bool:
    """Whether the host cannot tell an expression without a value from a region outside: data decide both."""
    return isinstance(failure, BadExpression) and "is outside its tensor" in str(failure)


def run_both(module: Module, arrays: Callable[[], dict[str, np.ndarray]], sizes: dict[str, int]) -> None:
    """Compare a program with the engine's walk of the same kernels on one worker: results, or the error."""
    engine = EngineRunner(Prepared(verify(module), EmulatedCuda()), EmulatedCuda())
    program = launched(module)
    wanted, error = arrays(), None
    try:
        engine.run(RunRequest([*wanted.values()], list(sizes.values()), 1))
    except RunError as failed:
        error = failed
    for blocks in BLOCKS:
        found = arrays()
        failure = failure_of(program, workers=blocks, **found, **sizes)
        assert type(failure) is type(error) or (error is not None and is_either(failure)), (error, failure)
        # After a failure, later tasks that do not wait for it may have run.
        for name in wanted if error is None else ():
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=f"{name}, {blocks} blocks")


@tries(8, compiles=True)
@given(workloads.samples())
def test_random_workloads(sample: workloads.Sample) -> None:
    note(str(sample.module))
    run_both(sample.module, sample.arrays, sample.sizes)


@tries(8, compiles=True)
@given(dynamic_workloads.samples())
def test_random_workloads_in_which_data_decides(sample: dynamic_workloads.Sample) -> None:
    note(print_workload(sample.module.entry_workload))
    run_both(without_workspaces(sample.module), sample.arrays, {"n": 5})


def test_waits_are_numbers_of_tasks() -> None:
    """A loop waits for the iterations that it reads, not for the whole loop before it."""
    text = registry.get("cuda").emit(chain.compile("interp").module).files["program.cu"]
    assert "after_iterations(notes.begin_0, notes.per_0, s_i_1 + 0, notes.end_0)" in text


@pytest.mark.parametrize(
    ("schedule", "takes"),
    [(Schedule(), "claims"), (Schedule().dispatch(DispatchPolicy.round_robin(3)), "takes_turn")],
)
def test_blocks_pass_over_tasks_of_others(schedule: Schedule, takes: str) -> None:
    """A block walks its own iterations, the one before each of them, and the first and last one of a loop."""
    change = {
        "(per_0, trips_0 - s_i);": "(per_0, trips_0 - s_i);\nif (++walked > 2 * owned + 3) run.fail(0);",
        f"if (run.{takes}()) {{": f"if (run.{takes}()) {{ ++owned;",
        "const Array& p_X_0": "int64_t walked = 0, owned = 0;\n  [[maybe_unused]] const Array& p_X_0",
    }
    program = launched(chain.compile("interp").module.with_schedule(schedule.policies), change)
    x = np.ones((300, 4, 32), np.float32)
    program(workers=3, X=x, Y=x.copy(), Z=x.copy())


def test_missing_waits_change_results() -> None:
    """The tasks of all blocks but the first are delayed, so that others overtake them."""
    changes = {
        "if (!run.wait(": "if (block() > 0) for (int k = 0; k < 3000; ++k) pause();\n if (false && !run.wait("
    }
    program, right = (launched(chain.compile("interp").module, c) for c in (changes, {}))
    x = np.random.default_rng(1).standard_normal((7, 4, 32)).astype(np.float32)

    def result(each: Program) -> np.ndarray:
        found = {"X": x.copy(), "Y": np.zeros_like(x), "Z": np.zeros_like(x)}
        each(workers=3, **found)
        return found["Z"]

    wanted = result(right)
    assert any(not np.array_equal(result(program), wanted) for _ in range(100))


@kernel
def shifted(a: In[Tensor[f32, 4, 32]], y: Out[Tile[4, 32, f32]], first: Scalar[i64]):
    pto.store(y, a[first : first + 4])


@workload
def checked(X: Tensor[f32, "n", 4, 32], Y: Tensor[f32, "n", 4, 32], L: Tensor[i32, "n"]):
    for i in P("n"):
        shifted[i](a=X[i], y=Y[i], first=L[i])


@workload
def outside(X: Tensor[f32, "n", 4, 32], Y: Tensor[f32, "m", 4, 32]):
    for i in P("n"):
        scale[i](a=X[i], y=Y[i], by=2.0)


def test_regions_are_checked_before_any_task_runs() -> None:
    program = outside.compile("cuda")
    x, y = np.ones((9, 4, 32), np.float32), np.zeros((7, 4, 32), np.float32)
    with pytest.raises(RegionOutside) as caught:
        program(workers=2, X=x, Y=y)
    with pytest.raises(RegionOutside) as wanted:
        outside.compile("interp")(X=x, Y=y)
    assert str(caught.value) == str(wanted.value) and not y.any()


@kernel
def halve(rows: InOut[Tile[4, 1, i32]]):
    pto.store(rows, pto.div(rows, 2))


@kernel
def clear(y: Out[Tile[4, 32, f32]]):
    pto.store(y, pto.zeros((4, 32)))


def scattered(how: str) -> Module:
    """Return a module whose task writes the rows that `I` names: before all tasks, or after a task."""
    params = (
        w.SizeParam("n"),
        w.TensorParam("Y", TensorType(f32, ("n", 32))),
        w.TensorParam("I", TensorType(i32, (4, 1))),
        w.TensorParam("J", TensorType(i32, (4, 1))),
    )
    first = w.Task("halve", (Region("I" if how == "written" else "J", (Full(), Full())),))
    second = w.Task("clear", (Region("Y", (Rows("I", Const(0), Const(4)), Full())),))
    is_one = Binary("eq", Element("J", (Const(0), Const(0))), Const(1))
    last = w.Cond(is_one, (second,), ()) if how == "after a flush point" else second
    kernels = (clear.specialise({}, {}), halve.specialise({}, {}))
    return Module("m", kernels, (w.WorkloadFunction("scattered", params, (first, last)),), "scattered")


@pytest.mark.parametrize("how", ["given", "written", "after a flush point"])
@pytest.mark.parametrize(
    "rows",
    [[0, 2, 4, 8], [8, 0, 4, 2], [2, 4, 5, 0], [2, 3, 6, 0], [4, 4, 0, 8], [0, 2, 4, 99], [-2, 2, 4, 6]],
)
def test_rows_that_are_written_differ_and_lie_inside(rows: list[int], how: str) -> None:
    def arrays() -> dict[str, np.ndarray]:
        lists = {"I": np.array(rows, np.int32)[:, None], "J": np.full((4, 1), 2, np.int32)}
        return {"Y": np.ones((9, 32), np.float32), **lists}

    run_both(verify(scattered(how)), arrays, {"n": 9})
    found = arrays()
    failure = failure_of(launched(verify(scattered(how))), **found, workers=2)
    names = {*found["I"].ravel().tolist()}
    assert (failure is None) == (len(names) == 4 and names <= {*range(9)})


def test_a_stalled_run_names_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that never advances: the watchdog ends the run and says what is waited for."""
    monkeypatch.setattr(launch, "MAX_POLLS", 20000)
    changes = {"run.complete();": "if (run.next() != 3) run.complete();"}
    program = launched(chain.compile("interp").module, changes)
    x = np.ones((7, 4, 32), np.float32)
    with pytest.raises(Stuck, match=r"waits for a task before \d+ --> .*test_programs.py"):
        program(workers=2, X=x, Y=x.copy(), Z=x.copy())


def test_the_first_failed_check_counts() -> None:
    program, x = checked.compile("cuda"), np.ones((9, 4, 32), np.float32)
    first = np.array([0, 0, 0, 0, 0, 1, 0, -1, 0], np.int32)
    with pytest.raises(KernelFailed) as wanted:
        checked.compile("interp")(X=x, Y=x.copy(), L=first)
    for blocks in BLOCKS:
        y = np.zeros_like(x)
        with pytest.raises(KernelFailed, match="in task 5 in iteration i = 5") as caught:
            program(workers=blocks, X=x, Y=y, L=first)
        assert str(caught.value) == str(wanted.value)
        assert y[:5].all() and not y[5].any()


@kernel
def soon(x: In[Tensor[f32, DYN, 32]], rows: In[Tile[1, 4, i32]], at: Scalar[i64], y: Out[Tile[4, 32, f32]]):
    pto.prefetch(x, pto.load(rows))
    pto.prefetch(x[at : at + 4])
    pto.store(y, pto.load(x[0:4]) * 2.0)


@workload
def prefetched(X: Tensor[f32, "n", 32], R: Tensor[i32, 1, 4], Y: Tensor[f32, 4, 32], at: Scalar[i64]):
    soon(x=X, rows=R, at=at, y=Y)


@pytest.mark.parametrize(("last", "at"), [(8, 4), (9, 4), (8, 6)])
def test_what_a_prefetch_reads_is_checked(last: int, at: int) -> None:
    """Rows by number and by a range, as those of loads."""
    x, rows = np.ones((9, 32), np.float32), np.array([[0, 1, 2, last]], np.int32)
    said: list[str] = []
    for target in ("interp", "cuda"):
        y = np.zeros((4, 32), np.float32)
        try:
            prefetched.compile(target)(X=x, R=rows, Y=y, at=at)
            said.append("well" if (y == 2).all() else "wrong")
        except KernelFailed as error:
            said.append(str(error))
    assert said[0] == said[1] and (said[0] == "well") == (last == 8 and at == 4)


def test_experts_that_the_run_chooses() -> None:
    """A task sorts tokens by expert; loops and lists of rows follow from its result."""
    program = mixture.moe.compile("cuda")
    for blocks in BLOCKS:
        expert, y = np.empty_like(mixture.expert), np.zeros_like(mixture.y)
        values = {"X": mixture.x, "Router": mixture.router, "W": mixture.w, "Expert": expert, "Y": y}
        program(workers=blocks, **values)
        np.testing.assert_array_equal(expert, mixture.expert)
        np.testing.assert_allclose(y, mixture.y, atol=1e-4)


def test_a_key_that_is_no_group_fails() -> None:
    @workload
    def grouped(K: Tensor[i32, "n"], X: Tensor[f32, "n", 4, 32], Y: Tensor[f32, "n", 4, 32]):
        groups = group_by(K, num_groups=3)
        for g in P(3):
            for t in P(groups[g].extent):
                scale[g, t](a=X[g], y=Y[g], by=2.0)

    x, keys = np.ones((5, 4, 32), np.float32), np.array([0, 1, 7, 2, 9], np.int32)
    with pytest.raises(KernelFailed, match=r"element 2 is 7, outside \[0, 3\)"):
        grouped.compile("cuda")(workers=2, K=keys, X=x, Y=np.zeros_like(x))
