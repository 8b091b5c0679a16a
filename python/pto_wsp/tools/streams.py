"""Standard streams, of which a shell may have closed any."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pto_wsp.errors import UnusableFile


class _Closed(io.RawIOBase):
    """A stream that is not there: reading and writing it is an error that names it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise UnusableFile(what="read", path=self.path, reason="it is closed")

    def write(self, _: object) -> int:
        raise UnusableFile(what="written", path=self.path, reason="it is closed")


@contextmanager
def streams() -> Iterator[None]:
    """Put something in the place of streams that are closed, which Python leaves out."""
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(_Closed("standard input")))
    sys.stdout = sys.stdout or io.TextIOWrapper(
        io.BufferedWriter(_Closed("standard output"), 1), write_through=True
    )
    sys.stderr = sys.stderr or io.StringIO()
    yield
    sys.stdin, sys.stdout, sys.stderr = before


def drop_output() -> None:
    """Let what has not been written yet go nowhere, when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
