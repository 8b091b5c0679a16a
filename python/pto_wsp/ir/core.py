"""Regions, functions and modules: what kernels and workloads are made of.

Every node is a frozen dataclass with the place it comes from (`loc`, not part of equality); a pass returns
new nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from pto_wsp.ir.scalar import Expr
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace


@record
class Index:
    """One index of a dimension, which the view then does not have."""

    at: Expr


@record
class Range:
    """A range [start, start + extent) of a dimension."""

    start: Expr
    extent: Expr


@record
class TileRange:
    """The current range of an enclosing tiles loop of a workload, clipped to its axis."""

    loop: str


@record
class Full:
    """A whole dimension."""


@record
class Rows:
    """The rows that elements [start, start + extent) of the index tensor `indices` ([n, 1] i32) name.

    A row set is in the first dimension of a region and gives one dimension of the view. A row of it
    counts over this dimension and the `Merged` ones after it together, the last one fastest.
    """

    indices: str
    start: Expr
    extent: Expr


@record
class Merged:
    """A dimension that the row set before it indexes together with its own; the view does not have it."""


DimSelect = Index | Range | TileRange | Full | Rows | Merged

WHOLE: tuple[DimSelect, ...] = (Full(), Full())
"""All of a matrix."""


@record
class Region:
    """A strided box or a row set of a tensor (in a workload), or a box of a view (in a kernel).

    One entry per dimension.
    """

    tensor: str
    dims: tuple[DimSelect, ...]
    loc: Location | None = None

    @property
    def kept(self) -> tuple[int, ...]:
        """Dimensions of the tensor that the region keeps, in order."""
        return tuple(i for i, d in enumerate(self.dims) if not isinstance(d, (Index, Merged)))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Expressions of its indices and ranges, in order."""
        if self.dims is WHOLE:
            return ()
        found: list[Expr] = []
        for dim in self.dims:
            match dim:
                case Index(at=at):
                    found.append(at)
                case Range(start=start, extent=extent) | Rows(start=start, extent=extent):
                    found += (start, extent)
                case Full() | TileRange() | Merged():
                    pass
                case _:
                    assert_never(dim)
        return tuple(found)

    def mapped(self, change: Callable[[Expr], Expr]) -> Region:
        """Return the region with each of its expressions changed."""
        return replace(self, dims=tuple(_mapped(dim, change) for dim in self.dims))


def _mapped(dim: DimSelect, change: Callable[[Expr], Expr]) -> DimSelect:
    match dim:
        case Index(at=at):
            return Index(change(at))
        case Range(start=start, extent=extent):
            return Range(change(start), change(extent))
        case Rows(indices=indices, start=start, extent=extent):
            return Rows(indices, change(start), change(extent))
        case Full() | TileRange() | Merged():
            return dim
        case _:
            assert_never(dim)
