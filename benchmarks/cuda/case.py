"""The case `cuda`: how long programs take to compile for a GPU, and what is right under emulation."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cuda.programs import dependent, independent, layer_shaped
from benchmarks.harness import Bench, Row
from examples.cookbook import mixture_of_experts, ragged_attention
from examples.llama.kernels import Shape
from examples.llama.workload import decoder_layer
from pto_wsp import Program, bf16
from pto_wsp.errors import NoCudaCompiler, NoGpu
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.kept_waits import kept_waits
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cuda.driver import find_gpu
from pto_wsp.targets.cuda.target import CudaTarget
from pto_wsp.targets.cuda.toolchain import build_cubin, find_cuda_compiler
from tests.cuda.emulated import EmulatedCuda
from tests.cuda.test_rows import CASES, make
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_rows import check

WITH_TORCH = (
    "gpu_gemm_bf16_4096_vs_torch",
    "gpu_decode_pct_hbm",
    "gpu_host_us_per_step",
    "gpu_prefill_bf16_vs_torch",
    "gpu_moe_vs_grouped_mm",
    "gpu_layer_decode_vs_eager",
    "gpu_layer_decode_vs_compiled",
    "gpu_layer_decode_vs_cuda_graph",
    "gpu_layer_decode_vs_new_graphs",
)
WITHOUT_TORCH = (
    "gpu_tasks_m_per_s",
    "gpu_units_scaling_33",
    "gpu_units_scaling",
    "gpu_dependent_tasks_m_per_s",
    "gpu_dependent_hop_us",
    "gpu_warm_up_s",
)
paged_decode: Any = importlib.import_module("examples.02_paged_decode.paged_decode")
SOME_BLOCKS = 33
EXAMPLES: dict[str, Callable[[], Workload]] = {
    "attention": lambda: ragged_attention.causal,
    "moe": lambda: mixture_of_experts.moe,
    "paged_decode": lambda: paged_decode.paged_decode(bf16),
    "llama": lambda: decoder_layer(Shape(heads=32, dim=128, inner=11008)),
}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    try:
        find_gpu()
    except NoGpu as error:
        reason = f"needs an NVIDIA GPU: {error.caret_text}"
        bench.skipped |= dict.fromkeys((*WITH_TORCH, *WITHOUT_TORCH), reason)
    else:
        on_the_gpu(bench)
        with_torch(bench)
    try:
        find_cuda_compiler(ArtifactCache())
    except NoCudaCompiler:
        bench.skipped |= {"cuda_compile_cold_s": "needs nvcc or NVRTC", "cuda_compile_warm_s": "the same"}
    else:
        compiling(bench)
    bench.rows.append(Row("cuda_emulated_right", rows_right(), "share", goal=">= 1"))


def with_torch(bench: Bench) -> None:
    """Measure the rows that have a peer in torch, if it computes on the GPU."""
    try:
        import torch
    except ImportError:
        bench.skipped |= dict.fromkeys(WITH_TORCH, "needs torch")
        return
    if not torch.cuda.is_available():
        bench.skipped |= dict.fromkeys(WITH_TORCH, "needs torch that was built for CUDA")
        return
    from benchmarks.cuda import peers

    peers.run(bench)


def on_the_gpu(bench: Bench) -> None:
    """Measure what needs a GPU and no other library. A run is timed by the GPU's events."""
    tasks, hops, tiles = (1_000, 200, 16) if bench.quick else (1_000_000, 100_000, 1024)
    many, chain, layer = (w.compile("cuda") for w in (independent, dependent, layer_shaped))
    x, one = np.zeros((tasks, 32), np.float32), np.zeros((1, 32), np.float32)
    columns = {name: np.zeros((tiles, 32), np.float32) for name in "XSY"}

    def hop() -> float:
        return 1 / rate(chain, X=one, k=hops)

    def warm_up() -> float:
        began = time.perf_counter()
        independent.compile("cuda")(X=one)
        return time.perf_counter() - began

    functions = {
        "all": lambda: rate(many, X=x),
        "one": lambda: rate(many, X=x, workers=1),
        "some": lambda: rate(many, X=x, workers=SOME_BLOCKS),
        "layer": lambda: rate(layer, **columns),
        "hop": hop,
        "warm": warm_up,
    }
    found = bench.measure(functions, rounds=bench.rounds(5, 1))
    bench.add("gpu_tasks_m_per_s", found["all"], "M tasks/s", ">= 50")
    for name, blocks in (("gpu_units_scaling_33", "some"), ("gpu_units_scaling", "all")):
        bench.rows.append(Row(name, found[blocks].value / found["one"].value, "times one block"))
    bench.add("gpu_dependent_tasks_m_per_s", found["layer"], "M tasks/s")
    bench.add("gpu_dependent_hop_us", found["hop"], "us", "<= 1.5")
    bench.add("gpu_warm_up_s", found["warm"], "s", "<= 2")


def rate(program: Program, **values: Any) -> float:
    """Run a program and return its million tasks per second."""
    program(**values)
    assert program.stats is not None
    return program.stats.tasks / program.stats.run_ms / 1e3


def compiling(bench: Bench) -> None:
    """Measure the time from a workload to a cubin for an H100: compiled, and found in the cache."""
    for name, example in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            cache = ArtifactCache(Path(folder) / "own")
            made = example()
            cold = compile_s(made, cache)
            found = bench.measure(
                {"warm": lambda e=made, c=cache: compile_s(e, c)}, rounds=bench.rounds(5, 1)
            )
        bench.rows.append(Row(f"cuda_compile_cold_s_{name}", cold, "s", goal="<= 20"))
        bench.add(f"cuda_compile_warm_s_{name}", found["warm"], "s", "<= 0.3")


def compile_s(example: Workload, cache: ArtifactCache) -> float:
    """Emit a program and get its cubin; return the seconds."""
    module, target = example.compile("interp").module, CudaTarget()
    began = time.perf_counter()
    code = target.program_code(Prepared(module, target).module, lambda of: kept_waits(of, cache))
    build_cubin(code.text, "sm_90", cache)
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
