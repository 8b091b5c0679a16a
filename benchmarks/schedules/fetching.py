"""What `prefetch` gains where the processor cannot predict addresses, and what it costs every example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from examples.cases import Arguments, Run, cases, copied
from pto_wsp import In, Out, P, Program, Schedule, Tensor, Tile, empty, f32, i32, kernel, pto, workload
from pto_wsp.errors import BadKey, UnsupportedByTarget
from pto_wsp.ir.workload import Loop, Node, Task, walk_nodes
from pto_wsp.runtime.compiling import compile_module

ROWS, COLS, BLOCKS, PICKED, AHEAD = 16, 64, 1 << 16, 4000, 4
"""Blocks of 4 KB in 256 MB, the blocks that a run picks, and how many are fetched ahead."""

LEAST_MS = 5.0
"""Shorter runs are repeated up to this time per measurement."""

Pair = tuple[Callable[[], float], Callable[[], float]]
"""Times without and with prefetch."""


@kernel
def sum_up(x: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, 1, f32]]):
    """Work on one block."""
    pto.store(y, pto.rowsum(pto.exp(x)))


@workload
def pick(Which: Tensor[i32, "n", 1], X: Tensor[f32, "m", ROWS, COLS], Y: Tensor[f32, "n", ROWS, 1]):
    """Blocks that an index array selects."""
    for i in P("n"):
        sum_up[i](x=X[Which[i, 0]], y=Y[i])


def rows(bench: Bench) -> list[Row]:
    """Return the row of a case that prefetch helps, and of the example that it slows down most."""
    examples = {name: pair for name, make in cases() if (pair := of_example(bench, name, make()))}
    helped = gains(bench, {"pick": picking(bench.seed)}, bench.rounds(31, 9))["pick"]
    slowed = gains(bench, examples, bench.rounds(15, 3))
    name, (worst, is_noisy) = min(slowed.items(), key=lambda item: item[1][0])
    return [
        Row("prefetch_cpu_gain", helped[0], "x", goal=">= 1.05", noisy=helped[1]),
        Row("prefetch_cpu_worst", worst, f"x ({name.split('/')[0]})", goal=">= 0.97", noisy=is_noisy),
    ]


def gains(bench: Bench, pairs: dict[str, Pair], rounds: int) -> dict[str, tuple[float, bool]]:
    """Return how many times longer each takes without prefetch, and whether that is noisy."""
    functions = {(name, side): pair[side] for name, pair in pairs.items() for side in (0, 1)}
    found = bench.measure(
        {f"{name} {side}": f for (name, side), f in functions.items()}, rounds=rounds, threads=THREADS
    )

    def gain(without: Measurement, fetching: Measurement) -> tuple[float, bool]:
        return without.value / fetching.value, without.noisy or fetching.noisy

    return {name: gain(found[f"{name} 0"], found[f"{name} 1"]) for name in pairs}


def picking(seed: int) -> Pair:
    """Return runs that pick blocks at random, most of which no cache holds."""
    rng = np.random.default_rng(seed)
    x, y = empty((BLOCKS, ROWS, COLS), f32), np.zeros((PICKED, ROWS, 1), np.float32)
    x[...] = 1

    def timed(schedule: Schedule) -> Callable[[], float]:
        program = pick.compile("cpu")
        program.reschedule(schedule)

        def once() -> float:
            which = rng.integers(0, BLOCKS, (PICKED, 1)).astype(np.int32)
            return elapsed_ms(lambda: program.run(Which=which, X=x, Y=y, workers=THREADS))

        return once

    return timed(Schedule()), timed(Schedule().prefetch(lambda t: t.i, AHEAD))


def of_example(bench: Bench, name: str, run: Run) -> Pair | None:
    """Return runs of an example, or None if prefetch does not apply to it."""
    plain, fetching = (compile_module(run.module, "cpu") for _ in range(2))
    for key in (*outermost(run.module.entry_workload.body), "kernel"):
        try:
            fetching.reschedule(Schedule().prefetch(lambda t, key=key: getattr(t, key)))
        except BadKey:  # binary expansion has replaced the loop
            continue
        except UnsupportedByTarget:
            bench.skipped[f"prefetch of {name}"] = "networks refuse it"
            return None
        arguments = {each: copied(value) for each, value in run.arguments.items()}
        return repeated(plain, arguments), repeated(fetching, arguments)
    raise AssertionError(f"{name} has no key")


def outermost(body: Iterable[Node]) -> list[str]:
    """Return the variables of outermost loops, those around the most task calls first."""
    counts: Counter[str] = Counter()
    for node in body:
        inside = list(walk_nodes([node]))
        first = next((inner for inner in inside if isinstance(inner, Loop)), None)
        if first is not None:
            counts[first.called] += sum(isinstance(inner, Task) for inner in inside)
    return [name for name, _ in counts.most_common()]


def repeated(program: Program, arguments: Arguments) -> Callable[[], float]:
    """Return a function that runs a program up to `LEAST_MS` and returns the milliseconds of one run."""

    def once() -> float:
        return elapsed_ms(lambda: program.run(**arguments, workers=THREADS))

    once()
    times = max(1, round(LEAST_MS / min(once() for _ in range(5))))
    return lambda: sum(once() for _ in range(times)) / times
