"""`ALL`: a task for every index of a dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pto_wsp.errors import BadIndex
from pto_wsp.ir.core import DimSelect, Index
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.location import Location


class All:
    """Every index of a dimension: the call makes a task for each, and these are independent.

    `ALL` appears among the indices of the arguments and as a coordinate:
    `attend[b, ALL](q=Q[b, ALL], o=O[b, ALL])`. All dimensions under it have one size.
    """

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All()
"""Every index of a dimension: `attend[b, ALL](q=Q[b, ALL], o=O[b, ALL])`."""

EVERY = Index(Var("ALL"))
"""What ALL selects of a dimension, until the task that it is given to has a loop for it."""


def has_every(entries: Iterable[DimSelect]) -> bool:
    """Whether ALL is among the indices of a view."""
    return any(entry == EVERY for entry in entries)


def extent_under_all(kernel: str, extents: Iterable[tuple[str, Expr]], loc: Location | None) -> Expr:
    """Return the extent that the dimensions under ALL have, given with the names of their tensors.

    Raises:
        BadIndex: there are none, or their sizes are not known to be equal.
    """
    found = list(extents)
    if not found:
        raise BadIndex(tensor=kernel, expected="ALL as an index of an argument", found="none", loc=loc)
    first, extent = found[0]
    for tensor, other in found[1:]:
        if other != extent:
            expected = f"a dimension of the same size as that of {first} under ALL"
            raise BadIndex(tensor=tensor, expected=expected, found="another size", loc=loc)
    return extent
