"""Every row of the instruction table on the target `cuda`, emulated, against its numpy meaning and bound."""

from __future__ import annotations

import pytest

from pto_wsp.ir.kernel import KernelFunction, Store
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from tests.cuda.emulated import EmulatedCuda
from tests.python.targets import ctypes_abi
from tests.python.targets import test_cpu_rows as rows

CASES = {**rows.MAIN, **rows.SMALL}


def make(name: str) -> KernelFunction:
    """Return the kernel of a bundle, whose results are stored one by one and share memory."""
    kernel = rows.make(name, CASES[name])
    assert kernel.body is not None
    stores = {stmt.tile: stmt for stmt in kernel.body if isinstance(stmt, Store)}
    body = [stmt for stmt in kernel.body if not isinstance(stmt, Store)]
    placed = [part for stmt in body for part in (stmt, stores.get(getattr(stmt, "dst", ""))) if part]
    return replace(kernel, body=tuple(placed))


@pytest.fixture(scope="module")
def library(cache: ArtifactCache) -> ctypes_abi.Library:
    loaded = ctypes_abi.load(EmulatedCuda().build([make(name) for name in CASES], cache))
    assert isinstance(loaded, ctypes_abi.Library)
    return loaded


@pytest.mark.parametrize("name", CASES)
def test_rows_against_numpy(library: ctypes_abi.Library, name: str) -> None:
    rows.check(library, name, CASES[name])
