"""Programs as folders: what the README of one says builds it, and the bits are those of `program(...)`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Deps,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    ReadyPolicy,
    Scalar,
    Schedule,
    Session,
    Sparse,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TracePolicy,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import UnsupportedByTarget, UnusableFile
from pto_wsp.support.record import replace
from pto_wsp.targets import registry
from pto_wsp.targets.cpu import target
from pto_wsp.targets.cpu.features import Features
from pto_wsp.tools.main import main
from tests.golden import Golden
from tests.python.targets.host_program import run_host_program

GENERIC = Features("x86_64", ("avx2", "fma"), 8, False)
MARK = re.compile(r"^ *// [\w.]+:\d+\n", re.MULTILINE)
OPERAND = re.compile(r'^ *\{\d+, "", "", \{\}, \{\}\},\n', re.MULTILINE)  # text has places of more operands
PLACE = re.compile(r"[\w.]+:\d+(?=[:\"])")


@kernel
def blend(x: In[Tile[16, 32, f32]], y: InOut[Tile[16, 32, f32]], weight: Scalar[f32]):
    """Add a weighted tile."""
    pto.store(y, y + pto.tanh(x) * weight)


@kernel
def fill(y: Out[Tensor[f32, DYN, 32]], rows: Scalar[i64]):
    """Fill as many rows as asked."""
    for r in pto.tiles(rows, 16):
        pto.store(y[r, :], pto.full((r.extent, 32), 2.0))


@workload
def blend_rows(
    X: Tensor[f32, "n", 32],
    Y: Tensor[f32, "n", 32],
    Z: Tensor[f32, "m", 32],
    weight: Scalar[f32],
    rows: Scalar[i64],
):
    """Blend all tiles of one tensor, and fill another."""
    for tile in P.tiles("n", 16):
        blend[tile](x=X[tile], y=Y[tile], weight=weight * 2.0)
    with P.when(rows > 0):
        fill(y=Z, rows=rows)


@kernel(
    cpp_src="""
