"""Kernels in C++: bodies and translation units, given as text or in files."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, i32, kernel, pto, workload
from pto_wsp.errors import BadKernelOption, CppError, KernelFailed, NoReference

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
    assert "  CPP body\n" in text and "\n  |    for (int64_t i = 0; i < x.rows(); ++i) {\n" in text


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


@pytest.mark.parametrize("name", ["context", "register", "a__b", "_Great", "größe"])
def test_names_that_cpp_cannot_use(name: str) -> None:
    from tests.python.lang.programs import execute

    with pytest.raises(BadKernelOption, match="another meaning in C"):
        execute(f"@kernel(cpp_src='')\ndef k({name}: In[Tile[1, 1, f32]]): ...")
