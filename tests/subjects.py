"""Which tests a module has: `python -m tests.subjects lang.kernel.statements`.

They are `tests/python/<path>/test_<module>.py`, the test files that import the module, and where there are
none of these, what `tests/subjects.txt` says.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "pto_wsp"
TESTS = ROOT / "tests" / "python"


@cache
def modules() -> tuple[str, ...]:
    """Return the modules of the package, dotted."""
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    return tuple(".".join(path.parts) for path in paths if path.stem not in ("__init__", "__main__"))


@cache
def subjects() -> dict[str, tuple[Path, ...]]:
    """Return the table: the tests of modules and folders."""
    lines = (ROOT / "tests" / "subjects.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return {name: tuple((TESTS / path).resolve() for path in paths) for name, *paths in rows}


@cache
def _mentions() -> dict[Path, frozenset[str]]:
    """Return the dotted names of the package that each test file mentions or imports."""
    found: dict[Path, frozenset[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text, names = path.read_text(encoding="utf-8"), set()
        for dotted in re.findall(r"\bpto_wsp(?:\.\w+)+", text):
            parts = dotted.split(".")
            names |= {".".join(parts[:count]) for count in range(2, len(parts) + 1)}
        for parent, imported in re.findall(r"from (pto_wsp[\w.]*) import ([^\n]*)", text):
            names |= {f"{parent}.{name}" for name in re.findall(r"\w+", imported)}
        found[path] = frozenset(names)
    return found


def direct_tests(module: str) -> list[Path]:
    """Return the test files that have a module's name or import it."""
    path = Path(*module.split("."))
    named = [TESTS / folder / f"test_{path.name}.py" for folder in path.parents]
    importing = [test for test, names in _mentions().items() if f"pto_wsp.{module}" in names]
    return list(dict.fromkeys([*(test for test in named if test.is_file()), *importing]))


def find_tests(module: str) -> list[Path]:
    """Return the tests of a module: files and folders."""
    found = direct_tests(module)
    name = module
    while not found and name:
        found = list(subjects().get(name, ()))
        name = name.rpartition(".")[0]
    return found


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(*(path.relative_to(ROOT) for path in find_tests(argument.removeprefix("pto_wsp."))), sep="\n")