if (x(0, 0) < 0) PTO_FAIL("a negative number");
for (int64_t i = 0; i < x.rows(); ++i) y(i, 0) = std::round(x(i, 0));
""",
    cpp_includes=["<cmath>"],
)
def round_rows(x: In[Tile[8, 1, f32]], y: Out[Tile[8, 1, f32]]): ...


@workload
def call_native(X: Tensor[f32, "n", 1], Y: Tensor[f32, "n", 1]):
    for tile in P.tiles("n", 8):
        round_rows[tile](x=X[tile], y=Y[tile])


@kernel(cpp_src="y(0, 0) = x(0, 0);", cpp_includes=["own.hpp"])
def with_own_header(x: In[Tile[8, 1, f32]], y: Out[Tile[8, 1, f32]]): ...


@workload
def call_with_own_header(X: Tensor[f32, "n", 1], Y: Tensor[f32, "n", 1]):
    for tile in P.tiles("n", 8):
        with_own_header[tile](x=X[tile], y=Y[tile])


@kernel
def copy_row(x: In[Tile[16, 32, f32]], y: Out[Tile[16, 32, f32]]):
    pto.store(y, x * 2.0)


@kernel
def add_row(x: In[Tile[1, 32, f32]], y: InOut[Tile[1, 32, f32]]):
    pto.store(y, y + x)


@workload
def copy_rows(
    kv: Ragged["b"],
    near: Sparse["b"],
    X: Tensor[f32, "n", 32],
    Y: Tensor[f32, "n", 32],
    Z: Tensor[f32, "b", 32],
):
    """Double ragged rows in tiles, and add up the neighbours of each row."""
    for b in P("b"):
        for tile in P.tiles(kv[b], 16):
            copy_row[b, tile](x=X[tile], y=Y[tile])
        for j in P.sel(near[b]):
            add_row[b, j](x=X[j : j + 1], y=Z[b : b + 1])


SCHEDULE = (
    Schedule()
    .dispatch(DispatchPolicy.round_robin(2))
    .task_graph(window=TaskWindow(64), ready=ReadyPolicy.fifo())
)


def files_of(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(paths)}


def emitted(way: str, folder: Path) -> Path:
    """Write the program in one of two ways: compiled from Python, or from `.pto` text by the command."""
    out = folder / "blend"
    program = blend_rows.compile()
    program.reschedule(SCHEDULE)
    if way == "python":
        program.export(out)
    else:
        (folder / "blend.pto").write_text(str(program.module))
        assert main(["emit", str(folder / "blend.pto"), "-o", str(out)]) == 0
    return out


def readme_commands(folder: Path) -> str:
    found = re.search(r"^```sh\n(.*?)^```$", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-ec", command], cwd=folder, capture_output=True, text=True, check=False)


def results(program: Program, x: np.ndarray, y: np.ndarray, m: int, **numbers: float) -> list[np.ndarray]:
    y, z = y.copy(), np.zeros((m, 32), np.float32)
    program(X=x, Y=y, Z=z, **numbers)
    return [y, z]


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("g++")), reason="needs make and g++")
def test_the_readme_builds_and_runs_it(tmp_path: Path) -> None:
    folder, program = emitted("pto", tmp_path), blend_rows.compile()
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((50, 32), np.float32) for _ in range(2))
    np.save(folder / "X.npy", x)
    np.save(folder / "Y.npy", y)

    commands = readme_commands(folder)
    assert "--set weight=1 --set rows=1" in commands and "--set m=1" in commands
    done = shell(commands, folder)
    assert done.returncode == 0, done.stderr
    for name, expected in zip(("Y_out", "Z"), results(program, x, y, 1, weight=1.0, rows=1), strict=True):
        assert np.load(folder / f"{name}.npy").tobytes() == expected.tobytes()

    run = "./blend_rows --input X=X.npy --input Y=Y.npy --output Y=A.npy --output Z=B.npy "
    done = shell(run + "--set weight=-0.3 --set rows=9 --set m=20 --workers 2 --stats", folder)
    assert done.returncode == 0 and done.stdout.startswith("5 tasks on 2 workers in "), done.stderr
    for name, expected in zip("AB", results(program, x, y, 20, weight=-0.3, rows=9), strict=True):
        assert np.load(folder / f"{name}.npy").tobytes() == expected.tobytes()

    np.save(folder / "wide.npy", np.zeros((50, 32)))
    large = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999)}\n"
    for name, header in {"none": "nope\n", "blank": "{'descr':    ", "large": large}.items():
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        (folder / f"{name}.npy").write_bytes(start + header.encode())
    numbers = " --set weight=1 --set rows=1 --set m=1"
    mistakes = {
        run + "--set weight=1 --set rows=17 --set m=16": "`y` is indexed outside dimension 0",
        run + "--set rows=1": "give `--set weight=...`",
        run + "--set weight=1e39 --set rows=1": "--set weight: expected a number of type f32",
        run + "--set weight=1 --set rows=9223372036854775808": "--set rows: expected a number of type i64",
        run + numbers + " --set n=7": "X.npy: expected f32[n = 7, 32], found f32[50, 32]",
        run + numbers + " --set k=7": "the program has no size or scalar `k`",
        run + "--set weight=1 --set rows=1": "give `--set m=...`",
        "./blend_rows --input X=wide.npy" + numbers: "wide.npy: expected f32[n, 32], found f64[50, 32]",
        "./blend_rows --input X=none.npy" + numbers: "none.npy: the header has no `descr`",
        "./blend_rows --input X=blank.npy" + numbers: "blank.npy: the header has no `descr`",
        "./blend_rows --input X=large.npy" + numbers: "large.npy: the header has no shape",
        run.replace("B.npy", "A.npy") + numbers: "--output Z: `Y` goes to the same file",
        run + "--workers 70000" + numbers: "--workers: expected a number of type u16, found `70000`",
        "./blend_rows --input Y=Y.npy" + numbers: "give `--input X=FILE`",
        "./blend_rows --output X=C.npy" + numbers: "--output X: the program only reads it",
        "./blend_rows --input Q=X.npy" + numbers: "the program has no tensor `Q`",
        "./blend_rows --input X": "expected NAME=VALUE, found `X`",
        "./blend_rows --fast": "`--fast`: expected --set, --input, --output or --workers with a value",
    }
    for command, message in mistakes.items():
        done = shell(command, folder)
        assert done.returncode == 1 and message in done.stderr, (command, done.stderr)
    check_function(folder, x, results(program, x, y, 20, weight=-0.3, rows=9), y)


CALLS_TWICE = """
#include <stdio.h>
#include <string.h>
#include "blend_rows.h"

