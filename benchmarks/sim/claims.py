"""What the specifications claim of scheduling, in simulated time: `python -m benchmarks.sim.claims`.

Simulated time is deterministic: the tables of docs/simulation.md are what this module prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dispatch.case import FIXED_RECORD
from examples.pto_programs.__main__ import llama_tensors
from examples.pto_programs.llama import ROWS, llama_module
from pto_wsp import (
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Schedule,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.device.model import Device
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.program import Program
from pto_wsp.simulation import SimulationReport, compare, get_device, report_of
from pto_wsp.support.record import record, replace

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
BEGIN = "<!-- claims: made by `python -m benchmarks.sim.claims --write` -->"
END = "<!-- end of claims -->"

TILES = 64
"""Tiles of the LLaMA layer: 3,584 tasks."""

ROUTED = 512
"""Requests of the routed program."""


@record
class Claim:
    """A claim, and what the simulation says of it.

    Attributes:
        title: what is compared.
        header: names of the columns.
        rows: cells.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        """Return the claim as a Markdown table."""
        rule = "|---|" + "---:|" * (len(self.header) - 1)
        lines = ("| " + " | ".join(row) + " |" for row in self.rows)
        return "\n".join(["| " + " | ".join(self.header) + " |", rule, *lines])


def claims() -> Iterator[Claim]:
    """Yield every claim, measured."""
    yield order()
    yield listed()
    yield dispatch_latency()
    yield planning()
    yield dispatchers()


def seed(**changes: Any) -> Device:
    """Return the device of the specifications with other dispatchers."""
    device = get_device("ascend_910b_seed")
    return replace(device, dispatchers=replace(device.dispatchers, **changes))


# --- order ---


@kernel
def scale(x: In[Tile[64, 256, f32]], y: Out[Tile[64, 256, f32]]):
    """Load, multiply, store."""
    pto.store(y, x * 2.0)


@kernel
def shift(x: In[Tile[64, 256, f32]], y: Out[Tile[64, 256, f32]]):
    """Load, add, store."""
    pto.store(y, x + 1.0)


@kernel
def square(x: In[Tile[64, 256, f32]], y: Out[Tile[64, 256, f32]]):
    """Load, multiply, store."""
    pto.store(y, x * x)


@workload
def stages(
    X: Tensor[f32, "batch", 8, 64, 256],
    A: Tensor[f32, "batch", 8, 64, 256],
    B: Tensor[f32, "batch", 8, 64, 256],
    Y: Tensor[f32, "batch", 8, 64, 256],
):
    """Three kernels one after another, on 8 tiles of each batch: 2 MB of three tensors."""
    for b in P("batch"):
        for i in P(8):
            scale[b, i](x=X[b, i], y=A[b, i])
        for i in P(8):
            shift[b, i](x=A[b, i], y=B[b, i])
        for i in P(8):
            square[b, i](x=B[b, i], y=Y[b, i])


def order() -> Claim:
    """Compare the order by kernel with the order by batch; claimed is 10 %."""
    schedules = {
        "all batches of a kernel first": Schedule().order_by(lambda t: t.kernel),
        "all kernels of a batch first": Schedule().order_by(lambda t: t.b),
    }
    array = np.zeros((256, 8, 64, 256), np.float32)
    arrays: dict[str, Any] = {name: array.copy() for name in "XABY"}
    reports = compare(stages, schedules, device="ascend_910b_seed", **arrays).reports
    rows = [
        (name, f"{r.time_us:,.1f}", f"{r.hits:.0%}", f"{r.bytes['gm'] >> 20}") for name, r in reports.items()
    ]
    return Claim("Order of tasks", ("ready tasks start", "us", "regions in the cache", "MB of GM"), rows)


# --- the LLaMA layer ---


@cache
def layer(device: Device, schedule: Schedule | None = None) -> tuple[Program, SimulationReport]:
    """Simulate the LLaMA layer on `TILES` tiles, time alone; return the program and its report."""
    program = compile_module(llama_module(min_range=ROWS).ir, "sim", device, values=False)
    if schedule is not None:
        program.reschedule(schedule)
    tensors = llama_tensors(TILES, np.random.default_rng(0))
    program.run(**tensors, seq_len=TILES * ROWS, num_tiles=TILES)
    return program, report_of(program)


def first_task_us(report: SimulationReport) -> str:
    """Return when the first task starts."""
    assert report.trace is not None
    return f"{report.trace.start_ns.min() / 1e3:.1f}"


def remote_waits(report: SimulationReport) -> str:
    """Return the share of dependences between tasks of different dispatchers."""
    assert report.trace is not None
    before, after = report.trace.dependences[:, 0], report.trace.dependences[:, 1]
    dispatcher = report.trace.dispatcher
    return f"{np.mean(dispatcher[before] != dispatcher[after]):.0%}"


