"""The example `08_expert_network`."""

from __future__ import annotations

import importlib

import numpy as np

example = importlib.import_module("examples.08_expert_network.expert_network")


def test_replicas_and_workers_do_not_change_bits() -> None:
    batch = example.random_batch(np.random.default_rng(1), 13)
    found = []
    for replicas in (1, 3):
        program = example.build(replicas).compile()
        for workers in (1, 3):
            y = np.empty_like(batch.Y)
            program.run(**{**batch._asdict(), "Y": y}, workers=workers)
            found.append(y)
    assert np.abs(found[0] - example.expected(batch)).max() < example.TOLERANCE
    assert all(np.array_equal(y, found[0]) for y in found)


def test_replicas_raise_the_throughput_until_another_process_limits_it() -> None:
    batch = example.random_batch(np.random.default_rng(1), 30)
    one, two, four = (example.simulate(replicas, batch) for replicas in (1, 2, 4))
    assert one.bottleneck.startswith("work") and four.bottleneck == "collect"
    assert one.interval > 1.8 * two.interval and two.interval > four.interval
