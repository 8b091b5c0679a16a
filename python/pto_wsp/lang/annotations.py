"""The annotations of parameters: roles, and what the brackets of `Tile[...]` and the others leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

from pto_wsp.errors import BadIndex
from pto_wsp.location import caller_location
from pto_wsp.support.record import record


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

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse an index: an annotation in the body of a workload has no elements."""
        raise BadIndex(
            tensor="Tensor[...]",
            expected="a parameter",
            found="an annotation, which has no elements",
            loc=caller_location(),
            hint="a workload makes no tensors: declare what passes between tasks as a parameter",
        )


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
    """Return the contents of brackets as a tuple."""
    return item if isinstance(item, tuple) else (item,)


if TYPE_CHECKING:
    T = TypeVar("T")
    In = Annotated[T, "in"]
    Out = Annotated[T, "out"]
    InOut = Annotated[T, "inout"]
    Constexpr = Annotated[T, "constexpr"]
else:

    class In:
        """A kernel parameter in memory that the kernel reads.

        `In[Tile[16, 64, f32]]` has at most 16 x 64 elements and is loaded where the body uses it.
        `In[Tensor[f32, DYN, 64]]` has any number of rows; the body loads parts of it, such as `x[r]`.
        """

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("in", item)

    class Out:
        """A kernel parameter in memory that the kernel writes and does not read.

        `Out[Tile[16, 64, f32]]`: every path through the kernel stores to it with `pto.store(y, tile)`. Only
        the valid part of the tile is written.
        """

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("out", item)

    class InOut:
        """A kernel parameter in memory that the kernel reads and writes.

        `InOut[Tile[16, 64, f32]]`: `pto.store(acc, acc + x)`. Tasks on the same elements
        run in program order.
        """

        def __class_getitem__(cls, item: object) -> RoleAnnotation:
            return RoleAnnotation("inout", item)

    class Constexpr:
        """A kernel parameter that is a constant of the compiled kernel.

        `is_causal: Constexpr[bool]` of `bool`, `int`, `float` or `str`: a workload gives the value, and each
        value compiles the kernel once. An `if` on it is decided by the compiler.
        """

        def __class_getitem__(cls, item: object) -> ConstexprAnnotation:
            return ConstexprAnnotation(item)
