"""All examples on simulated cores of both generations: results of the CPU, or a refusal by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from benchmarks.trees.ascend import outcome
from examples.cases import cases
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5
from tests.ascend.standin.build import StandInTarget

REFUSED = {
    "07_pipeline/pipeline.py": "a network of processes",
    "08_expert_network/expert_network.py": "a network of processes",
    "09_streaming_attention/streaming_attention.py": "a network of processes",
    "10_decode_server/decode_server.py": "a network of processes",
}
"""Examples that are refused, and what the error names."""

QUICK = ("01_scale_rows/scale_rows.py", "10_decode_server/decode_server.py")


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
def test_an_example_is_right_or_refused_by_name(name: str, target: StandInTarget) -> None:
    found = outcome(dict(cases())[name](), target)
    if name in REFUSED:
        assert found.startswith("error[unsupported-by-target]") and REFUSED[name] in found
    else:
        assert found == "right"
