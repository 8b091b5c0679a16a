"""The error catalogue: mistakes in `.pto` text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pto_wsp.errors.base import PtoError
from pto_wsp.location import user_call


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
    template = "{what} does not agree with the declarations"
    label = "expected {expected}, found {found}"
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
    """A file of a program that cannot be written, read or loaded.

    The place is that of the call. The command `pto` has none.
    """

    code = "unusable-file"
    template = "`{path}` cannot be {what}: {reason}"

    def __init__(
        self, *, what: str, path: str | os.PathLike[str], reason: str, hint: str | None = None
    ) -> None:
        super().__init__(what=what, path=os.fspath(path), reason=reason, hint=hint, loc=user_call())


@contextmanager
def naming_file(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the operating system into `UnusableFile`; `what` is `read` or `written`.

    A closed pipe is not such an error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnusableFile(what=what, path=path, reason=error.strerror or str(error)) from None
