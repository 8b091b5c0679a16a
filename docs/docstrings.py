"""Google-style docstrings as Markdown, and pages of classes and functions made of them."""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Iterator

from pto_wsp.tools.reference import Subject, members, resolve, signature_text

SECTIONS = (
    "Formula",
    "Shapes",
    "Error",
    "Args",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Note",
    "Cost",
    "Source",
    "Example",
)
LISTS = ("Args", "Attributes", "Raises")
COLUMNS = 88

_SECTION = re.compile(rf"({'|'.join(SECTIONS)}):\s*(.*)$")
_ITEM = re.compile(r"(\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_][\w.]*)*):\s+(.*)$", re.DOTALL)


def subject_page(subject: Subject) -> str:
    """Return a page of the reference.

    Raises:
        ValueError: a docstring cannot be read.
    """
    parts = [f"# {subject.title}", subject.about]
    for dotted in subject.names:
        parts += entry(subject.heading(dotted), resolve(dotted), dotted)
    return "\n\n".join(parts) + "\n"


def entry(heading: str, found: object, dotted: str) -> Iterator[str]:
    """Yield the parts of a class or function: heading, signature, docstring, then the members."""
    yield f"## {heading}"
    yield from _described(heading.rsplit(".", 1)[-1], found, dotted)
    if isinstance(found, type) and issubclass(found, enum.Enum):
        yield "Members: " + ", ".join(f"`{member.name}`" for member in found) + "."
    for name, member in members(found):
        yield f"### {heading.rsplit('.', 1)[-1]}.{name}"
        yield from _described(name, member, f"{dotted}.{name}")


def _described(name: str, found: object, dotted: str) -> Iterator[str]:
    if signature := signature_text(found):
        yield f"```python\n{wrapped_signature(name, signature)}\n```"
    yield markdown(inspect.getdoc(found) or "", dotted, found)


def wrapped_signature(name: str, signature: str) -> str:
    """Return a signature on one line if it fits, otherwise with a parameter per line."""
    if len(name + signature) <= COLUMNS:
        return name + signature
    inside, _, returned = signature.removeprefix("(").rpartition(")")
    parameters = "".join(f"    {part.strip()},\n" for part in _split(inside))
    return f"{name}(\n{parameters}){returned}"


def _split(inside: str) -> Iterator[str]:
    """Yield the parameters of a signature: commas inside brackets separate none."""
    depth, start = 0, 0
    for i, char in enumerate(inside):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            yield inside[start:i]
            start = i + 1
    yield inside[start:]


def markdown(text: str, where: str, found: object = None) -> str:
    """Return a docstring as Markdown.

    Args:
        text: the docstring, without its indentation.
        where: how errors call its owner.
        found: the owner; its parameters are the only names that `Args` may list.

    Raises:
        ValueError: the docstring is missing, an item of a section has no name, or an argument does not exist.
    """
    if not text:
        raise ValueError(f"{where} has no docstring")
    parts: list[str] = []
    lines = text.split("\n")
    while lines:
        line = lines.pop(0)
        if not (section := _SECTION.match(line)):
            parts.append(line)
            continue
        body = [section[2]] if section[2] else []
        while lines and (not lines[0].strip() or lines[0].startswith("    ")):
            body.append(lines.pop(0))
        parts.append(_section(section[1], textwrap.dedent("\n".join(body)).strip("\n"), where, found))
    return "\n".join(parts)


def _section(name: str, body: str, where: str, found: object) -> str:
    if name not in LISTS:
        return f"**{name}.** {body}\n"
    lines = []
    for item in re.split(r"\n(?=\S)", body):
        if not (parsed := _ITEM.match(item)):
            raise ValueError(f"{where}: an item of `{name}` has no name: {item}")
        if name == "Args":
            _require_parameters(parsed[1], where, found)
        names = ", ".join(f"`{each}`" for each in parsed[1].split(", "))
        lines.append(f"- {names}: {' '.join(parsed[2].split())}")
    return "\n".join([f"**{name}**", "", *lines, ""])


def _require_parameters(names: str, where: str, found: object) -> None:
    signature = signature_text(found)
    for name in names.split(", "):
        if not re.search(rf"(?<![\w.]){re.escape(name.lstrip('*'))}(?!\w)", signature):
            raise ValueError(f"{where} has no parameter `{name}`")
