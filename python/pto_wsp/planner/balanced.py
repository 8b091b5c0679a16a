"""Plans that deal a batch evenly to a fixed number of workers, with the merge plan of what was split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import (
    BadPlanConfig,
    InvalidPlanParams,
    PlanBufferOverflow,
    PlanError,
    UnsupportedSize,
)
from pto_wsp.planner.config import INT_MAX, TierConfig, check_range
from pto_wsp.planner.descriptor import BALANCED_ITEM, MERGE_ROW
from pto_wsp.planner.planner import Lengths, ZeroLength, as_lengths, invalid_lengths

CANONICAL_BLOCK: Final = 1024
"""Positions of a canonical block of the batch-invariant mode."""

PARTIAL_STATISTICS: Final = 2
"""The statistics in a row of a slot, after its weighted sums of values: the maximum of its scores, the sum
of its weights."""

WRITE_THROUGH: Final = -1
"""`partial` of an item that is a whole row."""

ANY_LENGTH_TIERS: Final = TierConfig([(0, 1, INT_MAX)])

_OK, _BUFFER_OVERFLOW, _UNSUPPORTED_SIZE = 0, 1, 2
_MAX_WORKERS = 1 << 20
_RANGES = {
    "num_workers": (1, _MAX_WORKERS),
    "num_heads": (1, INT_MAX),
    "group_size": (1, INT_MAX),
    "q_tile": (1, INT_MAX),
    "kv_tile": (1, INT_MAX),
    "page_size": (1, INT_MAX),
    "item_cost": (0, 1 << 20),
    "q_rows_per_cost": (0, INT_MAX),
    "window_left": (-1, INT_MAX),
}


@dataclass(frozen=True)
class BalancedConfig:
    """How rows are made, what they cost and where they may be cut; one for all steps.

    A row is one (request, KV head, query tile). Query rows are packed: packed row = query position *
    `group_size` + query head of the group.

    Args:
        num_workers: 1..2**20.
        num_heads: KV heads.
        group_size: query heads per KV head.
        q_tile: packed query rows per row of work.
        kv_tile: rows are cut at common multiples of `kv_tile` and `page_size` only; both in positions.
        page_size: see `kv_tile`.
        item_cost: what an item costs besides its positions, in positions, 0..2**20.
        q_rows_per_cost: 0: a position costs 1 in every item; n: it costs ceil(packed query rows / n), at most
            256.
        window_left: a query attends at most this many positions before its own; -1: all of them.
        causal: a query attends no position after its own. The queries are the last positions of a request.
        batch_invariant: cut between canonical blocks only; partial results are those of blocks, so that
            results are the same bits for any batch and any number of workers.
        zero_length: what a `kv_lens` of 0 means. "empty_item": items without positions; "reject": an error.

    Raises:
        BadPlanConfig: a field is out of its range.
    """

    num_workers: int
    num_heads: int
    group_size: int = 1
    q_tile: int = 128
    kv_tile: int = 128
    page_size: int = 1
    item_cost: int = 32
    q_rows_per_cost: int = 0
    window_left: int = -1
    causal: bool = False
    batch_invariant: bool = False
    zero_length: ZeroLength = "empty_item"

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, (low, high) in _RANGES.items():
            check_range(name, getattr(self, name), low, high)
        for name in ("causal", "batch_invariant"):
            if not isinstance(getattr(self, name), bool):
                raise BadPlanConfig(what=name, expected="True or False", found=repr(getattr(self, name)))
        if self.zero_length not in ("empty_item", "reject"):
            expected, found = "'empty_item' or 'reject'", repr(self.zero_length)
            raise BadPlanConfig(what="zero_length", expected=expected, found=found)
        self._check_together()

    def _check_together(self) -> None:
        if self.q_rows_per_cost and -(-self.q_tile // self.q_rows_per_cost) > 256:
            raise BadPlanConfig(
                what="the cost of a position",
                expected="q_tile / q_rows_per_cost of at most 256",
                found=f"{self.q_tile} / {self.q_rows_per_cost}",
            )
        if self.native().grain == 0:
            multiple = f"divides {CANONICAL_BLOCK}" if self.batch_invariant else "is at most 2**30"
            raise BadPlanConfig(
                what="the alignment of cuts",
                expected=f"a common multiple of kv_tile and page_size that {multiple}",
                found=f"kv_tile={self.kv_tile}, page_size={self.page_size}",
            )

    @property
    def grain(self) -> int:
        """Rows are cut at multiples of this many positions."""
        return self.native().grain

    def native(self) -> _native.BalancedConfig:
        """Return the configuration as the C++ planner takes it."""
        return _native.balanced_config(
            self.num_workers,
            self.num_heads,
            self.group_size,
            self.q_tile,
            self.kv_tile,
            self.page_size,
            self.item_cost,
            self.q_rows_per_cost,
            self.window_left,
            self.causal,
            self.batch_invariant,
            self.zero_length == "reject",
        )


class BalancedPlan(NamedTuple):
    """The current plan of a `BalancedPlanner`: views of its memory, which the next `plan` overwrites.

    Attributes:
        items: `[num_items]` of `BALANCED_ITEM`, in order of request, head, query tile and position.
        worker_indptr: `[num_workers + 1]` int32: worker w has `items[worker_indptr[w]:worker_indptr[w + 1]]`.
        merge_rows: `[num_merges]` of `MERGE_ROW`: the rows that were split.
        merge_indptr: `[num_merges + 1]` int32: row m is merged from the slots
            `merge_indptr[m] .. merge_indptr[m + 1]`, in this order.
        num_partials: slots for partial results.
        total_cost: of all rows, unsplit.
        makespan: cost of the worker that has most.
    """

    items: np.ndarray
    worker_indptr: np.ndarray
    merge_rows: np.ndarray
    merge_indptr: np.ndarray
    num_partials: int
    total_cost: int
    makespan: int


class BalancedPlanner:
    """Deals the rows of a batch evenly to `config.num_workers` workers, step after step into the same memory.

    No worker has more than max(total cost / workers, one grain) + one grain + `item_cost`. A plan has
    fewer than rows + `num_workers` items, at most `num_workers - 1` rows to merge and, unless it is
    batch-invariant, at most twice as many partial results.

    Args:
        config: fixed for all steps.
        max_batch: most requests of a step.
        max_query_total: most query positions of a step, all requests together; None: one query per request.
        tiers: which `kv_lens` run on which kernel; the default is tier 0 for all.

    Attributes:
        memory: `[bytes]` uint8, what a device needs of a plan. The parts in use are its first
            `used_bytes(plan)` bytes.

    Raises:
        BadPlanConfig: limits out of range, or plans of more than 2**31 - 1 items.
    """

    def __init__(
        self,
        config: BalancedConfig,
        max_batch: int,
        max_query_total: int | None = None,
        tiers: TierConfig = ANY_LENGTH_TIERS,
    ) -> None:
        check_range("max_batch", max_batch, 1, INT_MAX)
        if max_query_total is not None:
            check_range("max_query_total", max_query_total, 1, 2**62)
        self.config = config
        self.tiers = tiers
        self._native = _native.BalancedPlanner(config.native(), max_batch, max_query_total or 0, tiers.rows)
        self.max_items, merge_indptr, merge_rows, self._items_offset, size = self._native.layout
        if size == 0:
            what = f"max_batch {max_batch} and max_query_total {max_query_total}"
            raise BadPlanConfig(what=what, expected=f"at most {INT_MAX} items", found="more")
        self.memory = _aligned(size)
        self._native.attach(self.memory)
        workers = config.num_workers
        self._worker_indptr = self._part(0, workers + 1, np.dtype(np.int32))
        self._merge_indptr = self._part(merge_indptr, workers, np.dtype(np.int32))
        self._merge_rows = self._part(merge_rows, workers - 1, MERGE_ROW)
        self._items = self._part(self._items_offset, self.max_items, BALANCED_ITEM)

    def plan(self, kv_lens: Lengths, qo_lens: Lengths | None = None) -> BalancedPlan:
        """Return the plan of a batch, views of `memory`.

        Args:
            kv_lens: lengths `[batch]`, int32 or int64, each in 0..2**31 - 1.
            qo_lens: query lengths `[batch]`, the same; None: one query each. A request of 0 has no rows.

        Raises:
            InvalidPlanParams: lengths that no plan can have.
            UnsupportedSize: no tier covers a length, or a length of 0 is rejected.
            PlanBufferOverflow: more rows than the limits given at construction have room for.
        """
        kv = as_lengths(kv_lens)
        qo = None if qo_lens is None else as_lengths(qo_lens)
        if qo is not None and qo.size != kv.size:
            raise InvalidPlanParams(
                what="the list of query lengths", expected=f"{kv.size} lengths", found=f"{qo.size}"
            )
        code, items, merges, partials, total_cost, makespan = self._native.plan(kv, qo)
        if code != _OK:
            raise self._error(code, items, kv, qo)
        return BalancedPlan(
            self._items[:items],
            self._worker_indptr,
            self._merge_rows[:merges],
            self._merge_indptr[: merges + 1],
            partials,
            total_cost,
            makespan,
        )

    def max_partials(self, kv_total: int) -> int:
        """Return room for the partial results of every plan.

        Args:
            kv_total: upper bound of the positions of all rows: the sum of length * query tiles * heads. Only
                the batch-invariant mode depends on it.
        """
        return self._native.max_partials(kv_total)

    def partial_bytes(self, num_partials: int, q_rows: int, head_dim: int) -> int:
        """Return bytes of slots: each holds `q_rows` rows of `head_dim + PARTIAL_STATISTICS` f32."""
        return 4 * num_partials * q_rows * (head_dim + PARTIAL_STATISTICS)

    def used_bytes(self, plan: BalancedPlan) -> int:
        """Return how much of `memory`, from its beginning, the current plan uses."""
        return self._items_offset + plan.items.nbytes

    def _part(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        return self.memory[offset : offset + count * dtype.itemsize].view(dtype)

    def _error(self, code: int, required: int, kv: np.ndarray, qo: np.ndarray | None) -> PlanError:
        if code == _BUFFER_OVERFLOW:
            hint = "a BalancedPlanner with a larger max_batch or max_query_total has room"
            return PlanBufferOverflow(capacity=self.max_items, required=required, hint=hint)
        if code == _UNSUPPORTED_SIZE:
            request, length = next((i, n) for i, n in enumerate(kv.tolist()) if not self._is_supported(n))
            return UnsupportedSize(length=length, request=request, covered=self.tiers.covered())
        for name, lengths in (("length", kv), ("query length", qo)):
            if lengths is not None and (lengths.min() < 0 or lengths.max() > INT_MAX):
                return invalid_lengths(lengths, name)
        expected = f"at most {INT_MAX} items, slots and packed query rows each, and a cost below 2**61"
        return InvalidPlanParams(what="a plan of this size", expected=expected, found="more")

    def _is_supported(self, kv_len: int) -> bool:
        is_rejected = kv_len == 0 and self.config.zero_length == "reject"
        return not is_rejected and self.tiers.select_tier(max(1, kv_len)) >= 0


def _aligned(size: int) -> np.ndarray:
    memory = np.empty(size + 63, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]
