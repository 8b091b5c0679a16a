"""Kernels in C++: bodies and translation units, given as text or in files."""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Constexpr,
    In,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    Tile,
    b1,
    f16,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    BadKernelOption,
    CompilerFailed,
    CppError,
    InvalidIR,
    KernelFailed,
    NoReference,
)
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType
from tests.python.lang.programs import execute

TARGETS = ("cpu", "interp")


def scaled(x: np.ndarray, y: np.ndarray, factor: float) -> None:
    y[...] = x * np.float32(factor)


@kernel(
    cpp_src="""
    for (int64_t i = 0; i < x.rows(); ++i) {
      for (int64_t j = 0; j < x.cols(); ++j) y(i, j) = x(i, j) * factor;
    }
    """,
    reference=scaled,
)
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]], factor: Scalar[f32]): ...


@kernel
def add_one(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]]):
    pto.store(y, x + 1)


@workload
def scale_and_add(
    X: Tensor[f32, "n", 128], T: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128], factor: Scalar[f32]
):
    for r in P.tiles("n", 64):
        scale[r](x=X[r], y=T[r], factor=factor)
        add_one[r](x=T[r], y=Y[r])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1000])
def test_a_body_as_text_beside_a_kernel_of_tiles(target: str, rows: int) -> None:
    x = np.random.default_rng(rows).random((rows, 128), np.float32)
    t, y = np.full_like(x, 7), np.full_like(x, 7)
    scale_and_add.compile(target).run(X=x, T=t, Y=y, factor=3.0)
    assert np.array_equal(t, x * np.float32(3)) and np.array_equal(y, t + 1)


def test_the_dump_shows_the_text() -> None:
    text = scale_and_add.compile("interp").dump()
    assert (
        "  CPP body (x, y, factor)\n" in text
        and "\n  |    for (int64_t i = 0; i < x.rows(); ++i) {\n" in text
    )


@kernel(
    cpp_src="""
    for (int64_t i = 0; i < x.rows(); ++i) {
      PTO_CHECK(x(i, 0) >= 0, "an element below 0");
      y(i, 0) = x(i, 0);
    }
    """
)
def positive(x: In[Tile[64, 1, i32]], y: Out[Tile[64, 1, i32]]): ...


@workload
def keep_positive(X: Tensor[i32, "n", 1], Y: Tensor[i32, "n", 1]):
    for r in P.tiles("n", 64):
        positive[r](x=X[r], y=Y[r])


def test_a_failure_names_the_line() -> None:
    program = keep_positive.compile("cpu")
    x = np.arange(200, dtype=np.int32)[:, None].copy()
    y = np.empty_like(x)
    program(X=x, Y=y)
    assert np.array_equal(x, y)
    x[130] = -1
    for workers in (1, 2):
        with pytest.raises(KernelFailed) as caught:
            program.run(X=x, Y=y, workers=workers)
        error = caught.value
        assert error.message == "kernel `positive` failed: an element below 0"
        assert error.loc is not None and "PTO_CHECK(x(i, 0) >= 0" in (error.loc.source_line() or "")
        assert "in task 2" in error.caret_text


def test_the_interpreter_needs_a_reference() -> None:
    x = np.zeros((3, 1), np.int32)
    with pytest.raises(NoReference):
        keep_positive.compile("interp")(X=x, Y=x.copy())


def test_an_exception_of_a_reference_is_a_failure_of_the_kernel() -> None:
    def refuse(x: np.ndarray, y: np.ndarray) -> None:
        raise ValueError("no such element")

    @kernel(cpp_src="y(0, 0) = x(0, 0);", reference=refuse)
    def one(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]): ...

    @workload
    def run_one(X: Tensor[f32, 1, 1], Y: Tensor[f32, 1, 1]):
        one(x=X, y=Y)

    x = np.zeros((1, 1), np.float32)
    with pytest.raises(KernelFailed, match="no such element"):
        run_one.compile("interp")(X=x, Y=x.copy())


