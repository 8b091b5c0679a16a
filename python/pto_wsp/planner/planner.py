"""Plans: from lengths to work descriptors, by the C++ planner."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import (
    BadPlanBuffer,
    BadPlanConfig,
    InvalidPlanParams,
    PlanBufferOverflow,
    PlanError,
    UnsupportedSize,
)
from pto_wsp.planner.config import DECODE_ATTENTION_TIERS, INT_MAX, PlanConfig, TierConfig
from pto_wsp.planner.descriptor import ATTENTION_DESCRIPTOR, DESCRIPTOR_TYPES, MOE_DESCRIPTOR, WORK_DESCRIPTOR
from pto_wsp.support.arrays import is_masked

Lengths: TypeAlias = np.ndarray | Sequence[int]
ZeroLength: TypeAlias = Literal["reject", "empty_item"]

_OK, _BUFFER_OVERFLOW, _UNSUPPORTED_SIZE = 0, 1, 2
_MAX_THREADS = 256
_LENGTH_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


class WorkPlanner:
    """Cuts the sequences of a batch into chunks, one descriptor per (request, head, chunk).

    Descriptors come in the order request, head, chunk with the chunk innermost; the tier is that of the whole
    length. A plan is a numpy array of 24-byte records.

    Lengths are a sequence of ints or an array `[batch]` of int32 or int64, each in 0..2**31 - 1. All methods
    raise `InvalidPlanParams` for lengths, heads or chunk sizes that no plan can have.

    Args:
        config: limits; the default is `PlanConfig()`.
        tiers: which lengths run on which kernel; the default is `DECODE_ATTENTION_TIERS`.
        zero_length: what a length of 0 means. "reject": no tier covers it. "empty_item": one descriptor with
            no positions, both FIRST and LAST set, in the tier of length 1.

    Raises:
        BadPlanConfig: `zero_length` is something else.
    """

    record: ClassVar[np.dtype] = WORK_DESCRIPTOR

    def __init__(
        self,
        config: PlanConfig | None = None,
        tiers: TierConfig = DECODE_ATTENTION_TIERS,
        zero_length: ZeroLength = "reject",
    ) -> None:
        if zero_length not in ("reject", "empty_item"):
            raise BadPlanConfig(
                what="zero_length", expected="'reject' or 'empty_item'", found=repr(zero_length)
            )
        self.config = PlanConfig() if config is None else config
        self.tiers = tiers
        self.zero_length: ZeroLength = zero_length
        self._empty_item = zero_length == "empty_item"

    def plan_chunk_size(self, seq_lens: Lengths, num_heads: int) -> int:
        """Return the smallest chunk size with at most `max_work_units` descriptors.

        It lies in `chunk_min .. chunk_max`, and is `chunk_max` if none is small enough: `fits` tells.
        """
        lengths, heads = as_lengths(seq_lens), _as_count("num_heads", num_heads)
        config = self.config
        chunk = _native.plan_chunk_size(
            lengths, heads, config.chunk_min, config.chunk_max, config.max_work_units, self._empty_item
        )
        if chunk == 0:
            raise invalid_lengths(lengths)
        return chunk

    def get_total_work(self, seq_lens: Lengths, num_heads: int, chunk_size: int) -> int:
        """Return the number of descriptors of a plan, whatever the tiers; counts above 2**63 - 1 as that."""
        lengths, heads = as_lengths(seq_lens), _as_count("num_heads", num_heads)
        chunk = _as_count("chunk_size", chunk_size)
        total = _native.plan_total_work(lengths, heads, chunk, self._empty_item)
        if total < 0:
            raise invalid_lengths(lengths)
        return total

    def fits(self, seq_lens: Lengths, num_heads: int, chunk_size: int) -> bool:
        """Return whether a plan with this chunk size has at most `max_work_units` descriptors."""
        return self.get_total_work(seq_lens, num_heads, chunk_size) <= self.config.max_work_units

    def generate(
        self,
        seq_lens: Lengths,
        num_heads: int,
        chunk_size: int,
        out: np.ndarray | None = None,
        num_threads: int = 1,
    ) -> np.ndarray:
        """Return the plan, an array `[count]` of this planner's `record` type.

        Args:
            seq_lens: lengths, `[batch]`.
            num_heads: heads per request, > 0.
            chunk_size: positions per chunk, > 0.
            out: where to write: a contiguous array `[capacity]` of any of the descriptor types. The result is
                a view of its first `count` entries.
            num_threads: threads that share the writing, 1..256; the bytes are the same for any number.

        Raises:
            InvalidPlanParams: parameters that no plan can have, more than 2**31 - 1 descriptors included.
            UnsupportedSize: no tier covers a length.
            PlanBufferOverflow: `out` is too small; `required` says how many descriptors there are.
            BadPlanBuffer: `out` cannot hold descriptors.
        """
        lengths, heads = as_lengths(seq_lens), _as_count("num_heads", num_heads)
        chunk, threads = (
            _as_count("chunk_size", chunk_size),
            _as_count("num_threads", num_threads, _MAX_THREADS),
        )
        plan = (lengths, heads, chunk, self.config.balance_chunks, self._empty_item, self.tiers.rows)
        if out is None:
            code, total = _native.plan_check(*plan)
            if code != _OK:
                raise self._error(code, total, lengths, heads, chunk, 0)
            out = np.empty(total, self.record)
        _check_buffer(out)
        code, total = _native.plan_generate(*plan, out, threads)
        if code != _OK:
            raise self._error(code, total, lengths, heads, chunk, out.size)
        return out[:total]

    def _error(
        self, code: int, total: int, lengths: np.ndarray, heads: int, chunk: int, capacity: int
    ) -> PlanError:
        if code == _BUFFER_OVERFLOW:
            return PlanBufferOverflow(capacity=capacity, required=total)
        if code == _UNSUPPORTED_SIZE:
            request, length = next((i, n) for i, n in enumerate(lengths.tolist()) if self._tier_of(n) < 0)
            return UnsupportedSize(length=length, request=request, covered=self.tiers.covered())
        if lengths.size and 0 <= lengths.min() and lengths.max() <= INT_MAX:
            total = self.get_total_work(lengths, heads, chunk)
            return InvalidPlanParams(
                what="a plan of this size", expected=f"at most {INT_MAX} descriptors", found=str(total)
            )
        return invalid_lengths(lengths)

    def _tier_of(self, length: int) -> int:
        return self.tiers.select_tier(1 if length == 0 and self._empty_item else length)


class AttentionPlanner(WorkPlanner):
    """Plans split-KV attention: records have `request_idx`, `head_idx`, `kv_start` and `kv_len`."""

    record = ATTENTION_DESCRIPTOR


class MoEPlanner(WorkPlanner):
    """Plans experts over tokens: records have `batch_idx`, `expert_idx`, `token_start` and `token_count`.

    `seq_lens` holds the tokens of each batch entry, `num_heads` is the number of experts that see them.
    """

    record = MOE_DESCRIPTOR


def plan_chunk_size(seq_lens: Lengths, num_heads: int, config: PlanConfig | None = None) -> int:
    """Return `AttentionPlanner(config).plan_chunk_size(seq_lens, num_heads)`."""
    return AttentionPlanner(config).plan_chunk_size(seq_lens, num_heads)


def get_total_work(
    seq_lens: Lengths, num_heads: int, chunk_size: int, config: PlanConfig | None = None
) -> int:
    """Return `AttentionPlanner(config).get_total_work(seq_lens, num_heads, chunk_size)`."""
    return AttentionPlanner(config).get_total_work(seq_lens, num_heads, chunk_size)


def generate(
    seq_lens: Lengths,
    num_heads: int,
    chunk_size: int,
    config: PlanConfig | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return `AttentionPlanner(config).generate(seq_lens, num_heads, chunk_size, out)`."""
    return AttentionPlanner(config).generate(seq_lens, num_heads, chunk_size, out)


