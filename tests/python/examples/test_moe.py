"""The example `03_moe`."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.python.examples.delays import run_delayed
from tests.slow import examples

example = importlib.import_module("examples.03_moe.moe")


SHAPE = example.Shape(experts=16, hidden=128, inner=192, slots=3)


@pytest.fixture(scope="module")
def weights():
    return example.random_weights(np.random.default_rng(7), SHAPE)


def random_batch(seed, tokens: int, weights):
    return example.random_batch(np.random.default_rng(seed), tokens, weights, SHAPE)


def is_right(batch, weights) -> bool:
    return example.difference(batch, weights, SHAPE) <= example.TOLERANCE


def num_tasks(batch) -> int:
    """Two per tile of tokens, the grouping, and none for an expert without tokens."""
    tiles = -(-len(batch.X) // example.ROWS)
    pairs = np.bincount(batch.Experts.ravel(), minlength=SHAPE.experts)
    columns = (SHAPE.inner + SHAPE.hidden) // example.WIDTH
    return 2 * tiles + 1 + int((-(-pairs // example.ROWS)).sum()) * (1 + columns)


def test_random_batches_on_one_program(weights, calls: Counter[str]) -> None:
    program = example.moe(SHAPE).compile("cpu")
    assert calls["Popen"] >= 1 and calls["lower_workload_to_bytecode"] == calls["build"] == 1
    compiled = calls.copy()
    rng = np.random.default_rng(2)
    idle = 0
    for number in range(examples(50)):
        tokens = int(rng.choice([0, 1, 7, 40, 130, 500], p=[0.1, 0.1, 0.3, 0.3, 0.1, 0.1]))
        batch = random_batch(rng, tokens, weights)
        example.run(program, batch, weights, workers=1 + number % 3)
        assert is_right(batch, weights)
        assert program.stats is not None
        assert program.stats.tasks == num_tasks(batch)
        assert number == 0 or program.stats.compiles == 0
        idle += SHAPE.experts - len(np.unique(batch.Experts))
    assert calls == compiled
    assert idle > 0


def test_the_same_bits_for_any_number_of_workers(weights) -> None:
    program = example.moe(SHAPE).compile("cpu")
    batch = random_batch(5, 1000, weights)
    example.run(program, batch, weights, workers=1)
    first = [array.copy() for array in batch]
    assert np.bincount(batch.Experts.ravel()).max() > 2 * example.ROWS
    for workers in (2, 3, 5):
        for array in batch[1:]:
            array[...] = -1
        run_delayed(program, batch._asdict() | weights._asdict(), workers, seed=workers)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(batch, first, strict=True))
    assert is_right(batch, weights)


@pytest.mark.parametrize(
    "sizes", [{"hidden": 100}, {"inner": 100}, {"experts": 2, "slots": 3}], ids=lambda sizes: str([*sizes])
)
def test_sizes_that_do_not_work_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="found Shape"):
        example.moe(SHAPE._replace(**sizes))


def test_every_token_to_the_same_experts(weights) -> None:
    program = example.moe(SHAPE).compile("cpu")
    batch = random_batch(5, 200, weights)
    batch.X[:] = batch.X[0]
    example.run(program, batch, weights)
    assert len(np.unique(batch.Experts)) == SHAPE.slots
    assert is_right(batch, weights)
    assert len({row.tobytes() for row in batch.Y}) == 1


def test_interpreter_agrees(weights) -> None:
    batch = random_batch(6, 70, weights)
    example.run(example.moe(SHAPE).compile("interp"), batch, weights)
    assert is_right(batch, weights)


@pytest.mark.slow
def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["moe", "--tokens", "100", "--batches", "2"])
    example.main()
    assert "64 experts, top 2" in capsys.readouterr().out


def test_the_drawn_graph_is_that_of_the_program() -> None:
    drawn = Path(example.__file__).with_suffix(".svg").read_text()
    # Tiles are as wide as panels, which depend on the processor.
    found, expected = (re.sub(r"[0-9.]+ KB", "", text) for text in (example.small_graph(), drawn))
    assert found == expected
