"""Tests for defects that others found on hardware, in programs that blocks run themselves.

Each program runs in a process of its own: with ThreadSanitizer, which knows the threads of all blocks, or
with blocks that sleep in random places. The emulation also ends a process in which a counter does not
advance, as that of a task that runs twice. A test of each kind also breaks the device code, to show that the
defect would be found.

| defect | tests |
|---|---|
| tickets wrap around | `test_numbers_of_tasks_beyond_32_bits` |
| tasks run twice | `test_each_task_runs_once`; the emulation, in all tests |
| slots of the ring without a mark of their round | `test_each_task_runs_once`: windows of 1 to 3 tasks |
| a consumer of two producers is pushed twice | `test_each_task_runs_once` |
| a consumer waits for one of two producers | `test_broken_programs_race` of `diamonds` |
| a task in the queue of another domain | `test_schedules.py`: `test_pools_of_blocks` |
| stale lines: counters without release and acquire | `test_no_task_races`, `test_broken_programs_race` |
| another block than the consumer acquires | the same: they know each block as a thread |
| maps of edges are read before they exist | the same, of `falling` and `routed` |
| hangs that a print hides | `test_programs_with_delays`, `test_random_programs_with_delays` |
| a block that does not come | `test_a_stall_is_named` |
| hangs without a name | the same; `test_programs.py`: `test_a_stalled_run_names_its_task` |
| blocks that are not resident together | `test_host.py`: `test_options_that_are_refused` |
| a pool without a block | `test_schedules.py`: `test_pools_of_blocks` |
| counters that are set back | the emulation, in all tests; `test_host.py`: `test_capture_into_a_graph` |
| a ring with compare-and-swap | `test_nvcc.py`: `test_blocks_share_counters_by_single_operations` |
| compiled code without release and acquire | the same |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    In,
    InOut,
    P,
    Program,
    Schedule,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import Stuck
from pto_wsp.ir.printer import print_workload
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets.cuda import launch
from tests.cuda import test_programs as programs
from tests.cuda.alone import DELAYED, SANITIZED, Broken, alone
from tests.cuda.launched import launched
from tests.cuda.test_examples import CASES, compare, copied
from tests.generators import dynamic_workloads, workloads
from tests.generators.drawing import tries
from tests.slow import mostly_slow


@kernel
def add_twice(x: In[Tile[2, 16, f32]], y: InOut[Tile[2, 16, f32]]):
    pto.store(y, y + x * 2.0)


@kernel
def add_both(a: In[Tile[2, 16, f32]], b: In[Tile[2, 16, f32]], y: InOut[Tile[2, 16, f32]]):
    pto.store(y, y + a + b)


@workload
def diamonds(
    X: Tensor[f32, "n", 2, 16],
    A: Tensor[f32, "n", 2, 16],
    B: Tensor[f32, "n", 2, 16],
    Y: Tensor[f32, "n", 2, 16],
    Z: Tensor[f32, 2, 16],
    rounds: DenseDyn,
):
    """Each task adds to what it writes, so that one that runs twice changes results."""
    for i in P("n"):
        add_twice[i](x=X[i], y=A[i])
    for i in P("n"):
        add_twice[i](x=X[i], y=B[i])
    for i in P("n"):
        add_both[i](a=A[i], b=B[i], y=Y[i])
    for k in P.range(rounds):
        add_twice[k](x=Y[0], y=Z)


@kernel
def lower(left: InOut[Tile[1, 1, i32]]):
    pto.store(left, left - 1)


@workload
def falling(Left: Tensor[i32, 1, 1], X: Tensor[f32, 4, 2, 16], Y: Tensor[f32, 4, 2, 16], rounds: DenseDyn):
    """Tasks write, round after round, how many tasks the next round has."""
    for r in P.range(rounds):
        for i in P(Left[0, 0]):
            add_twice[r, i](x=X[i], y=Y[i])
        lower[r](left=Left)


N, ROUNDS = 7, 5


def run_diamonds(program: Program, blocks: int = 3) -> None:
    """Run the workload and compare its results; whole numbers are exact."""
    x = np.arange(N * 32, dtype=np.float32).reshape(N, 2, 16)
    a, b, y, z = (np.zeros_like(each) for each in (x, x, x, x[0]))
    program(X=x, A=a, B=b, Y=y, Z=z, rounds=ROUNDS, workers=blocks)
    assert program.stats is not None and program.stats.tasks == 3 * N + ROUNDS
    for found, wanted in ((a, 2 * x), (b, 2 * x), (y, 4 * x), (z, 8 * x[0] * ROUNDS)):
        np.testing.assert_array_equal(found, wanted)


def run_falling(program: Program, blocks: int = 3) -> None:
    """Run the workload and compare its results: row i is added to in 4 - i rounds."""
    x, left = np.ones((4, 2, 16), np.float32), np.full((1, 1), 4, np.int32)
    y = np.zeros_like(x)
    program(Left=left, X=x, Y=y, rounds=4, workers=blocks)
    assert left[0, 0] == 0
    np.testing.assert_array_equal(y[:, 0, 0], [8, 6, 4, 2])


OWN: dict[str, tuple[Workload, Callable[[Program], None]]] = {
    "diamonds": (diamonds, run_diamonds),
    "falling": (falling, run_falling),
}

EXAMPLES = {
    "routed": "cookbook/mixture_of_experts.py",
    "loop": "cookbook/decode_loop.py",
    "capped": "cookbook/capped_moe.py",
    "ragged": "cookbook/ragged_attention.py",
}


def header(name: str, old: str, new: str) -> dict[str, Any]:
    """Return the arguments of `alone` that change a header."""
    return {"headers": {name: {old: new}}}


def text(call: str) -> dict[str, Any]:
    """Return the arguments of `alone` that leave out a call, whose result is then false."""
    return {"text": {f"if ({call}": f"if (false && {call}"}}


ONE = "run.wait(2, notes.waits, 2, "


def late(changes: dict[str, str], site: int) -> dict[str, Any]:
    """Return the arguments of `alone` that change a program, and delay the tasks of a place in the text."""
    begins = f"if (!run.returned({site}, "
    pauses = "for (int k = 0; k < 300; ++k) pause();\n"
    return {"text": {**changes, begins: pauses + begins}}


def run_program(name: str, folder: Path, **how: Any) -> None:
    """Run a program in a process of its own, and compare its results."""
    path = EXAMPLES.get(name)
    if path is None:
        of, check = OWN[name]
        check(alone(of.compile("interp").module, folder, **how))
        return
    run = CASES[path]()
    found, wanted = ({key: copied(value) for key, value in run.arguments.items()} for _ in range(2))
    alone(run.module, folder, **how).run(**{**found, "workers": 3})
    compile_module(run.module).run(**wanted)
    compare(run, found, wanted)


# --- order of memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow([*OWN, *EXAMPLES], quick=2))
def test_no_task_races(name: str, tmp_path: Path) -> None:
    run_program(name, tmp_path, options=SANITIZED)


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "without release": (
        "diamonds",
        header("device.hpp", "emulation::release(counter, value)", "__atomic_store_n(counter, value, 0)"),
    ),
    "without acquire": (
        "diamonds",
        header("device.hpp", "emulation::acquire(counter)", "__atomic_load_n(counter, 0)"),
    ),
    "without waits for tasks": ("diamonds", text("!run.wait(")),
    "without the first of two producers": ("diamonds", late({ONE: "run.wait(2, notes.waits + 1, 1, "}, 0)),
    "without the second of two producers": ("diamonds", late({ONE: "run.wait(2, notes.waits, 1, "}, 1)),
    "without a barrier before waits": (
        "diamonds",
        header("waits.hpp", "  sync();\n  const bool goes_on", "  const bool goes_on"),
    ),
    "without waits at flush points": ("falling", text("!run.wait_for_flush(")),
    "without waits for readers": ("falling", text("!run.wait_for_readers(")),
    "without a barrier after a flush point": (
        "falling",
        header("program.hpp", "sync();\n    ++num_flushed_;", "++num_flushed_;"),
    ),
}


@pytest.mark.parametrize("broken", mostly_slow(BROKEN, quick=1))
def test_broken_programs_race(broken: str, tmp_path: Path) -> None:
    name, how = BROKEN[broken]
    of, check = OWN[name]
    program = alone(of.compile("interp").module, tmp_path, SANITIZED, **how)
    with pytest.raises(Broken, match="data race"):
        for _ in range(8):  # one block may run all tasks of a short run
            try:
                check(program)
            except Broken:
                raise
            except AssertionError:
                continue  # wrong results: the race itself was not seen


# --- numbers of tasks ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("window", [1, 2, 3, 64])
def test_each_task_runs_once(window: int) -> None:
    program = diamonds.compile("cuda")
    program.reschedule(Schedule().task_graph(window=TaskWindow(window)))
    for blocks in (1, 2, 5):
        run_diamonds(program, blocks)


@pytest.mark.parametrize("window", mostly_slow([3, 1, 8192]))
def test_numbers_of_tasks_beyond_32_bits(window: int, tmp_path: Path) -> None:
    """Tasks are numbered from shortly before 2**32 on; earlier ones are complete."""
    first, old = "uint64_t{0xfffffff0}", "return acquire(program.done"
    changes = {
        "uint64_t next_ = 0,": f"uint64_t next_ = {first},",
        "num_in_pool_ = 0;": f"num_in_pool_ = {first};",
        "? take_ticket(": f"? {first} + take_ticket(",
    }
    done = {old: f"if (number < {first}) return true;\n  {old}"}
    module = diamonds.compile("interp").module
    module = module.with_schedule(Schedule().task_graph(window=TaskWindow(window)).policies)
    run_diamonds(alone(module, tmp_path, DELAYED, {"program.hpp": changes, "waits.hpp": done}))


# --- delays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow([*OWN, *EXAMPLES]))
def test_programs_with_delays(name: str, tmp_path: Path) -> None:
    run_program(name, tmp_path, options=DELAYED)


@tries(6, compiles=True)
@given(workloads.samples(), dynamic_workloads.samples())
@pytest.mark.usefixtures("gpu")
def test_random_programs_with_delays(first: workloads.Sample, second: dynamic_workloads.Sample) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTO_SUBSTITUTE_FLAGS", " ".join(DELAYED))
        note(str(first.module))
        programs.run_both(first.module, first.arrays, first.sizes)
        note(print_workload(second.module.entry_workload))
        programs.run_both(programs.without_workspaces(second.module), second.arrays, {"n": 5})


# --- watchdog -----------------------------------------------------------------------------------------------

LOST = "if (run.next() != {}) run.complete();"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("diamonds", {"run.complete();": LOST.format(1)}, r"the first is one of kernel `add_both`"),
        (
            "falling",
            {"run.complete();": LOST.format(5)},
            r"P\(Left\[0, 0\]\)[\s\S]*the first is a block at `for i in .*`[\s\S]*task 5 waits",
        ),
        (
            "diamonds",
            {"return checks.meet();": "return block() != 1 && checks.meet();"},
            r"follows a check by block 1[\s\S]*block 1 has not checked its tasks",
        ),
        (
            "falling",
            {"run.flush();": "if (block() > 0) run.flush();"},
            r"lower\[r\][\s\S]*the first is one of kernel `lower`",
        ),
    ],
    ids=["of a task", "at a flush point", "of a block", "for readers"],
)
def test_a_stall_is_named(
    name: str, change: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "MAX_POLLS", 3000)
    of, check = OWN[name]
    # The block that runs a task is known: one that reads nothing waits for no readers.
    schedule = Schedule().dispatch(DispatchPolicy.round_robin(3))
    program = launched(of.compile("interp").module.with_schedule(schedule.policies), change)
    with pytest.raises(Stuck, match=expected):
        check(program)
