"""The tiers of the tests: `make test-quick` (QUICK=1), `make test`, `make test SLOW=1`, which CI runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

RUNS_QUICK = bool(os.environ.get("QUICK"))
"""Whether tests that start a process, such as the C++ compiler, are skipped where they start it."""

RUNS_SLOW = bool(os.environ.get("SLOW"))
"""Whether tests that are marked as slow run."""


NOT_QUICK = Path(__file__).with_name("not_quick.txt")
"""Lists test files, and single tests, that the quick tier leaves out."""


def not_quick() -> frozenset[str]:
    """Return what the quick tier leaves out, as paths below the project and as `path::test`."""
    lines = NOT_QUICK.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def mostly_slow(values: Iterable[T], quick: int = 1) -> list[T]:
    """Return parameters of a test: the first few alone where slow tests are left out."""
    return list(values if RUNS_SLOW else islice(values, quick))


def examples(count: int) -> int:
    """Return how many random examples to try: all of `count` in the slow tier, a tenth in the quick one."""
    return count if RUNS_SLOW else -(-count // (10 if RUNS_QUICK else 3))
