"""Orchestrations in C: readable, and the tasks, order, bits and errors of the walk."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.cases import Run, cases, copied
from pto_wsp import (
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Schedule,
    Sparse,
    Tensor,
    Tile,
    assume,
    bf16,
    distinct,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import CannotRun, PtoError, UnsupportedByTarget
from pto_wsp.interp.workload import BoundTask, TaskRunner
from pto_wsp.ir.module import Module
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.export import c_library_folder, write_tree
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.task_dump import DumpedTask, read_task_dump
from pto_wsp.targets import registry
from pto_wsp.targets.c_orchestration import target
from pto_wsp.targets.cpu.readme import command_name
from pto_wsp.tools.main import main
from tests.golden import Golden
from tests.python.lower.test_source import arguments as mixed_arguments
from tests.python.lower.test_source import broken, mixed
from tests.python.targets.host_program import ProgramFailed, run_host_program
from tests.python.targets.test_export import (
    GENERIC,
    Makefile,
    blend_rows,
    call_native,
    check_function,
    copy_rows,
    readme_commands,
    results,
    shell,
)
from tests.slow import mostly_slow

NAME = "c-orchestration"
builds = pytest.mark.skipif(
    not (shutil.which("make") and shutil.which("g++") and shutil.which("cc")), reason="needs make, g++ and cc"
)


@kernel
def scale(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)


@kernel
def gather(x: In[Tile[4, 8, f32]], y: InOut[Tile[4, 8, f32]]):
    pto.store(y, y + x)


@kernel
def narrow(x: In[Tile[4, 3, bf16]], y: InOut[Tile[4, 3, bf16]]):
    pto.store(y, pto.cast(pto.cast(y, f32) + pto.cast(x, f32), bf16))


@kernel(block_dim=3)
def ranks(y: Out[Tile[4, 8, f32]]):
    if pto.block_idx() == 1:
        pto.store(y, pto.full((4, 8), 3.0))


@workload
def ordered(
    X: Tensor[f32, "n", 4, 8],
    Y: Tensor[f32, "n", 4, 8],
    Z: Tensor[f32, "n", 4, 8],
    W: Tensor[f32, 4, 8],
    steps: Scalar[i64],
):
    """Order by `P.seq` and `after=` alone: tasks of one array do not touch the others."""
    for s in P.seq(steps):
        for i in P.range("n"):
            with P.when(i % 2 == s % 2):
                scale[s, i](x=X[i], y=Y[i], factor=2.0)
    first = scale(x=X[0], y=W, factor=1.0)
    for i in P("n"):
        gather[i](x=X[i], y=Z[i], after=[first])


@workload
def windows(
    rows: Sparse["m"],
    X: Tensor[f32, "n", 24],
    Y: Tensor[f32, "n", 24],
    A: Tensor[bf16, 8, 7],
    B: Tensor[bf16, 8, 7],
    R: Tensor[f32, 4, 8],
):
    """Windows of columns, row sets, odd numbers of bytes, instances."""
    for c in P(3):
        for r in P.tiles("n", 4):
            scale[c, r](x=X[r, 8 * c : 8 * c + 8], y=Y[r, 8 * c : 8 * c + 8], factor=0.5)
    for m in P("m"):
        for r in P.tiles(rows[m], 4):
            gather[m, r](x=Y[rows.rows(r), 0:8], y=Y[rows.rows(r), 8:16])
    for c in P(2):
        narrow[c](x=A[0:4, 3 * c : 3 * c + 3], y=B[4:8, 3 * c + 1 : 3 * c + 4])
        narrow[c](x=B[4:8, 3 * c : 3 * c + 3], y=B[0:4, 3 * c + 1 : 3 * c + 4])
    ranks(y=R)


def windows_arguments() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    found: dict[str, Any] = {"rows": Sparse.csr([0, 5, 6], [3, 0, 9, 5, 7, 3])}
    found["X"] = rng.random((10, 24), np.float32)
    found["Y"], found["R"] = np.zeros((10, 24), np.float32), np.zeros((4, 8), np.float32)
    for name in "AB":
        found[name] = rng.random((8, 7), np.float32).astype(bf16.to_numpy())
    return found


def copy_arguments() -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((50, 32), np.float32)
    kv, near = Ragged.indptr([3, 20, 20, 50]), Sparse.csr([0, 2, 3, 4], [7, 9, 0, 49])
    return {"kv": kv, "near": near, "X": x, "Y": np.zeros_like(x), "Z": np.ones((3, 32), np.float32)}


def ordered_arguments() -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((5, 4, 8), np.float32)
    return {"X": x, "Y": np.zeros_like(x), "Z": np.ones_like(x), "W": x[0].copy(), "steps": 3}


def grouped_arguments() -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((50, 32), np.float32)
    group = np.arange(50, dtype=np.int32).reshape(50, 1) % 3
    return {"X": x, "Group": group, "Y": np.zeros_like(x)}


PROGRAMS = {
    "mixed": lambda: Run(mixed.trace().module, mixed_arguments()),
    "ordered": lambda: Run(ordered.trace().module, ordered_arguments()),
    "windows": lambda: Run(windows.trace().module, windows_arguments()),
    "copy_rows": lambda: Run(copy_rows.trace().module, copy_arguments()),
    "grouped": lambda: Run(Makefile.trace().module, grouped_arguments()),
}

SEQUENCES = {"ordered": (range(3), range(3, 5), range(5, 8))}
"""Tasks of the iterations of `P.seq`."""

FLUSHED = {"grouped": 1}
"""Tasks that are complete before later ones are added, because the workload reads their results."""


@functools.cache
def engine_folder() -> Path:
    """Return a folder with the object of `host.cpp`, which is the same for every program."""
    folder = Path(tempfile.mkdtemp(prefix="pto-wsp-tests-"))
    write_tree(emitted(blend_rows.trace().module), folder, force=True)
    assert (done := shell("make host.o", folder)).returncode == 0, done.stderr
    return folder


def emitted(module: Module) -> Any:
    made = registry.get(NAME)
    return made.emit(Prepared(module, made).module)


class Built:
    """A program that is built as its folder says, with the host object of other programs."""

    def __init__(self, module: Module, folder: Path, goal: str = "") -> None:
        self.module, self.folder = Prepared(module, registry.get(NAME)).module, folder
        write_tree(emitted(module), folder)
        assert (folder / "host.cpp").read_text() == (engine_folder() / "host.cpp").read_text()
        shutil.copy2(engine_folder() / "host.o", folder / "host.o")
        os.utime(folder / "host.o")
        done = shell(f"make LIB={c_library_folder()} CFLAGS=-Werror {goal}", folder)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr

    def run(self, arguments: Mapping[str, Any], workers: int = 2) -> tuple[int, dict[str, np.ndarray]]:
        command = [f"./{command_name(self.module)}", "--workers", str(workers), "--dump", "tasks.txt"]
        return run_host_program(command, self.module, self.folder, arguments)

    def dumped(self) -> tuple[DumpedTask, ...]:
        return read_task_dump(self.folder / "tasks.txt")


def walked(run: Run) -> tuple[list[str], set[tuple[int, int]], dict[str, np.ndarray]]:
    """Return the kernels that `interp` calls in order, the dependences that the engine finds, and results."""
    names: list[str] = []
    run_task = TaskRunner.task

    def seen(self: TaskRunner, task: BoundTask, number: int) -> None:
        names.append(task.node.kernel)
        run_task(self, task, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskRunner, "task", seen)
        compile_module(run.module, target="interp").run(**{k: copied(v) for k, v in run.arguments.items()})
    values = {name: copied(value) for name, value in run.arguments.items()}
    program = compile_module(run.module)
    program.run(**values, workers=2, trace="full")
    assert program.trace is not None
    edges = {(int(before), int(after)) for before, after, *_ in program.trace.dependences}
    return names, edges, values


def reached(tasks: tuple[DumpedTask, ...]) -> list[set[int]]:
    """Return the tasks that come before each task."""
    before: list[set[int]] = [set() for _ in tasks]
    for number, task in enumerate(tasks):
        for after in task.fanout:
            before[after] |= before[number] | {number}
    return before


@builds
@pytest.mark.parametrize("name", mostly_slow(PROGRAMS, quick=2))
def test_tasks_order_and_bits_are_those_of_the_walk(name: str, tmp_path: Path) -> None:
    run = PROGRAMS[name]()
    built = Built(run.module, tmp_path / "out")
    names, edges, expected = walked(run)
    for workers in (1, 2, 4):
        tasks, found = built.run(run.arguments, workers)
        assert tasks == len(names)
        for tensor, array in found.items():
            assert array.tobytes() == expected[tensor].tobytes(), tensor
    dumped = built.dumped()
    assert [task.name for task in dumped] == names
    before = reached(dumped)
    flushed = FLUSHED.get(name, 0)
    followed = {(a, b) for a, b in edges if not a < flushed <= b}
    missing = {(a, b) for a, b in followed if a not in before[b]}
    assert edges and not missing, missing
    for earlier, later in pairwise(SEQUENCES.get(name, ())):
        assert all(a in before[b] for a in earlier for b in later)


@builds
@pytest.mark.slow
@pytest.mark.parametrize("name", dict(cases()))
def test_examples(name: str, tmp_path: Path) -> None:
    run = dict(cases())[name]()
    if run.module.entry_workload.processes:
        with pytest.raises(UnsupportedByTarget, match="a network of processes"):
            emitted(run.module)
        return
    tasks, found = Built(run.module, tmp_path / "out").run(run.arguments)
    values = {key: copied(value) for key, value in run.arguments.items()}
    program = compile_module(run.module)
    program.run(**values)
    assert program.stats is not None and program.stats.tasks == tasks
    for tensor, array in found.items():
        assert array.tobytes() == values[tensor].tobytes(), tensor


def test_the_folder_is_golden(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(target, "resolve_features", lambda: GENERIC)
    for made in (mixed, ordered, windows):
        files = emitted(made.trace().module).files
        golden(f"{made.trace().module.entry}.c", files["orchestration.c"])
    files = emitted(ordered.trace().module).files
    for path in ("README.md", "Makefile"):
        golden(f"ordered/{path}", files[path])


@builds
@pytest.mark.slow
def test_the_command_and_the_readme(tmp_path: Path) -> None:
    """`pto emit` writes the folder, its README builds it, and C calls it as a function."""
    folder = tmp_path / "out"
    (tmp_path / "blend.pto").write_text(str(blend_rows.trace().module))
    assert main(["emit", str(tmp_path / "blend.pto"), "--target", NAME, "-o", str(folder)]) == 0
    shutil.copy2(engine_folder() / "host.o", folder / "host.o")
    os.utime(folder / "host.o")
    x, y = np.random.default_rng(1).standard_normal((2, 50, 32), np.float32)
    np.save(folder / "X.npy", x)
    np.save(folder / "Y.npy", y)
    done = shell(readme_commands(folder), folder)
    assert done.returncode == 0, done.stderr
    program = blend_rows.compile()
    for name, expected in zip(("Y_out", "Z"), results(program, x, y, 1, weight=1.0, rows=1), strict=True):
        assert np.load(folder / f"{name}.npy").tobytes() == expected.tobytes()
    makefile = (folder / "Makefile").read_text().replace("LIB ?=", f"LIB ?= {c_library_folder()} #")
    (folder / "Makefile").write_text(makefile)
    check_function(folder, x, results(program, x, y, 20, weight=-0.3, rows=9), y)


# --- errors ---

ERRORS: dict[str, tuple[list[int], int, str, str]] = {
    "division": ([1, 0, 7], 0, "division-by-zero", "divides by 0 in iteration i = 0"),
    "negative extent": ([2, 4, 0], 1, "negative-extent", "extent -3 in iteration i = 0"),
    "element outside": ([0, 1, 7], 7, "element-outside", "`L` is read at 7"),
    "overflow": ([2, 2, 2], 2**62, "expression-overflow", "beyond 64 bits in iteration i = 0"),
}


@kernel
def fails(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]], most: Scalar[i64]):
    pto.check(most < 3, "too many")
    pto.store(y, x)


@workload
def wrong(
    rows: Sparse["m"],
    slots: Tensor[i32, "k"],
    X: Tensor[f32, "n", 8],
    Y: Tensor[f32, "n", 8],
    first: Scalar[i64],
    rank: Scalar[i64],
    most: Scalar[i64],
):
    """Fails as the arguments say."""
    assume(distinct(slots))
    assume(rank < 9)
    scale(x=X[first : first + 4], y=Y[0:4], factor=1.0)
    with P.when(rank == 1):
        scale(x=X[0 : rank + 4], y=Y[0:4], factor=1.0)
    with P.when(rank == 2):
        gather(x=X[0:4], y=Y[rows.rows(rows[0])])
    for i in P(8):
        fails[i](x=X[0:4], y=Y[0:4], most=i + most)


def row_set(rows: list[int]) -> Sparse:
    return Sparse.csr([0, len(rows)], rows)


def wrong_arguments(**changed: Any) -> dict[str, Any]:
    x = np.zeros((8, 8), np.float32)
    found = {"rows": row_set([0, 1, 2, 3]), "slots": np.arange(3, dtype=np.int32)}
    return {**found, "X": x, "Y": x.copy(), "first": 0, "rank": 0, "most": -9, **changed}


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({}, "", ""),
    "region": ({"first": 5}, "region-outside", "5 :+ 4 in dimension 0 of `X`, which has 8"),
    "view": ({"rank": 1}, "view-shape", "has 5 elements, and kernel `scale` takes 0 to 4"),
    "twice": ({"rank": 2, "rows": row_set([1, 2, 1, 3])}, "rows-repeat", "names a row twice"),
    "row": ({"rank": 2, "rows": row_set([8, 1, 2, 3])}, "rows-outside", "[0]` is 8"),
    "distinct": ({"slots": np.zeros(2, np.int32)}, "assumption-fails", "two elements of `slots` are equal"),
    "assumption": ({"rank": 9}, "assumption-fails", "does not hold"),
    "kernel": ({"most": 0}, "kernel-failed", "in task 4"),
}


@builds
def test_errors_have_names_places_and_iterations(tmp_path: Path) -> None:
    built = Built(broken.trace().module, tmp_path / "broken")
    x = np.ones((16, 32), np.float32)
    for lengths, k, code, text in ERRORS.values():
        with pytest.raises(ProgramFailed) as caught:
            built.run({"L": np.array(lengths, np.int32), "X": x, "Y": x.copy(), "k": k})
        said = str(caught.value)
        assert f"error[{code}]: test_source.py:" in said and text in said, said
    built = Built(wrong.trace().module, tmp_path / "wrong")
    for changed, code, text in WRONG.values():
        given = wrong_arguments(**changed)
        program = compile_module(wrong.trace().module)
        if not code:
            built.run(given)
            program.run(**given)
            continue
        said = ""
        for workers in (1, 3):
            with pytest.raises(ProgramFailed) as caught:
                built.run(given, workers)
            said = str(caught.value)
            assert f"error[{code}]: " in said and text in said, said
        with pytest.raises(PtoError):
            program.run(**given)
        is_kernel = code == "kernel-failed"
        assert ("too many" in said and "kernel fails" in said) == is_kernel, said


@builds
@pytest.mark.slow
def test_kernels_in_cpp_name_their_failures(tmp_path: Path) -> None:
    built, x = Built(call_native.trace().module, tmp_path / "out"), np.linspace(0, 9, 20, dtype=np.float32)
    _, found = built.run({"X": x.reshape(20, 1), "Y": np.zeros((20, 1), np.float32)})
    assert np.array_equal(found["Y"][:, 0], np.round(x))
    with pytest.raises(ProgramFailed, match="a negative number"):
        built.run({"X": -1 - x.reshape(20, 1), "Y": np.zeros((20, 1), np.float32)})


@kernel
def shows(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.print(x)
    pto.store(y, x)


@workload
def printing(X: Tensor[f32, 4, 8], Y: Tensor[f32, 4, 8]):
    shows(x=X, y=Y)


def test_what_is_refused() -> None:
    program = blend_rows.compile(NAME)
    x = np.zeros((16, 32), np.float32)
    with pytest.raises(CannotRun, match=NAME):
        program(X=x, Y=x.copy(), Z=x.copy(), weight=1.0, rows=1)
    with pytest.raises(UnsupportedByTarget, match="`print` in kernel `shows`"):
        emitted(printing.trace().module)
    policies = Schedule().dispatch(DispatchPolicy.round_robin(2)).policies
    with pytest.raises(UnsupportedByTarget, match="dispatch"):
        emitted(blend_rows.trace().module.with_schedule(policies))
    kernels = registry.get(NAME).emit(Module("kernels", blend_rows.trace().module.kernels, ()))
    assert {*kernels.files} == {"kernels.cpp", "parts.cpp"}


@builds
def test_the_headers_are_c11(tmp_path: Path) -> None:
    """Every function compiles without a warning, conversions included."""
    (tmp_path / "all.c").write_text('#include "pto/wsp/host/orchestration_tasks.h"\n')
    include = Path(__file__).parents[3] / "include"
    options = "-std=c11 -pedantic -Wall -Wextra -Wconversion -Werror -fsyntax-only".split()
    command = ["cc", *options, f"-I{include}", str(tmp_path / "all.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
