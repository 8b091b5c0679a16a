"""The case `cuda`: how long programs take to compile for a GPU, and what is right under emulation."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Bench, Row
from examples.cookbook import mixture_of_experts, ragged_attention
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.toolchain import include_directory
from tests.cuda.emulated import EmulatedCuda
from tests.cuda.test_nvcc import NVCC
from tests.cuda.test_rows import CASES, make
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_rows import check

WITH_A_CARD = (
    "gpu_tasks_m_per_s",
    "gpu_dependent_tasks_m_per_s",
    "gpu_units_scaling",
    "gpu_dependent_hop_us",
    "gpu_decode_pct_hbm",
    "gpu_gemm_bf16_4096_vs_torch",
    "gpu_layer_decode_vs_eager",
    "gpu_layer_decode_vs_compiled",
    "gpu_layer_decode_vs_cuda_graph",
    "gpu_moe_vs_grouped_mm",
    "gpu_host_us_per_step",
    "gpu_warm_up_s",
    "cuda_compile_warm_s",
)
EXAMPLES = {"attention": ragged_attention.causal, "moe": mixture_of_experts.moe}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    bench.skipped |= dict.fromkeys(WITH_A_CARD, "needs an NVIDIA GPU")
    if NVCC is None:
        bench.skipped |= {"cuda_compile_cold_s": "needs nvcc"}
    for name, example in EXAMPLES.items() if NVCC is not None else ():
        found = bench.measure({"compile": lambda e=example: compile_s(e)}, rounds=bench.rounds(5, 1))
        bench.add(f"cuda_compile_cold_s_{name}", found["compile"], "s", "<= 20")
    bench.rows.append(Row("cuda_emulated_right", rows_right(), "share", goal=">= 1"))


def compile_s(example: Workload) -> float:
    """Emit a program and compile it for an H100; return the seconds."""
    assert NVCC is not None
    module = example.compile("interp").module
    began = time.perf_counter()
    target = registry.get("cuda")
    tree = target.emit(Prepared(module, target).module)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "program.cu"
        source.write_text(tree.files["program.cu"], encoding="utf-8")
        options = ["-std=c++17", "-arch=sm_90a", "-fmad=false", f"-I{include_directory()}", "-cubin"]
        subprocess.run([NVCC, *options, str(source), "-o", f"{folder}/program.cubin"], check=True)
    return time.perf_counter() - began


def rows_right() -> float:
    """Return the share of cases of the instruction table that are right under emulation."""
    with tempfile.TemporaryDirectory() as folder:
        cache = ArtifactCache(Path(folder) / "own")
        library = ctypes_abi.load(EmulatedCuda().build([make(name) for name in CASES], cache))
        assert isinstance(library, ctypes_abi.Library)
        return sum(is_right(library, name) for name in CASES) / len(CASES)


def is_right(library: ctypes_abi.Library, name: str) -> bool:
    """Return whether the kernels of some rows agree with their meaning."""
    try:
        check(library, name, CASES[name])
    except AssertionError:
        return False
    return True
