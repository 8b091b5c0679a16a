"""The example `02_paged_decode`."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import bf16, errors, f32
from tests.python.examples.delays import run_delayed
from tests.slow import examples, mostly_slow

example = importlib.import_module("examples.02_paged_decode.paged_decode")
KV = pytest.mark.parametrize("kv", mostly_slow([bf16, f32]), ids=str)


def batch_of(lengths: list[int], kv: object, seed: int = 0):
    return example.random_batch(np.random.default_rng(seed), np.array(lengths, np.int64), kv)


@KV
def test_random_batches_on_one_program(kv: object, calls: Counter[str]) -> None:
    program = example.paged_decode(kv).compile("cpu")
    assert calls["Popen"] >= 1 and calls["lower_workload_to_bytecode"] == calls["build"] == 1
    compiled = calls.copy()
    rng = np.random.default_rng(4)
    for number in range(examples(50)):
        lengths = example.random_lengths(rng, int(rng.integers(0, 7)), 2500)
        batch = example.random_batch(rng, lengths, kv)
        example.run(program, batch, workers=1 + number % 3)
        assert example.difference(batch) <= example.TOLERANCE
        assert program.stats is not None
        chunks = -(-lengths // example.CHUNK)
        assert program.stats.tasks == example.KV_HEADS * (len(lengths) + chunks.sum())
        assert number == 0 or program.stats.compiles == 0
    assert calls == compiled


@KV
def test_the_longest_rows_beside_empty_ones(kv: object) -> None:
    batch = batch_of([16384, 0, 1, 16383, 0, 1024, 1025, 16, 17], kv)
    example.run(example.paged_decode(kv).compile("cpu"), batch)
    assert example.difference(batch) <= example.TOLERANCE
    empty = batch.Lengths == 0
    assert not batch.O[empty].any() and np.isneginf(batch.LSE[empty]).all()
    assert np.isfinite(batch.LSE[~empty]).all()


def test_the_same_bits_for_any_number_of_workers_and_in_any_batch() -> None:
    program = example.paged_decode(f32).compile("cpu")
    batch = batch_of([1500, 3, 0, 4000, 640, 17], f32)
    example.run(program, batch, workers=1)
    first = batch.O.copy(), batch.LSE.copy()
    for workers in (2, 3, 5):
        batch.O[:], batch.LSE[:] = np.nan, np.nan
        run_delayed(program, batch._asdict(), workers, seed=workers)
        assert batch.O.tobytes() == first[0].tobytes() and batch.LSE.tobytes() == first[1].tobytes()
    for b in range(len(batch.Lengths)):
        shared = {"K": batch.K, "V": batch.V}
        alone = example.Batch(**{n: a[b : b + 1].copy() for n, a in batch._asdict().items()} | shared)
        example.run(program, alone)
        assert alone.O.tobytes() == first[0][b].tobytes() and alone.LSE.tobytes() == first[1][b].tobytes()


def test_interpreter_agrees() -> None:
    batch = batch_of([50, 0, 16], bf16)
    example.run(example.paged_decode(bf16).compile("interp"), batch)
    assert example.difference(batch) <= example.TOLERANCE


@pytest.mark.parametrize("page", [-1, 10**6])
def test_a_page_outside_the_cache_is_an_error(page: int) -> None:
    batch = batch_of([40, 100], f32)
    batch.BlockTable[1, 6] = page
    with pytest.raises(errors.KernelFailed, match="kernel `attend`"):
        example.run(example.paged_decode(f32).compile("cpu"), batch)


def test_more_tokens_than_the_table_has_pages_for_are_an_error() -> None:
    batch = batch_of([40, 100], f32)
    batch.Lengths[1] = example.PAGE * batch.BlockTable.shape[1] + 1
    with pytest.raises(errors.KernelFailed, match="kernel `attend`"):
        example.run(example.paged_decode(f32).compile("cpu"), batch)


def test_a_negative_length_is_an_error_before_anything_runs() -> None:
    batch = batch_of([40, 100], f32)
    batch.Lengths[1] = -3
    with pytest.raises(errors.BadExpression, match="extent -3"):
        example.run(example.paged_decode(f32).compile("cpu"), batch)
    assert np.isnan(batch.O).all()


def test_too_few_parts_are_an_error_before_anything_runs() -> None:
    batch = batch_of([40, 1500], f32)
    batch = batch._replace(Parts=batch.Parts[:, :, :1].copy(), PartLSE=batch.PartLSE[:, :, :1].copy())
    with pytest.raises(errors.RegionOutside, match="Parts"):
        example.run(example.paged_decode(f32).compile("cpu"), batch)
    assert np.isnan(batch.O).all()


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_command_line(kv: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--kv", kv, "--batch", "3", "--longest", "200", "--batches", "2"]
    monkeypatch.setattr(sys, "argv", ["paged_decode", *options])
    example.main()
    assert f"{kv} cache" in capsys.readouterr().out


def test_the_drawn_graph_is_that_of_the_program() -> None:
    drawn = Path(example.__file__).with_suffix(".svg").read_text()
    assert drawn == example.small_graph()
    assert drawn.count("<rect") == 1 + 2 + example.KV_HEADS * (2 + 1 + 1)
