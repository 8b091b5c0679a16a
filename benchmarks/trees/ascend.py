"""Rows of the targets `ascend_*`: examples on simulated cores, flags, bytes, and cycles of two kernels."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dispatch.case import FIXED_RECORD
from benchmarks.harness import Bench, Row
from benchmarks.trees.panels import multiply_panel
from examples.cases import Run, cases, copied
from examples.pto_programs.llama import llama_module
from pto_wsp import DYN, In, Out, Tensor, Tile, f32, kernel, pto
from pto_wsp.device.reader import preset
from pto_wsp.errors import PtoError
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.build import StandIn, StandInTarget, build
from tests.ascend.standin.calls import KernelRun, accepted, runs_of
from tests.ascend.standin.cycles import ExecutedCost, cost_of, executed, functions_of, lines_of
from tests.python.targets.ctypes_abi import Library

TOLERANCE = 1e-3
"""Of results, relative to the root of the mean square: cores add sums of products in another order."""

ROWS = (
    "ascend_examples_right",
    "ascend_flags_over_minimum",
    "ascend_sim_matmul_cycles_vs_best",
    "ascend_sim_flash_vs_bound",
)
"""Those that need a compiler."""


def add_rows(bench: Bench) -> None:
    """Measure every row."""
    if shutil.which("g++") is None:
        bench.skipped |= dict.fromkeys(ROWS, "needs g++")
        return
    bench.rows.append(Row(ROWS[0], examples_right(), "share", goal=">= 1"))
    bench.rows.append(Row(ROWS[1], flags_over_minimum(), "flags", goal="<= 0"))
    bench.rows.append(sent_bytes())
    bench.rows.append(Row(ROWS[2], matmul_vs_best(), "x", goal="<= 1.3"))
    bench.rows.append(Row(ROWS[3], flash_vs_bound(), "x", goal="<= 1.5"))


def target_of(generation: Generation) -> AscendTarget:
    """Return the target of a generation."""
    target = registry.get(generation.name)
    assert isinstance(target, AscendTarget)
    return target


# --- examples ----------------------------------------------------------------------------------------------


def examples_right() -> float:
    """Return the share of examples whose results are right; an example that is refused is not."""
    right = total = 0
    for generation in (A2A3, A5):
        target = StandInTarget(generation)
        registry.register_target(target)
        for name, make in cases():
            total += 1
            found = outcome(make(), target)
            right += found == "right"
            print(f"  {name:42} {generation.name:12} {found}", flush=True)
        del registry.TARGETS[target.name]
        registry._made.cache_clear()
    return right / total


def outcome(run: Run, target: StandInTarget) -> str:
    """Return `right`, or why an example is not."""
    whole = target_of(target.generation)
    try:
        whole.emit(Prepared(run.module, whole).module)
        found = results(compile_module(run.module, target.name), run)
    except PtoError as error:
        return str(error).splitlines()[0]
    assert target.standin is not None
    if report := target.standin.report():
        return report.splitlines()[0]
    expected = results(compile_module(run.module, "cpu"), run)
    near = all(NEAR.get(name, is_near)(found[name], expected[name]) for name in expected)
    return "right" if near else "results differ from those on the CPU"


def results(program: Any, run: Run) -> dict[str, np.ndarray]:
    """Run an example; return what its tasks write."""
    arguments = {key: copied(value) for key, value in run.arguments.items()}
    program.run(**arguments)
    return {name: arguments[name] for name in run.module.written & arguments.keys()}


def is_near(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether results are equal within the tolerance."""
    one, other = found.astype(np.float64), expected.astype(np.float64)
    finite = other[np.isfinite(other)]
    size = float(np.sqrt((finite**2).mean())) if len(finite) else 1.0
    return np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True)


ROUNDED_STEP, ROUNDED_SHARE = 2.0**-3, 1e-4
"""The largest step between two 8-bit floats, relative, and the share of elements that may be one apart."""

