"""The check of English finds words, long lines and terms with two lines, and leaves code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import style


def found(tmp_path: Path, text: str, name: str = "page.md") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [problem.removeprefix(f"{path}:") for problem in style.problems(path)]


def test_words_are_found_with_what_to_write(tmp_path: Path) -> None:
    text = "The test stands behind it.\nThis is no tile.\nIt is no longer needed.\n"
    assert found(tmp_path, text) == [
        "1: `behind`: write after, following",
        "1: `stands`: write is, appears, is written",
        "2: `is no`: write is not a, are not",
    ]
    assert found(tmp_path, "x = 1  # whoever\n", "code.py") == ["1: `whoever`: write name the component"]


def test_code_is_left_alone(tmp_path: Path) -> None:
    assert not found(tmp_path, "`behind` [text](behind.md)\n\n```text\nbehind " + "x " * 60 + "\n```\n")


@pytest.mark.parametrize(
    ("line", "is_long"),
    [
        ("word " * 21, True),
        ("word " * 19, False),
        ("| " + "word " * 30, False),
        ("[a](b) " + "word " * 30, False),
    ],
)
def test_long_lines_are_found(tmp_path: Path, line: str, is_long: bool) -> None:
    assert bool(found(tmp_path, line.strip() + "\n")) == is_long


def test_names_in_programs_are_left_alone(tmp_path: Path) -> None:
    assert not found(tmp_path, "behind = 1\n", "code.py")
    assert not found(tmp_path, "int behind = 1;\n", "code.hpp")
    assert found(tmp_path, '"""Behind."""\n', "code.py") == found(tmp_path, "/// Behind.\n", "code.hpp") != []
    assert found(tmp_path, 'fail("it is no axis");\n', "code.cpp") != []


def test_sources_and_pages_are_clean() -> None:
    checked = {path.relative_to(style.ROOT).as_posix() for path in style.checked_files()}
    assert {"README.md", "docs/tutorial.md", "docs/style.py", "python/pto_wsp/ir/workload.py"} <= checked
    assert style.main([]) == 0
