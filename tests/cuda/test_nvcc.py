"""nvcc compiles what the target `cuda` emits. Skipped where there is no nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pto_wsp.targets import registry
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda.emit import DeviceCode, emit_device_code
from tests.cuda import test_programs as programs
from tests.cuda import test_rows as rows

NVCC = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")


def with_entry(code: DeviceCode, names: list[str]) -> str:
    """Return device code with a kernel that can call each function, so that all are compiled."""
    cases = "".join(f"    case {i}: *result = {name}(v, s, c); break;\n" for i, name in enumerate(names))
    head = "__global__ void call(const View* v, const Scalar* s, const TaskContext* c, int k, int* result)"
    return f"{code.text}\nnamespace pto::wsp::cuda {{\n{head} {{\n  switch (k) {{\n{cases}  }}\n}}\n}}\n"


needs_nvcc = pytest.mark.skipif(
    NVCC is None, reason="there is no nvcc: install `nvidia-cuda-nvcc` or the CUDA toolkit"
)
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")


def compiled(source: Path, architecture: str, *options: str) -> str:
    """Return what nvcc says of a source; the result is next to it."""
    assert NVCC is not None
    fixed = ["-std=c++17", f"-arch={architecture}", "-fmad=false", f"-I{include_directory()}"]
    command = [NVCC, *fixed, *options, str(source), "-o", str(source.with_suffix(".out"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert "error" not in done.stderr and "warning" not in done.stderr, done.stderr[:4000]
    return done.stdout + done.stderr


@needs_nvcc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_programs_compile(architecture: str, tmp_path: Path) -> None:
    """A chain of loops, and ragged attention: without spills, from the emitted folder alone."""
    for workload in (programs.chain, programs.decode):
        source = tmp_path / "program.cu"
        tree = registry.get("cuda").emit(workload.compile("interp").module)
        source.write_text(tree.files["program.cu"])
        assert "0 bytes spill stores" in compiled(source, architecture, "-cubin", "-Xptxas", "-v")


@needs_nvcc
@pytest.mark.parametrize("architecture", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_rows_compile(architecture: str, tmp_path: Path) -> None:
    """One case of each row, f32 where the row has it."""
    first = {rows.CASES[name][0][0].name: name for name in reversed(rows.CASES)}
    kernels = [rows.make(name) for name in dict.fromkeys(first.values())]
    source = tmp_path / "rows.cu"
    source.write_text(with_entry(emit_device_code(kernels), [function_name(kernel) for kernel in kernels]))
    compiled(source, architecture, "-ptx")
    text = source.with_suffix(".out").read_text()
    assert "cp.async" in text and "bar" in text and "fma.rn.f32" in text
