"""Write the generated pages: `python -m docs.build`, or `--check` that they are up to date."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import performance_page
from pto_wsp.errors import PtoError, catalogue

DOCS = Path(__file__).parent
ERROR_PAGES = DOCS.parent / "tests" / "errors"
ERRORS_INTRODUCTION = """\
# Errors

Every mistake has a code, a class in `pto_wsp.errors` and a test: the programs and messages below are run
and compared, letter by letter, by `tests/errors`. Where a message depends on the machine, `[...]` stands for
it. Handle an error by its class: all are subclasses of `PtoError`, and `error.fields` holds what the text
mentions."""


def errors_page() -> str:
    """Return the catalogue of errors: every class, with the page that its test reads."""
    families: dict[type[PtoError], list[type[PtoError]]] = {}
    for cls in catalogue():
        families.setdefault(family_of(cls), []).append(cls)
    parts = [ERRORS_INTRODUCTION]
    for family, members in families.items():
        parts.append(f"## {family.__name__}\n\n{family.__doc__}".rstrip())
        parts += [error_chapter(cls) for cls in members]
    return "\n\n".join(parts) + "\n"


def family_of(cls: type[PtoError]) -> type[PtoError]:
    """Return the class that groups an error: its nearest base without a code of its own."""
    return next(base for base in cls.__mro__[1:] if base is PtoError or "code" not in base.__dict__)


def error_chapter(cls: type[PtoError]) -> str:
    """Return the chapter of one error, from its class and its tested page."""
    page = (ERROR_PAGES / f"{cls.code}.md").read_text(encoding="utf-8").strip()
    body = re.sub(r"\A# .*\n+", "", page)
    return f"### {cls.code}\n\n`{cls.__name__}`: {cls.__doc__}\n\n{body}"


PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "performance.md": performance_page,
}


def main() -> int:
    """Write or check every page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args().check
    stale = []
    for name, build in PAGES.items():
        path, text = DOCS / name, build()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if stale and check:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
