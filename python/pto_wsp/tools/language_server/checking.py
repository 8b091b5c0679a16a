"""Checks documents: text in this process, Python in another one that has a time limit."""

from __future__ import annotations

import subprocess
import sys

from pto_wsp.errors import PtoError
from pto_wsp.location import Location
from pto_wsp.text import parse
from pto_wsp.tools.language_server.remarks import NOT_CHECKED, Remark, loaded, remark_of

TIME_LIMIT_S = 20.0
"""Of the process that checks a Python document: its imports may take long."""

WORKER = "pto_wsp.tools.language_server.python_document"
MENTIONS = "pto_wsp"
"""A Python document without this word is not checked."""


def check_text(path: str, text: str) -> list[Remark]:
    """Return the first error of a document in `.pto` text."""
    try:
        parse(text, path)
    except PtoError as error:
        return [remark_of(error, path, Location(path, 1))]
    return []


def check_python(path: str, text: str, time_limit_s: float = TIME_LIMIT_S) -> list[Remark]:
    """Return what is wrong in the kernels and workloads of a Python document."""
    if MENTIONS not in text:
        return []
    command = [sys.executable, "-m", WORKER, path]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        return [_not_checked(f"its declarations take longer than {time_limit_s:g} s")]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [_not_checked(f"the checking process ended with status {done.returncode}: {last}")]
    return loaded(done.stdout)


def prove_document(path: str, text: str, time_limit_s: float = TIME_LIMIT_S) -> list[Remark]:
    """Return what is proved about the `P` loops of a document; nothing if that takes too long."""
    command = [sys.executable, "-m", WORKER, path, "prove"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        return []
    return loaded(done.stdout) if done.returncode == 0 else []


def _not_checked(reason: str) -> Remark:
    return Remark(1, 0, 0, NOT_CHECKED, f"not checked: {reason}", is_error=False)
