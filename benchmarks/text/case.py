"""The case `text`: reading and writing 10,000 instructions, and a layer from text to a library."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

from benchmarks.harness import Bench, Row
from benchmarks.spine.case import fresh_cache
from benchmarks.text import programs
from examples.pto_programs.llama import llama_module
from pto_wsp import parse
from pto_wsp.analysis.buffers import buffer_use
from pto_wsp.runtime.compiling import compile_module


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    reading_and_writing(bench)
    compiling(bench)
    reusing(bench)


def cpu_ms(function: Callable[[], object]) -> float:
    """Return the time that the calling thread computes."""
    start = time.thread_time()
    function()
    return 1e3 * (time.thread_time() - start)


def reading_and_writing(bench: Bench) -> None:
    """Time the parser, the printer, and lark on the same text."""
    text = programs.text_of_10k_instructions()
    module = parse(text)
    if str(module) != text:
        raise AssertionError("the text is not what its module prints")
    functions = {"parse": lambda: cpu_ms(lambda: parse(text)), "print": lambda: cpu_ms(lambda: str(module))}
    peer = lark_parser(bench)
    if peer is not None:
        functions["lark"] = lambda: cpu_ms(lambda: peer(text))
    measured = bench.measure(functions, rounds=bench.rounds(25, 9))
    bench.add("parse_10k_ms", measured["parse"], "ms", goal="<= 250")
    bench.add("print_10k_ms", measured["print"], "ms", goal="<= 25")
    if peer is not None:
        ours, theirs = measured["parse"].value, measured["lark"].value
        noisy = measured["parse"].noisy or measured["lark"].noisy
        bench.rows.append(Row("parse_vs_lark", ours, "ms", "lark", theirs, theirs / ours, noisy=noisy))


def lark_parser(bench: Bench) -> Callable[[str], object] | None:
    """Return lark's parser of the text, or None where it is not installed."""
    try:
        lark = import_module("lark")
    except ImportError:
        bench.skipped["lark"] = "lark is not installed"
        return None
    return lark.Lark(programs.GRAMMAR, parser="lalr", maybe_placeholders=False).parse


def compiling(bench: Bench) -> None:
    """Time the 26 functions of a LLaMA layer from text to a program: kernels new, and in the cache."""
    text = str(llama_module())

    def compile_text() -> float:
        start = time.perf_counter()
        compile_module(parse(text), "cpu")
        return time.perf_counter() - start

    def cold_s() -> float:
        with fresh_cache():
            return compile_text()

    measured = bench.measure({"cold": cold_s}, rounds=bench.rounds(5, 2), threads=2)
    bench.add("llama_cold_s", measured["cold"], "s", goal="<= 3")
    with fresh_cache():
        compile_text()
        measured = bench.measure({"warm": lambda: 1e3 * compile_text()}, rounds=bench.rounds(15, 7))
    bench.add("llama_warm_ms", measured["warm"], "ms", goal="<= 20")


def reusing(bench: Bench) -> None:
    """Count the bytes of tiles that the kernels of the layer need when those not in use together share."""
    module = parse(str(llama_module()))
    uses = [buffer_use(kernel) for kernel in module.kernels if kernel.body is not None]
    separate, shared = sum(use.separate for use in uses), sum(use.shared for use in uses)
    bench.rows.append(Row("buffer_reuse_saved_pct_llama", 100 * (1 - shared / separate), "%"))