def listed() -> Claim:
    """Compare a list that the host makes and sends with bytecode."""
    device = get_device("ascend_910b_seed")
    record_ns = device.host.generate + FIXED_RECORD / device.host.rate
    by_host = seed(count=1, generate=record_ns, records=1 << 20)
    by_row = Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.q_64, 16))
    in_turn = Schedule().dispatch(DispatchPolicy.round_robin(16))
    rows: list[Sequence[str]] = []
    program, report = layer(by_host)
    size = FIXED_RECORD * report.tasks
    rows.append(
        ("a list, made by the host", f"{size:,}", first_task_us(report), f"{report.time_us:,.1f}", "-")
    )
    size = len(program._runner._engine.loaded.code)  # type: ignore[attr-defined]
    schedules = {
        "bytecode, tasks in turn": in_turn,
        "bytecode, rows together": by_row,
        "bytecode, longest task first": Schedule().load_balance(),
    }
    for name, schedule in schedules.items():
        _, report = layer(device, schedule)
        cells = first_task_us(report), f"{report.time_us:,.1f}", remote_waits(report)
        rows.append((name, f"{size:,}", *cells))
    header = ("what the host sends", "bytes", "first task, us", "makespan, us", "remote waits")
    return Claim("A list against bytecode", header, rows)


def dispatch_latency() -> Claim:
    """Compare latencies of a dispatch."""
    rows = []
    for ns in (0, 140, 1000, 3000):
        _, report = layer(seed(dispatch=ns))
        rows.append((f"{ns / 1e3:g}", f"{report.time_us:,.1f}"))
    return Claim("Latency of a dispatch", ("until a core sees a task, us", "makespan, us"), rows)


def dispatchers() -> Claim:
    """Compare numbers of dispatchers, with the tasks of the layer and with shorter ones."""
    rows = []
    for count in (1, 2, 6, 16):
        _, report = layer(seed(count=count))
        made = report_of(short_tasks(seed(count=count)))
        rows.append(
            (f"{count}", f"{report.time_us:,.1f}", f"{made.time_us:,.1f}", f"{made.busy['vector']:.0%}")
        )
    header = ("dispatchers", "LLaMA layer, us", "10,000 short tasks, us", "vector cores busy")
    return Claim("Number of dispatchers", header, rows)


@kernel
def negate(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]]):
    """Do little: making tasks takes longer."""
    pto.store(y, -x)


@workload
def negate_all(X: Tensor[f32, "n", 8, 64], Y: Tensor[f32, "n", 8, 64]):
    """Independent tasks."""
    for i in P("n"):
        negate[i](x=X[i], y=Y[i])


def short_tasks(device: Device) -> Program:
    """Simulate tasks of about 100 cycles."""
    program = negate_all.compile("sim", device=device, values=False)
    x = np.zeros((10_000, 8, 64), np.float32)
    program.run(X=x, Y=x.copy())
    return program


# --- planning ---


@kernel
def choose(t: InOut[Tile[1, 1, i32]]):
    """Decide."""
    pto.store(t, t + 1)


@kernel
def grow(x: InOut[Tile[16, 64, f32]]):
    """Work for a request."""
    pto.store(x, pto.exp(x))


@workload
def decide(T: Tensor[i32, "n", 1]):
    """Decide for every request."""
    for b in P("n"):
        choose[b](t=T[b : b + 1])


@workload
def follow(T: Tensor[i32, "n", 1], X: Tensor[f32, "n", 16, 64]):
    """Work for the requests that were chosen."""
    for b in P("n"):
        with P.when(T[b, 0] > 0):
            grow[b](x=X[b])


@workload
def both(T: Tensor[i32, "n", 1], X: Tensor[f32, "n", 16, 64]):
    """Decide and work in one program."""
    decide(T=T)
    follow(T=T, X=X)


def planning() -> Claim:
    """Compare control that dispatchers decide with a host that reads what tasks wrote and begins again."""
    table = (np.arange(ROUTED, dtype=np.int32)[:, None] % 2) - 1
    x = np.zeros((ROUTED, 16, 64), np.float32)
    whole = both.compile("sim", device="ascend_910b_seed")
    whole.run(T=table.copy(), X=x.copy())
    first = decide.compile("sim", device="ascend_910b_seed")
    first.run(T=table.copy())
    second = follow.compile("sim", device="ascend_910b_seed")
    second.run(T=table + 1, X=x.copy())
    host_us = get_device("ascend_910b_seed").host.latency / 1e3
    split = report_of(first).time_us + host_us + report_of(second).time_us
    rows = [("on the host, between two programs", f"{split:,.1f}")]
    rows.append(("on the dispatchers, at flush points", f"{report_of(whole).time_us:,.1f}"))
    return Claim("Where control is decided", ("the next tasks are decided", "makespan, us"), rows)


def tables() -> str:
    """Return every claim as a table, as the page has them."""
    return "\n\n".join(f"**{claim.title}**\n\n{claim}" for claim in claims())


def main() -> None:
    """Print the tables, or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write them to {PAGE.name}")
    if not parser.parse_args().write:
        print(tables())
        return
    before, after = PAGE.read_text("utf-8").split(BEGIN)[0], PAGE.read_text("utf-8").split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
