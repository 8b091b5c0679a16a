"""How true simulated time is: programs on `cpu`, and on the device `host`, under two schedules each.

The device is calibrated first, if it is not. Kernels cost what the model says; no run that is predicted is
timed for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.harness import Bench, Row
from examples.llama.kernels import Shape
from examples.llama.model import Cache, Chunk, Layer, pack, random_weights
from examples.llama.workload import decoder_layer
from examples.minilm import kernels as minilm
from examples.minilm.encoder import Encoder
from examples.minilm.model import Weights
from examples.minilm.workload import encoder as minilm_workload
from pto_wsp import Program, Schedule, f32
from pto_wsp.calibration.host import calibrate
from pto_wsp.device.reader import host
from pto_wsp.errors import NotCalibrated
from pto_wsp.simulation import report_of

# The folders of numbered examples have no names that an import statement can say.
paged = importlib.import_module("examples.02_paged_decode.paged_decode")
moe = importlib.import_module("examples.03_moe.moe")
sparse = importlib.import_module("examples.04_sparse_attention.sparse_attention")

SCHEDULES = {"two cores": Schedule(), "one task at a time": Schedule().streams(1)}
"""Two schedules of every program."""

CLEAR = 1.05
"""Two measured times that differ by more have an order."""


@dataclass(frozen=True)
class Prediction:
    """A program under a schedule.

    Attributes:
        program: its name.
        schedule: of SCHEDULES.
        measured_us: the shortest run on `cpu`.
        predicted_us: simulated time on `host`.
    """

    program: str
    schedule: str
    measured_us: float
    predicted_us: float

    @property
    def off_pct(self) -> float:
        """How far the prediction is from the measured time, in percent of it."""
        return 100 * abs(self.predicted_us / self.measured_us - 1)


class Run(Protocol):
    """Runs a program on the arrays of a case."""

    def __call__(self, program: Program, **options: Any) -> None:
        """Run it, with options of `Program.run`."""


Case = tuple[Callable[[str], Program], Run]


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows: the worst prediction, and how often the faster schedule is named."""
    require_host()
    found = list(predictions(bench.rounds(9, 3)))
    worst = max(found, key=lambda each: each.off_pct)
    unit = f"% off: {worst.program}, {worst.schedule}"
    yield Row("host_prediction_worst_pct", worst.off_pct, unit, goal="<= 25")
    orders = [*named_orders(found)]
    share = sum(orders) / len(orders) if orders else None
    yield Row("host_prediction_order_ok", share, f"of {len(orders)} pairs", goal=">= 1")


def require_host() -> None:
    """Calibrate this machine, if it is not."""
    try:
        host()
    except NotCalibrated:
        calibrate(print)


def predictions(rounds: int) -> Iterator[Prediction]:
    """Yield the prediction of each program under each schedule."""
    for name, make in CASES.items():
        compiled, run = make()
        measured, simulated = compiled("cpu"), compiled("sim")
        for schedule, directives in SCHEDULES.items():
            measured.reschedule(directives)
            simulated.reschedule(directives)
            yield Prediction(name, schedule, shortest_us(measured, run, rounds), simulated_us(simulated, run))


def named_orders(found: list[Prediction]) -> Iterator[bool]:
    """Yield, for each two schedules whose measured times have an order, whether the prediction has it."""
    for first, second in zip(found[::2], found[1::2], strict=True):
        ratio = first.measured_us / second.measured_us
        if max(ratio, 1 / ratio) > CLEAR:
            yield (ratio > 1) == (first.predicted_us > second.predicted_us)


def shortest_us(program: Program, run: Run, rounds: int) -> float:
    """Return the microseconds of the shortest run."""
    times: list[float] = []
    for _ in range(rounds + 1):
        run(program)
        assert program.stats is not None
        times.append(program.stats.run_ms * 1e3)
    return min(times[1:])


def simulated_us(program: Program, run: Run) -> float:
    """Return the simulated microseconds."""
    run(program)
    assert program.stats is not None
    return program.stats.time_us


def compiled(workload: Any) -> Callable[[str], Program]:
    """Return what compiles a workload for `cpu`, or for `sim` on this machine."""
    return lambda target: workload.compile(target, device="host" if target == "sim" else None)


# Programs


