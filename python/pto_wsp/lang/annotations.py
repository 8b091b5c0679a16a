"""The annotations of parameters: roles, and what the brackets of `Tile[...]` and the others leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

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
