"""What is wrong in a document, with places, as the checking process sends it to the server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pto_wsp.errors import PtoError
from pto_wsp.location import Location

PYTHON_SYNTAX, NOT_CHECKED, PROOF = "python-syntax", "not-checked", "proof"
"""Codes of remarks that are not errors of PTO-WSP. A PROOF is shown at the cursor, and not listed."""


@dataclass(frozen=True)
class Remark:
    """What the editor shows at a place of a document.

    Attributes:
        line: from 1.
        col: from 1; 0 for the whole line.
        end_col: one past the last column.
        code: of the error.
        message: what is wrong, what was expected, and what to do.
        is_error: False where a part of the document could not be checked.
    """

    line: int
    col: int
    end_col: int
    code: str
    message: str
    is_error: bool = True


def remark_of(error: PtoError, path: str, default: Location) -> Remark:
    """Return an error as a remark of the document `path`; errors of other files appear at `default`."""
    loc = error.loc
    is_here = loc is not None and loc.file == path
    parts = [error.message, error.caret_text, f"help: {error.help}" if error.help else ""]
    parts += [f"note: {text} ({place})" for text, place in error.notes]
    if loc is not None and not is_here:
        parts.append(f"note: at {loc}")
    place = loc if loc is not None and is_here else default
    message = "\n".join(part for part in parts if part)
    return Remark(place.line, place.col, place.end_col, error.code, message)


def dumped(remarks: Iterable[Remark]) -> str:
    """Return remarks as JSON, each once, by line."""
    unique = sorted(set(remarks), key=lambda f: (f.line, f.col, f.code))
    return json.dumps([dataclasses.asdict(remark) for remark in unique])


def loaded(text: str) -> list[Remark]:
    """Return the remarks that `dumped` wrote."""
    return [Remark(**fields) for fields in json.loads(text)]