def test_errors_of_the_compiler_are_at_the_users_line() -> None:
    @kernel(
        cpp_src="""
        y(0, 0) = x(0, 0) + nothing;
        """
    )
    def wrong(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]): ...

    @workload
    def run_wrong(X: Tensor[f32, 1, 1], Y: Tensor[f32, 1, 1]):
        wrong(x=X, y=Y)

    with pytest.raises(CppError) as caught:
        run_wrong.compile("cpu")
    loc = caught.value.loc
    assert loc is not None and "nothing" in caught.value.caret_text
    assert (loc.source_line() or "")[loc.col - 1 :].startswith("nothing;")


@pytest.mark.parametrize("header", ["", "<a", "a>b", 'a"b', "a\\nb", "<a>\\n#error"])
def test_headers_that_are_none(header: str) -> None:
    with pytest.raises(BadKernelOption, match="an include is not a header"):
        execute(f"@kernel(cpp_src='', cpp_includes=['{header}'])\ndef k(x: In[Tile[1, 1, f32]]): ...")


@pytest.mark.parametrize(
    "change",
    [
        {"entry": "f(); system(0); //"},
        {"includes": ('"x"\n#error',)},
        {"constants": (("n = 1; int m", 1),), "order": ("x", "y", "n = 1; int m")},
        {"order": ("x",)},
    ],
)
def test_the_verifier_lets_no_names_into_cpp_that_are_none(change: dict[str, Any]) -> None:
    function = positive.specialise({}, {})
    assert function.native is not None
    verify(Module("m", (function,)))
    with pytest.raises(InvalidIR):
        verify(Module("m", (replace(function, native=replace(function.native, **change)),)))


@pytest.mark.parametrize("name", ["context", "register", "a__b", "_Great", "größe"])
def test_names_that_cpp_cannot_use(name: str) -> None:
    with pytest.raises(BadKernelOption, match="another meaning in C"):
        execute(f"@kernel(cpp_src='')\ndef k({name}: In[Tile[1, 1, f32]]): ...")


# --- files ------------------------------------------------------------------------------------------------

PROGRAM = """
from pto_wsp import *

@kernel(cpp_body_path="body.cpp", cpp_includes=["mine.hpp", "<cmath>"])
def root(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]): ...

@kernel(cpp_tu_path="sub/unit.cpp")
def shift(x: In[Tensor], y: Out[Tensor], by: Scalar[f32], times: Constexpr[int]): ...

@workload
def w(X: Tensor[f32, 8, 8], T: Tensor[f32, 8, 8], Y: Tensor[f32, 8, 8]):
    root(x=X, y=T)
    shift(x=T, y=Y, by=0.5, times=3)
"""
BODY = "for (int i = 0; i < 8; ++i)\n  for (int j = 0; j < 8; ++j) y(i, j) = std::sqrt(x(i, j)) + kMine;\n"
UNIT = """
#include "other.hpp"
#define rows broken  // macros of one kernel are nobody else's business
template <class T>
static void helper(T& x, float by) { x += by + kOther; }
void shift(pto::wsp::tile::TensorView<const float, 2> x, pto::wsp::tile::TensorView<float, 2> y, float by,
           int64_t times, const pto::wsp::TaskContext& context) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) {
      y(i, j) = x(i, j);
      for (int k = 0; k < times; ++k) helper(y(i, j), by);
    }
}
"""


