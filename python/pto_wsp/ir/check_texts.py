"""What the run-time checks of kernels say when they fail: a sentence, and the numbers that were found.

Targets and the interpreter share these texts, so the same mistake has the same message everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pto_wsp.ir.scalar import Element, Expr, TileElement, Value, Var, walk
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType


@record
class CheckText:
    """The message of a check, a template of the numbers ({0}, {1}, ...) that follow it, and a hint."""

    message: str
    found: str = ""
    hint: str = ""

    def reason(self, values: Sequence[Value]) -> str:
        """Return the message with the numbers that were found; without numbers, the message alone."""
        return f"{self.message}: {self.found.format(*values)}" if self.found and values else self.message


def indexed_outside(view: str, dim: int) -> CheckText:
    """Values: start, stop, size of the dimension."""
    return CheckText(f"`{view}` is indexed outside dimension {dim}", "[{0}, {1}) of {2}")


def cannot_hold(tile: TileType, view: str) -> CheckText:
    """Values: rows and columns of the part."""
    return CheckText(
        f"a tile of {tile.rows} x {tile.cols} cannot hold this part of `{view}`", "found {0} x {1}"
    )


def shapes_differ(view: str) -> CheckText:
    """Values: rows and columns of the tile, then of the part."""
    message = f"the valid shape of the tile is not that of this part of `{view}`"
    return CheckText(message, "the tile has {0} x {1}, the part {2} x {3}")


def row_outside(view: str) -> CheckText:
    """Values: the first such row, and the number of rows."""
    return CheckText(f"a row outside `{view}` is named", "row {0} of {1}")


def operands_differ(op: str, num_tiles: int) -> CheckText:
    """Values: rows and columns of each operand."""
    found = "found " + " and ".join(f"{{{2 * i}}} x {{{2 * i + 1}}}" for i in range(num_tiles))
    hint = (
        "give a tile that is made the extents of a view: `pto.zeros((x.rows, 64))`" if num_tiles > 1 else ""
    )
    return CheckText(f"the valid shapes of the operands of `{op}` do not fit", found, hint)


def beyond_range(dtype: DType) -> CheckText:
    """Values: the scalar."""
    return CheckText(f"a scalar is beyond the range of {dtype}", "found {0}")


def too_many_valid(capacity: int, what: str) -> CheckText:
    """Values: the valid extent that is asked for."""
    return CheckText(f"a tile with {capacity} {what} cannot have that many valid ones", "found {0}")


RESHAPED = frozenset(("reshape", "extract"))
"""Instructions whose text also mentions the shape of their result."""

_PLACED = "found {2} x {3} at [{4}, {5}] of {0} x {1}"
_FOUND = {
    "reshape": "found {0} x {1} as {2} x {3}",
    "extract": _PLACED,
    "insert": _PLACED,
    "setval": "found [{2}, {3}] of {0} x {1}",
}


def undefined(op: str, message: str) -> CheckText:
    """Return the text of an instruction that has no meaning for its operands.

    Values: rows and columns of each operand, then those of the result (`RESHAPED`), then the place.
    """
    return CheckText(message, _FOUND.get(op, ""))


def no_value(expr: Expr) -> CheckText:
    """Return the text of an expression that may have no value."""
    message = "an expression overflows 64 bits or divides by zero"
    for kind, what in ((Element, "a view"), (TileElement, "the valid part of a tile")):
        if any(isinstance(node, kind) for node in walk(expr)):
            message += f", or reads outside of {what}"
    return CheckText(message)


def variables(*exprs: Expr) -> tuple[str, ...]:
    """Return the scalars that expressions read, each once."""
    return tuple(dict.fromkeys(part.name for expr in exprs for part in walk(expr) if isinstance(part, Var)))


def scalars_text(names: Iterable[str], values: Mapping[str, Value]) -> str:
    """Return `where r = 64, n = 5` for the scalars of a kernel that are known, or nothing."""
    known = (f"{name} = {scalar_text(values[name])}" for name in names if name in values)
    listed = ", ".join(known)
    return f"where {listed}" if listed else ""


def scalar_text(value: Value) -> str:
    """Return a scalar as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