SWAPPED_SHARE = 1e-3
"""The share of places that may differ where scores are nearly equal."""


def is_a_step_apart(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether few 8-bit floats are one step apart, and all others are equal within the tolerance."""
    apart = ~np.isclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    steps = np.abs(found[apart] - expected[apart]) <= ROUNDED_STEP * np.abs(expected[apart])
    return bool(steps.all()) and apart.mean() <= ROUNDED_SHARE


def has_near_places(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether nearly all places of the largest scores are equal."""
    return float((found != expected).mean()) <= SWAPPED_SHARE


def has_near_values(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether the values of sorted pairs are equal within the tolerance."""
    keys = [(pairs >> 32).astype(np.int32) for pairs in (found, expected)]
    values = [np.where(key < 0, key ^ 0x7FFFFFFF, key).astype(np.int32).view(np.float32) for key in keys]
    return is_near(*values)


NEAR = {"IndexQ": is_a_step_apart, "TopK": has_near_places, "Ranked": has_near_values}
"""How tensors are compared that a sum in another order changes by more than the tolerance."""


# --- flags -------------------------------------------------------------------------------------------------


LARGER = 4
"""Times the sizes of a call that a kernel leaves open: loops have that many iterations."""


def flags_over_minimum() -> int:
    """Return how many flags and barriers of the kernels of the examples can be left out unnoticed."""
    over = 0
    for _, make in cases():
        calls = runs_of(make())
        over += sum(unneeded(list(accepted(calls, generation)), generation) for generation in (A2A3, A5))
    return over


def unneeded(calls: list[KernelRun], generation: Generation) -> int:
    """Return how many flags of kernels no call of them needs."""
    of_kernel: dict[str, list[KernelRun]] = {}
    for call in calls:
        of_kernel.setdefault(call.kernel.name, []).append(call)
    if not of_kernel:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = build([of[0].kernel for of in of_kernel.values()], target_of(generation), Path(folder))
        library, core = Library(path), StandIn(path)
        found = {name: len(unnoticed(library, core, of)) for name, of in of_kernel.items()}
    for written, count in found.items():
        if count:
            print(f"  {written:42} {generation.name:12} {count} flags", flush=True)
    return sum(found.values())


def unnoticed(library: Library, core: StandIn, calls: list[KernelRun]) -> set[int]:
    """Return the flags of a kernel that are left out without a report of any call.

    The sizes of an example may end a loop before a flag matters, so calls are repeated with larger sizes,
    and with zeros.
    """
    left: set[int] | None = None
    for name in ("same", "larger", "zeros"):
        used = [call.larger(LARGER) for call in calls] if name == "larger" else calls
        given = [(call.kernel, call.arguments(zeros=name == "zeros")) for call in used]
        left = unreported(library, core, given, left)
        if not left:
            break
    assert left is not None
    return left


def unreported(library: Library, core: StandIn, calls: list[Any], among: set[int] | None) -> set[int]:
    """Return the flags, of all or `among` some, without which calls have no report."""

    def run() -> str:
        for call in calls:
            library.call(*call)
        return core.report()

    core.skip(-1)
    run()
    left = set(range(core.skip(-1))) if among is None else set(among)
    run()
    for number in sorted(left):
        core.skip(number)
        left -= {number} if run() else set()
    core.skip(-1)
    return left


# --- bytes -------------------------------------------------------------------------------------------------


def sent_bytes() -> Row:
    """Bytes of the workload of a LLaMA layer over 131,072 positions that a device reads."""
    name, tasks = "ascend_sent_bytes_llama", 200_704
    target = target_of(A2A3)
    try:
        tree = target.emit(Prepared(llama_module().ir, target).module)
    except PtoError as error:
        print(f"  {name}: {str(error).splitlines()[0]}", flush=True)
        return Row(name, None, "bytes", "task records", FIXED_RECORD * tasks, goal="ratio >= 100000")
    sent = code_bytes(tree.files["bytecode.hpp"])
    held = FIXED_RECORD * tasks
    return Row(name, sent, "bytes", "task records", held, held / sent, "ratio >= 100000")


def code_bytes(text: str) -> int:
    """Return the bytes of the bytecode in a header."""
    body = text[text.index("{") + 1 : text.rindex("}")]
    return body.count(",") + (not body.rstrip().endswith(","))


# --- cycles ------------------------------------------------------------------------------------------------


def costs_of(function: KernelFunction, arguments: list[np.ndarray]) -> Iterator[tuple[bool, ExecutedCost]]:
    """Yield what each task of a call executes on A2/A3, and whether it is for a cube core."""
    device = preset("ascend_910b")
    functions = functions_of([write_kernel(function, A2A3)])
    with tempfile.TemporaryDirectory() as name:
        path = build([function], target_of(A2A3), Path(name))
        library, core = Library(path), StandIn(path)
        core.trace(lines_of(functions), repeats=True)
        status = library.call(function, arguments)
        assert status == 0 and core.report() == "", (status, core.report())
        for task in executed(core.traced(), functions):
            is_cube = functions[task.function][1]
            yield is_cube, cost_of(task.lines, device, is_cube=is_cube)


MATMUL_BOUND = (1536 // 16) ** 2 * (1536 * 2 // 32) / 24
"""Cycles in which 24 cores multiply blocks of 16 x 16 x 32 bytes, one per cycle."""


def matmul_vs_best() -> float:
    """Return the cycles of a product of 1536 x 1536 x 1536 on 24 cores, relative to its bound.

    Each core multiplies 128 rows, which it keeps in L1, with half of the columns. The bound is the work of
    the busiest pipe, that of products.
    """
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 1536), (1536, 768)))
    arguments = [a, b, np.zeros((128, 768), np.float32)]
    ((_, cost),) = costs_of(multiply_panel.specialise({}, {}), arguments)
    np.testing.assert_allclose(arguments[2], a.astype(np.float32) @ b.astype(np.float32), rtol=1e-2, atol=0.5)
    print(f"  matmul: {cost.cycles:,.0f} cycles, pipes {cost.busy}", flush=True)
    return cost.cycles / MATMUL_BOUND


@kernel
def attend(
    q: In[Tile[64, 128, f32]],
    k: In[Tensor[f32, DYN, 128]],
    v: In[Tensor[f32, DYN, 128]],
    o: Out[Tile[64, 128, f32]],
):
    """Flash attention of 64 queries, 64 positions per step."""
    m, total, acc = pto.full((64, 1), -inf), pto.zeros((64, 1)), pto.zeros((64, 128))
    for r in pto.tiles(k.rows, 64):
        s = pto.matmul(q, k[r].T) * 0.088388
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        total, acc, m = total * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / total)


def flash_vs_bound() -> float:
    """Return the time of flash attention over 512 positions, relative to its bound.

    Phases of many heads fill the cores: 24 for products, 48 for the rest. The bound is the work of the
    busiest pipe on all cores of its kind.
    """
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 128)).astype(np.float32) for n in (64, 512, 512))
    cycles, busy = {True: 0.0, False: 0.0}, dict[tuple[bool, str], float]()
    for is_cube, cost in costs_of(attend.specialise({}, {}), [q, k, v, np.zeros_like(q)]):
        cycles[is_cube] += cost.cycles
        for pipe, count in cost.busy.items():
            busy[is_cube, pipe] = busy.get((is_cube, pipe), 0.0) + count
    cores = {True: 24, False: 48}
    print(f"  flash: cycles {cycles}, pipes {busy}", flush=True)
    bound = max(count / cores[is_cube] for (is_cube, _), count in busy.items())
    return max(count / cores[is_cube] for is_cube, count in cycles.items()) / bound
