"""Amounts of kernels as expressions: the numbers that the walk of a call counts, for all sizes."""

import importlib
import math
from typing import Any

import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, bf16, f32, i32, i64, kernel, pto
from pto_wsp.device.kernel_amounts import kernel_amounts
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.model import CoreCache, CoreKind, Device, InstructionCost, Route
from pto_wsp.device.reader import get_device
from pto_wsp.errors import NoCost
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.support.record import replace
from pto_wsp.types.space import Space
from tests.python.device.test_kernel_cost import attend, product, repeated

paged_decode: Any = importlib.import_module("examples.02_paged_decode.paged_decode")
DEVICES = ("ascend_910b", "ascend_910b_seed", "ascend_950")


@kernel
def triangle(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[16, 8, f32]], n: Scalar[i64]):
    total = pto.zeros((16, 8))
    for i in range(n):
        for j in range(i):
            total = total + x[j : j + 1]
    pto.store(y, total)


@kernel
def chosen(x: In[Tensor[f32, DYN, DYN]], y: Out[Tensor[f32, DYN, DYN]], n: Scalar[i64]):
    for r in pto.tiles(x.rows, 8):
        for c in pto.tiles(x.cols, 16):
            t = pto.load(x[r, c])
            if n > 2:
                t = pto.exp(t * 2.0)
            if n > x.rows:
                pto.store(y[r, c], t)
            else:
                pto.store(y[r, c], t + 1.0)


@kernel
def narrowed(x: In[Tensor[f32, DYN, 8]], y: Out[Tensor[bf16, DYN, 8]], z: InOut[Tile[1, 8, i32]]):
    for r in pto.tiles(x.rows, 4):
        pto.store(y[r], pto.cast(x[r], bf16))
    pto.store(z, z + 1)


@kernel(block_dim=3)
def in_blocks(x: InOut[Tensor[f32, DYN, 8]]):
    i = pto.block_idx()
    pto.store(x[i : i + 1], x[i : i + 1] + 1.0)


CALLS: list[tuple[Kernel, list[tuple[list[tuple[int, ...]], list[int]]]]] = [
    (product, [([(64, 512), (512, 64), (64, 64)], [])]),
    (attend, [([(4, 128), (n, 128), (4, 128)], []) for n in (0, 1, 63, 64, 65, 500)]),
    (repeated, [([(rows, 64)], [n, 3]) for rows in (1, 16) for n in (-2, 0, 1, 9)]),
    (paged_decode.merge, [([(n, 4, 128), (n, 4, 1), (4, 128), (4, 1)], []) for n in (0, 1, 5)]),
    (triangle, [([(40, 8), (16, 8)], [n]) for n in (0, 1, 2, 7)]),
    (chosen, [([(r, c), (r, c)], [n]) for r in (0, 3, 20) for c in (0, 16, 33) for n in (1, 3, 99)]),
    (narrowed, [([(n, 8), (n, 8), (1, 8)], []) for n in (0, 3, 4, 9)]),
    (in_blocks, [([(5, 8)], [])]),
]


def whole_number(device: Device) -> Device:
    """Return a device on which no instruction takes a part of a cycle."""

    def rounded(cost: InstructionCost) -> InstructionCost:
        return replace(
            cost,
            start=float(math.ceil(cost.start + 1)),
            **{name: float(math.ceil(getattr(cost, name))) for name in ("repeat", "row", "block", "right")},
            block_of_4=float(math.ceil(cost.block_of_4)),
            wide=None if cost.wide is None else (cost.wide[0], rounded(cost.wide[1])),
            transposed=None if cost.transposed is None else rounded(cost.transposed),
        )

    ways = [replace(way, rate=0.5, start=float(math.ceil(way.start))) for way in device.transfers]
    return replace(
        device, costs={row: rounded(cost) for row, cost in device.costs.items()}, transfers=tuple(ways)
    )


def flat(device: Device) -> Device:
    """Return the device with one memory and one pipe for arithmetic, and caches of its own."""
    core = CoreKind("core", 2, ("any", "vector", "cube", "mixed"), ("load", "vector"), {Space.UB: 1 << 30})
    ways = (Route(Space.GM, Space.UB, "load", 0.25, 8.0), Route(Space.UB, Space.GM, "load", 0.5, 4.0))
    caches = (CoreCache(4096, 1.0), CoreCache(16384, 0.5))
    cache = replace(device.l2, core_rate=0.25)
    return replace(device, cores=(core,), transfers=ways, core_caches=caches, l2=cache)


@pytest.mark.parametrize("device", [*DEVICES, "flat"])
@pytest.mark.parametrize(
    ("made", "calls"), CALLS, ids=lambda part: part.name if isinstance(part, Kernel) else ""
)
def test_expressions_have_the_values_that_a_call_counts(made: Kernel, calls: Any, device: str) -> None:
    on = whole_number(get_device(DEVICES[0] if device == "flat" else device))
    on = flat(on) if device == "flat" else on
    function = made.specialise({}, {})
    amounts = kernel_amounts(function, on)
    for shapes, scalars in calls:
        cost = kernel_cost(function, on, shapes, scalars)
        expected = cost.operations, [*cost.loaded], [*cost.stored]
        assert amounts.of(shapes, scalars) == expected, (shapes, scalars)
        if not amounts.unknown:
            cycles = {pipe: n for pipe, n in amounts.cycles_of(shapes, scalars).items() if n}
            assert cycles == {pipe: n for pipe, n in cost.busy.items() if n}, (shapes, scalars)
    assert not amounts.unknown


def test_amounts_read_as_expressions_of_views_and_scalars() -> None:
    device = get_device("ascend_910b")
    text = str(kernel_amounts(attend.specialise({}, {}), device))
    assert "bytes loaded from k: 1024 * k.rows" in text  # two loads, of 128 f32 each
    assert "bytes stored to o: 2048" in text
    nested = str(kernel_amounts(triangle.specialise({}, {}), device))
    assert "bytes loaded from x: sum(i in range(0, n): 32 * max(i, 0))" in nested


@kernel
def by_element(x: In[Tensor[i32, DYN]], y: Out[Tile[1, 8, f32]]):
    t = pto.zeros((1, 8))
    for _ in range(x[0]):
        t = t + 1.0
    pto.store(y, t)


@kernel
def shifting(x: InOut[Tile[1, 8, f32]], n: Scalar[i64]):
    """The third iteration is the first in which `rounds` differs."""
    rounds, later = 1, 1
    for _ in range(n):
        for _ in range(rounds):
            pto.store(x, x + 1.0)
        rounds = later
        later = 3


@pytest.mark.parametrize("made", [by_element, shifting], ids=lambda made: made.name)
def test_amounts_that_elements_or_earlier_iterations_decide_are_refused(made: Kernel) -> None:
    with pytest.raises(NoCost, match="elements decide the bounds of a loop"):
        kernel_amounts(made.specialise({}, {}), get_device("ascend_910b"))
