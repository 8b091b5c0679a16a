"""The examples `09_streaming_attention` and `10_decode_server`."""

from __future__ import annotations

import importlib

import numpy as np

attention = importlib.import_module("examples.09_streaming_attention.streaming_attention")
server = importlib.import_module("examples.10_decode_server.decode_server")


def test_depths_and_workers_do_not_change_attention() -> None:
    batch = attention.random_batch(np.random.default_rng(1), np.array([1, 300, 128, 77]))
    found = []
    for depth in (1, 3):
        program = attention.build(depth).compile()
        for workers in (1, 3):
            o = np.empty_like(batch.O)
            program.run(**{**batch._asdict(), "O": o}, workers=workers)
            found.append(o)
    assert np.abs(found[0] - attention.expected(batch)).max() < attention.TOLERANCE
    assert all(np.array_equal(o, found[0]) for o in found)


def test_more_buffers_let_cube_and_vector_cores_overlap() -> None:
    batch = attention.random_batch(np.random.default_rng(1), np.array([3000]))
    one, three = (attention.simulate(depth, batch) for depth in (1, 3))
    assert three.interval < 0.8 * one.interval
    assert {line.process: line.tasks for line in three.processes}["multiply"] == 24


def test_requests_join_and_leave_in_any_order_with_equal_results() -> None:
    requests = server.random_requests(np.random.default_rng(1), 9)
    found = []
    for places, replicas in ((1, 1), (3, 2)):
        for target in ("cpu", "sim"):
            y = np.zeros_like(requests.Y)
            program = server.build(places, replicas).compile(target=target)
            program.run(**{**requests._asdict(), "Y": y}, workers=3)
            found.append(y)
    assert np.abs(found[0] - server.expected(requests)).max() < server.TOLERANCE
    assert all(np.array_equal(y, found[0]) for y in found)


def test_larger_batches_serve_faster_and_time_is_the_same_every_time() -> None:
    requests = server.random_requests(np.random.default_rng(1), 9)
    one, four, again = (server.simulate(places, 4, requests).cycles for places in (1, 4, 4))
    assert four < one and four == again
