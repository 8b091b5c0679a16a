"""The planner written out literally: what the C++ planner's results are compared with.

Pure Python integers, so nothing overflows. Lengths are >= 0, everything else is in range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pto_wsp.planner.config import PlanConfig, TierConfig
from pto_wsp.planner.descriptor import FLAG_FIRST, FLAG_LAST, WORK_DESCRIPTOR


def num_chunks(length: int, chunk_size: int, empty_item: bool = False) -> int:
    """Return ceil(length / chunk_size), 1 for an empty item."""
    return 1 if length == 0 and empty_item else -(-length // chunk_size)


def count_work_units(
    seq_lens: Sequence[int], num_heads: int, chunk_size: int, empty_item: bool = False
) -> int:
    """Return the number of descriptors of a plan."""
    return num_heads * sum(num_chunks(length, chunk_size, empty_item) for length in seq_lens)


def plan_chunk_size(
    seq_lens: Sequence[int], num_heads: int, config: PlanConfig, empty_item: bool = False
) -> int:
    """Return the chunk size that the specification's pseudo-code finds."""
    low, high = config.chunk_min, config.chunk_max
    while low < high:
        mid = (low + high) // 2
        if count_work_units(seq_lens, num_heads, mid, empty_item) > config.max_work_units:
            low = mid + 1
        else:
            high = mid
    return low


def generate(
    seq_lens: Sequence[int],
    num_heads: int,
    chunk_size: int,
    config: PlanConfig,
    tiers: TierConfig,
    empty_item: bool = False,
) -> np.ndarray:
    """Return the plan, an array of `WORK_DESCRIPTOR`."""
    rows = []
    for request, length in enumerate(seq_lens):
        tier = _select_tier(tiers, 1 if length == 0 and empty_item else length)
        for head in range(num_heads):
            for flags, start, size in _chunks(length, chunk_size, config.balance_chunks, empty_item):
                rows.append((len(rows), tier, flags, 0, (request, head, start, size)))
    return np.array(rows, WORK_DESCRIPTOR)


def _chunks(length: int, chunk_size: int, balance: bool, empty_item: bool) -> Iterator[tuple[int, int, int]]:
    """Yield flags, start and size of each chunk of one sequence."""
    count = num_chunks(length, chunk_size, empty_item)
    for k in range(count):
        start = k * length // count if balance else k * chunk_size
        end = (k + 1) * length // count if balance else min((k + 1) * chunk_size, length)
        yield FLAG_FIRST * (k == 0) | FLAG_LAST * (k == count - 1), start, end - start


def _select_tier(tiers: TierConfig, size: int) -> int:
    return next(tier.id for tier in tiers.tiers if tier.min_size <= size <= tier.max_size)
