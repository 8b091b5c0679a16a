"""Kernels that users write in C++ for the target `cuda`, emulated, and compiled by nvcc and NVRTC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Constexpr,
    In,
    InOut,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    Tile,
    bf16,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    workload,
)
from pto_wsp.errors import CppError, KernelFailed, UnsupportedByTarget
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.cuda import toolchain
from pto_wsp.targets.cuda.target import CudaTarget
from tests.cuda.alone import SANITIZED, Broken, alone
from tests.cuda.test_nvcc import compiled, needs_nvcc, needs_nvrtc

COLS = 48


def normalised(x: np.ndarray, y: np.ndarray, scale: float) -> None:
    y[...] = x / np.abs(x).sum(axis=1, keepdims=True) * np.float32(scale)


@kernel(
    cpp_src="""
    PTO_SHARED(512);
    float* const sums = shared<float>(context);
    for (int64_t i = 0; i < x.rows(); ++i) {
      float sum = 0;  // of this thread: PTO_CHECK(false, "not a check")
      for (int64_t j = thread(); j < x.cols(); j += threads()) sum += x(i, j) < 0 ? -x(i, j) : x(i, j);
      sums[thread()] = sum;
      sync();
      float total = 0;
      for (int k = 0; k < threads(); ++k) total += sums[k];
      PTO_CHECK(total > 0, "a row is zero");
      PTO_EACH(j, x.cols()) y(i, j) = x(i, j) / total * scale;
    }
    """,
    targets=("cuda",),
    reference=normalised,
)
def normalise(x: In[Tile[4, COLS, f32]], y: Out[Tile[4, COLS, f32]], scale: Scalar[f32]): ...


@workload
def rows(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "n", COLS], Z: Tensor[f32, "n", COLS], by: Scalar[f32]):
    for r in P.tiles("n", 4):
        normalise[r](x=X[r], y=Y[r], scale=by)
    for r in P.tiles("n", 4):
        normalise[r](x=Y[r], y=Z[r], scale=1.0)


def run_rows(program: Program, n: int = 10) -> None:
    """Run the workload and compare its results with numpy."""
    x = np.random.default_rng(n).standard_normal((n, COLS)).astype(np.float32)
    y, z, wanted = (np.zeros_like(x) for _ in range(3))
    program(X=x, Y=y, Z=z, by=2.5, workers=3)
    normalised(x, wanted, 2.5)
    np.testing.assert_allclose(y, wanted, rtol=1e-5)
    normalised(y, wanted, 1.0)
    np.testing.assert_allclose(z, wanted, rtol=1e-5)


def line_of(text: str) -> int:
    """Return the number of a line of this file."""
    return Path(__file__).read_text().split("\n").index(text) + 1


@pytest.mark.usefixtures("gpu")
def test_results() -> None:
    program = rows.compile("cuda")
    for n in (1, 4, 10):
        run_rows(program, n)
    run_rows(rows.compile("interp"))


@pytest.mark.usefixtures("gpu")
def test_checks_name_line_and_task() -> None:
    program = rows.compile("cuda")
    x = np.ones((9, COLS), np.float32)
    x[6] = 0
    line = line_of('      PTO_CHECK(total > 0, "a row is zero");')
    with pytest.raises(KernelFailed, match=rf"test_native.py:{line}\b[\s\S]*a row is zero") as caught:
        program(X=x, Y=x.copy(), Z=x.copy(), by=1.0, workers=2)
    assert "in task 1 in iteration r = 1" in str(caught.value)


@kernel(
    cpp_src="""
    if (kSkips && x.rows() == 0) return kDone;
    for (int64_t i = 0; i < x.rows(); ++i) {
      for (Cells c(x.size(1), x.size(2)); c.more(); c.advance()) {
        y(i, c.i, c.j) = Bf16{bf16_bits(widened(x(i, c.i, c.j)) + float(first + int64_t(context.task)))};
      }
    }
    PTO_EACH(k, counts.rows()) counts(k, 0) += 1;
    """,
    targets=("cuda", "other"),
)
def shift(
    x: In[Tensor[bf16, DYN, 2, 8]],
    y: Out[Tensor[bf16, DYN, 2, 8]],
    counts: InOut[Tensor[i32, DYN, 1]],
    first: Scalar[i64],
    kSkips: Constexpr[bool],
): ...


@workload
def shifted(
    K: Tensor[i32, "n"], X: Tensor[bf16, "n", 2, 8], Y: Tensor[bf16, "n", 2, 8], Counts: Tensor[i32, "n", 1]
):
    groups = group_by(K, num_groups=3)
    for g in P(3):
        for r in P.tiles(groups[g], 2):
            part = groups.rows(r)
            shift[g, r](x=X[part], y=Y[part], counts=Counts[part], first=g, kSkips=True)


@pytest.mark.usefixtures("gpu")
def test_lists_of_rows_types_and_constants() -> None:
    """Views of three dimensions and of two, whose rows a list names."""
    keys = np.array([2, 0, 2, 1, 2, 0, 2], np.int32)
    x = np.arange(7 * 16, dtype=np.float32).reshape(7, 2, 8).astype(bf16.to_numpy())
    y, counts = np.zeros_like(x), np.zeros((7, 1), np.int32)
    shifted.compile("cuda")(K=keys, X=x, Y=y, Counts=counts, workers=2)
    # The task that groups is number 0; tasks follow group by group, two rows each.
    numbers = {0: 1, 1: 2, 2: 3}
    seen = dict.fromkeys(range(3), 0)
    for row, key in enumerate(keys):
        task = numbers[key] + seen[key] // 2
        seen[key] += 1
        wanted = (x[row].astype(np.float32) + key + task).astype(x.dtype)
        np.testing.assert_array_equal(y[row].astype(np.float32), wanted.astype(np.float32))
    assert (counts == 1).all()


# --- races --------------------------------------------------------------------------------------------------


def test_no_thread_races(tmp_path: Path) -> None:
    run_rows(alone(rows.compile("interp").module, tmp_path, SANITIZED))


def test_a_barrier_that_is_left_out_is_found(tmp_path: Path) -> None:
    change = {"sums[thread()] = sum;\n      sync();": "sums[thread()] = sum;"}
    program = alone(rows.compile("interp").module, tmp_path, SANITIZED, text=change)
    with pytest.raises(Broken, match="data race"):
        run_rows(program)


def test_threads_that_leave_early_are_found(tmp_path: Path) -> None:
    change = {"float sum = 0;": "if (thread() == 3) return kDone; float sum = 0;"}
    program = alone(rows.compile("interp").module, tmp_path, text=change)
    with pytest.raises(Broken, match="not all threads of the block reach a barrier"):
        run_rows(program)


# --- what compilers refuse ----------------------------------------------------------------------------------


def of_text(text: str, **options: Any) -> Workload:
    """Return a workload with a kernel in C++."""

    @kernel(cpp_src=text, **{"targets": ("cuda",), **options})
    def one(x: In[Tile[4, COLS, f32]], y: Out[Tile[4, COLS, f32]]): ...

    @workload
    def all_rows(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "n", COLS]):
        for r in P.tiles("n", 4):
            one[r](x=X[r], y=Y[r])

    return all_rows


WRONG = {
    "a name": ("y(0, 0) = bias;", "bias"),
    "an output": ("x(0, 0) = 1;", ""),
    "indices": ("y(0) = 1;", ""),
    "a result": ("return 3;", ""),
}


def refusal(text: str, build: Any) -> str:
    with pytest.raises(CppError, match="the C\\+\\+ of kernel `one` does not compile") as caught:
        build(of_text(f"// first line\n{text}\n"))
    assert ":2" in str(caught.value) and text in str(caught.value)
    return str(caught.value)


def built_by(compiler: str, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that builds a workload with nvcc or NVRTC."""
    if compiler == "NVRTC":
        monkeypatch.setattr(toolchain, "nvcc_paths", lambda: iter(()))

    def build(made: Workload) -> bytes:
        code = CudaTarget().program_code(made.compile("interp").module)
        return toolchain.build_cubin(code.text, "sm_80", cache, code.kernels.natives)[0]

    return build


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_at_lines_of_the_text(wrong: str) -> None:
    text, name = WRONG[wrong]
    assert name in refusal(text, lambda made: made.compile("cuda"))


