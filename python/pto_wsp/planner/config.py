"""Limits of a plan, and the tiers that lengths fall into."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pto_wsp.errors import BadPlanConfig

INT_MAX: Final = 2**31 - 1


def check_range(what: str, value: int, low: int, high: int = INT_MAX) -> None:
    """Raise `BadPlanConfig` unless `value` is an integer in `low..high`."""
    expected = f"an integer in {low}..{high}"
    try:
        index = operator.index(value)
    except TypeError:
        raise BadPlanConfig(what=what, expected=expected, found=repr(value)) from None
    if isinstance(value, bool) or not low <= index <= high:
        raise BadPlanConfig(what=what, expected=expected, found=repr(value))


@dataclass(frozen=True)
class PlanConfig:
    """Limits of a plan.

    A length has ceil(length / chunk_size) chunks in any case.

    Args:
        chunk_min: smallest chunk size, > 0, in positions.
        chunk_max: largest chunk size, >= `chunk_min`.
        max_work_units: `plan_chunk_size` aims at no more descriptors than this, > 0.
        balance_chunks: True: chunk k of n starts at floor(k * length / n), so that sizes differ by at most 1;
            False: it starts at k * chunk_size, and the last one is short.

    Raises:
        BadPlanConfig: a field is out of its range.
    """

    chunk_min: int = 256
    chunk_max: int = 4096
    max_work_units: int = 65536
    balance_chunks: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("chunk_min", self.chunk_min, 1)
        check_range("chunk_max", self.chunk_max, self.chunk_min)
        check_range("max_work_units", self.max_work_units, 1)
        if not isinstance(self.balance_chunks, bool):
            raise BadPlanConfig(
                what="balance_chunks", expected="True or False", found=repr(self.balance_chunks)
            )


class Tier(NamedTuple):
    """Lengths `min_size` to `max_size`, both inclusive, run on kernel tier `id`."""

    id: int
    min_size: int
    max_size: int


class TierConfig:
    """An ordered list of tiers; the first that matches a length is taken.

    Args:
        tiers: each a `Tier` or a triple `(id, min_size, max_size)`. Ids are different and lie in 0..255, they
            need not be contiguous; 0 < min_size <= max_size < 2**31; sizes may overlap.

    Raises:
        BadPlanConfig: a tier is out of range, or an id is used twice.
    """

    def __init__(self, tiers: Iterable[tuple[int, int, int]]) -> None:
        self.tiers: tuple[Tier, ...] = tuple(Tier(*tier) for tier in tiers)
        for tier in self.tiers:
            check_range(f"the id of {tier}", tier.id, 0, 255)
            check_range(f"min_size of {tier}", tier.min_size, 1)
            check_range(f"max_size of {tier}", tier.max_size, tier.min_size)
        ids = [tier.id for tier in self.tiers]
        if len(set(ids)) != len(ids):
            raise BadPlanConfig(what="the list of tier ids", expected="different ids", found=str(ids))
        self.rows: Final = np.array(self.tiers, np.int32).reshape(-1, 3)
        self.rows.flags.writeable = False

    def select_tier(self, size: int) -> int:
        """Return the id of the first tier that covers `size`, -1 if none does."""
        return next((tier.id for tier in self.tiers if tier.min_size <= size <= tier.max_size), -1)

    def __repr__(self) -> str:
        return f"TierConfig({[tuple(tier) for tier in self.tiers]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TierConfig) and self.tiers == other.tiers

    def __hash__(self) -> int:
        return hash(self.tiers)

    def covered(self) -> str:
        """Return the covered lengths as text, for messages."""
        return ", ".join(f"{tier.min_size}..{tier.max_size}" for tier in self.tiers) or "nothing"


DECODE_ATTENTION_TIERS: Final = TierConfig(
    [(0, 1, 1024), (1, 1025, 4096), (2, 4097, 16384), (3, 16385, 131072)]
)
