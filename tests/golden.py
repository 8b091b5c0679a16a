"""Expected texts in files: `golden("scale.pto", text)` compares, `pytest --update FILE` writes.

The file is `golden/<test file>/<name>.golden` next to the test file. `tests/python/test_golden.py` finds
files that no call of `golden` in the test file can name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

FOLDER = "golden"
SUFFIX = ".golden"
Golden = Callable[[str, str], None]


def golden_file(test_file: Path, name: str) -> Path:
    """Return the file of the expected text `name` of a test file."""
    return test_file.parent / FOLDER / test_file.stem.removeprefix("test_") / f"{name}{SUFFIX}"


def stale_files(root: Path) -> list[Path]:
    """Return the expected texts below a folder that no test file names."""
    found = []
    for folder in sorted(path for path in root.rglob(f"{FOLDER}/*")):
        patterns = list(_names(folder.parents[1] / f"test_{folder.name}.py"))
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
            if path.is_file() and not any(pattern.fullmatch(name) for pattern in patterns):
                found.append(path)
    return found


def _names(test_file: Path) -> Iterator[re.Pattern[str]]:
    """Yield the names in the calls of `golden` of a test file; a value in an f-string is any text."""
    tree = ast.parse(test_file.read_text(encoding="utf-8")) if test_file.is_file() else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "golden":
            name = node.args[0]
            parts = name.values if isinstance(name, ast.JoinedStr) else [name]
            texts = [re.escape(p.value) if isinstance(p, ast.Constant) else ".+" for p in parts]
            yield re.compile("".join(map(str, texts)))


def require_golden(path: Path, text: str, *, is_update: bool) -> None:
    """Compare a text with its file, or write the file."""
    if is_update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no expected text {path}; write it with `pytest --update`"
    expected = path.read_text(encoding="utf-8")
    change = "".join(unified_diff(expected.splitlines(True), text.splitlines(True), str(path), "found"))
    assert not change, f"if this is right, write it with `pytest --update`:\n{change}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the expected one of this name."""
    is_update = bool(request.config.getoption("--update"))

    def compare(name: str, text: str) -> None:
        require_golden(golden_file(request.path, name), text, is_update=is_update)

    return compare
