"""Mistakes on the command line."""

from __future__ import annotations

from pto_wsp.errors.base import PtoError


class CommandError(PtoError):
    """A command that cannot do what it was asked for."""


class MissingPackage(CommandError):
    """Something that needs a package which is not installed."""

    code = "missing-package"
    template = "{what} needs the package `{package}`, which is not installed"
    hint = "`pip install 'pto-wsp[{extra}]'`"


class BadOption(CommandError):
    """An option of a command that does not fit the program it is given for."""

    code = "bad-option"
    template = "`{option}` does not fit"
    label = "expected {expected}, found {found}"
    hint = "{advice}"


class NotDocumented(CommandError):
    """Words that no section of the documentation contains."""

    code = "not-documented"
    template = "no section contains `{words}`"
    hint = "{advice}"
