"""Barriers of generated kernels: the emulation notices where one is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda.emit import emit_device_code
from pto_wsp.types.dtype import f32
from tests.cuda.emulated import FLAGS, EmulatedCuda, compile_source, emulated_source
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker


def softmax_rows() -> KernelMaker:
    """Return a kernel whose steps need each other's elements: loads, reductions, products, transposes."""
    maker = KernelMaker("softmax_rows")
    a = maker.input("a", 16, 32, f32)
    top = maker.op("rowmax", a)
    e = maker.op("exp", maker.op("rowexpandsub", a, top))
    turned = maker.op("transpose", maker.op("rowexpanddiv", e, maker.op("rowsum", e)))
    maker.store(maker.op("matmul", e, turned, trans_a=False, trans_b=False), "y")
    return maker


def call(library: ctypes_abi.Library) -> np.ndarray:
    a = np.random.default_rng(3).standard_normal((16, 32)).astype(np.float32)
    y = np.zeros((16, 16), np.float32)
    assert library.call(softmax_rows().done(), [a, y]) == 0
    return y


def test_results_do_not_depend_on_the_order_of_threads(cache: ArtifactCache) -> None:
    library = ctypes_abi.load(EmulatedCuda().build([softmax_rows().done()], cache))
    assert isinstance(library, ctypes_abi.Library)
    first = call(library)
    for _ in range(20):
        np.testing.assert_array_equal(call(library), first)


def test_a_missing_barrier_changes_results(cache: ArtifactCache, tmp_path: Path) -> None:
    kernel = softmax_rows().done()
    library = ctypes_abi.load(EmulatedCuda().build([kernel], cache))
    assert isinstance(library, ctypes_abi.Library)
    wanted, code = call(library), emit_device_code([kernel])
    lines = emulated_source([kernel], code).split("\n")
    places = [number for number, line in enumerate(lines) if line.strip() == "sync();"]
    assert len(places) >= 5
    found = 0
    for number in places[:-1]:  # nothing follows the last one
        changed = "\n".join([*lines[:number], *lines[number + 1 :]])
        output = tmp_path / f"without_{number}.so"
        compile_source(changed, output, FLAGS)
        broken = ctypes_abi.Library(output)
        found += any(not np.array_equal(call(broken), wanted) for _ in range(20))
    # A barrier between loops in which each thread has the same elements is due, and changes nothing.
    assert found >= len(places) - 2


def test_a_missing_wait_for_copies_changes_results(tmp_path: Path) -> None:
    kernel = softmax_rows().done()
    text = emulated_source([kernel], emit_device_code([kernel]))
    assert "finish_copies();" in text
    # The kernel then returns before its copies are done, which the emulation refuses.
    with pytest.raises(AssertionError, match="before its copies are done"):
        run_apart(text.replace("finish_copies();", ""), tmp_path)


def run_apart(text: str, folder: Path) -> None:
    """Run a broken library in another process, for the emulation ends it."""
    output = folder / "broken.so"
    compile_source(text, output, FLAGS)
    program = (
        "from pathlib import Path\n"
        "from tests.cuda.test_barriers import call\n"
        "from tests.python.targets import ctypes_abi\n"
        f"call(ctypes_abi.Library(Path({str(output)!r})))\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