class Folder:
    """A program in a folder of its own, with the files of its kernels."""

    def __init__(self, path: Path) -> None:
        self.path = path / "a folder"
        self.write("program.py", PROGRAM)
        self.write("body.cpp", BODY)
        self.write("mine.hpp", "inline constexpr float kMine = 1;\n")
        self.write("sub/unit.cpp", UNIT)
        self.write("sub/other.hpp", '#include "deep/deeper.hpp"\n')
        self.write("sub/deep/deeper.hpp", "inline constexpr float kOther = 0;\n")

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def run(self) -> tuple[float, int]:
        """Run the program on fours; return what it made of them, and the compiler calls."""
        w = runpy.run_path(str(self.path / "program.py"))["w"]
        x, t, y = (np.full((8, 8), 4, np.float32) for _ in range(3))
        program = w.compile("cpu")
        program(X=x, T=t, Y=y)
        assert (y == y[0, 0]).all()
        return float(y[0, 0]), program.stats.compiles


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("PTO_WSP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_files_are_found_beside_the_kernel(folder: Folder) -> None:
    assert folder.run() == (4.5, 3)
    assert folder.run() == (4.5, 0)


@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        ("body.cpp", "std::sqrt(x(i, j))", "x(i, j)", 6.5),
        ("sub/unit.cpp", "= x(i, j)", "= 2 * x(i, j)", 7.5),
        ("mine.hpp", "= 1", "= 2", 5.5),
        ("sub/deep/deeper.hpp", "= 0", "= 1", 7.5),
    ],
)
def test_every_file_is_part_of_the_key(folder: Folder, file: str, old: str, new: str, result: float) -> None:
    before = folder.run()
    text = (folder.path / file).read_text()
    folder.write(file, text.replace(old, new))
    assert folder.run() == (result, 3)
    folder.write(file, text)
    assert folder.run() == (before[0], 0)


def test_a_shipped_header_is_not_shadowed_by_the_working_directory(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "mine.hpp").write_text("#error not this one\n")
    assert folder.run()[0] == 4.5


@pytest.mark.parametrize(
    ("file", "line", "text", "said", "caret"),
    [
        ("body.cpp", 2, "  y(0, 0) = nowhere;", "'nowhere'", "nowhere;"),
        ("sub/unit.cpp", 5, "static int helper() { return missing; }", "'missing'", "missing;"),
        ("mine.hpp", 1, "constexpr float kMine = what;", "'what'", "what;"),
        ("body.cpp", 1, '#include "lost.hpp"', "lost.hpp", '"lost.hpp"'),
    ],
)
def test_errors_are_at_the_line_of_the_file(
    folder: Folder, file: str, line: int, text: str, said: str, caret: str
) -> None:
    lines = (folder.path / file).read_text().splitlines()
    lines[line - 1] = text
    folder.write(file, "\n".join(lines))
    with pytest.raises(CppError) as caught:
        folder.run()
    loc = caught.value.loc
    assert loc is not None and (Path(loc.file), loc.line) == (folder.path / file, line)
    assert said in caught.value.caret_text
    assert (loc.source_line() or "")[loc.col - 1 :].startswith(caret)


@pytest.mark.parametrize("file", ["body.cpp", "sub/unit.cpp", "sub/deep/deeper.hpp"])
def test_an_include_that_names_no_file_is_refused(folder: Folder, file: str) -> None:
    lines = (folder.path / file).read_text().splitlines()
    folder.write(file, "\n".join([*lines, '#define WHICH "mine.hpp"', "#  include WHICH", ""]))
    with pytest.raises(CppError, match="does not say which file") as caught:
        folder.run()
    assert caught.value.loc is not None
    assert (Path(caught.value.loc.file), caught.value.loc.line) == (folder.path / file, len(lines) + 2)


def test_a_unit_without_the_function_is_an_error_of_the_kernel(folder: Folder) -> None:
    folder.write("sub/unit.cpp", "void shifted() {}\n")
    with pytest.raises(CppError, match="'::shift' has not been declared") as caught:
        folder.run()
    assert caught.value.loc is not None and caught.value.loc.file.endswith("program.py")


def test_a_function_that_is_nowhere_defined_is_an_error_of_the_build(folder: Folder) -> None:
    folder.write("body.cpp", "extern float elsewhere(); y(0, 0) = elsewhere();")
    with pytest.raises(CompilerFailed, match="elsewhere"):
        folder.run()


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_files_that_cannot_be_read(folder: Folder, content: bytes | None) -> None:
    path = folder.path / "body.cpp"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadKernelOption, match="cannot be read"):
        folder.run()


