"""The error catalogue: mistakes in `.pto` text."""

from __future__ import annotations

from pto_wsp.errors.base import PtoError


class TextError(PtoError):
    """`.pto` text that cannot be read; nothing of it has been used."""


class BadText(TextError):
    """Text that is not what the grammar has at this place."""

    code = "bad-text"
    template = "expected {expected}, found {found}"
    label = "expected {expected}"
    hint = "{advice}"


class UnknownText(TextError):
    """A name in text that is not declared where it is used."""

    code = "unknown-text"
    template = "{kind} `{name}` is not declared in {where}"
    label = "not declared"
    hint = "{advice}"


class RepeatedText(TextError):
    """A name that text declares twice."""

    code = "repeated-text"
    template = "{kind} `{name}` is declared twice"
    label = "declared before"
    hint = "rename or remove one of the two"


class TextMismatch(TextError):
    """Two statements of text about one thing that do not agree."""

    code = "text-mismatch"
    template = "{what} is said to be {found}, and is {expected}"
    label = "expected {expected}"
    hint = "{advice}"


class NoMeaning(TextError):
    """A form of `.pto` text that PTO-WSP has no meaning for."""

    code = "no-meaning"
    template = "{form} has no meaning in PTO-WSP"
    label = "{reason}"
    hint = "{advice}"


class TextLimit(TextError):
    """Text that is larger, or nested deeper, than what is read."""

    code = "text-limit"
    template = "the text has {what}"
    label = "at most {limit}"
    hint = "divide it into smaller parts"


class TextVersion(TextError):
    """Text of another version of the form."""

    code = "text-version"
    template = "the text is of version {found}"
    label = "version {expected} is read"
    hint = "save the program again with this version of PTO-WSP"


class UnusableFile(TextError):
    """A file of a program that cannot be written, read or loaded."""

    code = "unusable-file"
    template = "`{path}` cannot be {what}: {reason}"
