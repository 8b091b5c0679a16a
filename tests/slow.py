"""What `make test` leaves out, so that it takes minutes: `make test SLOW=1`, and CI, run all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

RUNS_SLOW = bool(os.environ.get("SLOW"))
"""Whether tests that are marked as slow run."""


def mostly_slow(values: Iterable[T], quick: int = 1) -> list[T]:
    """Return parameters of a test: the first few alone where slow tests are left out."""
    return list(values if RUNS_SLOW else islice(values, quick))


def examples(count: int) -> int:
    """Return how many random examples to try: a third of `count` where slow tests are left out."""
    return count if RUNS_SLOW else -(-count // 3)
