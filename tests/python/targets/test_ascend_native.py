"""Kernels in C++ for cores of Ascend: they go through as they are, or are refused by name."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from pto_wsp import DYN, Constexpr, In, Out, P, Scalar, Sparse, Tensor, Tile, f32, kernel, parse, workload
from pto_wsp.errors import BadKernelOption, KernelFailed, UnsupportedByTarget
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3
from pto_wsp.targets.ascend.kernel import write_kernel
from tests.ascend.standin.build import StandInTarget

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
BOTH = ("ascend_a2a3", "ascend_a5", "standin_A2A3", "standin_A5")
SCALE = """
  Tile<TileType::Vec, float, 16, COLS, BLayout::RowMajor, -1, -1> tile(x.shape[0], x.shape[1]);
  TASSIGN(tile, 0);
  using Part = GlobalTensor<float, Shape<1, 1, 1, -1, -1>, Stride<1, 1, 1, -1, 1>>;
  Part from((float*)x.data, {x.shape[0], x.shape[1]}, Stride<1, 1, 1, -1, 1>(x.stride[0]));
  Part to(y.data, {y.shape[0], y.shape[1]}, Stride<1, 1, 1, -1, 1>(y.stride[0]));
  TLOAD(tile, from);
  set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
  wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
  TMULS(tile, tile, factor);
  set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
  wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
  TSTORE(to, tile);
"""


def scaled(x: np.ndarray, y: np.ndarray, factor: float, COLS: int) -> None:
    y[:] = x * np.float32(factor)


@kernel(cpp_src=SCALE, core="vector", targets=BOTH, reference=scaled)
def scale(
    x: In[Tensor[f32, DYN, 64]], y: Out[Tensor[f32, DYN, 64]], factor: Scalar[f32], COLS: Constexpr[int]
): ...


@workload
def layers(X: Tensor[f32, "n", "rows", 64], Y: Tensor[f32, "n", "rows", 64]):
    for i in P("n"):
        for rows in P.tiles("rows", 16):
            scale[i, rows](x=X[i, rows], y=Y[i, rows], factor=1.5, COLS=64)


@workload
def picked(routing: Sparse["experts"], X: Tensor[f32, "tokens", 64], Y: Tensor[f32, "tokens", 64]):
    for e in P("experts"):
        for part in P.tiles(routing[e], 16):
            rows = routing.rows(part)
            scale[e, part](x=X[rows], y=Y[rows], factor=1.5, COLS=64)


@needs_compiler
def test_it_has_the_results_of_its_reference(standin: StandInTarget) -> None:
    x = np.random.default_rng(0).standard_normal((3, 40, 64)).astype(np.float32)
    found = []
    for name in ("interp", standin.name):
        arrays: dict[str, Any] = {"X": x, "Y": np.zeros_like(x)}
        compile_module(layers.trace().module, name).run(**arrays)
        found.append(arrays["Y"])
    assert standin.standin is not None and standin.standin.report() == ""
    assert np.array_equal(found[0], found[1]) and found[0].any()


@needs_compiler
def test_a_list_of_rows_is_an_error_of_the_run(standin: StandInTarget) -> None:
    routing = Sparse.csr(np.array([0, 3]), np.array([2, 0, 1], np.int32))
    x = np.ones((3, 64), np.float32)
    arrays: dict[str, Any] = {"routing": routing, "X": x, "Y": np.zeros_like(x)}
    with pytest.raises(KernelFailed, match="rows of `x` are listed"):
        compile_module(picked.trace().module, standin.name).run(**arrays)


def test_the_text_is_in_the_file_as_it_is() -> None:
    files = registry.get("ascend_a2a3").emit(layers.trace().module).files
    (path,) = (path for path in files if path.startswith("kernels/"))
    assert SCALE in files[path] and "constexpr auto COLS = int64_t{64};" in files[path]
    assert path in files["device.cmake"].split("CUBE_KERNELS")[0]


def test_its_targets_are_part_of_the_text() -> None:
    module = layers.trace().module
    assert 'TARGET "ascend_a2a3"' in str(module) and str(parse(str(module))) == str(module)


X, Y = In[Tile[16, 64, f32]], Out[Tile[16, 64, f32]]


@kernel(cpp_src="y(0, 0) = x(0, 0);")
def for_a_cpu(x: X, y: Y): ...


@kernel(cpp_src=";", core="vector", targets=("ascend_a5",))
def for_a5(x: X, y: Y): ...


@kernel(cpp_src=";", targets=("ascend_a2a3",))
def anywhere(x: X, y: Y): ...


@kernel(cpp_src=";", core="cube", targets=("ascend_a2a3",), cpp_includes=["mine.hpp"])
def with_files(x: X, y: Y): ...


@kernel(cpp_src=";", core="vector", workspace=lambda p: 64, targets=("ascend_a2a3",))
def with_workspace(x: X, y: Y): ...


@workload
def spacious(A: Tensor[f32, 16, 64], B: Tensor[f32, 16, 64]):
    with_workspace[0](x=A, y=B)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (for_a_cpu, "is written for a CPU"),
        (for_a5, "is written for `ascend_a5`"),
        (anywhere, 'core="vector"'),
        (with_files, "are not emitted"),
    ],
)
def test_a_refusal_says_what_to_do(refused: Kernel, words: str) -> None:
    with pytest.raises(UnsupportedByTarget, match=words) as found:
        write_kernel(refused.specialise({}, {}), A2A3)
    assert "test_ascend_native.py:" in str(found.value)


def test_workspaces_of_tasks_are_refused() -> None:
    with pytest.raises(UnsupportedByTarget, match="a workspace of a task"):
        spacious.compile("ascend_a2a3")


@pytest.mark.parametrize("target", ["cpu", "arm64", "sim", "cuda"])
def test_other_targets_refuse_it(target: str) -> None:
    with pytest.raises(UnsupportedByTarget, match="C\\+\\+"):
        layers.compile(target)


def test_targets_are_names() -> None:
    with pytest.raises(BadKernelOption, match="not a list of names"):
        kernel(cpp_src=";", targets="ascend_a2a3")(for_a5_plain)
    with pytest.raises(BadKernelOption, match="belongs to kernels in C"):
        kernel(targets=("ascend_a2a3",))(for_a5_plain)


def for_a5_plain(x: X, y: Y): ...
