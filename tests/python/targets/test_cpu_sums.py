"""Sums that products add to are made where the products lie, which changes no bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pto_wsp.ir import kernel as k
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import const
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.c_style.plan import plan
from pto_wsp.targets.cpu.memory import shared_sums
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import f32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

COLS, TERMS = 20, 12


class _Sums:
    """Draws statements. `kept` are sums that live on, `made` the operands of products."""

    def __init__(self, draw: random.Random, maker: KernelMaker) -> None:
        self.draw, self.maker = draw, maker
        rows = draw.choice([1, 9, 33])
        self.factors = [maker.input("p", rows, TERMS, f32), maker.input("q", TERMS, COLS, f32)]
        self.tiles = [maker.input(name, rows, COLS, f32) for name in "cd"]
        self.kept = [maker.op("adds", tile, scalars=[0.5]) for tile in self.tiles]
        self.made: list[str] = []

    def add(self) -> None:
        """Add one to three statements."""
        draw, maker = self.draw, self.maker
        d, e = draw.sample(self.kept, 2)
        match draw.choice(["sum", "sum", "sum", "change", "store", "product"]):
            case "sum":
                self.made.append(maker.op("muls", draw.choice([d, *self.tiles]), scalars=[0.75]))
                self.between(d, e)
                fresh = f"n{len(self.made)}"
                maker.op("matmul_acc", self.made[-1], *self.factors, dst=draw.choice([d, d, e, fresh]))
                if fresh in maker.tiles:
                    self.kept.append(fresh)
            case "change":
                maker.op("add", d, e, dst=d)
            case "store":
                maker.store(d, f"y{len(maker.params)}")
            case _:
                maker.op("matmul_acc", d, *self.factors, dst=e)

    def between(self, d: str, e: str) -> None:
        """Use `d` between the making of a sum and the product, or take memory; or do nothing."""
        match self.draw.choice(["", "read", "write", "row", "new", "new"]):
            case "read":
                self.maker.op("add", d, e, dst=e)
            case "write":
                self.maker.op("adds", e, scalars=[0.25], dst=d)
            case "row":
                self.maker.op("rowexpandadd", e, self.maker.op("rowmax", d), dst=e)
            case "new":
                one = self.maker.op("matmul", *self.factors)
                self.maker.op("add", self.maker.op("matmul_acc", one, *self.factors), e, dst=e)
            case _:
                pass


def random_kernel(seed: int, *, is_apart: bool) -> KernelFunction:
    """Return a kernel of sums, and of products that add to them; `is_apart` reads each sum once more."""
    draw, maker = random.Random(seed), KernelMaker(f"sums_{seed}_{is_apart}")
    sums = _Sums(draw, maker)
    begin = len(maker.body)
    for _ in range(draw.randint(2, 6)):
        sums.add()
    if draw.random() < 0.5:
        maker.body[begin:] = [k.For("i", const(0), const(2), 1, tuple(maker.body[begin:]))]
    for tile in sums.kept:
        maker.store(tile, f"y{len(maker.params)}")
    for tile in sums.made if is_apart else ():
        maker.store(tile, f"z{len(maker.params)}")
    return maker.done()


def num_shared(kernel: KernelFunction) -> int:
    return len(shared_sums(plan(kernel), dict(kernel.tiles)))


SEEDS = (1, 6, 17, 29, 30, 37, 50, 74, 89)
KERNELS = [(random_kernel(seed, is_apart=False), random_kernel(seed, is_apart=True)) for seed in SEEDS]


def test_sums_that_are_read_twice_share_nothing() -> None:
    assert all(num_shared(kernel) for kernel, _ in KERNELS)
    assert not any(num_shared(apart) for _, apart in KERNELS)


def run(library: ctypes_abi.Library, kernel: KernelFunction) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    arrays = {p.name: rng.standard_normal(p.type.shape, np.float32) for p in kernel.params}
    assert library.call(kernel, list(arrays.values())) == 0
    return arrays


@pytest.mark.parametrize("width", WIDTHS)
def test_bits_are_those_of_sums_with_memory_of_their_own(width: str | None, cache: ArtifactCache) -> None:
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build([one for both in KERNELS for one in both], cache))
    for kernel, apart in KERNELS:
        found, expected = run(library, kernel), run(library, apart)
        for name, array in found.items():
            assert array.tobytes() == expected[name].tobytes(), (kernel.name, name)
