"""What a program that ends with an error shows above its message: lines of the user, none of ours.

So it is for errors of ours, and for others that the user's code raises where this package has called it. Of
what goes wrong in this package itself everything is shown.

`python -X dev` shows everything, and whoever handles an error finds its whole traceback.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from types import TracebackType

from pto_wsp.location import PACKAGE_DIR

_PYTHON_DIR = os.path.dirname(os.__file__)


def hide_own_frames(of: type[BaseException]) -> None:
    """Show errors of this class, and of users' code, that nobody handles without frames of this package."""
    shown_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if isinstance(error, of) or _is_of_user(frames):
            cut(error)
            frames = error.__traceback__
        shown_before(kind, error, frames)

    sys.excepthook = show


def cut(error: BaseException) -> None:
    """Take the frames of this package out of an error, and errors that only this package had to do with."""
    if sys.flags.dev_mode:
        return
    found: list[BaseException] = []
    before: BaseException | None = error
    while before is not None and all(before is not each for each in found):
        found.append(before)
        before.__traceback__ = of_user(before.__traceback__)
        before = before.__cause__ or before.__context__
    for after, before in pairwise(found):
        if before.__traceback__ is None:
            after.__cause__ = after.__context__ = None
            break


def _is_of_user(frames: TracebackType | None) -> bool:
    """Return whether an error was raised by the user's code."""
    owners = _with_owners(frames)
    return bool(owners) and not owners[-1][1]


def of_user(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package, and those of Python's library that it called."""
    shown: TracebackType | None = None
    for frame, is_ours in reversed(_with_owners(frames)):
        if not is_ours:
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


def _with_owners(frames: TracebackType | None) -> list[tuple[TracebackType, bool]]:
    """Return the frames, outermost first, each with whether it is of this package or of what that called."""
    found: list[tuple[TracebackType, bool]] = []
    is_ours = False
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        is_library = file.startswith((_PYTHON_DIR, "<frozen ")) and "site-packages" not in file
        is_ours = file.startswith(PACKAGE_DIR) or (is_ours and is_library)
        found.append((frames, is_ours))
        frames = frames.tb_next
    return found
