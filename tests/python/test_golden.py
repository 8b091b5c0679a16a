"""Expected texts in files: compared, written, and missed when no test names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import golden_file, require_golden, stale_files

TESTS = Path(__file__).parents[1]


def test_no_expected_text_is_stale() -> None:
    assert not stale_files(TESTS), "remove what no test compares"


def test_a_text_is_written_and_compared(tmp_path: Path) -> None:
    test_file = tmp_path / "test_scale.py"
    test_file.write_text('golden("scale.pto", text)\n')
    path = golden_file(test_file, "scale.pto")
    with pytest.raises(AssertionError, match="--update"):
        require_golden(path, "a\n", is_update=False)
    require_golden(path, "a\n", is_update=True)
    require_golden(path, "a\n", is_update=False)
    with pytest.raises(AssertionError, match="\\+b"):
        require_golden(path, "b\n", is_update=False)


def test_a_file_that_no_test_names_is_stale(tmp_path: Path) -> None:
    test_file = tmp_path / "test_scale.py"
    test_file.write_text('golden("scale.pto", text)\ngolden(f"tree/{path}", text)\n')
    for name in ("scale.pto", "tree/a/b.cpp", "older.pto"):
        require_golden(golden_file(test_file, name), "", is_update=True)
    assert stale_files(tmp_path) == [golden_file(test_file, "older.pto")]
    test_file.unlink()
    assert len(stale_files(tmp_path)) == 3
