"""`pto.matmul_quantised` in kernels: on both targets, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import DYN, In, Out, P, Tensor, Tile, f32, kernel, pto, u8, workload
from pto_wsp.errors import BadOperand, DTypeMismatch, KernelFailed, ShapeMismatch
from pto_wsp.types.quantised import FORMATS, pack, quantise
from tests.python.lang.programs import error_of

COLS = 16
FORM = FORMATS["q4_0"]
ROW = COLS * FORM.column_bytes


@kernel
def linear(x: In[Tensor[f32, 4, DYN]], w: In[Tensor[u8, DYN, ROW]], y: Out[Tile[4, COLS, f32]]):
    total = pto.zeros((4, COLS))
    for i in range(w.rows // 2):
        total = pto.matmul_quantised(total, x[:, i * 64 : i * 64 + 64], w[i * 2 : i * 2 + 2], "q4_0")
    pto.store(y, total)


@workload
def layer(X: Tensor[f32, 4, "k"], W: Tensor[u8, "panels", "blocks", ROW], Y: Tensor[f32, "panels", 4, COLS]):
    for p in P("panels"):
        linear[p](x=X, w=W[p], y=Y[p])


def test_both_targets_multiply_with_the_elements() -> None:
    rng = np.random.default_rng(0)
    x, matrix = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 128), (128, 40)))
    numbers = quantise(matrix, FORM)
    for target in ("interp", "cpu"):
        y = np.empty((3, 4, COLS), np.float32)
        layer.compile(target)(X=x, W=pack(numbers, COLS), Y=y)
        found = y.transpose(1, 0, 2).reshape(4, 48)
        np.testing.assert_allclose(found[:, :40], x @ numbers.values(), rtol=1e-4, atol=1e-4)
        assert (found[:, 40:] == 0).all()


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_another_number_of_rows_fails_in_the_kernel(target: str) -> None:
    @kernel
    def short(x: In[Tile[4, 64, f32]], w: In[Tile[2, ROW, u8]], y: Out[Tile[4, COLS, f32]]):
        pto.store(y, pto.matmul_quantised(pto.zeros((4, COLS)), x, w, "q4_0"))

    @workload
    def part(X: Tensor[f32, 4, "k"], W: Tensor[u8, "blocks", ROW], Y: Tensor[f32, 4, COLS]):
        short(x=X, w=W, y=Y)

    y = np.empty((4, COLS), np.float32)
    with pytest.raises(KernelFailed, match="not as many columns"):
        part.compile(target)(X=np.zeros((4, 63), np.float32), W=np.zeros((2, ROW), np.uint8), Y=y)


TEXT = """
@kernel
def k(x: In[Tile[4, {cols}, {dtype}]], w: In[Tile[2, {size}, {kind}]], y: Out[Tile[4, 16, f32]]):
    pto.store(y, pto.matmul_quantised(pto.zeros((4, 16)), x, w, {name!r}))
"""


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"cols": 60}, ShapeMismatch, "2 blocks of 32"),
        ({"size": ROW - 1}, ShapeMismatch, "18 bytes for each of 16 columns"),
        ({"kind": "i8"}, DTypeMismatch, "expected u8, found i8"),
        ({"dtype": "i32"}, DTypeMismatch, "found i32"),
        ({"name": "q5_0"}, BadOperand, "q4_k"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_operands_that_do_not_fit_are_refused(changed: dict[str, object], error: type, text: str) -> None:
    given = {"cols": 64, "dtype": "f32", "size": ROW, "kind": "u8", "name": "q4_0"} | changed
    found = error_of(TEXT.format(**given))
    assert isinstance(found, error) and text in str(found), found
