"""Source locations: where in a user's file something was written."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import os
import sys
import threading
from types import CodeType, FrameType

from pto_wsp.support.record import record

PACKAGE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
"""How the files of this package begin, as code objects name them: links in the path stay as they are."""

OPERATORS_DIR = os.path.join(PACKAGE_DIR, "ops", "")
"""Where the ready operators are: kernels and workloads that are read as those of a user are."""

COMMAND_FILE = os.path.join(PACKAGE_DIR, "tools", "main.py")
"""The file of the command `pto`."""

_CALLERS = (functools.__file__, contextlib.__file__, threading.__file__)
_POOLS = os.path.join(os.path.dirname(threading.__file__), "concurrent", "")
"""Files of Python that call what this package decorates, or runs in threads."""


@record
class Location:
    """A span on one source line. Lines and columns count from 1; `end_col` is one past the last column.

    Column 0 means that only the line is known.
    """

    file: str
    line: int
    col: int = 0
    end_col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.col else f"{self.file}:{self.line}"

    def source_line(self) -> str | None:
        """Return the text of the line without its newline, or None if the source is not to be had."""
        text = linecache.getline(self.file, self.line)
        return text.rstrip("\n") if text else None


def of_user(loc: Location | None) -> Location | None:
    """Return a place, or None if it lies in this package, where no user can mend anything."""
    return None if loc is None or loc.file.startswith(PACKAGE_DIR) else loc


def caller_location(skip: int = 1) -> Location | None:
    """Return the location of the innermost call made by a user's program, or by a ready operator.

    Args:
        skip: frames nearest to this function that are never considered.
    """
    return user_location(sys._getframe(skip))


def argument_location(name: str) -> Location | None:
    """Return the location of an argument of the innermost call made by a user's program.

    Args:
        name: of the keyword; the location is that of the whole call where it has none of that name.
    """
    call = user_location(sys._getframe(1))
    return None if call is None else keyword_location(call, name) or call


def passed_location(name: str) -> Location | None:
    """Return the location of an argument of the innermost call from outside of this package, if it has it."""
    frame = _outer_frame(sys._getframe(1))
    return None if frame is None else keyword_location(frame_location(frame), name)


def keyword_location(call: Location, name: str) -> Location | None:
    """Return the location of a keyword with its value in a call, or None if the call does not name it."""
    try:
        tree = ast.parse("".join(linecache.getlines(call.file)))
    except (SyntaxError, ValueError):  # a notebook cell with commands
        return None
    begins = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _begins(node, call)]
    # `f(x=1)(x=2)`: calls that begin together differ in their end.
    for node in sorted(begins, key=lambda node: (node.end_col_offset or 0) + 1 != call.end_col):
        for argument in node.keywords:
            if argument.arg == name:
                is_short = argument.end_lineno == argument.lineno
                end = (argument.end_col_offset or 0) if is_short else argument.col_offset + len(name)
                return Location(call.file, argument.lineno, argument.col_offset + 1, end + 1)
    return None


def _begins(node: ast.Call, call: Location) -> bool:
    return (node.lineno, node.col_offset + 1) == (call.line, call.col)


def user_call() -> Location | None:
    """Return the location of the innermost call from outside of this package."""
    frame = _outer_frame(sys._getframe(1))
    return frame_location(frame) if frame is not None else None


def _outer_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a user's program around `frame`, none of a ready operator."""
    frame = user_frame(frame)
    while frame is not None and frame.f_code.co_filename.startswith(OPERATORS_DIR):
        frame = user_frame(frame.f_back)
    return frame


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a user's program, or of a ready operator, around `frame`.

    The command `pto` has none: its user wrote a command line.
    """
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        frame = None if frame.f_code.co_filename == COMMAND_FILE else frame.f_back
    return frame


def user_location(frame: FrameType | None) -> Location | None:
    """Return the location of the innermost user's call, or call of a ready operator, around `frame`."""
    frame = user_frame(frame)
    return frame_location(frame) if frame is not None else None


def _is_machinery(file: str) -> bool:
    is_ours = file.startswith(PACKAGE_DIR) and not file.startswith(OPERATORS_DIR)
    return is_ours or file in _CALLERS or file.startswith(_POOLS)


def frame_location(frame: FrameType) -> Location:
    """Return the place that `frame` is executing, to the column where its code records columns."""
    code = frame.f_code
    line, end_line, col, end_col = _instructions(code)[frame.f_lasti // 2]
    if line is None or col is None:
        return Location(code.co_filename, frame.f_lineno)
    last = end_col + 1 if end_col is not None and end_line == line else col + 2
    return Location(code.co_filename, line, col + 1, last)


_latest: tuple[CodeType | None, list[tuple[int | None, ...]]] = (None, [])
"""The code that was asked for last, and its positions: most calls in a row come from one function."""


def _instructions(code: CodeType) -> list[tuple[int | None, ...]]:
    """Return line, end line, column and end column of every instruction."""
    global _latest
    latest = _latest
    if latest[0] is not code:
        _latest = latest = (code, [*code.co_positions()])
    return latest[1]
