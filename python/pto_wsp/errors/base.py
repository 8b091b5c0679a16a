"""What all errors have in common, and their families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pto_wsp.location import Location, passed_location, user_call


class PtoError(Exception):
    """Base of every error that a user's program can cause.

    Args:
        loc: where the mistake was written, if known.
        notes: further places that have a part in it, each with a sentence; unknown places are left out.
        hint: replaces the class's hint.
        fields: what the class's texts mention.

    Attributes:
        fields: the keyword arguments, for programs that handle the error.
    """

    code: ClassVar[str] = "error"
    template: ClassVar[str] = "{message}"
    label: ClassVar[str] = ""
    hint: ClassVar[str] = ""

    def __init__(
        self,
        *,
        loc: Location | None = None,
        notes: Iterable[tuple[str, Location | None]] = (),
        hint: str | None = None,
        **fields: object,
    ) -> None:
        self.loc = loc
        self.notes = tuple((text, place) for text, place in notes if place is not None)
        self.fields = fields
        self.message = self.template.format(**fields)
        self.caret_text = self.label.format(**fields)
        self.help = self.hint.format(**fields) if hint is None else hint
        super().__init__(self.message)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors travel between processes with all that they say."""
        return _made_again, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        """Render the message with its source line, caret, notes and hint."""
        lines = [f"error[{self.code}]: {self.message}"]
        lines += excerpt(self.loc, self.caret_text)
        lines += [f"note: {text} --> {place}" for text, place in self.notes]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


def excerpt(loc: Location | None, label: str) -> list[str]:
    """Return the lines that show a place: file, source line, and a caret with a label."""
    if loc is None:
        return [f"  = {label}"] if label else []
    lines = [f"  --> {loc}"]
    source = loc.source_line()
    if source is None:
        return lines + ([f"  = {label}"] if label else [])
    number = str(loc.line)
    margin = " " * len(number)
    start = loc.col - 1 if loc.col else len(source) - len(source.lstrip())
    width = max(1, loc.end_col - loc.col) if loc.col else len(source.strip())
    source, start, width = _shown(source, start, width)
    caret = "".join("\t" if c == "\t" else " " for c in source[:start]) + "^" * width
    return [*lines, f"{margin} |", f"{number} | {source}", f"{margin} | {caret} {label}".rstrip()]


def _made_again(kind: type[PtoError], args: tuple[object, ...], state: dict[str, object]) -> PtoError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


MAX_SHOWN = 160
"""Characters of a source line that an error shows; of those before its place, a third of it."""


def _shown(source: str, start: int, width: int) -> tuple[str, int, int]:
    """Return the part of a source line around a place, and where in it the place is."""
    if len(source) <= MAX_SHOWN:
        return source, start, width
    first = max(0, min(start - MAX_SHOWN // 3, len(source) - MAX_SHOWN))
    last = first + MAX_SHOWN
    before, after = "..." if first else "", "..." if last < len(source) else ""
    return before + source[first:last] + after, start - first + len(before), max(1, min(width, last - start))


MAX_LISTED = 24
"""Names that a hint lists."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `name` may be a misspelling of, or None: case counts least."""
    for other in sorted(known := [*known]):
        if other.casefold() == name.casefold():
            return other
    from difflib import get_close_matches  # here: programs without mistakes start without it

    return next(iter(get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest of `known`, or lists them where they are few."""
    candidates = sorted(known)
    close = closest(name, candidates)
    if close is not None:
        return f"did you mean `{close}`?"
    listed = ", ".join(f"`{candidate}`" for candidate in candidates)
    return f"known: {listed}" if 0 < len(candidates) <= MAX_LISTED else ""


class FrontendError(PtoError):
    """A kernel or workload that cannot be read."""


class VerifyError(PtoError):
    """An IR module that breaks a rule."""


class CompileError(PtoError):
    """A program that cannot be compiled.

    The place is that of the call, where the error has no other. The command `pto` has none.
    """

    def __init__(self, *, loc: Location | None = None, **others: Any) -> None:
        super().__init__(loc=loc or user_call(), **others)


class BindError(PtoError):
    """Arguments that do not fit the program they are given to; nothing has run.

    The place is that of the call, where the error has no other: of the argument `name`, if the call names it.
    """

    def __init__(self, *, loc: Location | None = None, **others: Any) -> None:
        name, call = others.get("name"), user_call()
        if loc in (None, call):
            loc = passed_location(name) or call if isinstance(name, str) else call
        super().__init__(loc=loc, **others)


class ArrayError(BindError):
    """An array that does not fit its tensor.

    The place is the argument in the call, and the declaration is a note. A call that does not name the
    argument is the note.

    Args:
        name: the tensor.
        loc: its declaration.
    """

    def __init__(
        self,
        *,
        name: str,
        loc: Location | None = None,
        notes: Iterable[tuple[str, Location | None]] = (),
        **others: Any,
    ) -> None:
        passed, note = passed_location(name), (f"`{name}` is declared here", loc)
        if passed is None and loc is not None:
            note = "it is passed here", user_call()
        super().__init__(name=name, loc=passed or loc, notes=[*notes, note], **others)


class RunError(PtoError):
    """A run that failed.

    Attributes:
        tasks_before: how many tasks came before the place of an error that was found while the program ran:
            they may have run. None where nothing has run, or the error tells itself.
    """

    tasks_before: int | None = None

    def found_late(self, tasks_before: int) -> RunError:
        """Return the error with the number of tasks before it."""
        self.tasks_before = tasks_before
        return self

    def __str__(self) -> str:
        """Render the error, and say whether tasks have run."""
        text = super().__str__()
        if not self.tasks_before:
            return text
        tasks = "1 earlier task" if self.tasks_before == 1 else f"{self.tasks_before} earlier tasks"
        return f"{text}\nnote: {tasks} may have run and written, because only the run can find this error"


class ScheduleError(PtoError):
    """A schedule that does not fit what it is given to."""


class PlanError(PtoError):
    """A plan that cannot be made; nothing has been written."""
