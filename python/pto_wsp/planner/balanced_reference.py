"""The balanced planner written out literally: what the C++ planner's plans are compared with.

Rows lie end to end on a line of costs; every point where a cut is allowed is listed, and each worker ends at
the last of them that is inside its reach. Pure Python integers; parameters are in range.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pto_wsp.planner.balanced import (
    ANY_LENGTH_TIERS,
    BALANCED_ITEM,
    CANONICAL_BLOCK,
    MERGE_ROW,
    BalancedConfig,
)
from pto_wsp.planner.config import TierConfig
from pto_wsp.planner.descriptor import FLAG_FIRST, FLAG_INIT, FLAG_LAST


class Row(NamedTuple):
    """One (request, KV head, query tile), and the positions `kv_begin .. kv_end` it attends to."""

    request: int
    head: int
    q_start: int
    kv_begin: int
    kv_end: int
    position_cost: int

    def cost(self, config: BalancedConfig) -> int:
        """Return what the row costs as one item."""
        return config.item_cost + (self.kv_end - self.kv_begin) * self.position_cost


class Point(NamedTuple):
    """A place where a cut is allowed: before row `row`, or inside it at position `kv`."""

    cost: int
    row: int
    kv: int | None


@dataclass
class ReferencePlan:
    """A plan as the C++ planner makes it, and the cost of each worker."""

    items: np.ndarray
    worker_indptr: list[int]
    merge_rows: np.ndarray
    merge_indptr: list[int]
    num_partials: int
    total_cost: int
    worker_costs: list[int]


def grain(config: BalancedConfig) -> int:
    """Return the multiple that rows are cut at."""
    return CANONICAL_BLOCK if config.batch_invariant else math.lcm(config.kv_tile, config.page_size)


def rows(config: BalancedConfig, kv_lens: Sequence[int], qo_lens: Sequence[int] | None) -> Iterator[Row]:
    """Yield the rows of a batch in order of request, head and query tile."""
    group = config.group_size
    for request, kv_len in enumerate(kv_lens):
        qo_len = 1 if qo_lens is None else qo_lens[request]
        for head in range(config.num_heads):
            for q_start in range(0, qo_len * group, config.q_tile):
                q_end = min(q_start + config.q_tile, qo_len * group)
                queries = range(q_start // group, -(-q_end // group))
                attended = [_attended(config, kv_len, kv_len - qo_len + query) for query in queries]
                end = max(kv.stop for kv in attended)
                begin = min(min(kv.start for kv in attended), end)
                per_position = (
                    -(-(q_end - q_start) // config.q_rows_per_cost) if config.q_rows_per_cost else 1
                )
                yield Row(request, head, q_start, begin, end, per_position)


def _attended(config: BalancedConfig, kv_len: int, position: int) -> range:
    """Return the positions that one query attends to; `position` is its own, perhaps negative."""
    end = max(0, position + 1) if config.causal else kv_len
    return range(max(0, position - config.window_left) if config.window_left >= 0 else 0, end)


def plan(
    config: BalancedConfig,
    kv_lens: Sequence[int],
    qo_lens: Sequence[int] | None = None,
    tiers: TierConfig = ANY_LENGTH_TIERS,
) -> ReferencePlan:
    """Return the plan of a batch."""
    all_rows = list(rows(config, kv_lens, qo_lens))
    points = _points(config, all_rows)
    ends = _worker_ends(config, all_rows, points)
    return _deal(config, all_rows, ends, [tiers.select_tier(max(1, kv_len)) for kv_len in kv_lens])


def _points(config: BalancedConfig, all_rows: list[Row]) -> list[Point]:
    points, cost = [], 0
    for i, row in enumerate(all_rows):
        points.append(Point(cost, i, None))
        for kv in range(0, row.kv_end, grain(config)):
            if kv > row.kv_begin:
                before = config.item_cost + (kv - row.kv_begin) * row.position_cost
                points.append(Point(cost + before, i, kv))
        cost += row.cost(config)
    return [*points, Point(cost, len(all_rows), None)]


def _worker_ends(config: BalancedConfig, all_rows: list[Row], points: list[Point]) -> list[Point]:
    total, workers = points[-1].cost, config.num_workers
    most = max((row.position_cost for row in all_rows), default=1)
    reach = (grain(config) * most + config.item_cost) // 2
    shares = [worker * total // workers + reach for worker in range(1, workers)]
    return [points[bisect_right(points, share, key=lambda p: p.cost) - 1] for share in shares] + [points[-1]]


def _deal(config: BalancedConfig, all_rows: list[Row], ends: list[Point], tiers: list[int]) -> ReferencePlan:
    items: list[tuple[int | tuple[int, ...], ...]] = []
    indptr, costs, merge_rows, merge_indptr = [0], [], [], [0]
    slots, row_index, kv = 0, 0, None
    for end in ends:
        cost = 0
        while (row_index, -1 if kv is None else kv) < (end.row, -1 if end.kv is None else end.kv):
            row = all_rows[row_index]
            start = row.kv_begin if kv is None else kv
            is_last = end.row > row_index
            stop = row.kv_end if is_last else end.kv
            assert stop is not None
            is_whole = kv is None and is_last
            flags = FLAG_INIT | FLAG_FIRST * (kv is None) | FLAG_LAST * is_last
            place = (row.request, row.head, start, stop - start, row.q_start)
            items.append((len(items), tiers[row.request], flags, 0, *place, -1 if is_whole else slots))
            cost += config.item_cost + (stop - start) * row.position_cost
            if not is_whole:
                blocks = -(-(stop - start) // CANONICAL_BLOCK)
                slots += blocks if config.batch_invariant and kv is not None else 1
            if kv is None and not is_last:
                merge_rows.append((row.request, row.head, row.q_start, len(items) - 1))
            if kv is not None and is_last:
                merge_indptr.append(slots)
            row_index, kv = (row_index + 1, None) if is_last else (row_index, end.kv)
        indptr.append(len(items))
        costs.append(cost)
    return ReferencePlan(
        np.array(items, BALANCED_ITEM),
        indptr,
        np.array(merge_rows, MERGE_ROW),
        merge_indptr,
        slots,
        sum(row.cost(config) for row in all_rows),
        costs,
    )
