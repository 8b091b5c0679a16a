"""Operands that fit the rows of the instruction table, for tests that walk it."""

from __future__ import annotations

import numpy as np

from pto_wsp.isa.forms import Form
from pto_wsp.isa.meaning import pairs
from pto_wsp.isa.table import Instruction
from pto_wsp.types.dtype import DType, b1, f32, i32

Shape = tuple[int, int]
RUN = 3
"""Length of the sorted runs that `mrgsort` gets."""


def makes_shape(row: Instruction) -> bool:
    """Return whether the shape of the result is asked for, not that of an operand."""
    return row.form in (Form.FILL, Form.IOTA, *_FIRST, Form.ROW_EXPAND, Form.COL_EXPAND)


_FIRST = (Form.MERGE, Form.TOPK_VALUES, Form.TOPK_INDICES)


def operand_shapes(row: Instruction, attrs: dict[str, object], shape: Shape, k: int) -> list[Shape]:
    """Return shapes of the operands for a result of `shape`; `k` is an extent that it does not have."""
    rows, cols = shape
    match row.form:
        case Form.FILL | Form.IOTA:
            return []
        case Form.ROW_EXPAND:
            return [(rows, 1)]
        case Form.COL_EXPAND:
            return [(1, cols)]
        case Form.ROW_BROADCAST:
            return [(rows, cols), (rows, 1)]
        case Form.TOPK_VALUES | Form.TOPK_INDICES:
            return [(rows, k)]
        case Form.MERGE:
            return [(rows, k), (rows, k // 2 + 1)]
        case Form.TAKE:
            return [(rows, k), (rows, cols)]
        case Form.MATMUL | Form.MATMUL_ACC:
            a = (k, rows) if attrs["trans_a"] else (rows, k)
            b = (cols, k) if attrs["trans_b"] else (k, cols)
            return [(rows, cols), a, b] if row.form is Form.MATMUL_ACC else [a, b]
        case _:
            return [(rows, cols)] * row.form.num_tiles


def operand_types(row: Instruction, dtype: DType) -> list[DType]:
    """Return the element types of the operands, where the data is of type `dtype`."""
    match row.form:
        case Form.SELECT | Form.SELECT_SCALAR:
            return [b1] + [dtype] * (row.form.num_tiles - 1)
        case Form.MATMUL_ACC:
            return [f32, dtype, dtype]
        case Form.SORT | Form.TAKE:
            return [dtype, i32]
        case _:
            return [dtype] * row.form.num_tiles


def fitting(row: Instruction, arrays: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Return operands that the row has a meaning for: sorted, or indices that lie inside."""
    match row.form:
        case Form.TAKE:
            source, indices = arrays
            return [source, rng.integers(0, source.shape[1], indices.shape).astype(np.int32)]
        case Form.MERGE | Form.TOPK_VALUES | Form.TOPK_INDICES:
            return [_sorted(a, max(1, a.shape[1]), rng) for a in arrays]
        case Form.MERGE_RUNS:
            return [_sorted(arrays[0], RUN, rng)]
        case _:
            return arrays


def _sorted(like: np.ndarray, run: int, rng: np.random.Generator) -> np.ndarray:
    """Return random pairs, many of equal value, sorted in runs."""
    values = rng.choice(
        np.array([0.0, -0.0, 1.5, -2, np.inf, -np.inf, np.nan, 1e-45], np.float32), like.shape
    )
    found = pairs(values, rng.integers(-5, 2**31 - 1, like.shape).astype(np.int32))
    for j in range(0, like.shape[1], run):
        found[:, j : j + run] = np.sort(found[:, j : j + run], axis=1)[:, ::-1]
    return found
