"""Names that programs of the function builder use for types, spaces and comparisons."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from pto_wsp.errors import BadOperand
from pto_wsp.location import Location
from pto_wsp.types.dtype import DTYPES, DType, b1, f32, i64
from pto_wsp.types.space import Space


class ElementType(enum.Enum):
    """Element types of memrefs, tiles and scalars. `INDEX` is a 64-bit integer."""

    F16 = "f16"
    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    U1 = "b1"
    INDEX = "index"

    @property
    def dtype(self) -> DType:
        """The element type of tiles and tensors; an index is an i64."""
        return i64 if self is ElementType.INDEX else DTYPES[self.value]


class MemorySpace(enum.Enum):
    """The memory that holds a memref or a tile.

    A memref in `GM` is an argument. A memref in `L2`, `L1` or `LOCAL` exists for one run; for `LOCAL` the
    target chooses the memory. Tiles are in `UB`, `L1`, `L0A`, `L0B` or `L0C`, or in no declared memory.
    """

    GM = "gm"
    GLOBAL = "gm"
    L2 = "l2"
    L1 = "l1"
    LOCAL = "local"
    UB = "ub"
    L0A = "l0a"
    L0B = "l0b"
    L0C = "l0c"

    def among(self, spaces: Sequence[Space]) -> Space | None:
        """Return the memory that this is, if it is one of `spaces`."""
        return next((space for space in spaces if space.value == self.value), None)


class CompareMode(enum.Enum):
    """Comparisons of scalars and tiles: ==, !=, <, <=, >, >=."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


def scalar_dtype(dtype: DType) -> DType | None:
    """Return the type in which scalars of a type are kept, or None: integers are i64, floats f32."""
    if dtype is b1:
        return b1
    if dtype.is_integer:
        return i64
    return f32 if dtype.is_float and dtype.itemsize <= f32.itemsize else None


def require_name(method: str, name: object, loc: Location) -> None:
    """Raise BadOperand unless a name is an identifier."""
    if not isinstance(name, str) or not name.isidentifier():
        raise BadOperand(op=method, expected="an identifier as a name", found=f"`{name!r}`", loc=loc)


def dtype_of(dtype: object, loc: Location) -> DType:
    """Return an element type, given as one or by its name in `ElementType`."""
    if isinstance(dtype, ElementType):
        return dtype.dtype
    if isinstance(dtype, DType):
        return dtype
    expected = "an element type: `ElementType.F32`, `f32`"
    raise BadOperand(op="dtype", expected=expected, found=f"`{dtype!r}`", loc=loc)
