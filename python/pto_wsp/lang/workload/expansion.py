"""The options of the binary expansion of a loop: ranges, and rows of tiles for blocks of some sizes."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.errors import BadOperand
from pto_wsp.location import Location
from pto_wsp.support.record import record


@record
class Expansion:
    """The fields of a Loop of the IR that say so."""

    max_range: int | None = None
    min_range: int | None = None
    tile_levels: tuple[tuple[int, int], ...] = ()


NOT_EXPANDED = Expansion()


def read_expansion(
    op: str,
    max_range: int | None,
    min_range: int | None,
    tile_levels: Mapping[int, int] | None,
    loc: Location | None,
) -> Expansion:
    """Return what a user gives for a loop; ranges are rounded up to powers of two.

    Args:
        op: what messages call the loop.
        max_range: the largest block of iterations.
        min_range: the smallest one; what is left is one loop.
        tile_levels: rows of tiles by block; 0 is the rest.
        loc: where it is written.

    Raises:
        BadOperand: no such ranges or levels.
    """
    for block, rows in (tile_levels or {}).items():
        is_block = block == 0 or (is_positive(block) and block & (block - 1) == 0)
        if not is_block or not is_positive(rows):
            expected = "rows by blocks that are powers of two, or 0 for what is left"
            raise BadOperand(op=op, expected=expected, found=f"{{{block}: {rows}}}", loc=loc)
    for size in (max_range, min_range):
        if size is not None and not is_positive(size):
            raise BadOperand(op=op, expected="a positive range", found=f"`{size!r}`", loc=loc)
    levels = tuple(sorted((tile_levels or {}).items(), reverse=True))
    if max_range is None:
        if min_range is not None or levels:
            raise BadOperand(op=op, expected="a `max_range` with them", found="none", loc=loc)
        return NOT_EXPANDED
    most, least = _power_of_two(max_range), None if min_range is None else _power_of_two(min_range)
    if least is not None and least > most:
        raise BadOperand(op=op, expected=f"a `min_range` of at most {most}", found=str(least), loc=loc)
    return Expansion(most, least, levels)


def is_positive(value: object) -> bool:
    """Whether a value is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
