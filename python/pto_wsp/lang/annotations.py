"""The types that a kernel's text mentions: roles, tiles, and the operators that tiles and views have.

A kernel is never executed by Python, so the operators exist for type checkers and editors; used anywhere
else they are errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias, TypeVar

from pto_wsp.errors import OutsideWorkload
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

if TYPE_CHECKING:
    from pto_wsp.lang.workload.scalar import Scalar
    from pto_wsp.lang.workload.tensor import Tensor

    Operand: TypeAlias = "Tile | Tensor | Scalar | float"
    """What the operators of tiles and the functions of `pto` take."""


@record
class RoleAnnotation:
    """`In[...]`, `Out[...]` or `InOut[...]`."""

    role: str
    inner: object


@record
class TileAnnotation:
    """`Tile[rows, cols, dtype]`, as written."""

    args: tuple[object, ...]


@record
class TensorAnnotation:
    """`Tensor[dtype, dims...]`, as written."""

    args: tuple[object, ...]


@record
class ScalarAnnotation:
    """`Scalar[dtype]`, as written."""

    arg: object


@record
class RaggedAnnotation:
    """`Ragged["size"]`, as written."""

    outer: object


@record
class SparseAnnotation:
    """`Sparse["size"]`, as written."""

    outer: object


@record
class ConstexprAnnotation:
    """`Constexpr[type]`, as written."""

    type: object


def as_tuple(item: object) -> tuple[object, ...]:
    """Return what stands between brackets as a tuple."""
    return item if isinstance(item, tuple) else (item,)


if TYPE_CHECKING:
    T = TypeVar("T")
    In = Annotated[T, "in"]
    Out = Annotated[T, "out"]
    InOut = Annotated[T, "inout"]
    Constexpr = Annotated[T, "constexpr"]
else:

    class In:
        """`In[Tile[...]]`, `In[Tensor[...]]`: a kernel parameter that is read."""

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("in", item)

    class Out:
        """A kernel parameter that is written on every path through the kernel."""

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("out", item)

    class InOut:
        """A kernel parameter that is read and written."""

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("inout", item)

    class Constexpr:
        """`Constexpr[int]`: a kernel parameter that is a constant; the kernel is compiled per value."""

        def __class_getitem__(cls, item: object) -> ConstexprAnnotation:
            return ConstexprAnnotation(item)


def _only_in_kernels(what: str) -> NoReturn:
    raise OutsideWorkload(what=what, where="kernel", loc=caller_location())


class Operators:
    """Operators of tiles and views. `[R, 1]` and `[1, C]` operands are broadcast."""

    def __add__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __radd__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __sub__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rsub__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __mul__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rmul__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __truediv__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rtruediv__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __matmul__(self, other: Tile | Tensor) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __neg__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __pos__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __abs__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __lt__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __le__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __gt__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __ge__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __eq__(self, other: Operand) -> Tile:  # pyright: ignore[reportIncompatibleMethodOverride]
        _only_in_kernels("comparing tiles and tensors")

    def __ne__(self, other: Operand) -> Tile:  # pyright: ignore[reportIncompatibleMethodOverride]
        _only_in_kernels("comparing tiles and tensors")

    __hash__ = object.__hash__

    if TYPE_CHECKING:
        # Bits of integer tiles and masks; the others are of elements of integer tensors, which are scalars.

        def __floordiv__(self, other: Operand) -> Tile: ...

        def __rfloordiv__(self, other: Operand) -> Tile: ...

        def __mod__(self, other: Operand) -> Tile: ...

        def __rmod__(self, other: Operand) -> Tile: ...

        def __and__(self, other: Operand) -> Tile: ...

        def __rand__(self, other: Operand) -> Tile: ...

        def __or__(self, other: Operand) -> Tile: ...

        def __ror__(self, other: Operand) -> Tile: ...

        def __xor__(self, other: Operand) -> Tile: ...

        def __rxor__(self, other: Operand) -> Tile: ...

        def __lshift__(self, other: Operand) -> Tile: ...

        def __rlshift__(self, other: Operand) -> Tile: ...

        def __rshift__(self, other: Operand) -> Tile: ...

        def __rrshift__(self, other: Operand) -> Tile: ...

        def __invert__(self) -> Tile: ...

        def min(self, other: Operand) -> Any:
            """The smaller of an element and a number."""
            ...

        def max(self, other: Operand) -> Any:
            """The larger of an element and a number."""
            ...

        def where(self, then: Operand, other: Operand) -> Any:
            """Choose by an element that is a truth value."""
            ...

        @property
        def rows(self) -> Scalar:
            """Valid rows."""
            ...

        @property
        def cols(self) -> Scalar:
            """Valid columns."""
            ...

        @property
        def shape(self) -> tuple[Scalar, ...]:
            """Valid extents."""
            ...


class Tile(Operators):
    """`Tile[rows, cols, dtype]`: a tile of at most rows x cols elements; the rest of it is not valid.

    As the annotation of a kernel parameter it is a view of a tensor that the body uses as a whole; an
    `In[Tile[...]]` that the body computes with is loaded once, at the start.
    """

    def __init__(self) -> None:
        _only_in_kernels("making a tile")

    def __class_getitem__(cls, item: object) -> Any:
        return TileAnnotation(as_tuple(item))

    if TYPE_CHECKING:

        @property
        def T(self) -> Tile:
            """The transposed tile; free of cost as an operand of `pto.matmul`."""
            ...

        def __getitem__(self, index: object) -> Tensor:
            """A part of a tile that is a kernel parameter."""
            ...
