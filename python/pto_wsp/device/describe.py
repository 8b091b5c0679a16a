"""A device as text: its figures, each with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pto_wsp.device.model import Device


def describe(device: Device) -> str:
    """Return the figures of a device, a line each."""
    return "\n".join(_lines(device))


def _lines(device: Device) -> Iterable[str]:
    yield f"{device.name}: {device.about}"
    yield from _figure(device, "clock_ghz", f"clock: {device.clock_ghz:g} GHz")
    for kind in device.cores:
        units, pipes = ", ".join(kind.units), ", ".join(kind.pipes)
        yield from _figure(device, "cores", f"{kind.count} cores `{kind.name}`: units {units}; pipes {pipes}")
        sizes = ", ".join(f"{space.value} {size // 1024} KB" for space, size in kind.memories.items())
        yield from _figure(device, "cores.memories", f"  memories of each: {sizes}" if sizes else "")
    ways = ", ".join(f"{w.source.value} to {w.target.value} {w.rate:g}" for w in device.transfers)
    yield from _figure(device, "transfers", f"bytes per cycle of a core: {ways}" if ways else "")
    yield from _figure(device, "gm.rate", f"global memory: {device.gm_rate:g} bytes per cycle, shared")
    if device.core_caches:
        caches = ", ".join(f"{cache.size >> 10} KB {cache.rate:g}" for cache in device.core_caches)
        count = len(device.core_caches)
        yield from _figure(device, "core_caches", f"{count} caches of each core, bytes per cycle: {caches}")
    if device.l2.size:
        yield from _figure(device, "l2.size", f"cache: {device.l2.size >> 20} MB")
        yield from _figure(device, "l2.rate", f"  {_number(device.l2.rate)} bytes per cycle, shared")
        yield from _figure(device, "l2.hit", f"  hit {device.l2.hit:g} cycles, miss {device.l2.miss:g} more")
    made = device.dispatchers
    yield from _figure(device, "dispatchers.count", f"{made.count} dispatchers")
    yield from _figure(device, "dispatchers.generate", f"  {made.generate:g} ns to make a task")
    yield from _figure(device, "dispatchers.skip", f"  {made.skip:g} ns to pass over a task of another one")
    yield from _figure(device, "dispatchers.dispatch", f"  {made.dispatch:g} ns until a core sees a task")
    yield from _figure(device, "dispatchers.complete", f"  {made.complete:g} ns until it sees the end")
    yield from _figure(device, "dispatchers.records", f"  {made.records:,} records of tasks for each")
    yield from _figure(
        device, "host.latency", f"host: {device.host.latency:g} ns until the device sees what it sends"
    )
    yield f"cycles of instructions: {device.cost_table}"
    if device.unknown:
        yield f"unknown: {', '.join(device.unknown)}"


def _figure(device: Device, key: str, text: str) -> Iterable[str]:
    """Yield a figure with its source, if there is a figure."""
    if text:
        source = device.sources.get(key)
        yield text + (f"  ({source})" if source else "")


def _number(value: float) -> str:
    return "any number of" if math.isinf(value) else f"{value:g}"
