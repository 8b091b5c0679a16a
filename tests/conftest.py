"""What all Python tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Before anything loads numpy: its threads would compete with the tests that run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One fresh kernel cache per test run, shared by its worker processes."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    cache = base / "kernel-cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTO_WSP_CACHE", str(cache))
        yield
