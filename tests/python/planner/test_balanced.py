"""The balanced planner from Python: the plain-Python reference, batch invariance, views, and mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.planner import (
    ANY_LENGTH_TIERS,
    BALANCED_ITEM,
    CANONICAL_BLOCK,
    FLAG_FIRST,
    MERGE_ROW,
    WRITE_THROUGH,
    AttentionPlanner,
    BadPlanConfig,
    BalancedConfig,
    BalancedPlan,
    BalancedPlanner,
    InvalidPlanParams,
    PlanBufferOverflow,
    PlanConfig,
    PlanError,
    TierConfig,
    UnsupportedSize,
    balanced_reference,
)
from tests.generators.drawing import tries

INT_MAX = 2**31 - 1
WORKERS = st.sampled_from([1, 2, 3, 7, 24, 61])


def configs(batch_invariant: bool) -> st.SearchStrategy[BalancedConfig]:
    return st.builds(
        BalancedConfig,
        num_workers=WORKERS,
        num_heads=st.integers(1, 4),
        group_size=st.sampled_from([1, 4, 6]),
        q_tile=st.sampled_from([1, 3, 16, 128]),
        kv_tile=st.sampled_from([1, 64, 1024] if batch_invariant else [1, 16, 100, 128]),
        page_size=st.sampled_from([1, 16, 512] if batch_invariant else [1, 16, 48]),
        item_cost=st.sampled_from([0, 32, 500]),
        q_rows_per_cost=st.sampled_from([0, 1, 16]),
        window_left=st.sampled_from([-1, 0, 100]),
        causal=st.booleans(),
        batch_invariant=st.just(batch_invariant),
    )


@tries(300)
@given(
    st.booleans().flatmap(configs),
    st.lists(st.tuples(st.one_of(st.integers(0, 2), st.integers(0, 4000)), st.integers(0, 20)), min_size=1),
    st.booleans(),
    st.sampled_from([np.int32, np.int64]),
)
def test_plan_is_the_reference(
    config: BalancedConfig, requests: list[tuple[int, int]], has_queries: bool, dtype: type
) -> None:
    kv_lens = [kv_len for kv_len, _ in requests][:8]
    qo_lens = [qo_len for _, qo_len in requests][:8] if has_queries else None
    tiers = TierConfig([(200, 1, 500), (3, 400, INT_MAX)])
    planner = BalancedPlanner(config, len(kv_lens), max(1, sum(qo_lens)) if qo_lens else None, tiers)
    plan = planner.plan(np.array(kv_lens, dtype), None if qo_lens is None else np.array(qo_lens, dtype))
    expected = balanced_reference.plan(config, kv_lens, qo_lens, tiers)
    assert plan.items.tobytes() == expected.items.tobytes()
    assert plan.worker_indptr.tolist() == expected.worker_indptr
    assert plan.merge_rows.tobytes() == expected.merge_rows.tobytes()
    assert plan.merge_indptr.tolist() == expected.merge_indptr
    assert (plan.num_partials, plan.total_cost) == (expected.num_partials, expected.total_cost)
    assert plan.makespan == max(expected.worker_costs)
    rows = list(balanced_reference.rows(config, kv_lens, qo_lens))
    most = balanced_reference.grain(config) * max((row.position_cost for row in rows), default=1)
    bound = max(plan.total_cost / config.num_workers, most)
    assert plan.makespan <= bound + most + config.item_cost + 1
    assert plan.num_partials <= planner.max_partials(sum(row.kv_end for row in rows))


# --- batch invariance ----------------------------------------------------------------

State = tuple[np.float32, np.float32, np.float32]  # output, maximum, sum of weights


def block_state(name: int, head: int, begin: int, end: int) -> State:
    """Return a state that depends on the request's name and the positions alone."""
    random = np.random.default_rng((name, head, begin, end))
    return np.float32(random.normal()), np.float32(random.normal()), np.float32(random.uniform(0.5, 3))