def as_lengths(seq_lens: Lengths) -> np.ndarray:
    """Return lengths as a contiguous array `[batch]` of int32 or int64, without a copy if they are one."""
    if is_masked(seq_lens):
        found = "a masked array, whose mask would be ignored"
        raise InvalidPlanParams(what="the list of lengths", expected="an array [batch]", found=found)
    try:
        lengths = np.asarray(seq_lens)
    except (ValueError, TypeError, OverflowError):  # rows of different lengths, a tensor on a device
        raise InvalidPlanParams(
            what="the list of lengths", expected="an array [batch]", found=type(seq_lens).__name__
        ) from None
    if lengths.ndim != 1 or lengths.size == 0:
        raise InvalidPlanParams(
            what="the list of lengths", expected="an array [batch], batch > 0", found=f"shape {lengths.shape}"
        )
    if lengths.dtype not in _LENGTH_TYPES:
        raise InvalidPlanParams(
            what="the list of lengths", expected="int32 or int64", found=f"dtype {lengths.dtype}"
        )
    return np.ascontiguousarray(lengths)


def _as_count(what: str, value: int, most: int = INT_MAX) -> int:
    expected = f"an integer in 1..{most}"
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidPlanParams(what=what, expected=expected, found=repr(value)) from None
    if not 1 <= count <= most:
        raise InvalidPlanParams(what=f"{what} {count}", expected=expected, found=str(count))
    return count


def invalid_lengths(lengths: np.ndarray, name: str = "length") -> InvalidPlanParams:
    """Return the error for the first of `lengths` that is out of range; `name` says what they are."""
    request = int(np.flatnonzero((lengths < 0) | (lengths > INT_MAX))[0])
    return InvalidPlanParams(
        what=f"the {name} of request {request}", expected=f"0..{INT_MAX}", found=str(int(lengths[request]))
    )


def _check_buffer(out: object) -> None:
    expected = "a contiguous, writable array [capacity] of a descriptor type, aligned to 8 bytes"
    found = ""
    if not isinstance(out, np.ndarray):
        found = type(out).__name__
    elif out.dtype not in DESCRIPTOR_TYPES:
        found = f"dtype {out.dtype}"
    elif out.ndim != 1:
        found = f"shape {out.shape}"
    elif not out.flags.c_contiguous:
        found = "a strided array"
    elif not out.flags.writeable:
        found = "a read-only array"
    elif out.ctypes.data % 8:
        found = f"address {out.ctypes.data:#x}"
    if found:
        raise BadPlanBuffer(expected=expected, found=found)
