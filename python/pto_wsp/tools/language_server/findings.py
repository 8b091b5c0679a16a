"""What is wrong in a document, with places, as the checking process sends it to the server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pto_wsp.errors import PtoError
from pto_wsp.location import Location

PYTHON_SYNTAX, NOT_CHECKED = "python-syntax", "not-checked"
"""Codes of findings that are not errors of PTO-WSP."""


@dataclass(frozen=True)
class Finding:
    """An error at a place of a document.

    Attributes:
        line: from 1.
        col: from 1; 0 for the whole line.
        end_col: one past the last column.
        code: of the error.
        message: what is wrong, what was expected, and what to do.
        is_error: False for a remark.
    """

    line: int
    col: int
    end_col: int
    code: str
    message: str
    is_error: bool = True


def finding_of(error: PtoError, path: str, default: Location) -> Finding:
    """Return an error as a finding of the document `path`; errors of other files appear at `default`."""
    loc = error.loc
    is_here = loc is not None and loc.file == path
    parts = [error.message, error.caret_text, f"help: {error.help}" if error.help else ""]
    parts += [f"note: {text} ({place})" for text, place in error.notes]
    if loc is not None and not is_here:
        parts.append(f"note: at {loc}")
    place = loc if loc is not None and is_here else default
    message = "\n".join(part for part in parts if part)
    return Finding(place.line, place.col, place.end_col, error.code, message)


def dumped(findings: Iterable[Finding]) -> str:
    """Return findings as JSON, each once, by line."""
    unique = sorted(set(findings), key=lambda f: (f.line, f.col, f.code))
    return json.dumps([dataclasses.asdict(finding) for finding in unique])


def loaded(text: str) -> list[Finding]:
    """Return the findings that `dumped` wrote."""
    return [Finding(**fields) for fields in json.loads(text)]
