"""Checks the English of documents and comments: `python -m docs.style [FILE ...]`.

Without files it checks those that `docs/style-clean.txt` lists. A file joins the list when it passes, and
stays in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
COLUMNS = 100
MAX_TERMS = 30


def words() -> list[tuple[re.Pattern[str], str]]:
    """Return the words to avoid, each with its replacement."""
    lines = (DOCS / "style-words.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), instead) for word, instead in pairs]


def clean_files() -> list[Path]:
    """Return the files that are kept clean."""
    lines = (DOCS / "style-clean.txt").read_text(encoding="utf-8").splitlines()
    return [ROOT / line for line in lines if line and not line.startswith("#")]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without the code blocks of pages."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if path.suffix == ".md" and line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def problems(path: Path) -> Iterator[str]:
    """Yield what is wrong in a file."""
    avoided = words()
    for number, line in prose(path):
        text = re.sub(r"`[^`]*`|\]\([^)]*\)", "``", line)
        for pattern, instead in avoided:
            if found := pattern.search(text):
                yield f"{path}:{number}: `{found[0]}`: write {instead}"
        if path.suffix == ".md" and is_too_long(line):
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS}"


def is_too_long(line: str) -> bool:
    """Whether a line can be broken and should be: rows of tables and links cannot."""
    can_break = " " in line.strip() and not line.lstrip().startswith("|") and "](" not in line
    return can_break and len(line) > COLUMNS


def glossary_problems() -> Iterator[str]:
    """Yield what is wrong with the glossary: it has at most `MAX_TERMS` terms, each once."""
    path = DOCS / "glossary.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    terms = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    if len(terms) > MAX_TERMS:
        yield f"{path}: {len(terms)} terms, at most {MAX_TERMS}"
    for term in sorted({term for term in terms if terms.count(term) > 1}):
        yield f"{path}: `{term}` has two lines"


def main(arguments: list[str]) -> int:
    """Print what is wrong in the files; return the exit status."""
    paths = [Path(argument) for argument in arguments] or clean_files()
    found = [problem for path in paths for problem in problems(path)]
    found += glossary_problems() if not arguments else ()
    for problem in found:
        print(problem.removeprefix(f"{ROOT}/"), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
