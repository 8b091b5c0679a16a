"""How the commands of examples end: exit status, interrupts, closed pipes, errors on one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper

from pto_wsp.errors import PtoError


def status_of(run: Callable[[], int], *expected: type[Exception]) -> int:
    """Return the exit status of `run`; errors of the system, of programs and `expected` ones are one line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output closed it; the flush when the interpreter exits must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, PtoError, *expected) as error:
        print(f"error: {describe(error)}", file=sys.stderr)
        return 1


def describe(error: Exception) -> str:
    """Return an error as one line, without the number that operating systems give it."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
