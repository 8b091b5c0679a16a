"""`short_errors`: tracebacks without the frames of this package."""

from __future__ import annotations

import os
from itertools import pairwise
from types import TracebackType

from pto_wsp.errors.base import PtoError
from pto_wsp.location import PACKAGE_DIR

_PYTHON_DIR = os.path.dirname(os.__file__)


def short_errors() -> _ShortErrors:
    """Return a context that removes this package's frames from the tracebacks of errors that leave it.

    It changes errors of the package, and errors that the user's code raises while the package calls it. Any
    other error is a defect of the package and keeps all its frames. The context installs no hook.

    ```python
    with pto_wsp.short_errors():
        main()
    ```
    """
    return _ShortErrors()


class _ShortErrors:
    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if isinstance(error, PtoError) or (error is not None and _is_of_user(frames)):
            _cut(error)


def _cut(error: BaseException) -> None:
    """Remove the package's frames from an error and its causes, and causes that have no other frames."""
    found: list[BaseException] = []
    before: BaseException | None = error
    while before is not None and all(before is not each for each in found):
        found.append(before)
        before.__traceback__ = _of_user(before.__traceback__)
        before = before.__cause__ or before.__context__
    for after, before in pairwise(found):
        if before.__traceback__ is None:
            after.__cause__ = after.__context__ = None
            break


def _is_of_user(frames: TracebackType | None) -> bool:
    """Return whether the user's code raised an error."""
    owners = _with_owners(frames)
    return bool(owners) and not owners[-1][1]


def _of_user(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the package's frames, and without library frames that the package called."""
    shown: TracebackType | None = None
    for frame, is_ours in reversed(_with_owners(frames)):
        if not is_ours:
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


def _with_owners(frames: TracebackType | None) -> list[tuple[TracebackType, bool]]:
    """Return the frames, outermost first; true for those of the package and of libraries that it called."""
    found: list[tuple[TracebackType, bool]] = []
    is_ours = False
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        is_library = file.startswith((_PYTHON_DIR, "<frozen ")) and "site-packages" not in file
        is_ours = file.startswith(PACKAGE_DIR) or (is_ours and is_library)
        found.append((frames, is_ours))
        frames = frames.tb_next
    return found