def merge(a: State | None, b: State) -> State:
    if a is None:
        return b
    top = max(a[1], b[1])
    x, y = a[2] * np.exp(a[1] - top), b[2] * np.exp(b[1] - top)
    return (a[0] * x + b[0] * y) / (x + y), top, x + y


def blocks(name: int, head: int, begin: int, end: int) -> Iterator[State]:
    while begin < end:
        stop = min(end, (begin // CANONICAL_BLOCK + 1) * CANONICAL_BLOCK)
        yield block_state(name, head, begin, stop)
        begin = stop


def fold(states: Iterable[State | None]) -> State | None:
    total: State | None = None
    for state in states:
        assert state is not None
        total = merge(total, state)
    return total


def run(plan: BalancedPlan, names: list[int], batch_invariant: bool) -> dict[tuple[int, int], State | None]:
    """Return the result of each (name, head), computed as a kernel and a merge task do."""
    results: dict[tuple[int, int], State | None] = {}
    slots: list[State | None] = [None] * plan.num_partials
    for item in plan.items:
        name, head, begin = names[item["request_idx"]], int(item["head_idx"]), int(item["kv_start"])
        own = blocks(name, head, begin, begin + int(item["kv_len"]))
        slot = int(item["partial"])
        if slot == WRITE_THROUGH:
            results[name, head] = fold(own)
        elif item["flags"] & FLAG_FIRST or not batch_invariant:
            slots[slot] = fold(own)
        else:
            for i, state in enumerate(own):
                slots[slot + i] = state
    for m, row in enumerate(plan.merge_rows):
        merged = fold(slots[plan.merge_indptr[m] : plan.merge_indptr[m + 1]])
        results[names[row["request_idx"]], int(row["head_idx"])] = merged
    return results


def plans_of_one_request(batch_invariant: bool) -> Iterator[dict[tuple[int, int], State | None]]:
    """Yield the results of request 77, length 30000, in different batches and for different workers."""
    random = np.random.default_rng(5)
    for workers in (1, 2, 5, 24, 100):
        for others in (0, 1, 6):
            lens = [*random.integers(0, 20000, others).tolist(), 30000]
            names = [*range(others), 77]
            order = random.permutation(len(lens))
            config = BalancedConfig(workers, 2, kv_tile=64, page_size=16, batch_invariant=batch_invariant)
            plan = BalancedPlanner(config, len(lens)).plan([lens[i] for i in order])
            results = run(plan, [names[i] for i in order], batch_invariant)
            yield {key: value for key, value in results.items() if key[0] == 77}


def test_results_are_the_same_bits_in_any_batch() -> None:
    first, *rest = plans_of_one_request(batch_invariant=True)
    assert len(first) == 2 and all(results == first for results in rest)


def test_results_differ_without_the_mode() -> None:
    first, *rest = plans_of_one_request(batch_invariant=False)
    assert not all(results == first for results in rest)


@given(WORKERS, st.integers(1, 8), st.lists(st.integers(0, 9000), min_size=1, max_size=6))
def test_pieces_are_whole_blocks(workers: int, chunk_blocks: int, lens: list[int]) -> None:
    config = BalancedConfig(workers, 2, batch_invariant=True)
    balanced = BalancedPlanner(config, len(lens)).plan(lens)
    chunk = chunk_blocks * CANONICAL_BLOCK
    fixed = AttentionPlanner(PlanConfig(balance_chunks=False), ANY_LENGTH_TIERS, "empty_item")
    for items in (balanced.items, fixed.generate(lens, 2, chunk)):
        ends = items["kv_start"] + items["kv_len"]
        is_last = ends == np.array(lens)[items["request_idx"]]
        assert np.all(items["kv_start"] % CANONICAL_BLOCK == 0)
        assert np.all(is_last | (ends % CANONICAL_BLOCK == 0))


# --- the object ----------------------------------------------------------------------


def test_memory_is_the_same_at_every_step() -> None:
    planner = BalancedPlanner(BalancedConfig(24, 8, page_size=16), max_batch=64)
    addresses = set()
    for step in range(5):
        plan = planner.plan(np.arange(1 + step, 60, dtype=np.int32) * 100)
        assert all(np.shares_memory(part, planner.memory) for part in plan[:4])
        addresses.add(tuple(part.ctypes.data for part in plan[:4]))
        end = plan.items.ctypes.data + plan.items.nbytes
        assert end - planner.memory.ctypes.data == planner.used_bytes(plan) <= planner.memory.nbytes
    assert len(addresses) == 1 and planner.memory.ctypes.data % 64 == 0
    assert planner.max_items == 64 * 8 + 23
    assert planner.partial_bytes(46, 4, 128) == 46 * 4 * 130 * 4


def test_records() -> None:
    plan = BalancedPlanner(BalancedConfig(3, 2), 2).plan([5000, 300])
    assert plan.items.dtype == BALANCED_ITEM and BALANCED_ITEM.itemsize == 32
    assert plan.merge_rows.dtype == MERGE_ROW and MERGE_ROW.itemsize == 16
    words = plan.items.view(np.int32).reshape(-1, 8)
    assert np.array_equal(words[:, 5], plan.items["kv_len"]) and words[-1, 7] == WRITE_THROUGH
    assert plan.worker_indptr.dtype == plan.merge_indptr.dtype == np.int32


def test_numbers_that_can_be_counted_by_hand() -> None:
    """Costs 32 + 4000 and 32 + 500 of 4 rows: 9128, 3 workers of 3042 (+ 80), cuts at multiples of 128."""
    plan = BalancedPlanner(BalancedConfig(3, 2), 2).plan([4000, 500])
    assert plan.total_cost == 9128
    spans = [
        (int(i["request_idx"]), int(i["head_idx"]), int(i["kv_start"]), int(i["kv_len"])) for i in plan.items
    ]
    assert spans == [
        (0, 0, 0, 3072),
        (0, 0, 3072, 928),
        (0, 1, 0, 2048),
        (0, 1, 2048, 1952),
        (1, 0, 0, 500),
        (1, 1, 0, 500),
    ]
    assert plan.worker_indptr.tolist() == [0, 1, 3, 6]
    assert plan.items["partial"].tolist() == [0, 1, 2, 3, -1, -1]
    assert plan.merge_indptr.tolist() == [0, 2, 4] and plan.merge_rows["first_item"].tolist() == [0, 2]
    assert plan.makespan == 32 + 3072


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 0},
        {"num_workers": 2**20 + 1},
        {"num_heads": 0},
        {"num_heads": 2**31},
        {"group_size": 0},
        {"q_tile": 0},
        {"kv_tile": 0},
        {"kv_tile": 1.5},
        {"page_size": True},
        {"item_cost": -1},
        {"q_rows_per_cost": -1},
        {"q_tile": 1000, "q_rows_per_cost": 1},
        {"window_left": -2},
        {"causal": 1},
        {"batch_invariant": "yes"},
        {"zero_length": "skip"},
        {"kv_tile": 2**31 - 1, "page_size": 2**31 - 2},
        {"kv_tile": 100, "batch_invariant": True},
        {"page_size": 2048, "batch_invariant": True},
    ],
)
def test_bad_config(arguments: dict[str, object]) -> None:
    with pytest.raises(BadPlanConfig, match="out of range"):
        BalancedConfig(**{"num_workers": 2, "num_heads": 2, **arguments})


