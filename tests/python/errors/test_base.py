"""How errors are rendered."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pto_wsp import location
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


def test_files_beside_the_package_are_those_of_users() -> None:
    package = Path(location.__file__).parent
    for file, is_users in [("_more/kernels.py", True), ("_x.py", True), ("/lang/kernel/kernel.py", False)]:
        assert (location.of_user(Location(f"{package}{file}", 1)) is not None) == is_users


def test_a_package_behind_a_link_knows_its_own_files(tmp_path: Path) -> None:
    """Code objects name files by the path that they were imported by."""
    link = tmp_path / "link"
    link.symlink_to(Path(location.__file__).parent)
    spec = importlib.util.spec_from_file_location("linked_location", link / "location.py")
    assert spec is not None and spec.loader is not None
    linked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(linked)
    assert linked.caller_location.__code__.co_filename.startswith(linked.PACKAGE_DIR)
