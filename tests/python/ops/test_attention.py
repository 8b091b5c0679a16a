"""Planned attention against numpy in f64: lengths, layouts, masks, types; the same bits in any batch."""

from __future__ import annotations

from itertools import cycle
from math import sqrt
from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import InvalidPlanParams
from pto_wsp.ops import attention as operators
from pto_wsp.ops.attention import BatchDecode, BatchPrefill
from pto_wsp.types import bf16, f16, f32
from tests.python.ops.reference import Batch, attention, random_batch
from tests.slow import mostly_slow

LENGTHS = [1000, 5, 0, 3100, 16, 33, 1, 2049]
HEADS, DIM = (8, 2), 32


def run(attn: BatchDecode | BatchPrefill, batch: Batch, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Plan and run, into memory that holds NaN."""
    if isinstance(attn, BatchDecode):
        attn.plan(*batch.plan)
    else:
        attn.plan(batch.qo_indptr, *batch.plan)
    out = np.full_like(batch.queries, np.nan)
    lse = np.full(batch.queries.shape[:2], np.nan, np.float32)
    attn.run(batch.queries, batch.cache, out=out, lse=lse, **options)
    return out, lse


def assert_near(
    found: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray], bound: float = 5e-6
) -> None:
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=bound, atol=bound)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window_left": 700},
    "only itself": {"window_left": 0},
    "soft cap": {"logits_soft_cap": 0.7},
    "scale": {"sm_scale": 0.4},
    "invariant": {"batch_invariant": True},
    "invariant window": {"batch_invariant": True, "window_left": 1500, "logits_soft_cap": 2.0},
}


def expected_of(batch: Batch, causal: bool, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return attention(
        batch,
        scale=options.get("sm_scale", 1 / sqrt(batch.queries.shape[2])),
        causal=causal,
        window_left=options.get("window_left", -1),
        soft_cap=options.get("logits_soft_cap", 0.0),
    )


@pytest.mark.parametrize(("name", "page_size"), mostly_slow(zip(OPTIONS, cycle([16, None])), quick=2))
def test_decode(name: str, page_size: int | None) -> None:
    rng = np.random.default_rng(len(name))
    for workers in (1, 3):
        attn = BatchDecode(*HEADS, DIM, page_size=page_size, workers=workers, **OPTIONS[name])
        for lengths in (LENGTHS, [], [0], [7], [4000]):
            batch = random_batch(rng, lengths, [1] * len(lengths), heads=HEADS, dim=DIM, page_size=page_size)
            assert_near(run(attn, batch), expected_of(batch, False, OPTIONS[name]))


@pytest.mark.parametrize(
    ("name", "causal", "page_size"),
    mostly_slow(
        ((n, i % 4 != 1, [None, 16][i % 2]) for i, n in enumerate((*OPTIONS, "invariant window", "plain"))),
        quick=1,
    ),
)
def test_prefill(name: str, causal: bool, page_size: int | None) -> None:
    rng = np.random.default_rng(len(name))
    attn = BatchPrefill(*HEADS, DIM, page_size=page_size, workers=3, causal=causal, **OPTIONS[name])
    for kv_lens, qo_lens in (
        ([300, 5, 0, 1500, 16, 1, 90], [300, 3, 0, 70, 1, 1, 33]),
        ([10, 0, 40], [40, 5, 0]),  # more queries than positions: the first attend to nothing
        ([], []),
        ([2500], [1]),
    ):
        batch = random_batch(rng, kv_lens, qo_lens, heads=HEADS, dim=DIM, page_size=page_size)
        assert_near(run(attn, batch), expected_of(batch, causal, OPTIONS[name]))


@pytest.mark.parametrize(
    ("layout", "is_stacked", "page_size"),
    mostly_slow(
        [("HND", False, 24), ("NHD", True, 1), ("HND", True, 256), ("NHD", True, None), ("HND", False, None)]
    ),
)
def test_layouts(layout: str, is_stacked: bool, page_size: int | None) -> None:
    rng = np.random.default_rng(7)
    lengths = [300, 0, 1, 513]
    for attn in (
        BatchDecode(6, 3, 16, page_size=page_size, workers=2, kv_layout=layout),  # type: ignore[arg-type]
        BatchPrefill(6, 3, 16, page_size=page_size, workers=2, kv_layout=layout),  # type: ignore[arg-type]
    ):
        qo_lens = [1] * 4 if isinstance(attn, BatchDecode) else [35, 0, 1, 4]
        batch = random_batch(
            rng, lengths, qo_lens, heads=(6, 3), dim=16, page_size=page_size, layout=layout,
            is_stacked=is_stacked,
        )  # fmt: skip
        assert_near(run(attn, batch), expected_of(batch, isinstance(attn, BatchPrefill), {}))


@pytest.mark.parametrize(
    ("q_dtype", "kv_dtype"), mostly_slow([(bf16, bf16), (f32, f16), (f32, bf16), (f16, f16)])
)
def test_element_types(q_dtype: Any, kv_dtype: Any) -> None:
    rng = np.random.default_rng(3)
    bound = 5e-6 if q_dtype is f32 else q_dtype.eps
    for kind, qo_lens in ((BatchDecode, [1, 1, 1]), (BatchPrefill, [40, 1, 7])):
        attn = kind(*HEADS, DIM, q_dtype=q_dtype, kv_dtype=kv_dtype, workers=2)
        batch = random_batch(
            rng, [700, 1, 2000], qo_lens, heads=HEADS, dim=DIM, page_size=16, q_dtype=q_dtype.to_numpy(),
            kv_dtype=kv_dtype.to_numpy(),
        )  # fmt: skip
        out, lse = run(attn, batch)
        expected = expected_of(batch, kind is BatchPrefill, {})
        assert_near((out, lse.astype(np.float64)), expected, bound)


@pytest.mark.parametrize(
    ("heads", "dim"),
    mostly_slow([((5, 5), 80), ((1, 1), 64), ((7, 1), 128), ((32, 8), 128), ((33, 1), 40), ((40, 2), 300)]),
)
def test_heads_and_dimensions(heads: tuple[int, int], dim: int) -> None:
    rng = np.random.default_rng(dim)
    attn = BatchDecode(*heads, dim, workers=2)
    batch = random_batch(rng, [130, 0, 17], [1] * 3, heads=heads, dim=dim, page_size=16)
    assert_near(run(attn, batch), expected_of(batch, False, {}))


@pytest.mark.parametrize("seed", mostly_slow(range(6)))
def test_random_operators_on_random_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kv_heads, group, dim = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.choice([8, 17, 40, 128]))
    page_size = [None, 1, 3, 16, 64, 1024][seed]
    options: dict[str, Any] = {
        "window_left": int(rng.choice([-1, 0, 5, 1500])),
        "logits_soft_cap": float(rng.choice([0, 3.0])),
        "batch_invariant": page_size != 3 and bool(rng.integers(2)),
    }
    layout, workers = str(rng.choice(["NHD", "HND"])), int(rng.integers(1, 9))
    place: dict[str, Any] = {"page_size": page_size, "kv_layout": layout, "workers": workers}
    kind = (BatchDecode, BatchPrefill)[int(rng.integers(2))]
    attn = kind(kv_heads * group, kv_heads, dim, **place, **options)
    for _ in range(5):
        requests = int(rng.integers(0, 7))
        kv_lens = rng.integers(0, 3500, requests) * rng.integers(0, 2, requests) + rng.integers(
            0, 40, requests
        )
        qo_lens = np.ones(requests, int) if kind is BatchDecode else rng.integers(0, 90, requests)
        batch = random_batch(
            rng, kv_lens, qo_lens, heads=(kv_heads * group, kv_heads), dim=dim, page_size=page_size,
            layout=layout, is_stacked=bool(rng.integers(2)),
        )  # fmt: skip
        assert_near(run(attn, batch), expected_of(batch, kind is BatchPrefill, options))


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_same_bits_in_any_batch_with_any_workers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    window = int(rng.choice([-1, 1300]))
    kv_lens = rng.integers(0, 5000, 6)
    for kind in (BatchDecode, BatchPrefill):
        qo_lens = np.ones(6, int) if kind is BatchDecode else rng.integers(0, 70, 6)
        page_size = [16, None][seed % 2]
        options: dict[str, Any] = {"batch_invariant": True, "window_left": window, "page_size": page_size}
        batch = random_batch(rng, kv_lens, qo_lens, heads=HEADS, dim=DIM, page_size=page_size)
        out, lse = run(kind(*HEADS, DIM, workers=1, **options), batch)
        parts = 0
        for workers in (2, 3, 7, 24):
            attn = kind(*HEADS, DIM, workers=workers, **options)
            again = run(attn, batch)
            assert attn.current is not None
            parts += attn.current.num_partials
            np.testing.assert_array_equal(again[0], out)
            np.testing.assert_array_equal(again[1], lse)
            for b in range(6):
                rows = slice(batch.qo_indptr[b], batch.qo_indptr[b + 1])
                alone = alone_of(batch, b, page_size)
                found = run(attn, alone)
                np.testing.assert_array_equal(found[0], out[rows])
                np.testing.assert_array_equal(found[1], lse[rows])
        assert parts > 0


def alone_of(batch: Batch, b: int, page_size: int | None) -> Batch:
    """Return a batch of one of the requests, in the same cache."""
    rows = slice(batch.qo_indptr[b], batch.qo_indptr[b + 1])
    indptr = batch.plan[0]
    begin, end = int(indptr[b]), int(indptr[b + 1])
    queries, qo_indptr = batch.queries[rows], np.array([0, rows.stop - rows.start])
    if page_size is None:
        cache = tuple(pool[begin:end] for pool in batch.cache)
        plan: tuple[np.ndarray, ...] = (np.array([0, end - begin]),)
    else:
        cache, plan = (
            batch.cache,
            (np.array([0, end - begin]), batch.plan[1][begin:end], batch.plan[2][b : b + 1]),
        )
    return Batch([batch.keys[b]], [batch.values[b]], queries, qo_indptr, plan, cache)


def test_split_rows_agree_with_whole_ones_at_32k() -> None:
    rng = np.random.default_rng(0)
    batch = random_batch(rng, [32768], [1], heads=(4, 1), dim=128, page_size=16)
    whole = run(BatchDecode(4, 1, 128, workers=1), batch)
    expected = expected_of(batch, False, {})
    largest = np.abs(expected[0]).max()
    for workers in (2, 5, 24):
        attn = BatchDecode(4, 1, 128, workers=workers)
        out, lse = run(attn, batch)
        assert attn.current is not None and attn.current.num_partials == workers
        assert np.abs(out - whole[0]).max() <= 2e-6 * largest
        assert np.abs(out - expected[0]).max() <= 4e-6 * largest
        np.testing.assert_allclose(lse, expected[1], rtol=1e-6)


def test_bases_of_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    attn = BatchDecode(*HEADS, DIM, workers=3)
    batch = random_batch(rng, [3000, 0, 5], [1] * 3, heads=HEADS, dim=DIM, page_size=16)
    natural, binary = run(attn, batch)[1], run(attn, batch, lse_base="2")[1]
    np.testing.assert_allclose(binary, natural / np.log(2), rtol=1e-6)


def test_steps_compile_nothing_and_plans_are_copies() -> None:
    rng = np.random.default_rng(5)
    attn = BatchDecode(*HEADS, DIM, workers=2)
    for step in range(12):
        lengths = rng.integers(0, 600, rng.integers(1, 40))
        batch = random_batch(rng, lengths, [1] * len(lengths), heads=HEADS, dim=DIM, page_size=16)
        assert_near(run(attn, batch), expected_of(batch, False, {}))
        assert attn.program.stats is not None
        assert step == 0 or attn.program.stats.compiles == 0
        for array in batch.plan:
            array[...] = -1
        again = attn.run(batch.queries, batch.cache, return_lse=True)
        assert_near(again, expected_of(batch, False, {}))


@pytest.mark.slow
def test_interp_is_the_same() -> None:
    rng = np.random.default_rng(2)
    batch = random_batch(rng, [1100, 0, 30], [3, 1, 30], heads=(4, 2), dim=16, page_size=16)
    for options in ({}, {"batch_invariant": True, "window_left": 40}):
        found = [
            run(BatchPrefill(4, 2, 16, workers=2, target=target, **options), batch)  # type: ignore[arg-type]
            for target in ("cpu", "interp")
        ]
        assert_near(found[0], (found[1][0].astype(np.float64), found[1][1].astype(np.float64)))


def test_nan_stays() -> None:
    rng = np.random.default_rng(2)
    batch = random_batch(rng, [40, 40], [1, 1], heads=HEADS, dim=DIM, page_size=None)
    batch.cache[0][45] = np.nan
    out, lse = run(BatchDecode(*HEADS, DIM, page_size=None, workers=2), batch)
    assert not np.isnan(out[0]).any() and np.isnan(out[1]).all() and np.isnan(lse[1]).all()


class Foreign:
    """An array that only DLPack can read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_arrays_of_other_libraries() -> None:
    rng = np.random.default_rng(2)
    batch = random_batch(rng, [40, 3], [1, 1], heads=HEADS, dim=DIM, page_size=16)
    attn = BatchDecode(*HEADS, DIM, workers=2)
    attn.plan(*map(Foreign, batch.plan))
    out, lse = np.empty_like(batch.queries), np.empty((2, 8), np.float32)
    attn.run(Foreign(batch.queries), tuple(map(Foreign, batch.cache)), out=Foreign(out), lse=Foreign(lse))
    assert_near((out, lse), expected_of(batch, False, {}))


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [(bf16, f16), (f32, f32)], ids=str)
@pytest.mark.parametrize("page_size", [None, 16])
def test_packed_keys_change_no_bit(
    page_size: int | None, dtypes: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of any number of query tiles, packed or not, and some of them where memory is short."""
    rng = np.random.default_rng(8)
    q_dtype, kv_dtype = dtypes
    batch = random_batch(
        rng, [130, 0, 700, 300, 1500], [130, 0, 290, 1, 200], heads=HEADS, dim=DIM, page_size=page_size,
        q_dtype=q_dtype.to_numpy(), kv_dtype=kv_dtype.to_numpy(),
    )  # fmt: skip
    found = []
    for tiles, room in ((1 << 30, 0), (1, 1 << 30), (1, 3 << 20)):
        monkeypatch.setattr(operators, "PACKED_TILES", tiles)
        monkeypatch.setattr(operators, "PACKED_BYTES", room)
        attn = BatchPrefill(
            *HEADS, DIM, page_size=page_size, workers=2, window_left=600, q_dtype=q_dtype, kv_dtype=kv_dtype
        )
        found.append(run(attn, batch))
    bound = 5e-6 if q_dtype is f32 else q_dtype.eps
    assert_near(found[0], expected_of(batch, True, {"window_left": 600}), bound)
    for packed in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], packed, strict=True))


def test_caches_without_pages() -> None:
    """Requests without keys need no memory that could be read."""
    attn = BatchDecode(4, 2, 16, workers=2)
    empty = (np.empty((0, 16, 2, 16), np.float32),) * 2
    for requests in (0, 3):
        attn.plan([0] * (requests + 1), [], [0] * requests)
        out, lse = attn.run(np.ones((requests, 4, 16), np.float32), empty, return_lse=True)
        assert out.shape == (requests, 4, 16) and not out.any() and np.isneginf(lse).all()


@pytest.mark.parametrize(
    ("page_size", "heads", "dim"), mostly_slow([(16, (4, 2), 16), (1, (3, 1), 8), (16, (1, 1), 1)])
)
def test_strides_of_dimensions_without_neighbours_mean_nothing(
    page_size: int, heads: tuple[int, int], dim: int
) -> None:
    rng = np.random.default_rng(dim)
    attn = BatchDecode(*heads, dim, page_size=page_size, workers=2)
    batch = random_batch(rng, [page_size], [1], heads=heads, dim=dim, page_size=page_size)
    page = int(batch.plan[1][0])
    keys, values = (pool[page : page + 1] for pool in batch.cache)
    for stride in (4, 12, 4000):
        strides = [stride if n == 1 else s for n, s in zip(values.shape, values.strides, strict=True)]
        odd = np.lib.stride_tricks.as_strided(values, values.shape, strides)
        batch.cache, batch.plan[1][0] = (keys, odd), 0
        assert_near(run(attn, batch), expected_of(batch, False, {}))


@pytest.mark.parametrize("kind", mostly_slow([BatchDecode, BatchPrefill]))
def test_positions_up_to_the_largest_integer(kind: Any) -> None:
    """A window at the end of a request of 2^31 - 1 positions, all of whose pages are the same one."""
    rng = np.random.default_rng(1)
    page, window, length = 1 << 20, 300, 2**31 - 1
    keys, values = (rng.standard_normal((1, page, 1, 8), np.float32) for _ in range(2))
    q = rng.standard_normal((1, 1, 8), np.float32)
    attn = kind(1, 1, 8, page_size=page, window_left=window, workers=2)
    given = ([0, 2048], np.zeros(2048, np.int32), [page - 1])
    attn.plan(*given) if kind is BatchDecode else attn.plan([0, 1], *given)
    seen = np.arange(length - 1 - window, length) % page
    weights = np.exp(keys[0, seen, 0].astype(np.float64) @ q[0, 0] / sqrt(8))
    expected = weights @ values[0, seen, 0] / weights.sum()
    np.testing.assert_allclose(attn.run(q, (keys, values))[0, 0], expected, atol=5e-6)
    with pytest.raises(InvalidPlanParams):
        too_long = ([0, 2048], np.zeros(2048, np.int32), [page])
        attn.plan(*too_long) if kind is BatchDecode else attn.plan([0, 1], *too_long)


def test_the_least_scores_have_weights() -> None:
    """Scores far below what a running maximum could have begun with are still scores."""
    q, keys = np.full((1, 1, 8), 1e18, np.float32), np.full((1, 16, 1, 8), -1e18, np.float32)
    keys[0, 1] *= 2
    values = np.random.default_rng(0).standard_normal((1, 16, 1, 8), np.float32)
    attn = BatchDecode(1, 1, 8, workers=1)
    attn.plan([0, 1], [0], [2])
    out, lse = attn.run(q, (keys, values), return_lse=True)
    np.testing.assert_array_equal(out[0, 0], values[0, 0, 0])
    np.testing.assert_allclose(lse, -8e36 / sqrt(8), rtol=1e-6)


def test_outputs_in_place_of_queries() -> None:
    rng = np.random.default_rng(4)
    for attn, qo_lens in (
        (BatchDecode(*HEADS, DIM, workers=3), [1, 1]),
        (BatchPrefill(*HEADS, DIM), [60, 3]),
    ):
        batch = random_batch(rng, [3000, 40], qo_lens, heads=HEADS, dim=DIM, page_size=16)
        expected, _ = run(attn, batch)
        attn.run(batch.queries, batch.cache, out=batch.queries)
        np.testing.assert_array_equal(batch.queries, expected)


def test_partial_results_are_as_large_as_the_planner_says() -> None:
    rng = np.random.default_rng(4)
    attn = BatchDecode(*HEADS, DIM, workers=3)
    run(attn, random_batch(rng, [9000], [1], heads=HEADS, dim=DIM, page_size=16))
    parts = attn._parts.nbytes + attn._part_stats.nbytes
    assert attn.current is not None and attn.current.num_partials == 4
    assert parts == attn._planner.partial_bytes(len(attn._parts), HEADS[0] // HEADS[1], DIM)
