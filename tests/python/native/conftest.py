"""A kernel library for tests of the engine, compiled once per session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pto_wsp import _native
from tests.python.native.asm import Assembler

SOURCE = Path(__file__).with_name("kernels.cpp")
INCLUDE = Path(__file__).parents[3] / "include"
KERNELS: Sequence[tuple[str, int, int]] = (
    ("add", 1, 1),
    ("copy", 2, 0),
    ("call_back", 1, 0),
    ("fill_bf16", 1, 0),
    ("report", 1, 1),
    ("count_up", 1, 2),
)
TABLE_HASH = 42


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> _native.KernelLibrary:
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(path)], check=True)
    return _native.KernelLibrary(str(path))


def tiles_program(tile: int = 8, repeat: int = 1, kernel: int = 0) -> bytes:
    """for repeat: P over tiles of X[n]: add(X[tile], amount)."""
    a = Assembler(KERNELS, TABLE_HASH)
    n = a.symbol()
    amount = a.symbol("SCALAR", "f32")
    a.tensor("f32", [-1 - n])
    a.loop("RANGE_FOR", repeat)
    reg = a.loop("PARALLEL_FOR", ("symbol", n), tile)
    a.task(kernel, [("param_symbol", amount)] if kernel == 0 else [])
    a.io("INOUT", 0, ("tile", reg))
    a.end()
    a.end()
    return a.bytes()


def copy_program() -> bytes:
    """P over row tiles: copy(X[tile, :], Y[tile, :]) for X, Y of one shape [n, m]."""
    a = Assembler(KERNELS, TABLE_HASH)
    n, m = a.symbol(), a.symbol()
    a.tensor("f32", [-1 - n, -1 - m], written=False)
    a.tensor("f32", [-1 - n, -1 - m])
    reg = a.loop("PARALLEL_FOR", ("symbol", n), 4)
    a.task(1)
    a.io("INPUT", 0, ("tile", reg), ":")
    a.io("OUTPUT", 1, ("tile", reg), ":")
    a.end()
    return a.bytes()
