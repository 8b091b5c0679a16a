"""All examples on simulated cores of both generations: results of the CPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from benchmarks.trees.ascend import outcome
from examples.cases import cases
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5
from tests.ascend.standin.build import StandInTarget

QUICK = ("01_scale_rows/scale_rows.py", "07_pipeline/pipeline.py")


@pytest.fixture(scope="module", params=[A2A3, A5], ids=lambda generation: generation.arch)
def target(request: pytest.FixtureRequest) -> Iterator[StandInTarget]:
    made = StandInTarget(request.param)
    registry.register_target(made)
    yield made
    del registry.TARGETS[made.name]
    registry._made.cache_clear()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n, _ in cases()]
)
def test_an_example_is_right(name: str, target: StandInTarget) -> None:
    assert outcome(dict(cases())[name](), target) == "right"
