"""The swimlanes of `docs/schedules.md`, in simulated time: `python -m docs.schedule_pictures`."""

from typing import Any

import numpy as np

from docs.pictures import IMAGES
from pto_wsp import (
    DYN,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    Schedule,
    Tensor,
    Tile,
    f32,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.device.reader import get_device
from pto_wsp.support.record import replace

FOLDER = IMAGES / "schedules"
LENGTHS = [2, 6, 3, 1, 5, 2, 4, 3]
UNEVEN = [1, 2, 1, 3, 2, 1, 2, 3, 2, 1, 4, 10]


@kernel
def index(x: In[Tile[16, 64, f32]], s: Out[Tile[16, 64, f32]]):
    """Score a block of 16 tokens."""
    scores = x + 0.0
    for _ in range(40):
        scores = pto.exp(scores * 0.5)
    pto.store(s, scores)


@kernel
def attend(s: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    """Attend to a block of 16 tokens."""
    out = s + 0.0
    for _ in range(60):
        out = pto.exp(out * 0.5)
    pto.store(y, out)


@workload
def layer(
    lens: Ragged["batch"],
    X: Tensor[f32, "blocks", 16, 64],
    S: Tensor[f32, "blocks", 16, 64],
    Y: Tensor[f32, "blocks", 16, 64],
):
    """Index and attend to the blocks of each sequence."""
    for b in P("batch"):
        for i in P(lens[b]):
            index[b, i](x=X[lens[b][i]], s=S[lens[b][i]])
        for i in P(lens[b]):
            attend[b, i](s=S[lens[b][i]], y=Y[lens[b][i]])


@kernel
def add(x: In[Tile[16, 64, f32]], s: InOut[Tile[16, 64, f32]]):
    """Add a block to a sum."""
    pto.store(s, pto.exp(s * 0.5) + x)


@workload
def sums(X: Tensor[f32, "n", 4, 16, 64], S: Tensor[f32, 4, 16, 64]):
    """Four sums of blocks, each of which is read once."""
    for i in P.range("n"):
        for j in P(4):
            add[i, j](x=X[i, j], s=S[j])


@kernel
def unit(x: In[Tensor[f32, DYN, 64]], y: Out[Tensor[f32, DYN, 64]]):
    """Work on a whole sequence."""
    for r in pto.tiles(x.rows, 16):
        out = x[r] + 0.0
        for _ in range(40):
            out = pto.exp(out * 0.5)
        pto.store(y[r], out)


@workload
def units(lens: Ragged["batch"], X: Tensor[f32, "tokens", 64], Y: Tensor[f32, "tokens", 64]):
    """One task per sequence."""
    for b in P("batch"):
        unit[b](x=X[lens[b]], y=Y[lens[b]])


SCHEDULES = {
    "default": Schedule(),
    "order_by": Schedule().order_by(lambda t: t.kernel, lambda t: t.b),
    "interleave": Schedule().interleave(lambda t: t.b, 4),
    "concurrent": Schedule().concurrent(lambda t: t.b, max=2),
    "affinity": Schedule().affinity(lambda t: t.b, group=2),
    "pipeline": Schedule().pipeline(stage(index, cores=2), stage(attend, cores=3)),
}


def small_device() -> Any:
    """Return a device with one dispatcher and four vector cores."""
    device = get_device("ascend_910b_seed")
    cores = tuple(replace(kind, count=4) for kind in device.cores if kind.name == "vector")
    return replace(device, cores=cores, dispatchers=replace(device.dispatchers, count=1))


def draw(program: Program, name: str, schedule: Schedule, **arguments: Any) -> None:
    """Draw a run under a schedule."""
    program.reschedule(schedule)
    program.run(**arguments, trace=True)
    assert program.trace is not None and program.stats is not None
    print(f"{name}: {program.stats.time_us:.1f} us")
    program.trace.save_svg(FOLDER / f"{name}.svg")


def main() -> None:
    """Draw every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    x = np.zeros((sum(LENGTHS), 16, 64), np.float32)
    program = layer.compile(target="sim", device=small_device())
    for name, schedule in SCHEDULES.items():
        draw(program, name, schedule, lens=Ragged.lengths(LENGTHS), X=x, S=x.copy(), Y=x.copy())
    lengths = 16 * np.array(UNEVEN)
    x = np.zeros((int(lengths.sum()), 64), np.float32)
    program = units.compile(target="sim", device=small_device())
    for name, schedule in (("uneven", Schedule()), ("load_balance", Schedule().load_balance())):
        draw(program, name, schedule, lens=Ragged.lengths(lengths), X=x, Y=x.copy())
    device = small_device()
    slow = replace(device, l2=replace(device.l2, miss=1000.0))
    x = np.zeros((12, 4, 16, 64), np.float32)
    program = sums.compile(target="sim", device=slow)
    for name, schedule in (("unfetched", Schedule()), ("prefetch", Schedule().prefetch(lambda t: t.i))):
        draw(program, name, schedule, X=x, S=x[0].copy())


if __name__ == "__main__":
    main()
