"""The example `04_sparse_attention`."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import errors
from tests.python.examples.delays import run_delayed
from tests.slow import examples

example = importlib.import_module("examples.04_sparse_attention.sparse_attention")


SHAPE = example.Shape(index_heads=6, index_dim=24, heads=40, key=40, value=36)


def program_for(target: str = "cpu"):
    return example.sparse_attention(SHAPE).compile(target)


def batch_of(lengths: list[int], longest: int | None = None, seed: int = 0):
    rng = np.random.default_rng(seed)
    return example.random_batch(rng, SHAPE, np.array(lengths, np.int64), longest or max(lengths, default=1))


def num_tasks(lengths: np.ndarray) -> int:
    """One for all lengths; per sequence indexer and ranks where needed, a choice, parts and their merge."""
    blocks = -(-lengths[lengths > example.TOP_K] // example.BLOCK)
    ranks = -(-lengths[lengths > example.RANK] // example.RANK)
    splits = -(-np.minimum(lengths, example.TOP_K) // example.SPLIT)
    merges = -(-SHAPE.heads // example.GROUP)
    return min(len(lengths), 1) + int(blocks.sum() + ranks.sum() + splits.sum()) + len(lengths) * (1 + merges)


def test_random_batches_on_one_program(calls: Counter[str]) -> None:
    program = program_for()
    assert calls["Popen"] >= 1 and calls["lower_workload_to_bytecode"] == calls["build"] == 1
    compiled = calls.copy()
    rng = np.random.default_rng(1)
    tiers: Counter[int] = Counter()
    for number in range(examples(50)):
        longest = int(rng.choice([1, 300, 9000, 20000]))
        lengths = example.random_lengths(rng, int(rng.integers(0, 4)), longest)
        if len(lengths):
            lengths[0] = longest - rng.integers(0, min(longest, 500))
        batch = example.random_batch(rng, SHAPE, lengths, longest)
        example.run(program, batch, workers=1 + number % 3)
        assert example.difference(batch) <= example.TOLERANCE
        assert program.stats is not None
        assert program.stats.tasks == num_tasks(lengths)
        assert number == 0 or program.stats.compiles == 0
        tiers.update(np.searchsorted(example.select.bounds, lengths).tolist())
    assert calls == compiled
    assert set(tiers) == {0, 1, 2}


def test_lengths_around_the_bounds_of_tiers() -> None:
    lengths = [0, 1, 2047, 2048, 2049, 8191, 8192, 8193, 16384, 16385]
    batch = batch_of(lengths)
    program = program_for()
    example.run(program, batch, trace=True)
    assert example.difference(batch) <= example.TOLERANCE
    assert program.trace is not None
    indexed = {event.keys[0]: event.kernel for event in program.trace if event.kernel.startswith("select")}
    assert [indexed[b] for b in range(10)] == ["select_2k"] * 4 + ["select_8k"] * 3 + ["select_64k"] * 3
    assert not batch.O[0].any()


def test_the_longest_sequence_and_one_more_token() -> None:
    program = program_for()
    batch = batch_of([65536])
    example.run(program, batch)
    assert example.difference(batch) <= example.TOLERANCE
    batch = batch_of([100, 65537])
    with pytest.raises(errors.NoTier, match="65537"):
        example.run(program, batch)


def test_a_negative_length_is_an_error_that_names_the_tiers() -> None:
    batch = batch_of([100, 200])
    batch.Accepted[1] = -100 - batch.Cached[1]
    with pytest.raises(errors.NoTier, match="-100"):
        example.run(program_for(), batch)


def test_the_same_bits_for_any_number_of_workers() -> None:
    program = program_for()
    batch = batch_of([3000, 12, 9000, 0, 2500])
    example.run(program, batch, workers=1)
    first = example.Batch(*(array.copy() for array in batch))
    for workers in (2, 3, 5):
        for array in (batch.Lengths, batch.Scores, batch.Ranked, batch.TopK, batch.Part, batch.O):
            array[...] = -1
        run_delayed(program, batch._asdict(), workers, seed=workers)
        # What a sequence shorter than TOP_K leaves of its picks is nobody's.
        for b, (length,) in enumerate(batch.Lengths):
            count = min(length, example.TOP_K)
            assert np.array_equal(batch.TopK[b, 0, :count], first.TopK[b, 0, :count])
        assert batch.O.tobytes() == first.O.tobytes()


@pytest.mark.parametrize("length", [3000, 8192, 8193, 20000])
@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_picks_are_different_tokens_where_most_scores_are_infinite(length: int, target: str) -> None:
    batch = batch_of([length])
    batch.IndexWeight[...] = -1
    batch.IndexQ[...] = 1
    batch.IndexK[0, : length - 5] = 1e38
    example.run(program_for(target), batch)
    assert (batch.Scores[0, 0, : length - 5] == -np.inf).all()
    picks = np.unique(batch.TopK[0, 0])
    assert len(picks) == example.TOP_K
    assert picks[0] >= 0 and picks[-1] == length - 1
    assert np.isin(range(length - 5, length), picks).all()


def test_interpreter_agrees() -> None:
    batch = batch_of([2500, 9000, 40, 0])
    example.run(program_for("interp"), batch)
    assert example.difference(batch) <= example.TOLERANCE


def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        sys, "argv", ["sparse_attention", "--batch", "2", "--longest", "3000", "--batches", "2"]
    )
    example.main()
    assert "top 2048" in capsys.readouterr().out


def test_the_drawn_graph_is_that_of_the_program() -> None:
    assert Path(example.__file__).with_suffix(".svg").read_text() == example.small_graph()
