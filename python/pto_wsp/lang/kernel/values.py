"""The values of names and expressions while a kernel is read."""

from __future__ import annotations

import numpy as np

from pto_wsp.ir.core import DimSelect, Index
from pto_wsp.ir.kernel import IN, Param
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.location import Location
from pto_wsp.support.arrays import shown
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

Valid = tuple[Expr, Expr]


@record
class Constant:
    """A Python value known while the kernel is read."""

    value: object

    def __str__(self) -> str:
        return f"an {shown(self.value)}" if self.is_array else f"`{shown(self.value)}`"

    @property
    def is_array(self) -> bool:
        """Whether it is an array of numpy, which kernels get as arguments."""
        return isinstance(self.value, np.ndarray)


@record
class ScalarValue:
    """A scalar known at run time.

    Attributes:
        capacity: bounds the extent of something of static shape, and sums and products of such extents.
    """

    expr: Expr
    capacity: int | None = None

    def __str__(self) -> str:
        return f"a scalar {self.expr.dtype}"


@record
class TileValue:
    """A tile of the IR with facts about its valid extents."""

    name: str
    type: TileType
    valid: Valid

    def __str__(self) -> str:
        return f"a tile [{self.type.rows}, {self.type.cols}] of {self.type.dtype}"


@record
class ViewValue:
    """A place: a view parameter with one entry per dimension of it.

    Attributes:
        capacities: per kept dimension the largest extent it can have, or None if only a run knows.
        extents: per kept dimension its extent.
    """

    param: Param
    dtype: DType
    dims: tuple[DimSelect, ...]
    capacities: tuple[int | None, ...]
    extents: tuple[Expr, ...]
    is_whole: bool

    def __str__(self) -> str:
        return f"a view of `{self.param.name}` with {len(self.capacities)} dimensions"

    @property
    def kept(self) -> tuple[int, ...]:
        """Dimensions of the parameter that the view keeps."""
        return tuple(i for i, d in enumerate(self.dims) if not isinstance(d, Index))

    @property
    def is_tile_param(self) -> bool:
        """Whether this is a whole `In[Tile[...]]` parameter: a value, loaded once at the start."""
        return self.is_whole and self.param.role == IN and isinstance(self.param.type, TileType)


@record
class Transposed:
    """`.T` of a tile or view, not yet carried out."""

    operand: TileValue | ViewValue

    def __str__(self) -> str:
        return f"the transpose of {self.operand}"


@record
class SpanValue:
    """A range of `pto.tiles`: at most `capacity` elements from `start` on."""

    start: Expr
    extent: Expr
    capacity: int

    def __str__(self) -> str:
        return "a range of `pto.tiles`"


@record
class TupleValue:
    """A tuple of values."""

    items: tuple[Value, ...]

    def __str__(self) -> str:
        return f"a tuple of {len(self.items)}"


@record
class UndefinedName:
    """A name that has no single value here, and why."""

    problem: str
    expected: str
    found: str
    loc: Location | None = None

    def __str__(self) -> str:
        return "no value"


Value = Constant | ScalarValue | TileValue | ViewValue | Transposed | SpanValue | TupleValue | UndefinedName


def constant_of(value: Value) -> object | None:
    """Return the Python value of a constant (or of a tuple of constants), or None."""
    match value:
        case Constant(value=found):
            return found
        case TupleValue(items=items):
            found = tuple(constant_of(item) for item in items)
            return None if None in found else found
        case _:
            return None


def known(expr: Expr) -> int | None:
    """Return the value of an integer literal, or None."""
    return expr.value if isinstance(expr, Const) and type(expr.value) is int else None
