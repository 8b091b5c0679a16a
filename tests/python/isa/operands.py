"""Operands that fit the rows of the instruction table, for tests that walk it."""

from __future__ import annotations

import numpy as np

from pto_wsp.isa.forms import PRODUCTS, Form
from pto_wsp.isa.meaning import pairs
from pto_wsp.isa.table import Instruction
from pto_wsp.types.dtype import DType, b1, f32, i8, i32, u8
from pto_wsp.types.quantised import CHUNK, FORMATS, Numbers, pack

Shape = tuple[int, int]
QUANTISED = FORMATS["q8_0"]
"""The format of the right operand that `matmul_quantised` gets, of which it gets one block."""
RUN = 3
"""Length of the sorted runs that `mrgsort` gets."""
PLACE = (1, 2)
"""Row and column of the parts of tiles."""


def makes_shape(row: Instruction) -> bool:
    """Return whether the shape of the result is asked for, not that of an operand."""
    return row.form in (Form.FILL, Form.IOTA, *_FIRST, *_PARTS, Form.ROW_EXPAND, Form.COL_EXPAND)


_FIRST = (Form.MERGE, Form.TOPK_VALUES, Form.TOPK_INDICES)
_PARTS = (Form.RESHAPE, Form.EXTRACT)


def operand_shapes(row: Instruction, attrs: dict[str, object], shape: Shape, k: int) -> list[Shape]:
    """Return shapes of the operands for a result of `shape`; `k` is an extent that it does not have."""
    rows, cols = shape
    form = FORMATS[str(attrs.get("format", QUANTISED.name))]
    shapes: dict[Form, list[Shape]] = {
        Form.FILL: [],
        Form.IOTA: [],
        Form.ROW_EXPAND: [(rows, 1)],
        Form.COL_EXPAND: [(1, cols)],
        Form.ROW_BROADCAST: [shape, (rows, 1)],
        Form.COL_BROADCAST: [shape, (1, cols)],
        Form.RESHAPE: [(cols, rows)],
        Form.EXTRACT: [(rows + PLACE[0], cols + PLACE[1] + k)],
        Form.INSERT: [shape, (max(0, rows - PLACE[0]), max(0, cols - PLACE[1]))],
        Form.PUT: [shape, (rows, k), (rows, k)],
        Form.TOPK_VALUES: [(rows, k)],
        Form.TOPK_INDICES: [(rows, k)],
        Form.MERGE: [(rows, k), (rows, k // 2 + 1)],
        Form.TAKE: [(rows, k), (rows, cols)],
        Form.QUANTISE: [(rows, CHUNK)],
        Form.MATMUL_QUANTISED: [shape, (rows, form.block), (1, cols * form.column_bytes)],
    }
    if row.form in PRODUCTS:
        a = (k, rows) if attrs["trans_a"] else (rows, k)
        b = (cols, k) if attrs["trans_b"] else (k, cols)
        return {Form.MATMUL_ACC: [shape, a, b], Form.MATMUL_BIAS: [a, b, (1, cols)]}.get(row.form, [a, b])
    return shapes.get(row.form, [shape] * row.form.num_tiles)


def has_place(row: Instruction, shape: Shape) -> bool:
    """Return whether operands of `shape` have the place where the row's part begins."""
    match row.form:
        case Form.INSERT:
            return shape[0] >= PLACE[0] and shape[1] >= PLACE[1]
        case Form.SET:
            return shape[0] > PLACE[0] and shape[1] > PLACE[1]
        case _:
            return True


def operand_types(row: Instruction, dtype: DType) -> list[DType]:
    """Return the element types of the operands, where the data is of type `dtype`."""
    match row.form:
        case Form.SELECT | Form.SELECT_SCALAR:
            return [b1] + [dtype] * (row.form.num_tiles - 1)
        case Form.MATMUL_ACC:
            return [i32 if dtype is i8 else f32, dtype, dtype]
        case Form.MATMUL_BIAS:
            return [dtype, dtype, i32 if dtype is i8 else f32]
        case Form.MATMUL_QUANTISED:
            return [f32, dtype, u8]
        case Form.SORT | Form.TAKE:
            return [dtype, i32]
        case Form.PUT:
            return [dtype, dtype, i32]
        case _:
            return [dtype] * row.form.num_tiles


def fitting(row: Instruction, arrays: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Return operands that the row has a meaning for: sorted, or indices that lie inside."""
    match row.form:
        case Form.TAKE:
            source, indices = arrays
            return [source, rng.integers(0, source.shape[1], indices.shape).astype(np.int32)]
        case Form.PUT:
            target, values, indices = arrays
            if target.shape[1] == 0:
                return [target, values[:, :0], indices[:, :0]]
            return [target, values, rng.integers(0, target.shape[1], indices.shape).astype(np.int32)]
        case Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES:
            return [_sorted(a, max(1, a.shape[1]), rng) for a in arrays]
        case Form.MERGE_RUNS:
            return [_sorted(arrays[0], RUN, rng)]
        case Form.MATMUL_QUANTISED:
            acc, x, blocks = arrays
            return [acc, x, blocks if blocks.size == 0 else _quantised(blocks, rng)]
        case _:
            return arrays


def _quantised(like: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a block of elements that are not negative, so that their sum is that of their sizes."""
    cols = like.shape[1] // QUANTISED.column_bytes
    q = rng.integers(QUANTISED.zero, 256, (QUANTISED.block, cols)).astype(np.uint8)
    scale = rng.uniform(0.5, 2, (1, cols)).astype(np.float16)
    return pack(Numbers(QUANTISED, q, scale), cols)[0]


def _sorted(like: np.ndarray, run: int, rng: np.random.Generator) -> np.ndarray:
    """Return random pairs, many of equal value, sorted in runs."""
    values = rng.choice(
        np.array([0.0, -0.0, 1.5, -2, np.inf, -np.inf, np.nan, 1e-45], np.float32), like.shape
    )
    found = pairs(values, rng.integers(-5, 2**31 - 1, like.shape).astype(np.int32))
    for j in range(0, like.shape[1], run):
        found[:, j : j + run] = np.sort(found[:, j : j + run], axis=1)[:, ::-1]
    return found
