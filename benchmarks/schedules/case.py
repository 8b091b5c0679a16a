"""The case `schedules`: what directives cost and gain, and what sessions do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Row
from benchmarks.schedules.fetching import rows as fetching_rows
from benchmarks.schedules.simulated import rows as simulated_rows
from pto_wsp import (
    In,
    Out,
    P,
    Program,
    Scalar,
    Schedule,
    Session,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    stage,
    workload,
)

BATCH, HEADS, BODY_NS = 64, 32, 2000
UNITS, SHARE_NS = 200, 20_000_000
"""Tasks of the balanced run, and what one worker of two runs of them."""

TAILED, SHORT_NS, TAIL_NS, LAUNCHES = 20, 300_000, 10_000_000, 100
"""Tasks of a launch before its tail, their time, the time of the tail, and launches of a session."""

SPIN = """
const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
while (std::chrono::steady_clock::now() < end) {}
"""
SPINS: dict[str, Any] = {"cpp_src": SPIN, "cpp_includes": ["<chrono>"]}


@kernel(**SPINS)
def index(x: In[Tile[1, 16, f32]], s: Out[Tile[1, 16, f32]], ns: Scalar[i64]): ...  # noqa: D103


@kernel(**SPINS)
def attend(s: In[Tile[1, 16, f32]], y: Out[Tile[1, 16, f32]], ns: Scalar[i64]): ...  # noqa: D103


@workload
def layer(
    X: Tensor[f32, "batch", "heads", 1, 16],
    S: Tensor[f32, "batch", "heads", 1, 16],
    Y: Tensor[f32, "batch", "heads", 1, 16],
    ns: Scalar[i64],
):
    """Two kernels per batch and head, the second after the first."""
    for b in P("batch"):
        for h in P("heads"):
            index[b, h](x=X[b, h], s=S[b, h], ns=ns)
        for h in P("heads"):
            attend[b, h](s=S[b, h], y=Y[b, h], ns=ns)


@kernel(cost=lambda p: p.ns, **SPINS)
def unit(x: In[Tile[1, 16, f32]], y: Out[Tile[1, 16, f32]], ns: Scalar[i64]): ...  # noqa: D103


@workload
def units(X: Tensor[f32, "n", 1, 16], Y: Tensor[f32, "n", 1, 16], Ns: Tensor[i32, "n", 1]):
    """Independent tasks, each of a length of its own."""
    for i in P("n"):
        unit[i](x=X[i], y=Y[i], ns=Ns[i, 0])


DIRECTIVES = {
    "order_by": Schedule().order_by(lambda t: t.b, lambda t: t.kernel),
    "interleave": Schedule().interleave(lambda t: t.b, 4),
    "concurrent": Schedule().concurrent(lambda t: t.b, max=4),
    "load_balance": Schedule().load_balance(),
    "affinity": Schedule().affinity(lambda t: t.b),
    "pipeline": Schedule().pipeline(stage(index, cores=1), stage(attend, cores=1)),
    "overlap": Schedule().overlap(stage(index, cores=1), stage(attend, cores=1)),
}


def timed(program: Program, arguments: dict[str, Any]) -> Callable[[], float]:
    """Return a function that runs a program on two workers and returns milliseconds."""

    def elapsed() -> float:
        began = time.perf_counter()
        program.run(**arguments, workers=2)
        return (time.perf_counter() - began) * 1e3

    for _ in range(5):
        elapsed()
    return elapsed


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    overheads(bench)
    balance(bench)
    sessions(bench)
    bench.rows += fetching_rows(bench)
    bench.rows += simulated_rows()


def overheads(bench: Bench) -> None:
    """Time under each directive, over the time of the default."""
    array = np.zeros((BATCH, HEADS, 1, 16), np.float32)
    arguments = {"X": array, "S": array.copy(), "Y": array.copy(), "ns": BODY_NS}
    functions = {}
    for name, schedule in {"default": Schedule(), **DIRECTIVES}.items():
        program = layer.compile("cpu")
        program.reschedule(schedule)
        functions[name] = timed(program, arguments)
    found = bench.measure(functions, rounds=bench.rounds(15, 5), threads=2)
    for name in DIRECTIVES:
        ratio = found[name].value / found["default"].value
        noisy = found[name].noisy or found["default"].noisy
        bench.rows.append(
            Row(f"directive_overhead_{name}", ratio, "x of the default", goal="<= 1.05", noisy=noisy)
        )


def balance(bench: Bench) -> None:
    """The makespan of tasks whose lengths follow Zipf's law, over its lower bound."""
    weights = 1 / np.arange(1, UNITS + 1)
    ns = np.minimum(weights / weights.sum() * 2, 0.5) * SHARE_NS
    ns = np.random.default_rng(0).permutation(ns).astype(np.int32)
    array = np.zeros((UNITS, 1, 16), np.float32)
    program = units.compile("cpu")
    program.reschedule(Schedule().load_balance())
    elapsed = timed(program, {"X": array, "Y": array.copy(), "Ns": ns.reshape(UNITS, 1)})
    found = bench.measure({"balanced": elapsed}, rounds=bench.rounds(15, 5), threads=2)["balanced"]
    least_ms = max(int(ns.max()), int(ns.sum()) / 2) / 1e6
    bench.rows.append(
        Row(
            "load_balance_makespan",
            found.value / least_ms,
            "x of the bound",
            goal="<= 1.05",
            noisy=found.noisy,
        )
    )


def sessions(bench: Bench) -> None:
    """Two launches with tails over one after the other, and the time that a launch takes."""
    program = units.compile("cpu")
    ns = np.full((TAILED + 1, 1), SHORT_NS, np.int32)
    ns[-1] = TAIL_NS  # one worker runs it, and the other is idle
    array = np.zeros((TAILED + 1, 1, 16), np.float32)
    calls = [{"X": array.copy(), "Y": array.copy(), "Ns": ns} for _ in range(2)]

    def elapsed(are_together: bool) -> float:
        began = time.perf_counter()
        with Session() as session:
            for call in calls:
                launch = session.launch(program, workers=2, **call)
                if not are_together:
                    launch.wait()
        return (time.perf_counter() - began) * 1e3

    found = bench.measure(
        {"apart": lambda: elapsed(False), "together": lambda: elapsed(True)},
        rounds=bench.rounds(15, 5),
        threads=2,
    )
    gain = found["apart"].value / found["together"].value
    noisy = found["apart"].noisy or found["together"].noisy
    bench.rows.append(Row("session_overlap_gain", gain, "x", goal=">= 1.2", noisy=noisy))
    short = [call | {"Ns": np.ones((TAILED + 1, 1), np.int32)} for call in calls]

    def per_launch() -> float:
        with Session() as session:
            spent = 0.0
            for _ in range(LAUNCHES):
                began = time.perf_counter()
                launch = session.launch(program, workers=2, **short[0])
                spent += time.perf_counter() - began
                launch.wait()
        return spent / LAUNCHES * 1e3

    launch = bench.measure({"launch": per_launch}, rounds=bench.rounds(15, 5), threads=2)["launch"]
    bench.rows.append(Row("session_launch_us", launch.value * 1e3, "us", goal="<= 10", noisy=launch.noisy))
