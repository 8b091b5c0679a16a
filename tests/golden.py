"""Expected texts in files: `golden("scale.pto", text)` compares, `pytest --update FILE` writes.

The file is `golden/<test file>/<name>` beside the test file. A test writes out the name, so that
`tests/python/test_golden.py` finds files that no test compares any more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = "golden"
Golden = Callable[[str, str], None]


def golden_file(test_file: Path, name: str) -> Path:
    """Return the file of the expected text `name` of a test file."""
    return test_file.parent / FOLDER / test_file.stem.removeprefix("test_") / name


def stale_files(root: Path) -> list[Path]:
    """Return the expected texts below a folder that no test file names."""
    found = []
    for path in sorted(root.rglob(f"{FOLDER}/*/*")):
        test_file = path.parents[2] / f"test_{path.parent.name}.py"
        if not test_file.is_file() or f'"{path.name}"' not in test_file.read_text(encoding="utf-8"):
            found.append(path)
    return found


def require_golden(path: Path, text: str, *, is_update: bool) -> None:
    """Compare a text with its file, or write the file."""
    if is_update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no expected text {path}; write it with `pytest --update`"
    expected = path.read_text(encoding="utf-8")
    assert text == expected, f"not the text of {path}; if it is right, write it with `pytest --update`"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the expected one of this name."""
    is_update = bool(request.config.getoption("--update"))

    def compare(name: str, text: str) -> None:
        require_golden(golden_file(request.path, name), text, is_update=is_update)

    return compare
