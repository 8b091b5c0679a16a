"""The case `sim`: how fast the simulator is, and how far its costs are from published cycles."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.engine import native, programs
from benchmarks.harness import Bench, Row
from benchmarks.sim import predictions
from benchmarks.sim.programs import flash, gemm
from benchmarks.sim.published import cells
from pto_wsp import In, Out, Tensor, Tile, f16, f32, kernel, pto
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.model import Device
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.simulation import get_device, report_of

ROOT = Path(__file__).parents[2]
TILES, LARGE_TILES = 256, 2048
"""Tiles of the LLaMA layer: 200,704 and 12.6 M tasks."""

FLASH_US, GEMM_US = 88.9, 1506.0
"""Published times of hardware: attention of one head over 4,096 tokens, and a product of 6,144^3, f16."""


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    speed(bench)
    large(bench)
    bench.rows += [instructions("mock", 0, "<= 5"), instructions("fit", 1, "<= 15"), product()]
    q, a = np.zeros((4096, 128), np.float16), np.zeros((6144, 6144), np.float16)
    heads: dict[str, Any] = {"Q": q, "K": q.copy(), "V": q.copy(), "O": np.zeros(q.shape, np.float32)}
    matrices: dict[str, Any] = {"A": a, "B": a.copy(), "C": np.zeros(a.shape, np.float32)}
    bench.rows.append(hardware("sim_flash_4096_vs_published", flash, heads, FLASH_US))
    bench.rows.append(hardware("sim_gemm_6144_vs_published", gemm, matrices, GEMM_US))
    bench.rows.append(repeats(20 if bench.quick else 100))
    bench.rows += predictions.rows(bench)


def layer() -> Callable[[], float]:
    """Return a function that simulates the layer and returns tasks per second."""
    program = programs.folding.compile("sim", device="ascend_910b", values=False)
    arrays: dict[str, Any] = {**native.zeros(programs.folding, {"n": TILES})}

    def rate() -> float:
        began = time.perf_counter()
        program.run(**arrays, n=TILES)
        assert program.stats is not None
        return program.stats.tasks / (time.perf_counter() - began)

    rate()
    return rate


def speed(bench: Bench) -> None:
    """Tasks per second, time alone."""
    found = bench.measure({"sim": layer()}, rounds=bench.rounds(15, 5), threads=1)["sim"]
    bench.rows.append(Row("sim_tasks_per_s", found.value, "tasks/s", goal=">= 3e6", noisy=found.noisy))


def large(bench: Bench) -> None:
    """The layer of 128K tokens, in a process of its own."""
    tiles = LARGE_TILES // 4 if bench.quick else LARGE_TILES
    command = [sys.executable, "-m", "benchmarks.sim.large", str(tiles)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    seconds, mb, _ = map(float, out.split())
    goals = (None, None) if bench.quick else ("<= 6", "<= 64")
    bench.rows.append(Row("sim_llama_128k_s", seconds, "s", goal=goals[0]))
    bench.rows.append(Row("sim_llama_128k_mb", mb, "MB", goal=goals[1]))


def device_with(table: str) -> Device:
    """Return a 910B with another table of costs."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "device.toml"
        path.write_text(f'base = "ascend_910b"\nname = "with_{table}"\ncosts = "{table}"\n')
        return get_device(path)


def instructions(table: str, column: int, goal: str) -> Row:
    """The published cell that the cost table is farthest from."""
    worst = max(cells(device_with(f"a2a3_{table}"), column), key=lambda cell: cell.off_pct)
    return Row(f"sim_instruction_{table}_worst_pct", worst.off_pct, f"% off: {worst.name}", goal=goal)


@kernel
def product_in_chunks(a: In[Tensor[f16, 64, 512]], b: In[Tensor[f16, 512, 64]], c: Out[Tile[64, 64, f32]]):
    """The product whose cycles are published: four chunks of the inner dimension."""
    acc = pto.matmul(a[:, 0:128], b[0:128])
    for i in range(1, 4):
        acc = pto.matmul_acc(acc, a[:, i * 128 : i * 128 + 128], b[i * 128 : i * 128 + 128])
    pto.store(c, acc)


def product() -> Row:
    """A kernel of a core, with one buffer per operand as in the published run: 2,142 cycles."""
    function = product_in_chunks.specialise({}, {})
    shapes = [(64, 512), (512, 64), (64, 64)]
    cycles = kernel_cost(function, get_device("ascend_910b"), shapes, (), num_buffers=1).cycles
    off = 100 * abs(cycles / 2142 - 1)
    return Row("sim_matmul_64x512x64_cycles_pct", off, "% off", goal="<= 10")


def hardware(name: str, made: Workload, arrays: Mapping[str, Any], published_us: float) -> Row:
    """A ratio to hardware; the program is ours, and not the one that was measured."""
    program = made.compile("sim", device="ascend_910b", values=False)
    program.run(**arrays)
    ours = report_of(program).time_us
    return Row(name, ours, "us", "hardware, published", published_us, published_us / ours)


def repeats(count: int) -> Row:
    """Share of runs, with 1 to 4 threads for values, that take the same cycles."""
    program = programs.folding.compile("sim", device="ascend_910b")
    arrays: dict[str, Any] = {**native.zeros(programs.folding, {"n": 16})}
    found: list[tuple[int, int]] = []
    for i in range(count):
        program.run(**arrays, n=16, workers=i % 4 + 1)
        assert program.stats is not None
        found.append((program.stats.cycles, program.stats.tasks))
    same = sum(one == found[0] for one in found) / count
    return Row("sim_repeat_identical", same, f"of {count} runs", goal=">= 1")
