"""The case `trees`: how fast programs are emitted as sources, and what is right under emulation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.harness import Bench, Row
from benchmarks.trees.ascend import add_rows
from examples.pto_programs.llama import llama_module
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from tests.python.targets import foreign
from tests.python.targets.test_arm64 import compiled
from tests.python.targets.test_cpu_rows import MAIN, SMALL, check, make


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    found = bench.measure({"emit": emit_ms}, rounds=bench.rounds(9, 2))
    bench.add("emit_llama_ms", found["emit"], "ms", "<= 500")
    if foreign.is_emulated():
        bench.rows.append(Row("arm64_rows_right", rows_right(), "share", goal=">= 1"))
    else:
        bench.skipped |= {"arm64_rows_right": "needs g++-aarch64-linux-gnu and qemu-user-static"}
    add_rows(bench)


def emit_ms() -> float:
    """Emit a LLaMA layer from its IR; return the milliseconds."""
    module = llama_module().ir
    began = time.perf_counter()
    target = registry.get("arm64")
    target.emit(Prepared(module, target).module)
    return 1e3 * (time.perf_counter() - began)


def rows_right() -> float:
    """Return the share of cases that are right."""
    right = total = 0
    for cases in (MAIN, SMALL):
        with tempfile.TemporaryDirectory() as name:
            path = compiled([make(*item) for item in cases.items()], Path(name) / "rows")
            library = foreign.ForeignLibrary(path)
            for name, rows in cases.items():
                total += 1
                right += is_right(library, name, rows)
    return right / total


def is_right(library: foreign.ForeignLibrary, name: str, rows: list) -> bool:
    """Return whether the kernels of some rows agree with their meaning."""
    try:
        check(library, name, rows)  # pyright: ignore[reportArgumentType]
    except AssertionError:
        return False
    return True