@pytest.mark.parametrize(
    "limits", [(0,), (-1,), (2**31,), (1.5,), (True,), (10, 0), (10, 2**63), (2**31 - 1,), (1, 2**62)]
)
def test_bad_limits(limits: tuple[int, ...]) -> None:
    with pytest.raises(BadPlanConfig, match="out of range"):
        BalancedPlanner(BalancedConfig(2, 2), *limits)  # type: ignore[arg-type]


def test_bad_lengths() -> None:
    planner = BalancedPlanner(BalancedConfig(4, 2, group_size=4), 4, 100)
    for kv_lens, qo_lens, found in (
        ([], None, "shape"),
        (None, None, "shape"),
        ([[3]], None, "shape"),
        ([1.5], None, "float64"),
        ([3, -1], None, "length of request 1"),
        ([3, 2**31], None, "length of request 1"),
        ([3, 3], [1, -1], "query length of request 1"),
        ([3, 3], [1, 2**40], "query length of request 1"),
        ([3, 3], [1], "list of query lengths"),
        ([3], [2**30], "plan of this size"),
    ):
        with pytest.raises(InvalidPlanParams, match=found):
            planner.plan(kv_lens, qo_lens)  # type: ignore[arg-type]


def test_more_rows_than_there_is_room_for() -> None:
    planner = BalancedPlanner(BalancedConfig(4, 2), 3)
    with pytest.raises(PlanBufferOverflow, match="room for 9 descriptors, the plan has 11") as caught:
        planner.plan([1, 1, 1, 1])
    assert "max_batch" in caught.value.help
    assert len(planner.plan([1, 1, 1]).items) == 6


