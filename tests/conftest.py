"""What all Python tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.golden import golden as golden
from tests.slow import RUNS_QUICK, RUNS_SLOW, not_quick

NOT_QUICK = not_quick() if RUNS_QUICK else frozenset[str]()

# Before anything loads numpy: its threads would compete with the tests that run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A job in the background of a shell ignores interrupts, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update`, which writes expected texts."""
    parser.addoption("--update", action="store_true", help="write the expected texts of tests that run")


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


@pytest.fixture(scope="session", autouse=True)
def no_processes() -> Iterator[None]:
    """Skip a test of the quick tier at the place where it starts a process: the compiler, or a program."""
    from pto_wsp.targets.cpu.target import CpuTarget  # here: it loads numpy

    build = CpuTarget.build

    def skip(*_: object, **__: object) -> NoReturn:
        pytest.skip("the quick tier starts no process")

    def skip_build(target: CpuTarget, *args: Any) -> Any:
        """Skip before a library is written that the compiler would read; only the thread of the test can."""
        if threading.current_thread() is threading.main_thread():
            skip()
        return build(target, *args)

    with pytest.MonkeyPatch.context() as patch:
        if RUNS_QUICK:
            patch.setattr(subprocess, "Popen", skip)
            patch.setattr(CpuTarget, "build", skip_build)
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files out of the quick tier before they are imported."""
    path = os.path.relpath(collection_path, config.rootpath).replace(os.sep, "/")
    return True if path in NOT_QUICK else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked as slow, unless it is asked for, and single tests of the quick tier."""
    left_out = {item for item in items if item.nodeid.split("[")[0] in NOT_QUICK}
    left_out |= set() if RUNS_SLOW else {item for item in items if item.get_closest_marker("slow")}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
