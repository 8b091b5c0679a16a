"""Attention of ragged batches: plan the lengths of a step, run it; one compiled program serves all steps."""

from __future__ import annotations

import os
from functools import lru_cache
from math import e, log2, sqrt
from numbers import Real
from typing import Any, ClassVar, Final, Literal

import numpy as np

from pto_wsp.errors import BadPlanConfig, InvalidPlanParams, NotPlanned, WrongShape, WrongValue
from pto_wsp.ops.attention_arrays import (
    as_rows,
    empty_like,
    given_arrays,
    paged_request,
    read_array,
    read_indptr,
)
from pto_wsp.ops.attention_form import STEP, AttentionForm
from pto_wsp.ops.attention_program import attention_workload
from pto_wsp.planner.balanced import (
    CANONICAL_BLOCK,
    PARTIAL_STATISTICS,
    BalancedConfig,
    BalancedPlan,
    BalancedPlanner,
)
from pto_wsp.planner.config import INT_MAX, check_range
from pto_wsp.planner.descriptor import BALANCED_ITEM, MERGE_ROW
from pto_wsp.runtime.memory import empty
from pto_wsp.runtime.program import Program
from pto_wsp.types import bf16, f16, f32
from pto_wsp.types.dtype import DType

KVLayout = Literal["NHD", "HND"]
LSEBase = Literal["e", "2"]

DTYPES: Final = (f32, f16, bf16)
LEAST_FACTOR: Final = 2.0**-126
"""Of scores and of their cap: numbers whose inverse is an f32, too."""

LSE_SCALES: Final = {"e": 1.0, "2": log2(e)}
MAX_WORKERS: Final = 1024
"""Most threads of a run."""

Q_TILE: Final = 128
"""Query positions that share what is read of keys and values."""

PACKED_TILES: Final = 4
"""From this number of query tiles that share a head of the cache, packing its keys and values pays."""

PACKED_BYTES: Final = 1 << 28
"""Most memory of packed keys and values; requests beyond it are attended without."""


@lru_cache(maxsize=64)
def compiled(form: AttentionForm, target: str) -> Program:
    """Return the program of a form; all objects of one form share it."""
    return attention_workload(form).compile(target=target)


