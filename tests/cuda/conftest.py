"""A cache of their own for all tests of the target `cuda` in one process."""

from __future__ import annotations

import pytest

from pto_wsp.runtime.cache import ArtifactCache


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ArtifactCache:
    return ArtifactCache(tmp_path_factory.mktemp("cache") / "own")
