"""Operators and functions of kernels: what they compute and which instructions they become."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import Instr, walk_statements
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.types import ViewType, f32, i32
from tests.python.lang.programs import execute, ir_of, kernel_of, result_of

A = np.linspace(-2, 3, 32, dtype=np.float32).reshape(4, 8)
B = np.linspace(1, 9, 32, dtype=np.float32).reshape(4, 8)
ROW = np.arange(1, 5, dtype=np.float32).reshape(4, 1)
COL = np.arange(1, 9, dtype=np.float32).reshape(1, 8)
SIGNATURE = (
    "a: In[Tile[4, 8, f32]], b: In[Tile[4, 8, f32]], row: In[Tile[4, 1, f32]], col: In[Tile[1, 8, f32]], "
    "s: Scalar[f32], out: Out[Tile[4, 8, f32]]"
)
SCOPE = {"a": A, "b": B, "row": ROW, "col": COL, "s": np.float32(1.5), "np": np}


def ops_of(body: str) -> list[str]:
    return [s.op for s in walk_statements(kernel_of(SIGNATURE, body).body or ()) if isinstance(s, Instr)]


@pytest.mark.parametrize(
    ("expression", "expected", "ops"),
    [
        ("a + b", "a + b", "add"),
        ("a - 1", "a - 1", "subs"),
        ("1 - a", "1 - a", "expands sub"),
        ("2 + a", "a + 2", "adds"),
        ("s * a", "a * s", "muls"),
        ("2 / b", "2 / b", "expands div"),
        ("s / b - s", "s / b - s", "expands div subs"),
        ("-a", "-a", "neg"),
        ("+a", "a", ""),
        ("abs(a)", "np.abs(a)", "abs"),
        ("a - row", "a - row", "rowexpandsub"),
        ("a * row", "a * row", "rowexpandmul"),
        ("a / row", "a / row", "rowexpanddiv"),
        ("row - a", "row - a", "rowexpand sub"),
        ("a + row", "a + row", "rowexpandadd"),
        ("a * col", "a * col", "colexpandmul"),
        ("col - a", "col - a", "colexpand sub"),
        ("row * col", "row * col", "rowexpand colexpand mul"),
        ("row - col", "row - col", "rowexpand colexpand sub"),
        ("pto.maximum(a, 0.5)", "np.maximum(a, 0.5)", "maxs"),
        ("pto.minimum(0.5, a)", "np.minimum(a, 0.5)", "mins"),
        ("pto.maximum(a, row)", "np.maximum(a, row)", "rowexpandmax"),
        ("pto.where(a > 0, a, b)", "np.where(a > 0, a, b)", "cmps sel"),
        ("pto.where(0 > a, a, 1.0)", "np.where(a < 0, a, 1)", "cmps sels"),
        ("pto.where(a <= b, 1, b)", "np.where(a <= b, 1, b)", "cmp expands sel"),
        ("pto.where(a != b, 1, s)", "np.where(a != b, 1, s)", "cmp expands sels"),
        ("pto.where(row > 2, a, b)", "np.where(row > 2, a, b)", "cmps rowexpand sel"),
        (
            "pto.where(pto.compare(a, b, 'ge'), row, col)",
            "np.where(a >= b, row, col)",
            "cmp rowexpand colexpand sel",
        ),
        ("pto.rowexpand(row, 8)", "row + 0 * a", "rowexpand"),
        ("pto.colexpand(col, a.rows)", "col + 0 * a", "colexpand"),
        ("a + pto.full((a.rows, 8), s)", "a + s", "expands add"),
        ("a + pto.zeros(a.shape)", "a", "expands add"),
        ("pto.rowsum(a) + 0 * a", "a.sum(1, keepdims=True) + 0 * a", "rowsum muls rowexpand add"),
        ("a - pto.rowmax(a)", "a - a.max(1, keepdims=True)", "rowmax rowexpandsub"),
        ("pto.matmul(a, a.T) @ b", "a @ a.T @ b", "matmul matmul"),
        (
            "pto.matmul(a.T.T, pto.transpose(a) @ b, acc=a * 0)",
            "a @ (a.T @ b)",
            "muls transpose matmul matmul_acc",
        ),
        ("a.T.T + (b.T * 2).T", "a + 2 * b", "transpose muls transpose add"),
        ("pto.cast(pto.cast(a, i32), f32)", "np.trunc(a)", "cvt cvt"),
        ("pto.sqrt(b) * sqrt(4) / math.inf", "0 * b", "sqrt muls divs"),
    ],
)
def test_expression(expression: str, expected: str, ops: str) -> None:
    body = f"pto.store(out, {expression})"
    result = result_of(SIGNATURE, body, A, B, ROW, COL, 1.5, out=(4, 8))
    np.testing.assert_allclose(result, eval(expected, SCOPE), rtol=1e-5, atol=1e-5)
    assert " ".join(ops_of(body)) == ops


def test_valid_extents_follow_broadcasts() -> None:
    kernel = kernel_of(SIGNATURE, "pto.store(out, pto.where(row > 1, (row * col) + a, 1 - b))")
    out = np.full((3, 5), 9, np.float32)
    run_kernel(kernel, [A[:3, :5], B[:3, :5], ROW[:3], COL[:, :5], 0.0, out])
    np.testing.assert_allclose(out, np.where(ROW[:3] > 1, ROW[:3] * COL[:, :5] + A[:3, :5], 1 - B[:3, :5]))


def test_a_scalar_is_stored_everywhere() -> None:
    kernel = kernel_of(
        "y: Out[Tensor[f32, DYN, 6]], s: Scalar[f32]", "for r in pto.tiles(y.rows, 4):\n  pto.store(y[r], s)"
    )
    out = np.zeros((7, 6), np.float32)
    run_kernel(kernel, [out, 2.5])
    assert (out == 2.5).all()


def test_i32_arithmetic() -> None:
    signature = "x: In[Tile[2, 4, i32]], n: Scalar[i64], out: Out[Tile[2, 4, i32]]"
    x = np.array([[-7, -1, 0, 1], [2, 3, 5, 7]], np.int32)
    body = "pto.store(out, pto.rem(pto.div(x * 3 - n, 2), 3) + pto.full((2, 4), 1, i32))"
    result = result_of(signature, body, x, 4, out=(2, 4), dtype=np.int32)
    assert (result == np.fmod(np.trunc((x * 3 - 4) / 2), 3) + 1).all()


def test_views() -> None:
    kernel = kernel_of(
        "x: In[Tensor[f32, 3, DYN, DYN]], n: Scalar[i64], out: InOut[Tile[4, 8, f32]]",
        """
        plane = x[n]
        for r in pto.tiles(plane.rows, 4):
            for c in pto.tiles(x.shape[2], 8):
                if c.stop == plane.cols and r.start == 0:
                    pto.store(out, out + plane[r, c] + x[0, r, c] + x[1][r][:, c])
        """,
    )
    x = np.random.default_rng(0).random((3, 4, 8), np.float32)
    out = np.ones((4, 8), np.float32)
    run_kernel(kernel, [x, 2, out])
    np.testing.assert_allclose(out, 1 + x[2] + x[0] + x[1], rtol=1e-6)


def test_constant_slices() -> None:
    signature = "x: In[Tensor[f32, 8, 16]], out: Out[Tile[4, 8, f32]]"
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    for body, expected in (
        ("pto.store(out, x[4:, 8:])", x[4:, 8:]),
        ("pto.store(out, x[:4, :8])", x[:4, :8]),
        ("pto.store(out, x[2:8][1:5, 4:12])", x[3:7, 4:12]),
        ("half = x[:, 8:]\npto.store(out, half[0:4] + half[4:8])", x[:4, 8:] + x[4:, 8:]),
    ):
        np.testing.assert_array_equal(result_of(signature, body, x, out=(4, 8)), expected)


def test_an_input_is_loaded_once_at_the_start() -> None:
    kernel = kernel_of(SIGNATURE, "for i in range(3):\n    pass\npto.store(out, a * a + b)")
    assert [type(s).__name__ for s in kernel.body or ()][:3] == ["Load", "Load", "For"]
    loads = [s for s in walk_statements(kernel.body or ()) if type(s).__name__ == "Load"]
    assert [s.region.tensor for s in loads] == ["a", "b"]


def test_functions_and_constants_of_the_scope() -> None:
    text = """
    class Config:
        width = 8
    SIZES = (4, Config.width)
    def make(scale, dtype=f32):
        WIDTH = 8
        @kernel
        def k(x: In[Tile[SIZES[0], WIDTH, dtype]], y: Out[Tile[4, Config.width, dtype]]):
            bias = max(SIZES) + len(SIZES) + math.floor(2.5)
            pto.store(y, x * scale + bias + pto.zeros(SIZES))
        return k
    double, triple = make(2), make(3)
    """
    names = execute(text)
    for name, factor in (("double", 2), ("triple", 3)):
        out = np.empty((4, 8), np.float32)
        run_kernel(ir_of(names[name]), [A, out])
        np.testing.assert_allclose(out, A * factor + 12, rtol=1e-6)


def test_specialisation() -> None:
    names = execute(
        """
        @kernel
        def copy(x: In[Tensor], y: Out[Tensor], BLOCK: Constexpr[int] = 4, fast: Constexpr[bool] = False):
            for r in pto.tiles(x.rows, BLOCK):
                for c in pto.tiles(x.cols, BLOCK * 2):
                    if fast:
                        pto.store(y[r, c], x[r, c])
                    else:
                        pto.store(y[r, c], pto.load(x[r, c]) * 1)
        """
    )
    kernel = names["copy"]
    assert isinstance(kernel, Kernel) and kernel.is_generic
    for dtype, numpy_dtype in ((f32, np.float32), (i32, np.int32)):
        view = ViewType(dtype, (None, None))
        function = kernel.specialise({"x": view, "y": view}, {"BLOCK": 4, "fast": False})
        assert function.name == f"copy_{dtype}x2_{dtype}x2_4"
        assert kernel.specialise({"x": view, "y": view}, {"BLOCK": 4, "fast": False}) is function
        x, y = np.arange(77, dtype=numpy_dtype).reshape(7, 11), np.zeros((7, 11), numpy_dtype)
        run_kernel(function, [x, y])
        assert (x == y).all()


def test_declarations() -> None:
    text = "@kernel\ndef k(x: In[Tile[4, 8, f32]], y: Out[Tensor[f32, DYN, 8]]):\n    "
    for body in ("...", '"""Later."""\n    ...', "...  # later"):
        assert ir_of(execute(text + body)["k"]).body is None