class _BatchAttention:
    """What decode and prefill share.

    Attributes:
        form: what the program was compiled for.
        program: the compiled workload; `program.stats` tells of the last run.
        current: the current plan; None before the first. The next plan overwrites its arrays.
    """

    _tile_tokens: ClassVar[int] = 0
    """Query positions of a tile; 0: every request has one."""

    _is_causal = False

    def __init__(
        self,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        page_size: int | None = 16,
        kv_dtype: DType = f32,
        q_dtype: DType = f32,
        workers: int | None = None,
        kv_layout: KVLayout = "NHD",
        window_left: int = -1,
        logits_soft_cap: float = 0.0,
        sm_scale: float | None = None,
        batch_invariant: bool = False,
        target: str = "cpu",
    ) -> None:
        _check_sizes(num_qo_heads, num_kv_heads, head_dim, page_size)
        _check_choices(kv_layout, q_dtype, kv_dtype)
        _check_factors(sm_scale=1.0 if sm_scale is None else sm_scale, logits_soft_cap=logits_soft_cap)
        self.form = form = AttentionForm(
            kv_heads=num_kv_heads,
            group=num_qo_heads // num_kv_heads,
            dim=head_dim,
            tokens=self._tile_tokens,
            page_size=page_size or 0,
            is_causal=self._is_causal,
            window_left=window_left,
            scale=1 / sqrt(head_dim) if sm_scale is None else float(sm_scale),
            soft_cap=float(logits_soft_cap),
            is_batch_invariant=batch_invariant,
            q_dtype=q_dtype,
            kv_dtype=kv_dtype,
        )
        self.kv_layout = kv_layout
        self.workers = _cores() if workers is None else workers
        check_range("workers", self.workers, 1, MAX_WORKERS)
        self.config = _planner_config(form, self.workers)
        self.program = compiled(form, target)
        self.current: BalancedPlan | None = None
        self._planner = BalancedPlanner(self.config, 1)
        self._room = (1, 1)
        self._parts = np.empty((1, form.tile_rows, form.dim), np.float32)
        self._part_stats = np.empty((1, form.tile_rows, PARTIAL_STATISTICS), np.float32)
        self._packed_k, self._packed_v = self._packed_room(0)
        self._arrays: dict[str, Any] = {}
        self._places = 0

    # --- planning ---

    def _plan(self, qo: np.ndarray | None, kv: tuple[Any, ...]) -> None:
        """Plan a batch of query offsets (None: one query each) and the arrays that say where its keys are."""
        self.current = None
        if self.form.page_size:
            indptr, pages, lengths = paged_request(self.form.page_size, *kv)
            places = int(pages.max(initial=-1)) + 1
        else:
            indptr = read_indptr("kv_indptr", *kv)
            pages, lengths, places = np.empty(0, np.int32), np.diff(indptr), int(indptr[-1])
        batch = lengths.size
        if qo is not None and qo.size != batch + 1:
            raise InvalidPlanParams(
                what="the batch",
                expected=f"qo_indptr of {batch + 1} elements, as kv_indptr has",
                found=f"{qo.size}",
            )
        queries = batch if qo is None else int(qo[-1])
        self._make_room(batch, queries)
        plan = self._planner.plan(lengths, None if qo is None else np.diff(qo)) if batch else self._nothing()
        if plan.num_partials > len(self._parts):
            room = 2 * plan.num_partials
            self._parts = np.empty((room, *self._parts.shape[1:]), np.float32)
            self._part_stats = np.empty((room, *self._part_stats.shape[1:]), np.float32)
        self._places = places
        blocks = self._blocks(qo, lengths)
        self._arrays = {
            "WorkerIndptr": plan.worker_indptr,
            "Items": plan.items.view(np.int32).reshape(-1, 8),
            "MergeIndptr": plan.merge_indptr,
            "MergeRows": plan.merge_rows.view(np.int32).reshape(-1, 4),
            "QIndptr": np.arange(batch + 1, dtype=np.int32) if qo is None else qo.astype(np.int32),
            "KVLens": lengths.astype(np.int32),
            "KVIndptr": indptr.astype(np.int32),
            "Pages": pages.reshape(-1, 1),
            "Blocks": blocks,
            "PackedK": self._packed_k,
            "PackedV": self._packed_v,
        }
        self._queries = queries
        self.current = plan

    def _blocks(self, qo: np.ndarray | None, lengths: np.ndarray) -> np.ndarray:
        """Return the first block of each request that is packed, -1 for others; make room for all blocks."""
        form = self.form
        if qo is None:
            return np.full(lengths.size, -1, np.int32)
        blocks = -(-lengths // STEP)
        bytes_of = 8 * STEP * form.dim * form.kv_heads * blocks
        is_packed = form.group * -(-np.diff(qo) // Q_TILE) >= PACKED_TILES
        is_packed &= np.cumsum(np.where(is_packed, bytes_of, 0)) <= PACKED_BYTES
        ends = np.cumsum(np.where(is_packed, blocks, 0))
        total = int(ends[-1]) if ends.size else 0
        if total > self._packed_k.shape[1]:
            self._packed_k, self._packed_v = self._packed_room(total)
        return np.where(is_packed, ends - blocks, -1).astype(np.int32)

    def _packed_room(self, blocks: int) -> tuple[np.ndarray, ...]:
        """Return arrays with this number of packed blocks of keys and of values.

        Rows are an odd number of lines apart, so that a block spreads over all sets of the first cache.
        """
        heads = self.form.kv_heads
        pitches = ((rows, cols, (-(-cols // 16) | 1) * 16) for rows, cols in self.form.packed_dims)
        return tuple(empty((heads, blocks, rows, pitch), f32)[..., :cols] for rows, cols, pitch in pitches)

    def _nothing(self) -> BalancedPlan:
        """Return the plan of a batch without requests, which the planner takes for a mistake."""
        items, rows = np.empty(0, BALANCED_ITEM), np.empty(0, MERGE_ROW)
        worker_indptr, merge_indptr = np.zeros(self.workers + 1, np.int32), np.zeros(1, np.int32)
        return BalancedPlan(items, worker_indptr, rows, merge_indptr, 0, 0, 0)

    def _make_room(self, batch: int, queries: int) -> None:
        """Replace the planner by a larger one where the batch is larger than all before."""
        if batch > self._room[0] or queries > self._room[1]:
            room = tuple(
                min(2 * max(n, have), INT_MAX) for n, have in zip((batch, queries), self._room, strict=True)
            )
            self._planner = BalancedPlanner(self.config, room[0], room[1] if self.form.tokens else None)
            self._room = (room[0], room[1])

    # --- running ---

    def run(
        self,
        q: Any,
        kv_cache: Any,
        *,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        lse_base: LSEBase = "e",
    ) -> Any:
        """Attend with the current plan. Nothing is compiled.

        Args:
            q: queries `[tokens, num_qo_heads, head_dim]` of `q_dtype`; decode: one token per request.
            kv_cache: a pair of keys and values, or both in one array. Paged, each `[pages, page_size,
                num_kv_heads, head_dim]` ("NHD") or `[pages, num_kv_heads, page_size, head_dim]` ("HND"); one
                array has a dimension of 2 after the pages. Ragged: each `[positions, num_kv_heads,
                head_dim]` or `[num_kv_heads, positions, head_dim]`.
            out: C-contiguous array of the shape and type of `q` that takes the output; None: a new one.
            lse: C-contiguous f32 array `[tokens, num_qo_heads]` that takes the log-sum-exp of the scores.
            return_lse: return a pair of output and log-sum-exp.
            lse_base: of the logarithm: "e" or "2".

        Returns:
            The output; with `return_lse` the pair. A request without keys has output 0 and log-sum-exp -inf.

        Raises:
            NotPlanned: there is no plan.
            WrongShape, WrongRank, WrongDType, WrongValue, UnusableArray, ReadOnlyArray, OverlappingArrays:
                arrays that do not fit the plan or the operator; nothing has run.
        """
        if self.current is None:
            raise NotPlanned(name=type(self).__name__)
        if lse_base not in LSE_SCALES:
            raise WrongValue(name="lse_base", expected="'e' or '2'", found=repr(lse_base))
        form, heads = self.form, self.form.kv_heads * self.form.group
        shape = (self._queries, heads, form.dim)
        queries = read_array("q", q, form.q_dtype, shape)
        cache = as_rows(*self._cache(kv_cache))
        out = empty_like(q, shape, None) if out is None else out
        lse = empty_like(q, shape[:2], np.float32) if lse is None else lse
        o = read_array("out", out, form.q_dtype, shape, is_written=True)
        stats = read_array("lse", lse, f32, shape[:2], is_written=True)
        tile = (self._queries, *form.q_dims)
        self.program.run(
            workers=self.workers,
            num_workers=self.workers,
            **self._arrays,
            q=queries.reshape(*tile, form.dim),
            **cache,
            out=o.reshape(*tile, form.dim),
            lse=stats.reshape(*tile, 1),
            Parts=self._parts,
            PartStats=self._part_stats,
            lse_scale=LSE_SCALES[lse_base],
        )
        return (out, lse) if return_lse else out

    def _cache(self, kv_cache: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return keys and values as `[places, page_size, heads, dim]`, or `[positions, heads, dim]`."""
        form = self.form
        inner = (form.page_size, form.kv_heads) if form.page_size else (form.kv_heads,)
        is_swapped = self.kv_layout == "HND"
        if form.page_size:
            shape = (None, *(inner[::-1] if is_swapped else inner), form.dim)
        else:
            shape = (form.kv_heads, None, form.dim) if is_swapped else (None, form.kv_heads, form.dim)
        if isinstance(kv_cache, (tuple, list)):
            if len(kv_cache) != 2:
                raise WrongValue(
                    name="kv_cache", expected="a pair of keys and values", found=f"{len(kv_cache)} arrays"
                )
            both = [read_array(n, a, form.kv_dtype, shape) for n, a in zip("kv", kv_cache, strict=True)]
        elif form.page_size:
            stacked = read_array("kv_cache", kv_cache, form.kv_dtype, (None, 2, *shape[1:]))
            both = [stacked[:, 0], stacked[:, 1]]
        else:
            raise WrongValue(
                name="kv_cache", expected="a pair of keys and values", found=type(kv_cache).__name__
            )
        if is_swapped:
            both = [a.swapaxes(-3, -2) for a in both]
        for name, array in zip("kv", both, strict=True):
            if array.shape[0] < self._places:
                what = "pages" if form.page_size else "positions"
                expected = f"at least {self._places} {what}, as the plan names"
                raise WrongShape(name=name, dim=0, expected=expected, found=array.shape[0])
        if both[0].shape != both[1].shape:
            raise WrongShape(
                name="v", dim=0, expected=f"{both[0].shape[0]}, as `k` has", found=both[1].shape[0]
            )
        return both[0], both[1]


class BatchDecode(_BatchAttention):
    """Attention of one query position per request to a cache of keys and values.

    `plan` deals the batch evenly to `workers` threads, `run` does what is planned, any number of times.
    Neither compiles; the program is compiled with the object, once per set of parameters and machine.

    Args:
        num_qo_heads: query heads; a multiple of `num_kv_heads`.
        num_kv_heads: heads of the cache.
        head_dim: elements of a head.
        page_size: positions of a page; None: keys and values are ragged, one request after the other.
        kv_dtype: f32, f16 or bf16.
        q_dtype: of queries and output: f32, f16 or bf16. Scores and sums are f32 in any case; where
            `kv_dtype` is bf16 too, weights are rounded to bf16, by 2^-9 of each at most.
        workers: threads, 1..1024; None: all cores.
        kv_layout: "NHD" or "HND": whether positions or heads come first.
        window_left: most positions before its own that a query attends; -1: all.
        logits_soft_cap: c of c * tanh(score / c); 0: none.
        sm_scale: factor of the scores; None: 1 / sqrt(head_dim).
        batch_invariant: results are the same bits for any batch composition and number of workers.
        target: "cpu" or "interp".

    Raises:
        BadPlanConfig: a parameter out of its range.

    Source: the habit of plan and run, and the layouts, are those of FlashInfer's wrappers.
    """

    def plan(self, kv_indptr: Any, kv_indices: Any = None, kv_last_page_len: Any = None) -> None:
        """Plan a step. The values are copied: arrays that change later do not change the plan.

        Args:
            kv_indptr: `[batch + 1]` integers. Paged: request b has the pages `kv_indices[kv_indptr[b] :
                kv_indptr[b + 1]]`; ragged: the positions `kv_indptr[b] : kv_indptr[b + 1]`.
            kv_indices: `[entries]` integers, paged only: pages.
            kv_last_page_len: `[batch]` integers, paged only: positions in the last page, 1..page_size;
                without meaning for a request without pages.

        Raises:
            InvalidPlanParams: arrays that say nothing sensible.
        """
        self._plan(None, given_arrays(self.form, kv_indptr, kv_indices, kv_last_page_len))


class BatchPrefill(_BatchAttention):
    """Attention of any number of query positions per request; they are the last positions of the request.

    Args:
        causal: a query attends no position after its own.

    The other parameters, and the errors, are those of `BatchDecode`.
    """

    _tile_tokens = Q_TILE

    def __init__(
        self, num_qo_heads: int, num_kv_heads: int, head_dim: int, *, causal: bool = True, **options: Any
    ) -> None:
        self._is_causal = causal
        super().__init__(num_qo_heads, num_kv_heads, head_dim, **options)

    def plan(
        self, qo_indptr: Any, kv_indptr: Any, kv_indices: Any = None, kv_last_page_len: Any = None
    ) -> None:
        """Plan a step.

        `qo_indptr` is `[batch + 1]`: request b has the query rows `qo_indptr[b] : qo_indptr[b + 1]`.
        The other arguments, and the errors, are those of `BatchDecode.plan`.
        """
        given = given_arrays(self.form, kv_indptr, kv_indices, kv_last_page_len)
        self._plan(read_indptr("qo_indptr", qo_indptr), given)


# --- parameters ---


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_sizes(num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int | None) -> None:
    for what, value, most in (
        ("num_kv_heads", num_kv_heads, 1 << 16),
        ("num_qo_heads", num_qo_heads, 1 << 16),
        ("head_dim", head_dim, 1024),
        ("page_size", 1 if page_size is None else page_size, 1 << 20),
    ):
        check_range(what, value, 1, most)
    if num_qo_heads % num_kv_heads:
        expected = f"a multiple of num_kv_heads={num_kv_heads}"
        raise BadPlanConfig(what="num_qo_heads", expected=expected, found=str(num_qo_heads))


def _check_choices(kv_layout: str, q_dtype: DType, kv_dtype: DType) -> None:
    if kv_layout not in ("NHD", "HND"):
        raise BadPlanConfig(what="kv_layout", expected="'NHD' or 'HND'", found=repr(kv_layout))
    for what, dtype in (("q_dtype", q_dtype), ("kv_dtype", kv_dtype)):
        if dtype not in DTYPES:
            raise BadPlanConfig(what=what, expected="f32, f16 or bf16", found=str(dtype))


def _check_factors(**factors: float) -> None:
    for what, number in factors.items():
        is_real = isinstance(number, Real) and not isinstance(number, bool)
        if not (is_real and (number == 0 or LEAST_FACTOR <= number <= 1 / LEAST_FACTOR)):
            expected = f"0, or a number from {LEAST_FACTOR:.3g} to {1 / LEAST_FACTOR:.3g}"
            raise BadPlanConfig(what=what, expected=expected, found=repr(number))


def _planner_config(form: AttentionForm, workers: int) -> BalancedConfig:
    if form.is_batch_invariant and form.page_size and CANONICAL_BLOCK % form.page_size:
        expected = f"a power of two up to {CANONICAL_BLOCK}, as `batch_invariant` is True"
        raise BadPlanConfig(what="page_size", expected=expected, found=str(form.page_size))
    return BalancedConfig(
        num_workers=workers,
        num_heads=form.kv_heads * (form.group if form.tokens else 1),
        group_size=1 if form.tokens else form.group,
        q_tile=form.tile_rows,
        page_size=form.page_size or 1,
        q_rows_per_cost=8 if form.tokens else 0,
        window_left=form.window_left,
        causal=form.is_causal,
        batch_invariant=form.is_batch_invariant,
    )