static void read_all(const char* path, void* data, size_t size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(data, 1, size, file) != size) printf("no %s\\n", path);
}

int main(void) {
  static float X[50 * 32], Y[50 * 32], Z[20 * 32];
  read_all("X.bin", X, sizeof X);
  struct blend_rows_arguments given = {.weight = -0.3f, .rows = 9, .n = 50, .m = 20, .X = X, .Y = Y, .Z = Z};
  for (given.workers = 1; given.workers < 3; ++given.workers) {
    read_all("Y.bin", Y, sizeof Y);
    memset(Z, 0, sizeof Z);
    const char* error = blend_rows(&given);
    if (error != NULL) return puts(error), 1;
    fwrite(Y, sizeof Y, 1, stdout);
    fwrite(Z, sizeof Z, 1, stdout);
  }
  given.rows = 33;
  fprintf(stderr, "%s\\n", blend_rows(&given));
  given.Y = NULL;
  fprintf(stderr, "%s\\n", blend_rows(&given));
  given.n = -1;
  fprintf(stderr, "%s\\n", blend_rows(&given));
  return 0;
}
"""


def check_function(folder: Path, x: np.ndarray, expected: list[np.ndarray], y: np.ndarray) -> None:
    """Call a program that was built from C, for two numbers of workers."""
    (folder / "X.bin").write_bytes(x.tobytes())
    (folder / "Y.bin").write_bytes(y.tobytes())
    (folder / "calls.c").write_text(CALLS_TWICE)
    build = "make libblend_rows.so && gcc -std=c11 -Wall -Werror calls.c -L. -lblend_rows -o calls"
    assert (done := shell(build, folder)).returncode == 0, done.stderr
    run = subprocess.run(["./calls"], cwd=folder, capture_output=True, env={"LD_LIBRARY_PATH": "."})
    assert run.returncode == 0 and run.stdout == 2 * b"".join(a.tobytes() for a in expected)
    errors = run.stderr.decode()
    assert "`y` is indexed outside dimension 0" in errors and "Y: expected an array, found NULL" in errors
    assert "n: a size is at least 0" in errors


CALLS_BOTH = """
#include <stdio.h>
#include "blend_rows.h"
#include "copy_rows.h"

int main(void) {
  static float X[50 * 32], Y[50 * 32], Z[3 * 32], W[50 * 32];
  for (int i = 0; i < 50 * 32; ++i) X[i] = (float)(i % 7) - 3;
  int64_t kv[] = {3, 20, 20, 50}, near[] = {0, 2, 3, 4};
  int32_t indices[] = {7, 9, 0, 49};
  const char* error = blend_rows(&(struct blend_rows_arguments){.weight = 0.5f, .n = 50, .X = X, .Y = Y});
  if (error != NULL) return puts(error), 1;
  struct copy_rows_arguments given = {.b = 3, .n = 50, .X = Y, .Y = W, .Z = Z};
  given.kv_offsets = kv, given.near_offsets = near, given.near_indices = indices;
  error = copy_rows(&given);
  if (error != NULL) return puts(error), 1;
  fwrite(W, sizeof W, 1, stdout);
  fwrite(Z, sizeof Z, 1, stdout);
  kv[1] = 2;
  fprintf(stderr, "%s\\n", copy_rows(&given));
  kv[1] = 20, indices[1] = -9;
  fprintf(stderr, "%s\\n", copy_rows(&given));
  return 0;
}
"""


LAUNCHES_BOTH = """
#include <stdio.h>
#include <string.h>
#include "blend_rows.h"
#include "copy_rows.h"

