"""What tests of targets share: a cache of their own, and simulated cores of Ascend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5
from tests.ascend.standin.build import StandInTarget


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ArtifactCache:
    return ArtifactCache(tmp_path_factory.mktemp("cache") / "own")


@pytest.fixture(scope="module", params=[A2A3, A5], ids=lambda generation: generation.arch)
def standin(request: pytest.FixtureRequest) -> Iterator[StandInTarget]:
    target = StandInTarget(request.param)
    registry.register_target(target)
    yield target
    del registry.TARGETS[target.name]
    registry._made.cache_clear()