@pytest.mark.parametrize(
    "compiler", [pytest.param("nvcc", marks=needs_nvcc), pytest.param("NVRTC", marks=needs_nvrtc)]
)
def test_compilers_of_nvidia(compiler: str, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    build = built_by(compiler, cache, monkeypatch)
    for made in (rows, shifted):
        assert build(made).startswith(b"\x7fELF")
    for text, name in WRONG.values():
        assert name in refusal(text, build)


@needs_nvcc
def test_the_emitted_folder_compiles(tmp_path: Path) -> None:
    """Its text has no paths of this machine."""
    text = registry.get("cuda").emit(rows.compile("interp").module).files["program.cu"]
    line = line_of("    PTO_SHARED(512);") - 1
    assert f'#line {line} "test_native.py"' in text and str(Path(__file__).parent) not in text
    source = tmp_path / "program.cu"
    source.write_text(text)
    compiled(source, "sm_90a", "-cubin")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("y(0, 0) = 1;", {"targets": ()}, r"its C\+\+ is written for a CPU: state `targets=\(\"cuda\",\)`"),
        ("y(0, 0) = 1;", {"targets": ("ascend_a5",)}, r"its C\+\+ is written for `ascend_a5`"),
        ("y(0, 0) = 1;", {"cpp_includes": ["mine.hpp"]}, r"files next to a kernel are not emitted"),
        ("PTO_SHARED(200000);", {}, r"`PTO_SHARED\(200000\)`[\s\S]*at most 164864"),
        ("PTO_SHARED(8 * 4);", {}, r"`PTO_SHARED\(8 \* 4\)`[\s\S]*state a number of bytes once"),
        ('PTO_CHECK(true, "a"); PTO_CHECK(true, "b");', {}, r"two PTO_CHECK on one line"),
        ("PTO_SHARED(8); PTO_SHARED(8);", {}, r"state a number of bytes once"),
    ],
)
def test_what_is_refused(text: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnsupportedByTarget, match=expected) as caught:
        registry.get("cuda").check(of_text(text, **options).trace().module)
    assert "test_native.py" in str(caught.value) or "<C++ of one" in str(caught.value)


def test_other_targets_refuse_the_kernel() -> None:
    for target in ("cpu", "sim"):
        with pytest.raises(UnsupportedByTarget, match=rf"`{target}`[\s\S]*its C\+\+ is written for `cuda`"):
            rows.compile(target)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('PTO_CHECK(x.rows() == 4,\n          "not "\n          "four");', r"failed: not four\n.*:2\n"),
        (
            '#define MINE(c) PTO_CHECK(c, "mine")\nMINE(x.rows() == 4);',
            r"a check on this line failed\n.*:3\n",
        ),
        ('PTO_CHECK(x(0, thread() % 4) < 1, "large");', r"failed: large\n.*:2\n"),
    ],
    ids=["of several lines", "in a macro", "in one thread"],
)
def test_places_of_checks(text: str, message: str) -> None:
    x = np.zeros((3, COLS), np.float32)
    x[0, 3] = 2
    with pytest.raises(KernelFailed, match=message):
        of_text(f"// first line\n{text}\n").compile("cuda")(X=x, Y=x.copy())
