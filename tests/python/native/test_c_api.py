"""The C API as it is installed: header, documentation, CMake, kernels that do not fit, other processors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.c_api.build import PACKAGE, compile_c
from examples.pto_programs.softmax import softmax_module
from pto_wsp.errors import UnusableFile
from pto_wsp.runtime.task_dump import read_task_dump

ROOT = Path(__file__).parents[3]
HEADER = ROOT / "include" / "pto" / "wsp" / "pto_runtime.h"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only")


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "compiler",
    [("gcc", "-std=c99", "-x", "c"), ("gcc", "-std=c11", "-x", "c"), ("g++", "-std=c++17", "-x", "c++")],
)
def test_header_alone(compiler: tuple[str, ...]) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    done = run(*compiler, *STRICT, HEADER)
    assert done.returncode == 0, done.stderr


def documented() -> str:
    """Return the program of docs/c_api.md, with data and a main function."""
    found = re.search(r"```c\n(.*?)```", (ROOT / "docs" / "c_api.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1] + (
        "int main(void) {\n"
        "  static float x[640], y[640];\n"
        "  Data data = {x, y, 10};\n"
        "  for (int i = 0; i < 640; ++i) x[i] = (float)i;\n"
        "  if (run(&data) != PTO_OK) return 1;\n"
        "  for (int i = 0; i < 640; ++i) if (y[i] != 2 * x[i]) return 2;\n"
        "  return 0;\n"
        "}\n"
    )


@pytest.mark.parametrize("included", ["pto_runtime.h", "pto_runtime.c"])
def test_documented_program(included: str, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    text = documented().replace("pto_runtime.h", included)
    source.write_text(text + "void* nothing = NULL;\n")  # as orchestrations use it
    assert run(compile_c(source, tmp_path / "program")).returncode == 0


def test_find_package(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(documented())
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user LANGUAGES C CXX)\n"
        "find_package(pto CONFIG REQUIRED)\nadd_executable(user main.c)\n"
        "target_link_libraries(user PRIVATE pto::wsp)\n"
    )
    # A source tree is configured only: it would compile the engine.
    for root in (ROOT, PACKAGE):
        build = tmp_path / f"build-{root.name}"
        done = run("cmake", "-S", tmp_path, "-B", build, f"-Dpto_DIR={root / 'cmake'}")
        assert done.returncode == 0, done.stdout + done.stderr
    done = run("cmake", "--build", build)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(build / "user").returncode == 0


KERNELS = """\
#include <string.h>

#include "pto_runtime.h"

/* argv: kernels, what to do, dump */
int main(int argc, char** argv) {
  static float x[64], column[8];
  const char* how = argv[2];
  PTORuntime rt;
  pto_runtime_init(&rt);
  pto_load_kernels(&rt, argv[1]);
  int32_t task = pto_task_alloc(&rt, "rowmax", NULL, 288, 288);
  pto_task_add_input(&rt, task, x, 0, 0, strcmp(how, "tall") == 0 ? 9 : 8, strcmp(how, "tall") == 0 ? 1 : 8);
  if (strcmp(how, "role") == 0) pto_task_add_inout(&rt, task, column, 0, 0, 8, 1);
  else pto_task_add_output(&rt, task, column, 0, 0, 8, 1);
  if (strcmp(how, "count") == 0) pto_task_add_output(&rt, task, column, 0, 0, 1, 1);
  pto_task_submit(&rt, task);
  int code = pto_execute_all(&rt);
  if (code != PTO_OK) puts(pto_runtime_error_message(&rt));
  if (argc > 3) pto_runtime_dump(&rt, argv[3]);
  pto_runtime_shutdown(&rt);
  return -code;
}
"""


def test_kernels_that_do_not_fit(tmp_path: Path) -> None:
    """What a kernel does not take is an error that names the task; so is a file that is not a library."""
    kernels = tmp_path / "kernels.so"
    softmax_module().compile().save_kernels(kernels)
    (tmp_path / "main.c").write_text("#include <stdio.h>\n" + KERNELS)
    program = compile_c(tmp_path / "main.c", tmp_path / "main")
    for how, message in (
        ("right", ""),
        ("tall", "task 0 `rowmax`: argument 0 of 9 x 1 elements is not what the kernel takes there\n"),
        ("role", "task 0 `rowmax`: argument 1 of 8 x 1 elements is not what the kernel takes there\n"),
        ("count", "task 0 `rowmax`: the kernel takes 2 regions and 0 scalars, not 3 regions\n"),
    ):
        done = run(program, kernels, how)
        assert (done.returncode, done.stdout) == (7 if message else 0, message)
    assert run(program, tmp_path / "main.c", "right").returncode == 8
    assert run(program, kernels, "right", tmp_path / "tasks.txt").returncode == 0
    (task,) = read_task_dump(tmp_path / "tasks.txt")
    assert (task.name, task.state, task.buffer_bytes) == ("rowmax", "DONE", 288)
    assert [detail.split(" ")[0] for detail in task.details] == ["function", "buffers", "after", "in", "out"]


def test_interp_has_no_kernels(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="`interp` compiles no kernels for this machine"):
        softmax_module().compile(target="interp").save_kernels(tmp_path / "kernels.so")


def test_other_processors(tmp_path: Path) -> None:
    """Orchestrations compile for AArch64 where a cross compiler is there."""
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu")
    cross = ("aarch64-linux-gnu-gcc",) if shutil.which("aarch64-linux-gnu-gcc") else zig
    if cross is zig and find_spec("ziglang") is None:
        pytest.skip("no compiler for AArch64")
    done = run(
        *cross, "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", HEADER.parent, "-c",
        ROOT / "examples" / "c_api" / "programs.c", "-o", tmp_path / "programs.o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "programs.o").read_bytes()[18] == 183  # EM_AARCH64
