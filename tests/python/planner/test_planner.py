"""The Python face of the planner against its plain-Python reference, and what it says about mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.errors import PtoError
from pto_wsp.planner import (
    ATTENTION_DESCRIPTOR,
    DECODE_ATTENTION_TIERS,
    FLAG_FIRST,
    FLAG_LAST,
    MOE_DESCRIPTOR,
    WORK_DESCRIPTOR,
    AttentionPlanner,
    BadPlanBuffer,
    BadPlanConfig,
    InvalidPlanParams,
    MoEPlanner,
    PlanBufferOverflow,
    PlanConfig,
    PlanError,
    Tier,
    TierConfig,
    UnsupportedSize,
    WorkPlanner,
    generate,
    get_total_work,
    plan_chunk_size,
    reference,
)
from tests.generators.drawing import tries

INT_MAX = 2**31 - 1
ANY_LENGTH = TierConfig([(200, 1, 100), (3, 101, INT_MAX)])

int_dtypes = st.sampled_from([np.int32, np.int64])
configs = st.builds(
    lambda low, width, units, balance: PlanConfig(low, low + width, units, balance),
    st.integers(1, 3000),
    st.integers(0, 100000),
    st.integers(1, 10**6),
    st.booleans(),
)
lengths = st.lists(
    st.one_of(st.integers(0, 3000), st.integers(0, 1 << 18), st.integers(0, INT_MAX)), min_size=1
)


@given(lengths, st.integers(1, 64), configs, st.booleans(), int_dtypes)
def test_chunk_size_and_count_are_the_reference(
    seq_lens: list[int], heads: int, config: PlanConfig, empty_item: bool, dtype: type
) -> None:
    planner = AttentionPlanner(config, zero_length="empty_item" if empty_item else "reject")
    array = np.array(seq_lens, dtype)
    chunk = planner.plan_chunk_size(array, heads)
    assert chunk == reference.plan_chunk_size(seq_lens, heads, config, empty_item)
    total = reference.count_work_units(seq_lens, heads, chunk, empty_item)
    assert planner.get_total_work(array, heads, chunk) == total
    assert planner.fits(array, heads, chunk) == (total <= config.max_work_units)


@tries(200)
@given(
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 5000)), min_size=1, max_size=20),
    st.integers(1, 9),
    st.integers(150, 6000),
    st.booleans(),
    st.sampled_from([AttentionPlanner, MoEPlanner, WorkPlanner]),
    int_dtypes,
    st.integers(1, 4),
)
def test_plan_is_the_reference(
    seq_lens: list[int], heads: int, chunk: int, balance: bool, kind: type, dtype: type, threads: int
) -> None:
    config = PlanConfig(balance_chunks=balance)
    planner = kind(config, ANY_LENGTH, "empty_item")
    plan = planner.generate(np.array(seq_lens, dtype), heads, chunk, num_threads=threads)
    expected = reference.generate(seq_lens, heads, chunk, config, ANY_LENGTH, empty_item=True)
    assert plan.dtype == kind.record
    assert plan.tobytes() == expected.tobytes()


@given(st.lists(st.integers(1, 131072), min_size=1, max_size=8), st.integers(1, 8), st.integers(64, 4096))
def test_plan_covers_every_position_once(seq_lens: list[int], heads: int, chunk: int) -> None:
    plan = generate(seq_lens, heads, chunk)
    assert np.array_equal(plan["work_id"], np.arange(len(plan)))
    for request, length in enumerate(seq_lens):
        for head in (0, heads - 1):
            own = plan[(plan["request_idx"] == request) & (plan["head_idx"] == head)]
            ends = own["kv_start"] + own["kv_len"]
            assert own["kv_start"][0] == 0 and ends[-1] == length
            assert np.array_equal(own["kv_start"][1:], ends[:-1])
            assert np.all(own["kv_len"] <= chunk) and np.ptp(own["kv_len"]) <= 1
            assert list(np.flatnonzero(own["flags"] & FLAG_FIRST)) == [0]
            assert list(np.flatnonzero(own["flags"] & FLAG_LAST)) == [len(own) - 1]
            assert np.all(own["tier"] == DECODE_ATTENTION_TIERS.select_tier(length))


def test_descriptor_types_are_the_same_24_bytes() -> None:
    for record in (WORK_DESCRIPTOR, ATTENTION_DESCRIPTOR, MOE_DESCRIPTOR):
        offsets = [record.fields[name][1] for name in record.names]
        assert record.itemsize == 24 and offsets[:5] == [0, 4, 5, 6, 8]
    plan = generate([1000], 2, 256)
    words = plan.view(WORK_DESCRIPTOR)["params"]
    assert np.array_equal(words[:, 1], plan.view(MOE_DESCRIPTOR)["expert_idx"])
    assert np.array_equal(words[:, 3], plan["kv_len"])


def test_functions_are_the_default_planner() -> None:
    seq_lens = [1000, 5, 70000]
    config = PlanConfig(16, 64, 1000, False)
    assert plan_chunk_size(seq_lens, 8) == AttentionPlanner().plan_chunk_size(seq_lens, 8) == 256
    assert plan_chunk_size(seq_lens, 8, config) == 64
    assert get_total_work(seq_lens, 8, 256) == 8 * (4 + 1 + 274)
    assert np.array_equal(
        generate(seq_lens, 8, 64, config), AttentionPlanner(config).generate(seq_lens, 8, 64)
    )


@pytest.mark.parametrize("record", [WORK_DESCRIPTOR, ATTENTION_DESCRIPTOR])
def test_out_is_written_in_place(record: np.dtype) -> None:
    buffer = np.full(24 * 50, 0xA5, np.uint8)
    out = buffer[: 24 * 40].view(record)
    plan = generate([1000, 300], 5, 256, out=out)
    assert plan.base is not None and np.shares_memory(plan, buffer)
    assert plan.ctypes.data == buffer.ctypes.data and len(plan) == 30
    assert plan.tobytes() == generate([1000, 300], 5, 256).tobytes()
    assert np.all(buffer[24 * 30 :] == 0xA5)


def test_buffer_too_small_by_one() -> None:
    out = np.zeros(29, WORK_DESCRIPTOR)
    with pytest.raises(PlanBufferOverflow) as caught:
        generate([1000, 300], 5, 256, out=out)
    assert caught.value.required == 30 and caught.value.code == "plan-buffer-overflow"
    assert not out.view(np.uint8).any()
    assert len(generate([1000, 300], 5, 256, out=np.zeros(caught.value.required, WORK_DESCRIPTOR))) == 30


def read_only() -> np.ndarray:
    out = np.zeros(8, WORK_DESCRIPTOR)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "found"),
    [
        (bytearray(240), "bytearray"),
        (np.zeros(8, np.float32), "dtype float32"),
        (np.zeros((2, 4), WORK_DESCRIPTOR), r"shape \(2, 4\)"),
        (np.zeros(8, WORK_DESCRIPTOR)[::2], "strided"),
        (read_only(), "read-only"),
        (np.zeros(24 * 8 + 8, np.uint8)[4 : 24 * 8 + 4].view(WORK_DESCRIPTOR), "address"),
    ],
)
def test_unusable_buffers(out: object, found: str) -> None:
    with pytest.raises(BadPlanBuffer, match=found):
        generate([10], 1, 256, out=out)  # type: ignore[arg-type]


def test_no_room_at_all_is_an_overflow() -> None:
    with pytest.raises(PlanBufferOverflow):
        generate([10], 1, 256, out=np.zeros(0, WORK_DESCRIPTOR))


@pytest.mark.parametrize(
    ("seq_lens", "found"),
    [
        ([], r"shape \(0,\)"),
        (np.zeros(0, np.int32), r"shape \(0,\)"),
        (5, r"shape \(\)"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\)"),
        ([[1, 2], [3]], "list"),
        ([1.0, 2.0], "float64"),
        ([True], "bool"),
        (np.array([1, 2], np.uint32), "uint32"),
        ([1, 2**70], "object"),
        ("12", r"shape \(\)"),
        (None, r"shape \(\)"),
        ([3, -1, -2], "length of request 1 .*\n.* found -1"),
        (np.array([3, -(2**31)], np.int32), "length of request 1"),
        ([3, 2**31], f"found {2**31}"),
        ([2**63 - 1], f"found {2**63 - 1}"),
    ],
)
def test_invalid_lengths(seq_lens: object, found: str) -> None:
    for call in (
        lambda: plan_chunk_size(seq_lens, 1),  # type: ignore[arg-type]
        lambda: get_total_work(seq_lens, 1, 256),  # type: ignore[arg-type]
        lambda: generate(seq_lens, 1, 256),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidPlanParams, match=found):
            call()


@pytest.mark.parametrize("bad", [0, -1, 2**31, 2**80, 1.5, "8", None])
def test_invalid_counts(bad: object) -> None:
    with pytest.raises(InvalidPlanParams, match="num_heads"):
        plan_chunk_size([10], bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidPlanParams, match="chunk_size"):
        generate([10], 1, bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidPlanParams, match="num_threads"):
        AttentionPlanner().generate([10], 1, 256, num_threads=bad)  # type: ignore[arg-type]


def test_more_descriptors_than_an_int_counts() -> None:
    planner = AttentionPlanner(tiers=ANY_LENGTH)
    assert planner.get_total_work([INT_MAX] * 3, 1, 1) == 3 * INT_MAX
    assert planner.get_total_work([INT_MAX] * 3, INT_MAX, 1) == 2**63 - 1
    for heads in (1, INT_MAX):
        with pytest.raises(InvalidPlanParams, match="at most 2147483647 descriptors"):
            planner.generate([INT_MAX] * 3, heads, 1)
    assert planner.plan_chunk_size([INT_MAX] * 3, INT_MAX) == 4096
    plan = planner.generate([INT_MAX, INT_MAX - 1], 2, 1 << 30)
    assert (
        list(plan["kv_start"] + plan["kv_len"])
        == [INT_MAX // 2, INT_MAX] * 2 + [INT_MAX // 2, INT_MAX - 1] * 2
    )


def test_sixteen_million_requests() -> None:
    batch = 16 << 20
    seq_lens = np.full(batch, 700, np.int32)
    planner = AttentionPlanner()
    assert planner.plan_chunk_size(seq_lens, 8) == 4096 and not planner.fits(seq_lens, 8, 4096)
    assert planner.get_total_work(seq_lens, 128, 256) == 3 * 128 * batch
    with pytest.raises(InvalidPlanParams, match=f"at most 2147483647 descriptors, found {3 * 128 * batch}"):
        planner.generate(seq_lens, 128, 256)
    with pytest.raises(PlanBufferOverflow) as caught:
        planner.generate(seq_lens, 8, 256, out=np.zeros(1, WORK_DESCRIPTOR))
    assert caught.value.required == 3 * 8 * batch


@tries(500)
@given(
    st.lists(st.one_of(st.integers(-3, 3), st.integers(1, 200000), st.integers(-(2**33), 2**33)), min_size=1),
    st.one_of(st.integers(1, 6), st.integers(-(2**33), 2**33)),
    st.one_of(st.integers(100, 9000), st.integers(-(2**33), 2**33)),
    st.integers(-1, 1),
)
def test_any_numbers_end_in_a_plan_or_a_plan_error(
    seq_lens: list[int], heads: int, chunk: int, room: int
) -> None:
    """With a buffer that is too small by one, just right, and too large by one."""
    planner = AttentionPlanner(tiers=ANY_LENGTH)
    try:
        required = planner.get_total_work(seq_lens, heads, chunk)
    except InvalidPlanParams:
        required = 0
    guard = np.full(24 * (min(required, 50_000) + 3), 0xA5, np.uint8)
    out = guard[24:-24].view(WORK_DESCRIPTOR)[: max(0, min(required, 50_000) + room)]
    try:
        plan = planner.generate(seq_lens, heads, chunk, out)
    except PlanError as error:
        assert error.caret_text or error.message
        assert np.all(guard == 0xA5)
    else:
        assert len(plan) == required <= len(out)
        assert np.all(guard[:24] == 0xA5) and np.all(guard[24 * (1 + required) :] == 0xA5)


def test_unsupported_size_names_the_request() -> None:
    with pytest.raises(UnsupportedSize, match="length 131073 of request 2") as caught:
        generate([5, 131072, 131073, 0], 1, 256)
    assert caught.value.fields["covered"] == "1..1024, 1025..4096, 4097..16384, 16385..131072"
    with pytest.raises(UnsupportedSize, match="length 0 of request 1"):
        generate([5, 0], 1, 256)
    gap = TierConfig([(0, 1, 10), (1, 20, 30)])
    with pytest.raises(UnsupportedSize, match="length 15 of request 1"):
        AttentionPlanner(tiers=gap).generate([5, 15, 25], 1, 8)
    with pytest.raises(UnsupportedSize, match="tiers cover nothing"):
        AttentionPlanner(tiers=TierConfig([])).generate([5], 1, 8)


def test_empty_item() -> None:
    plan = AttentionPlanner(zero_length="empty_item").generate([0, 3, 0], 2, 256)
    assert list(plan["request_idx"]) == [0, 0, 1, 1, 2, 2]
    assert list(plan["kv_len"]) == [0, 0, 3, 3, 0, 0]
    assert set(plan["flags"]) == {FLAG_FIRST | FLAG_LAST}


@pytest.mark.parametrize(
    "arguments",
    [
        {"chunk_min": 0},
        {"chunk_min": -1},
        {"chunk_min": 512, "chunk_max": 511},
        {"chunk_max": 2**31},
        {"max_work_units": 0},
        {"max_work_units": 2**31},
        {"chunk_min": 1.5},
        {"chunk_min": True},
        {"balance_chunks": 1},
    ],
)
def test_bad_plan_config(arguments: dict[str, object]) -> None:
    with pytest.raises(BadPlanConfig, match="out of range"):
        PlanConfig(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tiers",
    [
        [(256, 1, 2)],
        [(-1, 1, 2)],
        [(0, 0, 2)],
        [(0, 3, 2)],
        [(0, 1, 2**31)],
        [(1, 1, 2), (1, 3, 4)],
        [(0, 1, 2.5)],
    ],
)
def test_bad_tiers(tiers: list[tuple[int, int, int]]) -> None:
    with pytest.raises(BadPlanConfig):
        TierConfig(tiers)


def test_bad_zero_length() -> None:
    with pytest.raises(BadPlanConfig, match="'reject' or 'empty_item', found 'skip'"):
        AttentionPlanner(zero_length="skip")  # type: ignore[arg-type]


def test_tiers() -> None:
    sizes = (0, 1, 1024, 1025, 4097, 16385, 131072, 131073)
    assert [DECODE_ATTENTION_TIERS.select_tier(size) for size in sizes] == [-1, 0, 0, 1, 2, 3, 3, -1]
    assert DECODE_ATTENTION_TIERS.select_tier(2**40) == DECODE_ATTENTION_TIERS.select_tier(-1) == -1
    overlap = TierConfig([Tier(9, 5, 20), Tier(4, 10, 30)])
    assert overlap.select_tier(10) == 9 and overlap.select_tier(25) == 4
    assert overlap == TierConfig(overlap.tiers) and hash(overlap) == hash(TierConfig(overlap.tiers))
    assert repr(overlap) == "TierConfig([(9, 5, 20), (4, 10, 30)])"


def test_errors_are_plan_errors() -> None:
    for error in (BadPlanBuffer, BadPlanConfig, InvalidPlanParams, PlanBufferOverflow, UnsupportedSize):
        assert issubclass(error, PlanError) and issubclass(error, PtoError) and error.code != PtoError.code


def test_lengths_in_any_layout() -> None:
    every_other = np.arange(1, 2001, dtype=np.int64)[::2]
    assert generate(every_other, 2, 256).tobytes() == generate(every_other.tolist(), 2, 256).tobytes()


def test_out_may_share_memory_with_the_lengths() -> None:
    out = np.zeros(400, WORK_DESCRIPTOR)
    seq_lens = out.view(np.int32)[:20]
    seq_lens[:] = range(100, 120)
    expected = generate(seq_lens.copy(), 3, 7).tobytes()
    with pytest.raises(PlanBufferOverflow):
        generate(seq_lens, 3, 7, out=out)
    out = np.zeros(2000, WORK_DESCRIPTOR)
    seq_lens = out.view(np.int32)[:20]
    seq_lens[:] = range(100, 120)
    assert generate(seq_lens, 3, 7, out=out).tobytes() == expected