static void say(const char* error) { fprintf(stderr, "%s\\n", error != NULL ? error : "well"); }

int main(void) {
  static float X[50 * 32], Y[50 * 32], Z[3 * 32], W[50 * 32], V[16 * 32];
  for (int i = 0; i < 50 * 32; ++i) X[i] = (float)(i % 7) - 3;
  int64_t kv[] = {3, 20, 20, 50}, near[] = {0, 2, 3, 4};
  int32_t indices[] = {7, 9, 0, 49};
  struct blend_rows_arguments blend = {.weight = 0.5f, .n = 50, .X = X, .Y = Y};
  struct copy_rows_arguments copy = {.b = 3, .n = 50, .X = Y, .Y = W, .Z = Z};
  copy.kv_offsets = kv, copy.near_offsets = near, copy.near_indices = indices;
  PTOSession* session = pto_session_create();
  PTOGraph *writes, *reads;
  PTOLaunch *first, *second, *third;
  PTOWait wait;
  say(blend_rows_graph(session, "writes", &writes));
  say(copy_rows_graph(session, NULL, &reads));
  say(pto_graph_provides(writes, "Y", (const char*[]){"blend"}, 1));
  say(pto_graph_requires(reads, "X", writes));
  say(copy_rows_launch(session, &copy, reads, &second));
  say(blend_rows_launch(session, &blend, writes, &first));
  say(copy_rows_launch(session, &copy, reads, &second));
  say(pto_session_order_reads(session, Y, &second, 1, NULL));
  say(pto_session_wait(session));
  fwrite(W, sizeof W, 1, stdout);
  fwrite(Z, sizeof Z, 1, stdout);
  memset(Y, 0, sizeof Y);
  memset(Z, 0, sizeof Z);
  for (int i = 0; i < 100; ++i) {
    blend.weight = 0;
    say(blend_rows_launch(session, &blend, NULL, &first));
    say(copy_rows_launch(session, &copy, NULL, &second));
  }
  blend.Z = V, blend.m = 16, blend.rows = 33;
  say(blend_rows_launch(session, &blend, NULL, &first));
  say(blend_rows_launch(session, &blend, NULL, &second));
  copy.X = W, copy.Y = Y;
  say(copy_rows_launch(session, &copy, NULL, &third));
  say(pto_launch_wait(third));
  if (pto_launch_get_wait(second, 0, &wait)) say(pto_launch_name(wait.launch));
  say(pto_launch_wait(first));
  say(pto_session_cancel(session));
  pto_session_destroy(session);
  return 0;
}
"""


@pytest.mark.slow
def test_the_graphs_of_a_session_are_functions_of_c(tmp_path: Path) -> None:
    """Each program is a library, and one process calls both; the second reads what the first one writes.

    One session then launches both, with the same bits, and names what is wrong.
    """
    flags = []
    for made in (blend_rows, copy_rows):
        name = made.trace().module.entry
        made.compile().export(tmp_path / name)
        assert (done := shell(f"make lib{name}.so", tmp_path / name)).returncode == 0, done.stderr
        flags.append(f"-I{name} -L{name} -l{name} -Wl,-rpath,'$ORIGIN/{name}'")
    for kind, text in {"calls": CALLS_BOTH, "launches": LAUNCHES_BOTH}.items():
        (tmp_path / f"{kind}.c").write_text(text)
        build = f"gcc -std=c11 -Wall -Werror {kind}.c {' '.join(flags)} -o {kind}"
        assert (done := shell(build, tmp_path)).returncode == 0, done.stderr
    x, (y, w) = (
        (np.arange(1600) % 7 - 3.0).astype(np.float32).reshape(50, 32),
        np.zeros((2, 50, 32), np.float32),
    )
    z = np.zeros((3, 32), np.float32)
    with Session() as session:
        empty = np.zeros((0, 32), np.float32)
        session.launch(blend_rows.compile(), X=x, Y=y, Z=empty, weight=0.5, rows=0)
        kv, near = Ragged.indptr([3, 20, 20, 50]), Sparse.csr([0, 2, 3, 4], [7, 9, 0, 49])
        session.launch(copy_rows.compile(), kv=kv, near=near, X=y, Y=w, Z=z)
    run = subprocess.run(["./calls"], cwd=tmp_path, capture_output=True)
    assert run.returncode == 0 and run.stdout == w.tobytes() + z.tobytes(), run.stdout[:200]
    errors = run.stderr.decode()
    assert "kv: element 1 is less than the one before" in errors
    assert "near.indices: element 1 is negative" in errors
    run = subprocess.run(["./launches"], cwd=tmp_path, capture_output=True)
    assert run.returncode == 0 and run.stdout == w.tobytes() + z.tobytes(), run.stderr[:2000]
    said = run.stderr.decode()
    assert said.count("well\n") == 212, said
    assert "no earlier launch of `writes` provides the array of `X`" in said
    assert "error[launch-skipped]: `copy_rows` was skipped, since `blend_rows` before it failed" in said
    assert "error[kernel-failed]" in said and "`y` is indexed outside dimension 0" in said


@workload
def scale_rows(X: Tensor[f32, "n", 32], Y: Tensor[f32, "n", 32]):
    for tile in P.tiles("n", 16):
        copy_row[tile](x=X[tile], y=Y[tile])


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_page_and_the_header_are_c(language: str, tmp_path: Path) -> None:
    """The header is C99 and C++17; what the page shows is C99."""
    scale_rows.compile().export(tmp_path / "out")
    if language == "c":
        page = (Path(__file__).parents[3] / "docs" / "sessions.md").read_text()
        text = "".join(re.findall(r"^```c\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
        assert "scale_rows_launch(session" in text
    else:
        text = '#include "scale_rows.h"\n'
    (tmp_path / "out" / "page.x").write_text(text)
    flags = f"-std={'c99' if language == 'c' else 'c++17'} -Wall -Wextra -Wpedantic -Werror"
    done = shell(f"gcc -x {language} {flags} -fsyntax-only page.x", tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_kernels_in_cpp_come_along(tmp_path: Path) -> None:
    call_native.compile().export(tmp_path / "out")
    x = np.linspace(0, 9, 20, dtype=np.float32).reshape(20, 1)
    np.save(tmp_path / "out" / "X.npy", x)
    done = shell(readme_commands(tmp_path / "out"), tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "out" / "Y.npy"), np.round(x))
    np.save(tmp_path / "out" / "X.npy", -1 - x)
    done = shell("./call_native --input X=X.npy", tmp_path / "out")
    assert done.returncode == 1 and "a negative number" in done.stderr
    assert "test_export.py:" in done.stderr and str(Path(__file__).parent) not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("make") and shutil.which("g++")), reason="needs make and g++")
def test_a_walk_that_is_source_comes_along(tmp_path: Path) -> None:
    program = blend_rows.compile(expander="source")
    program.export(tmp_path)
    walk = (tmp_path / "walk.cpp").read_text()
    assert "blend[%tile]" in walk and "program.walk = pto_wsp_walk;" in (tmp_path / "main.cpp").read_text()
    assert "| `walk.cpp` |" in (tmp_path / "README.md").read_text()
    (tmp_path / "bytecode").mkdir()
    blend_rows.compile().export(tmp_path / "bytecode")
    assert "walk.cpp" not in files_of(tmp_path / "bytecode")
    done = shell("make blend_rows libblend_rows.so", tmp_path)
    assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((50, 32), np.float32) for _ in range(2))
    arguments = {"X": x, "Y": y, "Z": np.zeros((20, 32), np.float32), "weight": -0.3, "rows": 9}
    expected = results(program, x, y, 20, weight=-0.3, rows=9)
    for workers in ("1", "3"):
        command = ["./blend_rows", "--workers", workers]
        tasks, found = run_host_program(command, program.module, tmp_path, arguments)
        assert tasks == 5 and [found[name].tobytes() for name in "YZ"] == [a.tobytes() for a in expected]


def test_axes_with_rows_come_from_files(tmp_path: Path) -> None:
    folder, program = tmp_path / "out", copy_rows.compile()
    program.export(folder)
    x = np.random.default_rng(1).standard_normal((50, 32), np.float32)
    arrays = {"kv": [3, 20, 20, 50], "near": [0, 2, 3, 4], "near.indices": [7, 9, 0, 49]}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", np.array(values, np.int32))
    y, z = np.zeros_like(x), np.ones((3, 32), np.float32)
    np.save(folder / "X.npy", x)
    np.save(folder / "Z.npy", z)
    kv, near = Ragged.indptr(arrays["kv"]), Sparse.csr(arrays["near"], arrays["near.indices"])
    program(kv=kv, near=near, X=x, Y=y, Z=z)
    done = shell(readme_commands(folder), folder)
    assert done.returncode == 0, done.stderr
    assert np.load(folder / "Y.npy").tobytes() == y.tobytes()
    assert np.load(folder / "Z_out.npy").tobytes() == z.tobytes()
    mistakes: dict[str, tuple[list[int], str]] = {
        "kv": ([3, 2, 20, 50], "kv.npy: element 1 is less than the one before"),
        "near": ([0, 4], "near.npy: expected b = 3, found 1"),
        "near.indices": ([7, -9, 0, 49], "near.indices.npy: element 1 is not in [0, 2147483647]"),
    }
    run = readme_commands(folder).splitlines()[-1]
    for name, (values, message) in mistakes.items():
        np.save(folder / f"{name}.npy", np.array(values))
        done = shell(run, folder)
        assert done.returncode == 1 and message in done.stderr, done.stderr
        np.save(folder / f"{name}.npy", np.array(arrays[name]))


@kernel
def mark(x: In[Tile[16, 32, f32]], y: Out[Tile[16, 32, f32]]):
    pto.store(y, x + 1.0)


@workload
def Makefile(X: Tensor[f32, "n", 32], Group: Tensor[i32, "n", 1], Y: Tensor[f32, "n", 32]):
    """Mark the rows of each group, which a sort in the run finds."""
    groups = group_by(Group[:, 0], num_groups=3)
    for g in P(3):
        for pick in P.tiles(groups[g], 16):
            mark[g, pick](x=X[groups.rows(pick)], y=Y[groups.rows(pick)])


def test_headers_in_angle_brackets_come_along(tmp_path: Path) -> None:
    Makefile.compile().export(tmp_path / "out")
    assert (tmp_path / "out/include/pto/wsp/tile/group.hpp").is_file()


@pytest.mark.slow
def test_groups_that_a_run_finds(tmp_path: Path) -> None:
    folder, program = tmp_path / "out", Makefile.compile()
    program.export(folder)
    x = np.random.default_rng(1).standard_normal((50, 32), np.float32)
    group, y = np.arange(50, dtype=np.int32).reshape(50, 1) % 3, np.zeros_like(x)
    np.save(folder / "X.npy", x)
    np.save(folder / "Group.npy", group)
    program(X=x, Group=group, Y=y)
    done = shell(readme_commands(folder), folder)
    assert done.returncode == 0, done.stderr
    assert np.load(folder / "Y.npy").tobytes() == y.tobytes()


def test_text_and_python_give_one_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = (files_of(emitted(*pair)) for pair in (("pto", tmp_path / "a"), ("python", tmp_path / "b")))
    assert one.keys() == other.keys()
    for path in one:
        plain = [OPERAND.sub("", PLACE.sub("", MARK.sub("", files[path]))) for files in (one, other)]
        assert plain[0] == plain[1], path


def test_emission_is_pure(tmp_path: Path) -> None:
    program = blend_rows.compile()
    for name in ("first", "second"):
        program.export(tmp_path / name)
    first, second = files_of(tmp_path / "first"), files_of(tmp_path / "second")
    assert first == second
    for path, text in first.items():
        assert str(Path(__file__).parent) not in text and os.getcwd() not in text, path
    assert {"README.md", "Makefile", "main.cpp", "kernels.cpp", "include/pto/wsp/abi.hpp"} <= first.keys()


def test_the_folder_is_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    program = blend_rows.compile()
    monkeypatch.setattr(target, "resolve_features", lambda: GENERIC)
    program.export(tmp_path / "out")
    for path, text in files_of(tmp_path / "out").items():
        if not path.startswith("include/"):
            golden(f"blend_rows/{path}", text)


def test_numbers_that_are_set_become_defaults(tmp_path: Path) -> None:
    program = blend_rows.compile()
    program.set_symbol_f32("weight", 0.5)
    program.set_symbol_i64("rows", -3)
    program.export(tmp_path / "out")
    text = (tmp_path / "out" / "main.cpp").read_text()
    assert f'{{"weight", int64_t{{{0x3F000000}}}, false}}' in text
    assert '{"rows", int64_t{-3}, false}' in text
    assert "--set" not in readme_commands(tmp_path / "out").replace("--set m=1", "")


SETTINGS = {
    "window = 64u": Schedule().task_graph(window=TaskWindow(64)),
    "ownership = decltype(program.options.ownership)::kRoundRobin": Schedule().dispatch(
        DispatchPolicy.round_robin(2)
    ),
    "bounds = {3, 7}": Schedule().dispatch(DispatchPolicy.static_partition([3, 7])),
    "checks_edges = true": Schedule().task_graph(deps=Deps.explicit()),
    "start = decltype(program.options.start)::kAfterBuild": Schedule().task_graph(
        start=StartPolicy.after_build()
    ),
}


@pytest.mark.parametrize("line", SETTINGS)
def test_the_schedule_is_in_the_host_program(line: str) -> None:
    module = blend_rows.compile().module.with_schedule(SETTINGS[line].policies)
    tree = registry.get("cpu").emit(module)
    assert f"  program.options.{line};\n" in tree.files["main.cpp"]


def test_files_that_exist_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = blend_rows.compile()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "Makefile").write_text("mine")
    with pytest.raises(UnusableFile, match="not empty") as caught:
        program.export(tmp_path / "out")
    assert "test_export.py" in str(caught.value) and "with `force`" in str(caught.value)
    assert files_of(tmp_path / "out") == {"Makefile": "mine"}
    (tmp_path / "blend.pto").write_text(str(program.module))
    argv = ["emit", str(tmp_path / "blend.pto"), "-o", str(tmp_path / "out")]
    assert main(argv) == 1 and "not empty" in capsys.readouterr().err
    assert main([*argv, "--force"]) == 0
    assert (tmp_path / "out" / "Makefile").read_text() != "mine"
    with pytest.raises(UnusableFile, match="it is a file"):
        program.export(tmp_path / "blend.pto")
    for option in (["--force"], ["--entry", "blend_rows"]):
        assert main([*argv[:2], *option]) == 1
        assert f"`{option[0]}` does not fit" in capsys.readouterr().err


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.hpp").write_text("")
    module = call_with_own_header.trace().module
    (each,) = module.kernels
    assert each.native is not None
    moved = replace(each, native=replace(each.native, folder=str(tmp_path)))
    with pytest.raises(UnsupportedByTarget, match="which includes `own"):
        registry.get("cpu").emit(module.with_kernels([moved]))
    traced = blend_rows.compile()
    traced.reschedule(Schedule().task_graph(trace=TracePolicy.tasks()))
    with pytest.raises(UnsupportedByTarget, match="trace"):
        traced.export(tmp_path / "out")
    with pytest.raises(UnsupportedByTarget, match="emitting sources"):
        blend_rows.compile(target="interp").export(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "blend.pto").write_text(str(blend_rows.compile().module))
    argv = ["emit", str(tmp_path / "blend.pto"), "-o", str(tmp_path / "out"), "--kernel", "blend"]
    assert main(argv) == 1 and "expected a whole program" in capsys.readouterr().err
