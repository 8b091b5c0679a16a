"""How errors are rendered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_wsp.errors import BadOperand
from pto_wsp.errors.base import MAX_SHOWN
from pto_wsp.location import Location


@pytest.mark.parametrize("place", [0, 40, 130, 500, 990])
@pytest.mark.parametrize("width", [6, 600])
def test_of_a_long_line_the_part_around_the_place_is_shown(tmp_path: Path, place: int, width: int) -> None:
    line = "".join(f"{number:05} " for number in range(200))
    path = tmp_path / "long.pto"
    path.write_text(line + "\n")
    loc = Location(str(path), 1, place + 1, place + width + 1)
    shown = str(BadOperand(op="add", expected="a", found="b", loc=loc)).splitlines()
    source, caret = shown[3], shown[4]
    start, count = caret.index("^"), caret.count("^")
    assert len(source) <= MAX_SHOWN + len("1 | ......")
    assert source[start : start + 3] == line[place : place + 3]
    assert count == width or source[start + count :] == "..."


def test_a_place_behind_the_end_of_a_long_line_has_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "long.pto"
    path.write_text("x" * 1000 + "\n")
    shown = str(BadOperand(op="add", expected="a", found="b", loc=Location(str(path), 1, 1001, 1002)))
    assert shown.splitlines()[4].count("^") == 1
