"""nvcc and NVRTC compile what the target `cuda` emits. Skipped where they are not installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.cuda.programs import prefill
from examples.llm.checkpoint import pack
from examples.llm.workload import decoder
from examples.minilm.workload import encoder
from pto_wsp.errors import CompilerFailed
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda import toolchain
from pto_wsp.targets.cuda.emit import DeviceCode, emit_device_code
from pto_wsp.targets.cuda.memory import OWN_BYTES
from pto_wsp.types.dtype import DType, bf16, f16, f32
from tests.cuda import test_ahead as ahead
from tests.cuda import test_products as products
from tests.cuda import test_programs as programs
from tests.cuda import test_rows as rows
from tests.cuda.test_examples import CASES, QUICK, REFUSED
from tests.python.examples.llm.models import SMALL, random_checkpoint

NVCC = next(toolchain.nvcc_paths(), None)
NVRTC = next(toolchain.nvrtc_libraries(), None)


def with_entry(code: DeviceCode, names: list[str]) -> str:
    """Return device code with a kernel that can call each function, so that all are compiled."""
    cases = "".join(f"    case {i}: *result = {name}(v, s, c); break;\n" for i, name in enumerate(names))
    head = "__global__ void call(const View* v, const Scalar* s, const TaskContext* c, int k, int* result)"
    return f"{code.text}\nnamespace pto::wsp::cuda {{\n{head} {{\n  switch (k) {{\n{cases}  }}\n}}\n}}\n"


needs_nvcc = pytest.mark.skipif(
    NVCC is None, reason="there is no nvcc: install the extra `cuda` or the CUDA toolkit"
)
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="there is no NVRTC: install `nvidia-cuda-nvrtc`")
ARCHITECTURES = ("sm_80", "sm_90", "sm_90a", "sm_100")


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
    """A chain of loops, and ragged attention, from the emitted folder alone. 16 registers may be spilled."""
    for workload in (programs.chain, programs.decode):
        source = tmp_path / "program.cu"
        tree = registry.get("cuda").emit(workload.compile("interp").module)
        source.write_text(tree.files["program.cu"])
        said = compiled(source, architecture, "-cubin", "-Xptxas", "-v")
        assert all(int(bytes_) <= 64 for bytes_ in re.findall(r"(\d+) bytes spill stores", said)), said


MODELS = {
    "llm": lambda: decoder(pack(random_checkpoint(SMALL)).plan(f32, f32)),
    "minilm": lambda: encoder("f32"),
    "prefill": lambda: prefill,
}
"""Whole models, and attention of bf16, which `examples.cases` does not list."""

MOST_SPILLED = {"prefill": 128}
"""Bytes that stores of a thread may spill; others may spill 64."""


TOO_LARGE = ("pto_programs/llama.py",)
"""Programs that nvcc does not compile in minutes: this one has 387 tasks in its text."""


def emitted(name: str) -> str:
    """Return the program of an example."""
    make = MODELS.get(name)
    module = CASES[name]().module if make is None else make().trace().module
    return (
        registry.get("cuda").emit(Prepared(verify(module), registry.get("cuda")).module).files["program.cu"]
    )


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("name", [name for name in (*CASES, *MODELS) if name not in (*REFUSED, *TOO_LARGE)])
def test_examples_compile(name: str, tmp_path: Path) -> None:
    """Every example for one architecture, and short ones for all. Output: registers and spilled bytes."""
    source = tmp_path / "program.cu"
    source.write_text(emitted(name))
    for architecture in ARCHITECTURES if name in QUICK else ("sm_90a",):
        said = compiled(source, architecture, "-cubin", "-Xptxas", "-v")
        registers = max(map(int, re.findall(r"Used (\d+) registers", said)))
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill stores", said)))
        print(f"{name} {architecture}: {registers} registers, {spilled} bytes spilled")
        assert spilled <= MOST_SPILLED.get(name, 64)


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


@needs_nvcc
def test_blocks_share_counters_by_single_operations(tmp_path: Path) -> None:
    """Counters are released by one store and acquired by one load; tickets need no compare-and-swap."""
    source = tmp_path / "program.cu"
    source.write_text(registry.get("cuda").emit(programs.chain.compile("interp").module).files["program.cu"])
    compiled(source, "sm_80", "-ptx")
    text = source.with_suffix(".out").read_text()
    for operation in ("ld.acquire.gpu.global.u64", "st.release.gpu.global.u64", "atom.global.add.u64"):
        assert operation in text
    assert not re.search(r"\.cas|ld\.volatile", text)


@needs_nvcc
def test_loads_ahead_are_groups_of_copies(tmp_path: Path) -> None:
    """Copies of three iterations are in flight. Variables of the walk fit what is left for them."""
    source = tmp_path / "program.cu"
    tree = registry.get("cuda").emit(ahead.broadcast_all.compile("interp").module)
    source.write_text(tree.files["program.cu"])
    compiled(source, "sm_80", "-ptx")
    text = source.with_suffix(".out").read_text()
    assert text.count("cp.async.commit_group") == 2 and "cp.async.wait_group 2;" in text
    found = re.findall(r"(\d+) bytes smem", compiled(source, "sm_80", "-cubin", "-Xptxas", "-v"))
    assert sum(map(int, found)) <= OWN_BYTES - 1024


@needs_nvcc
@pytest.mark.parametrize("dtype", [f16, bf16])
def test_products_use_tensor_cores(dtype: DType, tmp_path: Path) -> None:
    kernel = products.product(64, 64, 64, dtype, (False, True))
    source = tmp_path / "product.cu"
    source.write_text(with_entry(emit_device_code([kernel]), [function_name(kernel)]))
    compiled(source, "sm_80", "-ptx")
    assert (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32" in source.with_suffix(".out").read_text()
    )


@needs_nvcc
def test_a_toolkit_is_found(cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc is preferred. The folder that CUDA_HOME names is looked at first, and may have none."""
    assert isinstance(toolchain.find_cuda_compiler(cache), toolchain.Nvcc)
    assert NVCC is not None
    for home in (Path(NVCC).parents[1], Path("/no-such-folder")):
        monkeypatch.setenv("CUDA_HOME", os.fspath(home))
        assert "NVIDIA" in toolchain.find_cuda_compiler(cache).identity


@needs_nvrtc
def test_nvrtc_compiles_programs(cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC is used where there is no nvcc; it needs neither a host compiler nor headers of the system."""
    monkeypatch.setattr(toolchain, "nvcc_paths", lambda: iter(()))
    monkeypatch.setenv("PATH", "")
    text = registry.get("cuda").emit(programs.decode.compile("interp").module).files["program.cu"]
    cubin, was_built = toolchain.build_cubin(text, "sm_90", cache)
    assert was_built and cubin.startswith(b"\x7fELF") and b"pto_wsp_program" in cubin
    assert toolchain.build_cubin(text, "sm_90", cache) == (cubin, False)
    with pytest.raises(CompilerFailed, match="no_such_name"):
        toolchain.build_cubin(f"{text}\nint x = no_such_name;\n", "sm_90", cache)


@pytest.mark.slow
@needs_nvrtc
def test_nvrtc_compiles_rows(cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "nvcc_paths", lambda: iter(()))
    kernels = [rows.make(name) for name in list(rows.CASES)[::7]]
    text = with_entry(emit_device_code(kernels), [function_name(kernel) for kernel in kernels])
    assert toolchain.build_cubin(text, "sm_80", cache)[1]
