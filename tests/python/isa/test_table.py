"""Every row of the table has every part."""

import numpy as np
import pytest

from pto_wsp.isa import BY_FUNCTION, BY_MNEMONIC, TABLE, Form, Instruction, result_type, result_valid
from pto_wsp.isa.meaning import COMPARE_MODES, divide, remainder
from pto_wsp.types import TileType, b1, bf16, f32, i32, i64
from tests.python.isa.operands import PLACE, QUANTISED, RUN, fitting, operand_shapes, operand_types

ROWS = [row for row in TABLE.values() if row.numpy is not None]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_complete_and_consistent(row: Instruction) -> None:
    dtype = f32 if f32 in row.dtypes else i32 if i32 in row.dtypes else i64
    attrs: dict[str, object] = {"shape": (8, 8), "dtype": dtype, "valid": (8, 8), "mode": "lt", "run": RUN}
    attrs |= {"valid_shape": (8, 8), "numpy_dtype": dtype.to_numpy(), "trans_a": False, "trans_b": False}
    attrs |= {"row": PLACE[0], "col": PLACE[1], "format": QUANTISED.name}
    shapes = operand_shapes(row, attrs, (8, 8), 8)
    types = [TileType(*shape, t) for shape, t in zip(shapes, operand_types(row, dtype), strict=True)]
    result = result_type(row.form, types, attrs)
    if row.form is Form.QUANTISE:
        attrs |= {"valid": result.shape, "valid_shape": result.shape}
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 2, t.shape).astype(bool)
        if t.dtype is b1
        else rng.uniform(0.5, 2, t.shape).astype(t.dtype.to_numpy())
        for t in types
    ]
    arrays = fitting(row, arrays, rng)
    assert row.numpy is not None
    value = np.asarray(row.numpy(*arrays, *[dtype.to_numpy().type(1.5)] * row.form.num_scalars, attrs))
    assert value.shape == result.shape == result_valid(row.form, [a.shape for a in arrays], attrs)
    assert row.dtypes and row.doc.endswith(".")
    assert row.bound.kind in ("exact", "ulp", "sum")
    assert (row.bound.amount > 0) == (row.bound.kind == "ulp")


def test_names_are_unique() -> None:
    assert len(BY_MNEMONIC) == len(TABLE)
    assert len(BY_FUNCTION) == sum(row.function is not None for row in TABLE.values())
    assert all(name == row.name and row.mnemonic[0] in "tms" for name, row in TABLE.items())


def test_integer_division_is_defined_everywhere() -> None:
    low = np.iinfo(np.int32).min
    a = np.array([7, -7, 7, -7, 5, low, low], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1, 0], np.int32)
    assert divide(a, b).tolist() == [3, -3, -3, 3, 0, low, 0]
    assert remainder(a, b).tolist() == [1, -1, 1, -1, 0, 0, 0]


def test_compare_modes() -> None:
    a, b = np.array([1.0, 2.0, np.nan]), np.array([2.0, 2.0, 2.0])
    meaning = TABLE["cmp"].numpy
    assert meaning is not None
    truth = {mode: meaning(a, b, {"mode": mode}).tolist() for mode in COMPARE_MODES}
    assert truth["lt"] == [True, False, False] and truth["ge"] == [False, True, False]
    assert truth["ne"] == [True, False, True] and truth["eq"] == [False, True, False]


def test_conversions_saturate() -> None:
    meaning = TABLE["cvt"].numpy
    assert meaning is not None
    x = np.array([1.9, -1.9, np.nan, np.inf, -1e20])
    found = meaning(x, {"numpy_dtype": i32.to_numpy()})
    assert found.tolist() == [1, -1, 0, 2**31 - 1, -(2**31)]
    assert meaning(np.array([1.0]), {"numpy_dtype": bf16.to_numpy()}).dtype == bf16.to_numpy()
