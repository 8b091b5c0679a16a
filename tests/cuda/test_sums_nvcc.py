"""nvcc keeps sums of 128 x 128 in registers. Skipped where it is not installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cuda.emit import emit_device_code
from tests.cuda import sum_kernels as k
from tests.cuda.test_nvcc import ARCHITECTURES, compiled, needs_nvcc, with_entry


def source_of(folder: Path) -> Path:
    """Return a source with a product of 128 x 128 sums, in steps of 64 terms."""
    function = k.kernel_of(k.large)
    source = folder / "product.cu"
    source.write_text(with_entry(emit_device_code([function]), [function_name(function)]))
    return source


@needs_nvcc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nothing_is_spilled(architecture: str, tmp_path: Path) -> None:
    """The kernel is a function of its own, so registers of the code that calls it do not count."""
    said = compiled(source_of(tmp_path), architecture, "-cubin", "-Xptxas", "-v")
    own = said[said.index("Function properties for _ZN3pto3wsp4cuda7k_large") :].splitlines()[1]
    assert re.fullmatch(r"\s+0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", own), said


@needs_nvcc
def test_a_step_is_ldmatrix_and_mma(tmp_path: Path) -> None:
    """Four warps have 64 x 64 sums each: a warp adds 64 terms without a branch, a barrier or a store."""
    source = source_of(tmp_path)
    compiled(source, "sm_80", "-ptx")
    text = source.with_suffix(".out").read_text()
    blocks = [
        block for block in re.split(r"^\$L\w+:|\bbra\b", text, flags=re.MULTILINE) if "mma.sync" in block
    ]
    (step,) = [block for block in blocks if block.count("mma.sync") > 8]
    first, last = step.index("ldmatrix"), step.rindex("mma.sync")
    inner = step[first:last]
    assert step.count("mma.sync") == 4 * 4 * 4 * 2 and step.count("ldmatrix.sync") == 4 * (4 + 4)
    assert not re.search(r"\bst\.|\bld\.|\bbar\.|call", inner)
