"""Checks the English of pages, comments, docstrings and messages: `python -m docs.style [FILE ...]`.

Without files it checks all sources and pages except tests of single modules.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
COLUMNS = 100
MAX_TERMS = 30
SUFFIXES = (".c", ".cpp", ".h", ".hpp", ".md", ".py", ".pyi")
UNCHECKED = ("tests/c/", "tests/cpp/", "tests/python/")

_STRINGS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.COMMENT))
_IN_CPP = re.compile(r'//.*|^\s*/?\*.*|/\*.*|"(?:[^"\\]|\\.)*"')


def words() -> list[tuple[re.Pattern[str], str]]:
    """Return the words to avoid, each with its replacement."""
    lines = (DOCS / "style-words.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), instead) for word, instead in pairs]


def checked_files() -> list[Path]:
    """Return the files of the repository that are checked."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    names = [name for name in listed if name.endswith(SUFFIXES) and not name.startswith(UNCHECKED)]
    return [ROOT / name for name in names if (ROOT / name).exists()]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the English of a file with its line numbers: no code of pages, no names of programs."""
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".md":
            yield from _outside_code(text)
        case ".py" | ".pyi":
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type in _STRINGS:
                    yield from enumerate(token.string.splitlines(), token.start[0])
        case _:
            for number, line in enumerate(text.splitlines(), 1):
                yield number, " ".join(_IN_CPP.findall(line))


def _outside_code(text: str) -> Iterator[tuple[int, str]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
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
    paths = [Path(argument) for argument in arguments] or checked_files()
    found = [problem for path in paths for problem in problems(path)]
    found += glossary_problems() if not arguments else ()
    for problem in found:
        print(problem.removeprefix(f"{ROOT}/"), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