def test_the_dump_shows_units_and_their_constants(folder: Folder) -> None:
    text = runpy.run_path(str(folder.path / "program.py"))["w"].compile("interp").dump()
    assert "CPP unit @shift(x, y, by, times)\n" in text and "CONSTANT %times = 3\n" in text
    assert "INCLUDE <cmath>\n" in text and f'FOLDER "{folder.path}"' in text


# --- types --------------------------------------------------------------------------------------------------


def copied(x: np.ndarray, y: np.ndarray) -> None:
    y[...] = x


@kernel(
    cpp_src="""
    for (int64_t i = 0; i < x.size(0); ++i)
      for (int64_t j = 0; j < x.size(1); ++j) y(i, j) = x(i, j);
    """,
    reference=copied,
)
def copy(x: In[Tensor], y: Out[Tensor]): ...


@workload
def copy_every_type(
    A: Tensor[f32, 5, "n"],
    B: Tensor[f32, 5, "n"],
    C: Tensor[i64, 5, "n"],
    D: Tensor[i64, 5, "n"],
    E: Tensor[f16, 5, "n"],
    F: Tensor[f16, 5, "n"],
    G: Tensor[b1, 5, "n"],
    H: Tensor[b1, 5, "n"],
):
    copy(x=A, y=B)
    copy(x=C, y=D)
    copy(x=E, y=F)
    copy(x=G, y=H)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("cols", [0, 1, 13])
def test_bare_tensors_are_specialised(target: str, cols: int) -> None:
    draw = np.random.default_rng(cols)
    arrays: dict[str, Any] = {}
    for first, second, dtype in (("A", "B", "f4"), ("C", "D", "i8"), ("E", "F", "f2"), ("G", "H", "?")):
        arrays[first] = draw.integers(0, 2, (5, cols)).astype(dtype)
        arrays[second] = np.zeros((5, cols), dtype)
    copy_every_type.compile(target)(**arrays)
    for first, second in ("AB", "CD", "EF", "GH"):
        assert np.array_equal(arrays[first], arrays[second])


@kernel(
    cpp_src="""
    static_assert(count == 3 && scale == 0.5f && flag);
    value_type sum = 0;
    for (int i = 0; i < count; ++i) sum += x(0, 0) * scale;
    y(0, 0) = name[1] == '"' ? sum + number + (truth ? 10 : 0) : -1;
    """
)
def constants(
    x: In[Tile[1, 1, f32]],
    y: Out[Tile[1, 1, f32]],
    count: Constexpr[int],
    scale: Constexpr[float],
    flag: Constexpr[bool],
    name: Constexpr[str],
    value_type: Constexpr[DType],
    number: Scalar[i64],
    truth: Scalar[b1],
): ...


@workload
def with_constants(X: Tensor[f32, 1, 1], Y: Tensor[f32, 1, 1], n: Scalar[i64]):
    constants(x=X, y=Y, count=3, scale=0.5, flag=True, name='a"\\\n', value_type=f32, number=n, truth=n > 4)


@pytest.mark.parametrize(("n", "result"), [(1, 4.0), (5, 18.0)])
def test_constants_and_scalars(n: int, result: float) -> None:
    y = np.zeros((1, 1), np.float32)
    with_constants.compile("cpu")(X=np.full((1, 1), 2, np.float32), Y=y, n=n)
    assert y[0, 0] == result


# --- ends ---------------------------------------------------------------------------------------------------


def one_kernel(text: str, includes: str = "[]") -> Program:
    w = execute(
        f"""
TEXT = {text!r}
@kernel(cpp_src=TEXT, cpp_includes={includes})
def k(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]): ...

@workload
def w(X: Tensor[f32, "n", 1], Y: Tensor[f32, "n", 1]):
    for i in P("n"):
        k(x=X[i : i + 1], y=Y[i : i + 1])
"""
    )["w"]
    assert isinstance(w, Workload)
    return w.compile("cpu")


