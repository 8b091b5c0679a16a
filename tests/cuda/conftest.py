"""A cache of their own for all tests of the target `cuda` in one process, and a substitute for a GPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda import driver

SUBSTITUTE = Path(__file__).parent / "substitute"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ArtifactCache:
    return ArtifactCache(tmp_path_factory.mktemp("cache") / "own")


@pytest.fixture(scope="session")
def substitute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `libcuda.so.1` and `bin/nvcc`, which emulate a GPU and its compiler."""
    folder = tmp_path_factory.mktemp("substitute")
    (folder / "bin").mkdir()
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f'#!/bin/sh\nexec {sys.executable} {SUBSTITUTE / "nvcc.py"} "$@"\n')
    nvcc.chmod(0o755)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread"]
    source, output = SUBSTITUTE / "libcuda.cpp", folder / "libcuda.so.1"
    subprocess.run([*command, str(source), "-o", str(output), "-ldl"], check=True)
    return folder


@pytest.fixture(scope="module")
def gpu(substitute: Path) -> Iterator[ctypes.CDLL]:
    """Let the target `cuda` find the substitutes; return the library, which has functions for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "LIBRARY", str(substitute / "libcuda.so.1"))
        patch.setenv("CUDA_HOME", str(substitute))
        yield ctypes.CDLL(driver.LIBRARY)
