"""Draw a decode step of small sizes on a simulated NPU: tasks of the four graphs overlap.

python -m examples.deepseek_v32.timeline FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from examples.deepseek_v32.__main__ import filled
from examples.deepseek_v32.config import SMALL
from examples.deepseek_v32.graphs import whole
from examples.deepseek_v32.model import Chunk, batch_arrays, pack
from examples.deepseek_v32.reference import random_weights
from pto_wsp import f32
from pto_wsp.device.reader import get_device
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import replace

LENGTHS = np.array([40, 900, 120, 3000, 60, 1500, 250, 2000])
"""Keys per request; up to 64 of them, all are chosen."""

CORES = 4
"""Cores of each kind; with all cores of the device, each has a task or two."""


def simulated() -> Trace:
    """Return the record of a decode step of eight requests."""
    rng = np.random.default_rng(0)
    longest = int(LENGTHS.max())
    cache = filled(rng, SMALL, LENGTHS - 1, longest)
    chunks = [Chunk(slot, int(n) - 1, 1) for slot, n in enumerate(LENGTHS)]
    device = get_device("ascend_910b")
    cores = tuple(replace(kind, count=CORES) for kind in device.cores)
    program = whole(SMALL).compile(target="sim", device=replace(device, cores=cores))
    weights = pack(SMALL, random_weights(rng, SMALL), f32)
    given = weights | batch_arrays(SMALL, chunks, longest) | cache._asdict()
    program.run(**given, X=rng.standard_normal((len(LENGTHS), SMALL.hidden), np.float32), trace=True)
    assert program.trace is not None
    return program.trace


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(simulated().to_svg(), encoding="utf-8")