def minilm_case() -> Case:
    """MiniLM embeddings of 64 sentences, random weights."""
    rng = np.random.default_rng(0)
    hidden, inner, layers, panel = minilm.HIDDEN, minilm.INNER, minilm.LAYERS, minilm.PANEL

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims, np.float32) / np.float32(16)

    weights = Weights(
        Words=normal(minilm.VOCABULARY, hidden),
        Places=normal(minilm.PLACES, hidden),
        Norm=normal(2, hidden),
        ProjectWeight=normal(layers, minilm.HEADS, minilm.QKV_PANELS, hidden, minilm.QKV_PANEL),
        ProjectBias=normal(layers, minilm.HEADS, 1, minilm.QKV),
        OutWeight=normal(layers, hidden // panel, hidden, panel),
        UpWeight=normal(layers, inner // panel, hidden, panel),
        UpBias=normal(layers, 1, inner),
        DownWeight=normal(layers, hidden // panel, inner, panel),
        Rest=normal(layers, 6, hidden),
    )
    encoder = Encoder(weights)
    sentences = [rng.integers(0, minilm.VOCABULARY, n).astype(np.int32) for n in rng.integers(8, 60, 64)]

    def run(program: Program, **options: Any) -> None:
        encoder.program = program
        encoder.run(sentences, **options)

    return compiled(minilm_workload("f32")), run


def paged_case() -> Case:
    """Paged decode of 16 requests."""
    rng = np.random.default_rng(0)
    batch = paged.random_batch(rng, rng.integers(200, 3000, 16), f32)
    return compiled(paged.paged_decode(f32)), lambda program, **options: paged.run(program, batch, **options)


def moe_case() -> Case:
    """A layer of 16 experts, 256 tokens."""
    shape, rng = moe.Shape(experts=16, hidden=1024, inner=512), np.random.default_rng(0)
    weights = moe.random_weights(rng, shape)
    batch = moe.random_batch(rng, 256, weights, shape)
    return compiled(moe.moe(shape)), lambda program, **options: moe.run(program, batch, weights, **options)


def llama_case(past: int, tokens: int) -> Case:
    """A decoder layer: a prompt, or a step after others."""
    shape, rng = Shape(heads=8, dim=128, inner=2816), np.random.default_rng(0)
    layer = Layer(shape, pack(random_weights(rng, shape), shape))
    cache = Cache.of(shape, 1, past + tokens)
    for array in cache:
        array[...] = rng.standard_normal(array.shape[-1], np.float32)
    hidden = rng.standard_normal((tokens, shape.hidden), np.float32)

    def run(program: Program, **options: Any) -> None:
        layer.program = program
        layer(hidden.copy(), [Chunk(0, past, tokens)], cache, **options)

    return compiled(decoder_layer(shape)), run


def sparse_case() -> Case:
    """Sparse attention of one query over 8,192 tokens."""
    shape = sparse.Shape(index_heads=16, index_dim=128, heads=32, key=576, value=512)
    batch = sparse.random_batch(np.random.default_rng(0), shape, np.array([8192, 6000]), 8192)
    workload = sparse.sparse_attention(shape)
    return compiled(workload), lambda program, **options: sparse.run(program, batch, **options)


CASES: dict[str, Callable[[], Case]] = {
    "minilm": minilm_case,
    "paged decode": paged_case,
    "moe": moe_case,
    "llama prefill": lambda: llama_case(0, 256),
    "llama decode": lambda: llama_case(1024, 1),
    "sparse attention": sparse_case,
}
"""The programs that are predicted."""


# Kernels


@dataclass(frozen=True)
class KernelTime:
    """The tasks of a kernel: how many, and their microseconds together, measured and predicted."""

    program: str
    kernel: str
    tasks: int
    measured_us: float
    predicted_us: float


def kernel_times(name: str, rounds: int) -> Iterator[KernelTime]:
    """Yield the times of the kernels of a program, one task at a time on one core.

    The measured time of a task is that of its shortest run.
    """
    make, run = CASES[name]()
    measured, simulated = make("cpu"), make("sim")
    for program in (measured, simulated):
        program.reschedule(SCHEDULES["one task at a time"])
    shortest, labels = np.array([]), list[str]()
    for _ in range(rounds):
        run(measured, workers=1, trace=True)
        assert measured.trace is not None
        took = np.array([event.end_ns - event.start_ns for event in measured.trace])
        shortest = np.minimum(shortest, took) if len(shortest) == len(took) else took
        labels = [event.label.split("[")[0] for event in measured.trace]
    run(simulated)
    report = report_of(simulated)
    for line in report.kernels:
        mine = shortest[[label == line.kernel for label in labels]]
        yield KernelTime(
            name, line.kernel, line.tasks, mine.sum() / 1e3, report.device.microseconds(line.total)
        )


def main() -> None:
    """Print programs, or with `--kernels` their kernels: measured and predicted microseconds."""
    require_host()
    if "--kernels" not in sys.argv:
        for each in predictions(5):
            show(f"{each.program} {each.schedule}", each.measured_us, each.predicted_us)
        return
    for name in CASES:
        for line in kernel_times(name, 5):
            show(f"{line.program} {line.kernel} {line.tasks}", line.measured_us, line.predicted_us)


def show(what: str, measured_us: float, predicted_us: float) -> None:
    """Print two times and their ratio."""
    print(
        f"{what:<44}{measured_us:>12,.1f}{predicted_us:>12,.1f}{predicted_us / measured_us:7.2f}", flush=True
    )


if __name__ == "__main__":
    main()
