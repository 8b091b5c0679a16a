"""What the tests of the examples share."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime import engine
from pto_wsp.targets.cpu.target import CpuTarget


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Count processes, builds, lowerings and recordings, from an empty kernel cache on."""
    monkeypatch.setenv("PTO_WSP_CACHE", str(tmp_path / "cache"))
    counter: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counted(*args: object, **kwargs: object) -> Any:
            counter[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(subprocess, "Popen")
    count(engine, "lower_workload_to_bytecode")
    count(CpuTarget, "build")
    count(Workload, "trace")
    return counter