@pytest.mark.parametrize(
    ("text", "includes", "said"),
    [
        ('throw std::runtime_error("thrown");', "['<stdexcept>']", "thrown"),
        ("std::vector<int>().at(3);", "['<vector>']", "vector"),
        ("throw 3;", "[]", "it threw something other than a std::exception"),
        (
            'auto check = [](float v) { PTO_CHECK(v > 1, "in a lambda"); return v; }; check(x(0, 0));',
            "[]",
            "in a l",
        ),
        ('PTO_FAIL((std::string("number ") + std::to_string(7)).c_str());', "['<string>']", "number 7"),
        (f'PTO_FAIL("{"long " * 100}");', "[]", "long long"),
        ('if (x(0, 0) < 1) return; PTO_FAIL("late");', "[]", "late"),
    ],
)
def test_ends_before_the_end(text: str, includes: str, said: str) -> None:
    x = np.array([[0], [1]], np.float32)
    program = one_kernel(text, includes)
    if "x(0, 0)" in text and "return;" in text:
        program.run(X=x[:1], Y=x.copy()[:1])
    with pytest.raises(KernelFailed, match=said):
        program.run(X=x, Y=x.copy(), workers=2)
    with pytest.raises(KernelFailed, match=said):
        program.run(X=x, Y=x.copy(), workers=1)


CRASH = """
import sys
import numpy as np
from pto_wsp import *

@kernel(cpp_src='''
    if (x(0, 0) == 7) {{ {crash} }}
    y(0, 0) = x(0, 0);
''')
def fragile(x: In[Tile[1, 1, f32]], y: Out[Tile[1, 1, f32]]): ...

@workload
def w(X: Tensor[f32, "n", 1], Y: Tensor[f32, "n", 1]):
    for i in P("n"):
        fragile(x=X[i : i + 1], y=Y[i : i + 1])

{before}
x = np.arange(20, dtype=np.float32)[:, None].copy()
w.compile("cpu").run(X=x[:7], Y=x.copy()[:7])
{between}
w.compile("cpu").run(X=x, Y=x.copy(), workers={workers})
print("not reached")
"""


def crashed(tmp_path: Path, crash: str, workers: int, before: str = "", between: str = "") -> tuple[int, str]:
    path = tmp_path / "crash.py"
    path.write_text(CRASH.format(crash=crash, workers=workers, before=before, between=between))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "not reached" not in done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("crash", "sent", "workers"),
    [
        ("*static_cast<volatile int*>(nullptr) = 1;", signal.SIGSEGV, 1),
        ("*static_cast<volatile int*>(nullptr) = 1;", signal.SIGSEGV, 2),
        ("__builtin_trap();", signal.SIGILL, 2),
        ("std::terminate();", signal.SIGABRT, 1),
    ],
)
def test_a_crash_names_kernel_and_task(crash: str, sent: int, workers: int, tmp_path: Path) -> None:
    status, text = crashed(tmp_path, crash, workers)
    assert status == -sent
    name = signal.Signals(sent).name
    assert f"pto-wsp: kernel `fragile` ({tmp_path}/crash.py:10) crashed in task 7: {name}\n" in text


def test_a_crash_is_passed_on_to_who_handled_it_before(tmp_path: Path) -> None:
    before = "import faulthandler; faulthandler.enable()"
    status, text = crashed(tmp_path, "*static_cast<volatile int*>(nullptr) = 1;", 1, before)
    assert status == -signal.SIGSEGV
    assert "crashed in task 7: SIGSEGV" in text and "Fatal Python error: Segmentation fault" in text


def test_signals_are_left_alone_between_runs(tmp_path: Path) -> None:
    between = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    status, text = crashed(tmp_path, "", 1, between=between)
    assert status == -signal.SIGSEGV and "pto-wsp" not in text
