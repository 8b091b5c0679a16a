"""The harness around measurements: goals, the quiet gate, tables."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.deepseek import case as deepseek
from benchmarks.deepseek.peers import TorchLayer
from benchmarks.harness import Bench, Measurement, Row
from benchmarks.report import CASES, RESULTS, table
from benchmarks.schedules.fetching import of_example, outermost
from examples.cases import cases
from examples.deepseek_v32.config import SMALL, Config


class FakeCalibrator:
    """Plays back calibrations instead of measuring."""

    def __init__(self, rates: Iterable[float]) -> None:
        self.rates = iter(rates)

    def settle(self, limit_s: float) -> bool:
        return True

    def peak_gflops(self, threads: int) -> float:
        return next(self.rates)

    dram_read_gbs = peak_gflops


def bench_with(rates: Iterable[float]) -> Bench:
    return Bench(FakeCalibrator(rates))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("goal", "value", "ratio", "ok"),
    [
        (None, 1.0, None, None),
        (">= 1e6", 2e6, None, True),
        (">= 1e6", 5e5, None, False),
        ("<= 200", 200.0, None, True),
        ("<= 200", None, None, None),
        ("ratio >= 2", 0.1, 2.5, True),
        ("ratio >= 2", 9.9, 1.5, False),
        ("ratio >= 2", 9.9, None, None),
    ],
)
def test_goals(goal: str | None, value: float | None, ratio: float | None, ok: bool | None) -> None:
    row = Row("name", value, "unit", ratio=ratio, goal=goal)
    assert row.ok is ok
    assert list(row.to_json()) == ["name", "value", "unit", "peer", "peer_value", "ratio", "goal", "ok"]


def test_gate_drops_disturbed_repetitions() -> None:
    values = iter([1.0, 99.0, 3.0])
    bench = bench_with([100, 100, 100, 90, 98, 100])
    measured = bench.measure({"f": lambda: next(values)}, rounds=3, memory_bound=True)["f"]
    assert (measured.values, measured.dropped, measured.noisy) == ([1.0, 3.0], 1, False)
    assert measured.calibrations == [100, 99]
    assert bench.dropped == 1


def test_gate_keeps_the_best_agreeing_repetition_when_none_is_quiet() -> None:
    values = iter([1.0, 2.0])
    bench = bench_with([100, 50, 100, 90])
    measured = bench.measure({"f": lambda: next(values)}, rounds=2, memory_bound=True)["f"]
    assert (measured.values, measured.dropped, measured.noisy) == ([2.0], 1, True)
    bench.add("row", measured, "ms")
    assert bench.rows[0].to_json()["noisy"] is True


def test_figures_use_the_calibrations_around_their_own_repetition() -> None:
    measured = Measurement(
        values=[10.0, 20.0, 40.0], calibrations=[100.0, 50.0, 25.0], dropped=0, noisy=False
    )
    assert measured.percent_of_peak(5e8) == 50
    assert measured.times_memory(5e8) == 2
    assert measured.times_bound(lambda rate: 500 / rate) == 2


@pytest.mark.parametrize("memory_bound", [False, True])
def test_functions_are_interleaved(memory_bound: bool) -> None:
    order: list[str] = []

    def named(name: str) -> float:
        order.append(name)
        return 0.0

    bench = bench_with([100] * 8)
    bench.measure({"a": lambda: named("a"), "b": lambda: named("b")}, rounds=2, memory_bound=memory_bound)
    assert order == (["a", "b"] * 2 if memory_bound else ["a", "a", "b", "b"] * 2)


class FakeTime:
    """A clock that only sleeping moves, while another thread computes up to `busy_until`."""

    def __init__(self, busy_until: float) -> None:
        self.now, self.busy_until = 0.0, busy_until

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return min(self.now, self.busy_until)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("busy_until", "longest"),
    [
        (0.0, harness.REST_S),
        (0.11, 0.11 + 2 * harness.REST_S),
        (9.0, harness.LONGEST_REST_S + harness.REST_S),
    ],
)
def test_rest_ends_when_nothing_computes_any_more(
    monkeypatch: pytest.MonkeyPatch, busy_until: float, longest: float
) -> None:
    clock = FakeTime(busy_until)
    monkeypatch.setattr(harness, "time", clock)
    harness.rest()
    assert min(busy_until, harness.LONGEST_REST_S) <= clock.now <= longest + 1e-9


def test_table_shows_missed_goals_and_skipped_values() -> None:
    rows = [Row("slow", 5.0, "ms", goal="<= 1"), Row("absent", None, "ms", "peer", None)]
    text = table(row.to_json() for row in rows)
    assert "MISSED" in text and "skipped" in text


def test_rows_explain_every_missed_goal() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        missed = [row["name"] for row in result["rows"] if row["ok"] is False]
        about = CASES / result["case"] / "rows.md"
        text = about.read_text(encoding="utf-8") if about.exists() else ""
        assert [name for name in missed if f"`{name}`" not in text] == [], result["case"]


LENGTHS = np.array([1, 64, 65, 900, 8200])
"""Positions of requests: up to 64 are all chosen, and beyond 8,192 blocks are ranked."""


def test_deepseek_agrees_with_numpy_and_torch() -> None:
    """`compared` compares the layer and each of its stages."""
    step = deepseek.Step(SMALL, LENGTHS, 0)
    step.verify()
    step(trace=True)
    trace = step.layer.program.trace
    assert trace is not None
    shares = deepseek.shares(trace)
    assert shares.keys() == deepseek.bounds(SMALL, LENGTHS).keys()
    assert np.isclose(sum(shares.values()), 100) and min(shares.values()) > 0
    pytest.importorskip("torch")
    pairs = deepseek.compared(step, TorchLayer(SMALL, step.layer.weights, step.cache, 1))
    assert len(pairs) == 4


def test_bounds_of_deepseek() -> None:
    """Figures of one request: 201 million weights, and 128 heads of 576 and 512 elements over 2,048 keys."""
    found = deepseek.bounds(Config(), np.array([4096]))
    assert sum(found[stage][0] for stage in ("prolog", "output")) == 2 * 201_064_448
    assert found["attention"] == (2 * 128 * 1088 * 2048, 4 * 576 * 2048)
    assert found["indexer"] == (2 * 64 * 128 * 4096, 4 * 128 * 4096)
    assert deepseek.bounds(Config(), np.array([2048]))["indexer"] == (0, 0)
    assert deepseek.least_ms({"a": (4e6, 1e6)}, 1.0, 0.5) == {"a": 4.0}


def test_prefetch_applies_to_examples_but_networks() -> None:
    bench, made = bench_with([]), dict(cases())
    network = made["07_pipeline/pipeline.py"]()
    assert outermost(network.module.entry_workload.body) == ["token", "i"]
    assert of_example(bench, "network", network) is None and list(bench.skipped) == ["prefetch of network"]
    pair = of_example(bench, "rows", made["01_scale_rows/scale_rows.py"]())
    assert pair is not None and min(f() for f in pair) > 0
