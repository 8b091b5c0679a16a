"""The example `06_tuned_decode`."""

from __future__ import annotations

import importlib

import numpy as np

example = importlib.import_module("examples.06_tuned_decode.tuned_decode")


def test_runs_choose_their_schedules() -> None:
    program = example.decode.compile("cpu")
    program.reschedule(example.STRATEGIES)
    for batch, name in ((2, "the default"), (5, "long sequences first")):
        example.run(program, example.make_batch(batch=batch, longest=40), 2)
        assert program.stats is not None and program.stats.schedule == name


def test_schedules_change_no_bit_and_compile_nothing() -> None:
    batch = example.make_batch(batch=6, longest=150, seed=2)
    program = example.decode.compile("cpu")
    expected = example.run(program, batch, 2)
    assert np.abs(expected - example.reference(batch)).max() <= example.TOLERANCE
    for schedule in example.SCHEDULES.values():
        program.reschedule(schedule)
        _, compiles, found = example.run_timed(program, batch, 3)
        assert compiles == 0 and found.tobytes() == expected.tobytes()
