"""`group_by`: a sparse axis that a task of the run makes, and control that waits for it."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    DYN,
    Dense,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    errors,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.lang.workload.group_by import group_by_kernel
from pto_wsp.runtime.outcome import RunRequest
from tests.generators.drawing import tries

TARGETS = ("cpu", "interp")


@workload
def group_1(Keys: Tensor[i64, "a"], Offsets: Tensor[i64, "g"], Indices: Tensor[i32, "e", 1]):
    group_by_kernel()(keys=Keys, offsets=Offsets, indices=Indices)


@workload
def group_2(Keys: Tensor[i32, "a", "b"], Offsets: Tensor[i64, "g"], Indices: Tensor[i32, "e", 1]):
    group_by_kernel()(keys=Keys, offsets=Offsets, indices=Indices)


@workload
def group_3(Keys: Tensor[i32, "a", "b", "c"], Offsets: Tensor[i64, "g"], Indices: Tensor[i32, "e", 1]):
    group_by_kernel()(keys=Keys, offsets=Offsets, indices=Indices)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [group_1, group_2, group_3], ids=lambda w: w.name)
def test_the_kernel_sorts_positions_by_key(make, target: str) -> None:
    rng = np.random.default_rng(6)
    program = make.compile(target)
    rank = int(make.name[-1])
    for shape in ((5, 3, 4), (1, 1, 1), (0, 3, 2), (3, 0, 2), (40, 2, 7)):
        for groups in (1, 6, 100):
            wide = rng.integers(0, groups, (*shape[: rank - 1], 2 * shape[rank - 1]))
            keys = np.repeat(wide, 2, axis=0).astype(np.int64 if rank == 1 else np.int32)
            keys = keys[::2, ..., : shape[rank - 1]] if rank > 1 else keys
            offsets = np.full(groups + 1, -5, np.int64)
            indices = np.full((keys.size, 1), -5, np.int32)
            program(Keys=keys, Offsets=offsets, Indices=indices)
            flat = keys.ravel()
            assert offsets[0] == 0 and np.array_equal(np.diff(offsets), np.bincount(flat, minlength=groups))
            for g in range(groups):
                row = indices[offsets[g] : offsets[g + 1], 0]
                assert np.array_equal(row, np.flatnonzero(flat == g))


@kernel
def copy_keys(source: In[Tensor[i32, DYN, 2]], keys: Out[Tensor[i32, DYN, 2]]):
    for r in pto.tiles(source.rows, 4):
        pto.store(keys[r], source[r])


@kernel
def expert(
    x: In[Tensor[f32, DYN, 8]],
    rows: In[Tensor[i32, DYN, 1]],
    part: Out[Tensor[f32, DYN, 8]],
    e: Scalar[i64],
):
    for i in range(rows.rows):
        token = rows[i, 0] // 2
        pto.store(part[i : i + 1], x[token : token + 1] * 2.0 + pto.full((1, 8), e))


@kernel
def merge(part: In[Tile[2, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y + pto.colsum(part))


@workload
def moe(
    tokens: DenseDyn,
    X: Tensor[f32, "tokens", 8],
    Choice: Tensor[i32, "tokens", 2],
    Experts: Tensor[i32, "tokens", 2],
    Part: Tensor[f32, "tokens", 2, 8],
    Y: Tensor[f32, "tokens", 8],
):
    for t in P.tiles(tokens, 8):
        copy_keys[t](source=Choice[t], keys=Experts[t])
    routing = group_by(Experts, num_groups=6)
    for e in P(Dense[6]):
        for pick in P.tiles(routing[e], 4):
            rows = routing.rows(pick)
            expert[e, pick](x=X, rows=rows, part=Part[rows], e=e)
    for t in P(tokens):
        merge[t](part=Part[t], y=Y[t : t + 1])


def expected_of_moe(x: np.ndarray, choice: np.ndarray, y: np.ndarray) -> np.ndarray:
    part = x[:, None] * np.float32(2) + choice[:, :, None].astype(np.float32)
    return y + (part[:, 0] + part[:, 1])


@pytest.mark.parametrize("target", TARGETS)
def test_experts_take_what_a_task_routed_to_them(target: str) -> None:
    rng = np.random.default_rng(7)
    program = moe.compile(target)
    for tokens in (0, 1, 2, 9, 50):
        for spread in (1, 3, 6):
            x = rng.standard_normal((tokens, 8)).astype(np.float32)
            choice = rng.integers(0, spread, (tokens, 2)).astype(np.int32)
            y = rng.standard_normal((tokens, 8)).astype(np.float32)
            expected = expected_of_moe(x, choice, y)
            for workers in (1, 2, 4):
                found, part = y.copy(), np.full((tokens, 2, 8), np.nan, np.float32)
                experts = np.full((tokens, 2), -1, np.int32)
                program.run(X=x, Choice=choice, Experts=experts, Part=part, Y=found, workers=workers)
                assert np.array_equal(found, expected)
                picks = sum(-(-n // 4) for n in np.bincount(choice.ravel(), minlength=6))
                assert program.stats is not None
                assert program.stats.tasks == -(-tokens // 8) + 1 + picks + tokens


@pytest.mark.parametrize("target", TARGETS)
def test_an_element_outside_fails_the_run(target: str) -> None:
    program = moe.compile(target)
    x, y = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    for value in (6, -1, 2**31 - 1):
        choice = np.zeros((4, 2), np.int32)
        choice[2, 1] = value
        values = {"X": x, "Choice": choice, "Experts": choice.copy(), "Y": y}
        with pytest.raises(errors.KernelFailed) as caught:
            program(**values, Part=np.zeros((4, 2, 8), np.float32))
        assert f"element 5 is {value}, outside [0, 6)" in caught.value.message
        assert caught.value.loc is not None
        assert "group_by(Experts, num_groups=6)" in (caught.value.loc.source_line() or "")
    assert not y.any()


@workload
def routed_twice(
    steps: DenseDyn,
    Choice: Tensor[i32, "steps", "tokens", 2],
    Keys: Tensor[i32, "tokens", 2],
    Pairs: Tensor[f32, "tokens", 2, 8],
    groups: DenseDyn,
):
    for s in P.range(steps):
        for t in P.tiles("tokens", 4):
            copy_keys[s, t](source=Choice[s, t], keys=Keys[t])
        both = group_by(Keys, num_groups=groups)
        first = group_by(Keys[0], num_groups=groups)
        for g in P(groups):
            for pick in P.tiles(both[g], 3):
                advance[s, g, pick](x=Pairs[both.rows(pick)], g=g + s)
            for slot in P.sel(first[g]):
                advance[s, g, slot](x=Pairs[0, slot : slot + 1], g=g - s)
            advance[s, g](x=Pairs[both.rows(both[0])], g=s)


@kernel
def advance(x: InOut[Tensor[f32, DYN, 8]], g: Scalar[i64]):
    for i in range(x.rows):
        pto.store(x[i : i + 1], x[i : i + 1] * 0.5 + pto.full((1, 8), g))


def expected_of_routed_twice(choice: np.ndarray, pairs: np.ndarray, groups: int) -> np.ndarray:
    flat, half = pairs.reshape(-1, 8).copy(), np.float32(0.5)
    for s, keys in enumerate(choice):
        for g in range(groups):
            for rows, value in (
                (np.flatnonzero(keys == g), g + s),
                (np.flatnonzero(keys[0] == g), g - s),
                (np.flatnonzero(keys == 0), s),
            ):
                flat[rows] = flat[rows] * half + np.float32(value)
    return flat.reshape(pairs.shape)


@tries(25)
@given(
    st.integers(0, 4),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 3, 4]),
    st.booleans(),
)
def test_any_order_of_workers_gives_the_same_bits(
    steps: int, tokens: int, groups: int, seed: int, workers: int, is_delayed: bool
) -> None:
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, groups, (steps, tokens, 2)).astype(np.int32)
    pairs = rng.standard_normal((tokens, 2, 8)).astype(np.float32)
    expected = expected_of_routed_twice(choice, pairs, groups)
    values = {"Choice": choice, "Keys": np.full((tokens, 2), -9, np.int32), "groups": groups}
    bound = ROUTED._binder.bind({**values, "Pairs": pairs})
    delays = seed % 1000 if is_delayed else 0
    ROUTED._runner.run(RunRequest(bound.arrays, bound.scalars, workers, jitter=delays))
    assert np.array_equal(pairs, expected)


ROUTED = routed_twice.compile("cpu")


def test_memory_is_kept_for_runs_of_the_same_sizes() -> None:
    @workload
    def grouped(Keys: Tensor[i32, "n"], groups: DenseDyn):
        group_by(Keys, num_groups=groups)

    binder = grouped.compile("interp")._binder
    keys, other = np.zeros(5, np.int32), np.zeros(6, np.int32)
    first = binder.bind({"Keys": keys, "groups": 3})
    meanwhile = binder.bind({"Keys": keys, "groups": 3})
    assert all(first.made[name] is not meanwhile.made[name] for name in first.made)
    binder.keep(first)
    again = binder.bind({"Keys": keys, "groups": 3})
    assert [again.made[name] is first.made[name] for name in again.made] == [True, True]
    binder.keep(again)
    changed = binder.bind({"Keys": other, "groups": 3})
    assert {name: changed.made[name] is again.made[name] for name in again.made} == {
        "groups_1.offsets": True,
        "groups_1.indices": False,
    }


def test_threads_share_a_program() -> None:
    rng = np.random.default_rng(8)
    program = moe.compile("cpu")
    wrong: list[int] = []

    def work(seed: int) -> None:
        own = np.random.default_rng(seed)
        for _ in range(20):
            tokens = int(own.integers(1, 30))
            x = own.standard_normal((tokens, 8)).astype(np.float32)
            choice = own.integers(0, 6, (tokens, 2)).astype(np.int32)
            y, part = np.zeros((tokens, 8), np.float32), np.zeros((tokens, 2, 8), np.float32)
            program.run(X=x, Choice=choice, Experts=choice.copy(), Part=part, Y=y, workers=2)
            if not np.array_equal(y, expected_of_moe(x, choice, np.zeros_like(y))):
                wrong.append(seed)

    threads = [Thread(target=work, args=(int(seed),)) for seed in rng.integers(0, 1000, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("target", TARGETS)
def test_indices_of_rows_made_again_and_again(target: str) -> None:
    @kernel
    def bump(keys: InOut[Tile[1, 16, i32]], x: InOut[Tile[1, 8, f32]]):
        pto.store(x, x * 2.0 + 1.0)
        pto.store(keys, 1 - keys)

    @workload
    def repeated(Keys: Tensor[i32, 1, "n"], X: Tensor[f32, "n", 8], times: DenseDyn, groups: DenseDyn):
        for _ in P.range(times):
            chosen = group_by(Keys[0], num_groups=groups)
            for j in P.sel(chosen[1]):
                bump[j](keys=Keys, x=X[j : j + 1])
            for j in P.sel(chosen):
                bump[j](keys=Keys, x=X[j : j + 1])

    rng = np.random.default_rng(9)
    program = repeated.compile(target)
    for n in (0, 1, 5, 16):
        keys = rng.integers(0, 2, (1, n)).astype(np.int32)
        x = rng.standard_normal((n, 8)).astype(np.float32)
        expected, flags = x.copy(), keys[0].copy()
        for _ in range(3):
            ones, everyone = np.flatnonzero(flags == 1), np.argsort(flags, kind="stable")
            for j in (*ones, *everyone):
                expected[j] = expected[j] * np.float32(2) + np.float32(1)
                flags = 1 - flags
        for workers in (1, 2, 4):
            found, own = x.copy(), keys.copy()
            program.run(Keys=own, X=found, times=3, groups=2, workers=workers)
            assert np.array_equal(found, expected) and np.array_equal(own[0], flags)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_no_memory_holds(target: str) -> None:
    @workload
    def huge(groups: DenseDyn, Keys: Tensor[i32, "n"]):
        group_by(Keys, num_groups=groups)

    program = huge.compile(target)
    keys = np.zeros(3, np.int32)
    program(Keys=keys, groups=1)
    with pytest.raises(errors.OutOfMemory, match="groups"):
        program(Keys=keys, groups=2**50)
    with pytest.raises(errors.BadExpression):
        program(Keys=keys, groups=2**63 - 1)
    with pytest.raises(errors.UnboundTensor, match="groups"):
        program(Keys=keys)

    @workload
    def fewer(Keys: Tensor[i32, "n"]):
        group_by(Keys, num_groups=Keys.shape[0] - 4)

    with pytest.raises(errors.BadExpression, match="is -1"):
        fewer.compile(target)(Keys=keys)
    with pytest.raises(errors.WrongRank):
        program(Keys=keys[None], groups=1)
    with pytest.raises(errors.KernelFailed):
        program(Keys=keys, groups=0)


def rows_of(keys: np.ndarray, groups: int) -> list[np.ndarray]:
    return [np.flatnonzero(keys.ravel() == g) for g in range(groups)]


def test_rows_can_be_given_where_no_task_runs() -> None:
    """Time alone, of the same tasks as with values."""
    rng = np.random.default_rng(3)
    x, choice = rng.random((20, 8), np.float32), rng.integers(0, 6, (20, 2)).astype(np.int32)
    y, part, experts = np.zeros_like(x), np.empty((20, 2, 8), np.float32), np.empty((20, 2), np.int32)
    whole = moe.compile("sim")
    whole.run(X=x, Choice=choice, Experts=experts, Part=part, Y=y)
    alone = moe.compile("sim", values=False, given={"routing": Sparse.lists(rows_of(choice, 6))})
    alone.run(X=x.shape, Choice=choice.shape, Experts=experts.shape, Part=part.shape, Y=y.shape)
    assert whole.stats is not None and alone.stats is not None
    assert (alone.stats.tasks, alone.stats.cycles) == (whole.stats.tasks, whole.stats.cycles)


def test_given_rows_are_those_that_group_by_could_make() -> None:
    with pytest.raises(errors.NotSimulated, match="reads `routing` to decide") as caught:
        moe.compile("sim", values=False)
    assert "given={'routing': Sparse.lists(rows)}" in str(caught.value)
    good = rows_of(np.arange(40) % 6, 6)
    for wrong in (
        np.zeros(7, np.int64),
        Sparse.lists([[0, 1], [1, 2]]),  # 1 twice
        Sparse.lists([[1, 0]]),  # descending
        Sparse.lists([[0, 2]]),  # 1 is missing
        Sparse.csr([1, 2], [0, 0]),  # does not begin at 0
    ):
        with pytest.raises(errors.WrongValue, match="given\\['routing'\\]"):
            moe.compile("sim", values=False, given={"routing": wrong})
    with pytest.raises(errors.WrongValue, match="axes that `group_by` makes: routing"):
        moe.compile("sim", values=False, given={"rooting": Sparse.lists(good)})
    program = moe.compile("sim", values=False, given={"routing": Sparse.lists(good)})
    shapes = {"X": (9, 8), "Choice": (9, 2), "Experts": (9, 2), "Part": (9, 2, 8), "Y": (9, 8)}
    with pytest.raises(errors.WrongShape, match="routing"):
        program.run(**shapes)  # rows of 20 tokens