def test_sixteen_million_requests() -> None:
    batch = 16 << 20
    kv_lens = np.full(batch, 700, np.int32)
    with pytest.raises(PlanBufferOverflow) as caught:
        BalancedPlanner(BalancedConfig(6, 3), 10).plan(kv_lens)
    assert caught.value.required == 3 * batch + 5
    with pytest.raises(InvalidPlanParams, match=f"at most {INT_MAX} items"):
        BalancedPlanner(BalancedConfig(6, 128), 10).plan(kv_lens)
    with pytest.raises(BadPlanConfig, match=f"at most {INT_MAX} items"):
        BalancedPlanner(BalancedConfig(6, 128), batch)


@tries(500)
@given(
    configs(False),
    st.lists(st.one_of(st.integers(0, 3000), st.integers(-(2**33), 2**33)), min_size=1, max_size=6),
    st.lists(st.one_of(st.integers(0, 9), st.integers(-(2**33), 2**33)), min_size=1, max_size=6),
    st.integers(1, 5),
)
def test_any_numbers_end_in_a_plan_or_a_plan_error(
    config: BalancedConfig, kv_lens: list[int], qo_lens: list[int], max_batch: int
) -> None:
    planner = BalancedPlanner(config, max_batch, 40)
    planner.memory[:] = 0xA5
    try:
        plan = planner.plan(kv_lens, qo_lens)
    except PlanError as error:
        assert error.caret_text or error.message
        assert np.all(planner.memory == 0xA5)
    else:
        assert len(kv_lens) == len(qo_lens) and len(plan.items) <= planner.max_items
        assert np.all(planner.memory[planner.used_bytes(plan) :] == 0xA5)


def test_unsupported_sizes() -> None:
    planner = BalancedPlanner(BalancedConfig(4, 2), 3, tiers=TierConfig([(0, 1, 10), (1, 20, 30)]))
    with pytest.raises(UnsupportedSize, match="length 15 of request 1"):
        planner.plan([5, 15, 25])
    strict = BalancedPlanner(BalancedConfig(4, 2, zero_length="reject"), 3)
    with pytest.raises(UnsupportedSize, match="length 0 of request 2"):
        strict.plan([5, 15, 0])


def test_lengths_near_the_limit() -> None:
    plan = BalancedPlanner(BalancedConfig(264, 2), 2).plan([INT_MAX, INT_MAX - 1])
    ends = plan.items["kv_start"].astype(np.int64) + plan.items["kv_len"]
    assert ends.max() == INT_MAX and plan.total_cost == 2 * (2 * INT_MAX - 1 + 64)
