"""The device `host`: the figures of this machine as a description in TOML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pto_wsp.calibration.instructions import instruction_costs
from pto_wsp.calibration.machine import MachineMeter
from pto_wsp.calibration.overhead import TaskOverhead, measure_overhead
from pto_wsp.device.model import InstructionCost
from pto_wsp.device.reader import host_path
from pto_wsp.device.topology import Topology, read_topology
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.toolchain import find_compiler

TRIALS = 9
"""What is measured is measured so often; the best counts, because other work can only disturb it."""

CACHE_READ_BYTES = 64 << 20
"""Bytes that are read of a cache for its rate."""

MEMORY_BYTES = 256 << 20
"""Memory that is read for its rate, at least four times the last cache."""


@record
class MachineFigures:
    """What is measured of cores and memories. Rates are in bytes per nanosecond.

    Attributes:
        clock_ghz: cycles per nanosecond.
        peak_gflops: f32 multiply-adds of all cores.
        own_rates: of each cache that a core has of its own.
        shared_rate: of the cache that cores share, 0 if there is none.
        shared_core_rate: the same for one core.
        gm_rate: of memory.
        gm_core_rate: the same for one core.
        hit_ns: latency of the shared cache.
        miss_ns: of memory, beyond that.
    """

    clock_ghz: float
    peak_gflops: float
    own_rates: tuple[float, ...]
    shared_rate: float
    shared_core_rate: float
    gm_rate: float
    gm_core_rate: float
    hit_ns: float
    miss_ns: float


def calibrate(tell: Callable[[str], None]) -> Path:
    """Measure this machine and write the description that the device `host` reads; return its path.

    Args:
        tell: called with what is measured next.

    Raises:
        NoCompiler: there is no C++ compiler.
        BadCache: the folder of the description cannot be written.
    """
    topology, cache = read_topology(), ArtifactCache()
    tell("clock, peak and memory")
    figures = _measure_machine(topology, find_compiler(cache).command)
    tell("instructions, whose kernels are compiled")
    costs = instruction_costs(figures.clock_ghz)
    tell("tasks")
    overhead = measure_overhead(topology.cores)
    path = host_path()
    path.write_text(description(topology, figures, costs, overhead), encoding="utf-8")
    return path


def description(
    topology: Topology,
    figures: MachineFigures,
    costs: Mapping[str, InstructionCost],
    overhead: TaskOverhead,
) -> str:
    """Return the device as TOML.

    Args:
        topology: what the system says.
        figures: what is measured of cores and memories.
        costs: of every instruction, in cycles.
        overhead: of the engine.
    """
    return "\n".join(_lines(topology, figures, costs, overhead)) + "\n"


def _measure_machine(topology: Topology, compiler: tuple[str, ...]) -> MachineFigures:
    shared = topology.shared
    last = shared.size * topology.num_shared if shared is not None else 0
    meter = MachineMeter(compiler, max(MEMORY_BYTES, 4 * last), counts_cpu_time=True)
    cores = topology.cores

    def best(measure: Callable[[], float]) -> float:
        return max(measure() for _ in range(TRIALS))

    def rate(threads: int, num_bytes: int) -> float:
        repeats = max(CACHE_READ_BYTES // num_bytes, 1)
        return best(lambda: meter.read_gbs(threads, num_bytes, repeats))

    try:
        hit = -best(lambda: -meter.latency_ns(last // 2, 1 << 18)) if last else 0.0
        memory = -best(lambda: -meter.latency_ns(meter.most_bytes, 1 << 18))
        return MachineFigures(
            clock_ghz=best(meter.clock_ghz),
            peak_gflops=best(lambda: meter.fma_gflops(cores)),
            own_rates=tuple(rate(1, cache.size // 2) for cache in topology.own),
            shared_rate=rate(cores, last // 2) if last else 0.0,
            shared_core_rate=rate(1, last // 2) if last else 0.0,
            gm_rate=best(lambda: meter.read_gbs(cores)),
            gm_core_rate=best(lambda: meter.read_gbs(1)),
            hit_ns=hit,
            miss_ns=max(memory - hit, 0.0),
        )
    finally:
        meter.close()


def _lines(
    topology: Topology,
    figures: MachineFigures,
    costs: Mapping[str, InstructionCost],
    overhead: TaskOverhead,
) -> Iterator[str]:
    clock = figures.clock_ghz
    yield "# Measured by `pto devices --calibrate`. Times are in nanoseconds, rates in bytes per cycle."
    yield from ('name = "host"', f'about = "{topology.about}"', f"clock_ghz = {clock:.4g}", "")
    yield "[cores.cpu]"
    yield f"count = {topology.cores}"
    yield from ('units = ["vector", "cube", "control"]', 'pipes = ["memory", "vector"]', "", "[groups]")
    yield f"cpu = {topology.shared.sharing if topology.shared is not None else 1}"
    for ends in (("gm", "ub"), ("ub", "gm")):
        rate = figures.own_rates[0] / clock if figures.own_rates else figures.gm_core_rate / clock
        yield from ("", "[[transfers]]", f'from = "{ends[0]}"', f'to = "{ends[1]}"', 'pipe = "memory"')
        yield f"rate = {rate:.4g}"
    for cache, rate in zip(topology.own, figures.own_rates, strict=True):
        yield from ("", "[[core_caches]]", f"size = {cache.size}", f"rate = {rate / clock:.4g}")
    yield from ("", "[gm]", f"rate = {figures.gm_rate / clock:.4g}")
    yield f"core_rate = {figures.gm_core_rate / clock:.4g}"
    if topology.shared is not None:
        yield from ("", "[l2]", f"size = {topology.shared.size * topology.num_shared}", "block = 64")
        yield f"rate = {figures.shared_rate / clock:.4g}"
        yield f"core_rate = {figures.shared_core_rate / clock:.4g}"
        yield f"hit = {figures.hit_ns * clock:.4g}"
        yield f"miss = {figures.miss_ns * clock:.4g}"
    yield from ("", "[widths]", f"vector = {4 * resolve_features().lanes}", "rows = 1")
    yield from (f"cols = {resolve_features().lanes}", "inner = 4", "", "[dispatchers]")
    yield from (f"count = {topology.cores}", f"dispatch = {overhead.task_ns:.4g}")
    yield from (f"complete = {overhead.wait_ns:.4g}", "", "[host]", f"latency = {overhead.start_ns:.4g}")
    yield from ("", "[costs]", 'base = "none"')
    yield from (_cost_line(row, cost) for row, cost in costs.items())
    yield from ("", "[sources]", *_sources(figures))


def _cost_line(row: str, cost: InstructionCost) -> str:
    return f"{row} = {_cost_text(cost)}"


def _cost_text(cost: InstructionCost) -> str:
    parts = {key: getattr(cost, key) for key in ("start", "repeat", "row", "block", "block_of_4", "right")}
    texts = [f"{key} = {value:.4g}" for key, value in parts.items() if value > 0]
    if cost.transposed is not None:
        texts.append(f"transposed = {_cost_text(cost.transposed)}")
    return "{ " + (", ".join(texts) or "start = 0") + " }"


def _sources(figures: MachineFigures) -> Iterator[str]:
    measured = ("clock_ghz", "transfers", "gm.rate", "l2.rate", "l2.hit", "core_caches")
    measured += ("dispatchers.dispatch", "dispatchers.complete", "host.latency")
    yield from (f'"{key}" = "measured"' for key in measured)
    yield from (f'"{key}" = "of the system"' for key in ("cores", "l2.size", "groups", "dispatchers.count"))
    yield '"dispatchers.generate" = "part of dispatch"'
    yield f'"costs" = "measured; the cores multiply and add at {figures.peak_gflops:.0f} GFLOP/s together"'
