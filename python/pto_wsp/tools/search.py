"""`pto docs`: searching the pages, the instructions, the errors and the reference in the terminal."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pto_wsp.errors import NotDocumented, did_you_mean
from pto_wsp.support.record import record
from pto_wsp.tools.reference import entries

CONTEXT_LINES = 5
COLUMNS = 100

_WORD = re.compile(r"\w+")


@record
class Section:
    """A part of a page with a heading of its own.

    Attributes:
        page: path of the page from the folder of the documents.
        title: heading of the page.
        heading: heading of the section.
        lines: its text, without its subsections.
    """

    page: str
    title: str
    heading: str
    lines: tuple[str, ...]

    def score(self, words: tuple[str, ...]) -> float:
        """Return how well the section matches words in lower case; 0 if one of them does not occur."""
        heading, text = self.heading.lower(), "\n".join(self.lines).lower()
        total = 0.0
        for word in words:
            whole = re.compile(rf"(?<![\w]){re.escape(word)}(?![\w])")
            found = len(whole.findall(text))
            if heading == word or heading.removeprefix("pto.") == word:
                total += 100
            elif whole.search(heading):
                total += 30
            elif word in heading:
                total += 12
            elif not found and word not in text:
                return 0.0
            total += min(found, 5) + (5 if whole.search(self.title.lower()) else 0)
        return total + 2 / (1 + len(self.lines) / 20)

    def excerpt(self, words: tuple[str, ...]) -> list[str]:
        """Return a few lines from the first one with a word on, or from the start if none has one."""
        lines = [line for line in self.lines if line.strip() and not line.startswith("```")]
        first = next((i for i, line in enumerate(lines) if any(w in line.lower() for w in words)), 0)
        is_named = all(word in self.heading.lower() for word in words)
        start = 0 if is_named else max(0, first - 1)
        return [_shortened(line) for line in lines[start : start + CONTEXT_LINES]]


def _shortened(line: str) -> str:
    return line if len(line) <= COLUMNS else line[: COLUMNS - 4] + " ..."


def documents() -> Path:
    """Return the folder of the pages: next to the package, or of the source tree."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "docs"
    return shipped if shipped.is_dir() else package.parents[1] / "docs"


def sections() -> Iterator[Section]:
    """Yield the sections of all pages, then the entries of the reference."""
    folder = documents()
    for path in sorted(folder.rglob("*.md")):
        yield from sections_of(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
    for page, heading, text in entries():
        yield Section(page.removesuffix(".md"), "Reference", heading, tuple(text.splitlines()))


def sections_of(page: str, text: str) -> Iterator[Section]:
    """Yield the sections of a page. A row of a table that names one thing is a section, too."""
    title = heading = page
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if not is_code and line.startswith("#"):
            if lines:
                yield Section(page, title, heading, tuple(lines))
            level, _, heading = line.partition(" ")
            title = heading if level == "#" else title
            lines = []
        elif named := None if is_code else re.match(r"\| `?(\w[\w .-]*?)`? \| (.*)\|$", line):
            yield Section(page, title, named[1], (line,))
        else:
            lines.append(line)
    yield Section(page, title, heading, tuple(lines))


def search(words: tuple[str, ...]) -> list[Section]:
    """Return the sections in which every word occurs, the best match first.

    Args:
        words: in any case; a word matches part of a longer one, but whole words count more.
    """
    wanted = tuple(word.lower() for word in words)
    found = [(section.score(wanted), section) for section in sections()]
    ranked = sorted((pair for pair in found if pair[0] > 0), key=lambda pair: -pair[0])
    return [section for _, section in ranked]


def docs(args: Namespace) -> None:
    """Search the documentation: pages, instructions, errors and the reference of the Python interface."""
    words = tuple(part for given in args.words for part in given.split())
    found = search(words)
    if not found:
        known = {word.lower() for section in sections() for word in _WORD.findall(section.heading)}
        raise NotDocumented(
            words=" ".join(words), advice=did_you_mean(words[-1].lower() if words else "", known)
        )
    wanted = tuple(word.lower() for word in words)
    for section in found[: args.number]:
        print(f"{section.page}: {section.heading}")
        for line in section.excerpt(wanted):
            print(f"    {line}")
        print()
    if len(found) > args.number:
        print(f"{len(found) - args.number} more: -n {len(found)}")
