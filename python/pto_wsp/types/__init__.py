"""Element types, shapes, axes, tile and tensor types: data without behaviour."""

from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DTYPES, DType, b1, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from pto_wsp.types.layout import MemLayout
from pto_wsp.types.tile import DYN, ScalarType, TensorType, TileType, ViewType

__all__ = [
    "DTYPES",
    "DYN",
    "DType",
    "Dense",
    "DenseDyn",
    "MemLayout",
    "ScalarType",
    "TensorType",
    "TileType",
    "ViewType",
    "b1",
    "bf16",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
]
