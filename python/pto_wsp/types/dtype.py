"""Element types. Their codes are those of `pto::wsp::DType` in include/pto/wsp/abi.hpp."""

from __future__ import annotations

import importlib
from functools import lru_cache

import numpy as np

from pto_wsp.support.record import record


@record
class DType:
    """An element type. There is one object of each: copies and pickles give it again.

    Attributes:
        name: as in programs and in `.pto` text.
        code: its number in the ABI and in bytecode.
        itemsize: bytes per element.
        kind: `f` float, `i` signed, `u` unsigned integer, `b` bool.
    """

    name: str
    code: int
    itemsize: int
    kind: str

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return dtype_of_name, (self.name,)

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return self.kind in "iu"

    @property
    def integer_range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        bits = 8 * self.itemsize
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.kind == "i" else (0, (1 << bits) - 1)

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger value of a floating-point type."""
        return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[self.name]

    def to_numpy(self) -> np.dtype:
        """Return the numpy dtype; that of bf16 is in the package ml_dtypes."""
        if self.name == "bf16":
            # Loaded on demand: most programs use no bf16, and start without it.
            return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return np.dtype(_NUMPY_NAMES[self.name])


_NUMPY_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "b1": "bool",
}

f32 = DType("f32", 0, 4, "f")
f16 = DType("f16", 1, 2, "f")
bf16 = DType("bf16", 2, 2, "f")
f64 = DType("f64", 3, 8, "f")
i8 = DType("i8", 4, 1, "i")
i16 = DType("i16", 5, 2, "i")
i32 = DType("i32", 6, 4, "i")
i64 = DType("i64", 7, 8, "i")
u8 = DType("u8", 8, 1, "u")
u16 = DType("u16", 9, 2, "u")
u32 = DType("u32", 10, 4, "u")
u64 = DType("u64", 11, 8, "u")
b1 = DType("b1", 12, 1, "b")

DTYPES: dict[str, DType] = {
    t.name: t for t in (f32, f16, bf16, f64, i8, i16, i32, i64, u8, u16, u32, u64, b1)
}


_OF_NUMPY = {"bfloat16": bf16, **{theirs: DTYPES[ours] for ours, theirs in _NUMPY_NAMES.items()}}


def dtype_of_name(name: str) -> DType:
    """Return the element type of a name."""
    return DTYPES[name]


@lru_cache(maxsize=64)
def dtype_of_numpy(dtype: np.dtype) -> DType | None:
    """Return our element type for a numpy dtype, or None if there is none."""
    # numpy makes the name again, which takes as long as the rest of a small operator's call.
    return _OF_NUMPY.get(dtype.name)
