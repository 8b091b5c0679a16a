"""What kernels cost, from their IR."""

from math import inf
from pathlib import Path
from typing import Any

import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, f16, f32, i32, i64, kernel, pto, u8
from pto_wsp.device.kernel_cost import KernelCost, kernel_cost
from pto_wsp.device.kernel_facts import scalars_that_matter
from pto_wsp.device.reader import get_device
from pto_wsp.device.scoreboard import Scoreboard
from pto_wsp.errors import NoCost, WrongValue
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.support.record import replace
from tests.python.device.tables import device_of

DEVICE = get_device("ascend_910b")


def cost_of(
    made: Kernel, shapes: list[tuple[int, ...]], scalars: tuple[int, ...] = (), num_buffers: int = 2
) -> KernelCost:
    return kernel_cost(made.specialise({}, {}), DEVICE, shapes, scalars, num_buffers)


@kernel
def product(a: In[Tensor[f16, 64, 512]], b: In[Tensor[f16, 512, 64]], c: Out[Tile[64, 64, f32]]):
    acc = pto.matmul(a[:, 0:128], b[0:128])
    for i in range(1, 4):
        acc = pto.matmul_acc(acc, a[:, i * 128 : i * 128 + 128], b[i * 128 : i * 128 + 128])
    pto.store(c, acc)


@kernel
def attend(q: In[Tile[4, 128, f32]], k: In[Tensor[f32, DYN, 128]], o: Out[Tile[4, 128, f32]]):
    m, acc = pto.full((4, 1), -inf), pto.zeros((4, 128))
    for r in pto.tiles(k.rows, 64):
        s = pto.matmul(q, k[r].T)
        m_new = pto.maximum(m, pto.rowmax(s))
        acc, m = acc * pto.exp(m - m_new) + pto.matmul(pto.exp(s - m_new), k[r]), m_new
    pto.store(o, acc)


@kernel
def repeated(x: InOut[Tile[16, 64, f32]], n: Scalar[i64], at: Scalar[i64]):
    for _ in range(n):
        pto.store(x, pto.exp(x * 2.0))


def test_a_product_takes_the_published_time_of_its_core() -> None:
    cost = cost_of(product, [(64, 512), (512, 64), (64, 64)], num_buffers=1)
    assert cost.units == ("cube",)
    assert cost.cycles == pytest.approx(2142, rel=0.10)
    assert cost.busy["mte2_cube"] == pytest.approx(1672, rel=0.01)
    assert cost.busy["mte1"] == pytest.approx(776, rel=0.02)
    assert cost.busy["cube"] == 536
    assert cost.loaded == (65536, 65536, 0) and cost.stored == (0, 0, 16384) and cost.spilled == 0
    assert cost.operations == 2 * 64 * 512 * 64


def test_a_kernel_of_both_units_takes_both_and_moves_by_way_of_global_memory() -> None:
    cost = cost_of(attend, [(4, 128), (640, 128), (4, 128)])
    assert cost.units == ("cube", "vector")
    assert cost.loaded == (4 * 128 * 4, 2 * 640 * 128 * 4, 0)
    # Per step: scores and values come out of the cube, probabilities go into it.
    assert cost.spilled == 10 * 2 * (4 * 64 + 4 * 64 + 4 * 128) * 4
    assert cost.gm_bytes == sum(cost.loaded) + sum(cost.stored) + cost.spilled


@kernel
def cleared(a: In[Tensor[f16, 64, 512]], b: In[Tensor[f16, 512, 64]], c: Out[Tile[64, 64, f32]]):
    acc = pto.zeros((64, 64))
    for i in range(4):
        acc = pto.matmul_acc(acc, a[:, i * 128 : i * 128 + 128], b[i * 128 : i * 128 + 128])
    pto.store(c, acc)


@kernel
def added(a: In[Tensor[f16, 64, 512]], b: In[Tensor[f16, 512, 64]], c: InOut[Tile[64, 64, f32]]):
    acc = pto.load(c)
    for i in range(4):
        acc = pto.matmul_acc(acc, a[:, i * 128 : i * 128 + 128], b[i * 128 : i * 128 + 128])
    pto.store(c, acc)


def test_a_cleared_sum_takes_no_vector_core_and_a_loaded_one_does() -> None:
    shapes: list[tuple[int, ...]] = [(64, 512), (512, 64), (64, 64)]
    first, zeros, loads = cost_of(product, shapes), cost_of(cleared, shapes), cost_of(added, shapes)
    assert zeros.units == ("cube",) and zeros.spilled == 0
    assert zeros.busy == first.busy and zeros.cycles == pytest.approx(first.cycles, rel=0.01)
    assert loads.units == ("cube", "vector") and loads.loaded == (65536, 65536, 16384)
    assert loads.spilled == 4 * 2 * 16384  # each product leaves L0C by way of global memory


@kernel
def unpacked(x: In[Tile[8, 256, f16]], w: In[Tensor[u8, DYN, 1088]], y: Out[Tile[8, 32, f32]]):
    acc = pto.matmul_quantised(pto.zeros((8, 32)), x, w[0:8], format="q8_0")
    pto.store(y, acc)


def test_a_quantised_product_is_unpacked_on_a_vector_core() -> None:
    cost = cost_of(unpacked, [(8, 256), (8, 1088), (8, 32)])
    assert cost.units == ("cube", "vector")
    assert cost.loaded == (8 * 256 * 2, 8 * 1088, 0) and cost.stored == (0, 0, 8 * 32 * 4)
    assert cost.spilled == 2 * (256 * 32 * 2 + 8 * 32 * 4)  # the matrix in f16, and the product
    assert cost.operations == 2 * 8 * 256 * 32 + 8 * 32


@kernel
def noted(x: InOut[Tile[16, 64, f32]]):
    pto.check(x.rows > 0, "no rows")
    pto.print("rows", x.rows)
    pto.store(x, x * 2.0)


@kernel
def plain(x: InOut[Tile[16, 64, f32]]):
    pto.store(x, x * 2.0)


def test_a_check_takes_a_cycle_and_a_print_none() -> None:
    assert cost_of(noted, [(16, 64)]).cycles == cost_of(plain, [(16, 64)]).cycles + 1


def walked_whole(monkeypatch: pytest.MonkeyPatch, shapes: list[tuple[int, ...]]) -> KernelCost:
    with monkeypatch.context() as patch:
        marks = iter(range(1 << 30))
        patch.setattr(Scoreboard, "since", lambda self, start: (next(marks),))
        return cost_of(attend, shapes)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 128, 129, 640, 1000, 2500, 6400])
def test_iterations_that_are_counted_cost_what_walked_ones_do(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(4, 128), (rows, 128), (4, 128)]
    assert cost_of(attend, shapes) == walked_whole(monkeypatch, shapes)


def test_two_buffers_overlap_loads_with_work() -> None:
    shapes = [(64, 512), (512, 64), (64, 64)]
    one, two = cost_of(product, shapes, num_buffers=1), cost_of(product, shapes, num_buffers=2)
    assert two.cycles <= one.cycles and two.busy == one.busy


@kernel
def chosen(x: In[Tile[16, 64, f32]], y: InOut[Tile[16, 64, f32]], z: Out[Tile[16, 64, f32]], n: Scalar[i64]):
    t, s = pto.load(x), pto.load(y)
    if n > 0:
        t = t * 2.0
    pto.store(z, t)
    pto.store(y, s)


def test_pipes_of_one_kind_of_core_end_together_around_a_choice() -> None:
    """Loads, the chosen way and stores follow each other; a core with one memory does not wait."""
    shapes = [(16, 64)] * 3
    for taken in (0, 1):
        cost = cost_of(chosen, shapes, (taken,))
        work = sum(cost.busy.get(pipe, 0.0) for pipe in ("mte2", "vector", "mte3"))
        assert cost.cycles == work + 1  # and the condition
    flat = get_device("ascend_910b")
    core = replace(flat.by_unit["vector"], units=("vector", "cube"), pipes=("mte2", "vector", "mte3"))
    flat = replace(flat, name="flat", cores=(core,), groups={})
    cost = kernel_cost(chosen.specialise({}, {}), flat, shapes, (0,))
    assert flat.is_flat and cost.cycles < cost.busy["mte2"] + cost.busy["mte3"]


def test_only_scalars_that_decide_shapes_or_loops_matter() -> None:
    @kernel
    def picks(
        x: In[Tensor[f32, DYN, 64]],
        y: Out[Tile[16, 64, f32]],
        at: Scalar[i64],
        rows: Scalar[i64],
        flag: Scalar[i64],
        factor: Scalar[f32],
    ):
        n = rows + 1
        if flag > 0:
            pto.store(y, x[at : at + 16] * factor)
        else:
            t = x[at : at + 16] + 0.0
            for _ in range(n):
                t = t * factor
            pto.store(y, t)

    assert scalars_that_matter(picks.specialise({}, {})) == (False, True, True, False)
    assert scalars_that_matter(repeated.specialise({}, {})) == (True, False)


def test_work_grows_with_what_scalars_say() -> None:
    once, often = cost_of(repeated, [(16, 64)], (1, 0)), cost_of(repeated, [(16, 64)], (1000, 0))
    assert often.operations == 1000 * once.operations
    assert 500 * once.busy["vector"] < often.busy["vector"] <= 1000 * once.busy["vector"]


def test_control_by_elements_is_refused_with_its_line() -> None:
    @kernel
    def searches(x: In[Tensor[i32, DYN]], y: Out[Tile[1, 64, f32]]):
        total = pto.zeros((1, 64))
        for _ in range(x[0]):  # type: ignore[arg-type]
            total = total + 1.0
        pto.store(y, total)

    with pytest.raises(NoCost, match="elements decide the bounds of a loop") as caught:
        cost_of(searches, [(8,), (1, 64)])
    assert caught.value.loc is not None


def test_a_kernel_in_cpp_has_the_cost_that_is_stated() -> None:
    @kernel(cpp_src="y(0, 0) = x(0, 0);")
    def one(x: In[Tile[8, 4, f32]], y: Out[Tile[1, 1, f32]], n: Scalar[i64], at: Scalar[i64]): ...

    with pytest.raises(NoCost, match=r"written in C\+\+"):
        cost_of(one, [(3, 4), (1, 1)], (5, 0))

    @one.cost
    def cycles(x, n):
        return 100 * x.rows + n

    cost = cost_of(one, [(3, 4), (1, 1)], (5, 0))
    assert cost.cycles == 305 and cost.loaded == (48, 0) and cost.stored == (0, 4)
    assert scalars_that_matter(one.specialise({}, {})) == (True, False)


def test_a_stated_cost_must_be_a_number_of_parameters_of_the_kernel() -> None:
    with pytest.raises(WrongValue, match="cost"):
        repeated.cost(lambda rows: 1)
    with pytest.raises(WrongValue, match="cost"):
        repeated.cost(17)  # type: ignore[type-var]

    @kernel
    def some(x: InOut[Tile[16, 64, f32]]):
        pto.store(x, x * 2.0)

    some.cost(lambda x: -1)
    with pytest.raises(NoCost, match="its cost is -1"):
        cost_of(some, [(16, 64)])


def test_a_cost_can_be_stated_in_parts() -> None:
    @kernel
    def some(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]], n: Scalar[i64], at: Scalar[i64]):
        pto.store(y, x * 2.0)

    some.cost(compute=lambda x, n: x.rows * n, memory=lambda y: 10 * y.rows)
    assert [cost_of(some, [(16, 64)] * 2, (n, 0)).cycles for n in (5, 50)] == [160, 800]
    assert scalars_that_matter(some.specialise({}, {})) == (True, False)
    some.cost(compute=lambda x, n: x.rows * n, memory=lambda y: 10 * y.rows, total=lambda c, m: c + m)
    assert cost_of(some, [(16, 64)] * 2, (5, 0)).cycles == 240
    some.cost(compute=lambda n: n, memory=lambda: None)
    with pytest.raises(NoCost, match="its cost is None"):
        cost_of(some, [(16, 64)] * 2, (5, 0))
    some.cost(compute=lambda n: n, memory=lambda: 1, total=lambda c, m: m - c)
    with pytest.raises(NoCost, match="its cost is -4"):
        cost_of(some, [(16, 64)] * 2, (5, 0))
    wrong: list[dict[str, Any]] = [
        {"compute": lambda: 1},
        {"compute": lambda rows: 1, "memory": lambda: 1},
        {"compute": max, "memory": lambda: 1},
        {"compute": lambda: 1, "memory": lambda: 1, "total": 3},
    ]
    for parts in wrong:
        with pytest.raises(WrongValue):
            some.cost(**parts)
    with pytest.raises(WrongValue, match="found both"):
        some.cost(lambda: 1, compute=lambda: 1, memory=lambda: 1)  # type: ignore[call-overload]


def test_a_device_without_the_unit_or_the_way_is_refused(tmp_path: Path) -> None:
    text = """
name = "vectors"
clock_ghz = 1.0
[cores.vector]
count = 1
units = ["vector"]
pipes = ["mte2", "vector", "mte3"]
[[transfers]]
from = "gm"
to = "ub"
pipe = "mte2"
rate = 8
[gm]
rate = 16
[dispatchers]
count = 1
"""
    device = device_of(tmp_path, text)
    with pytest.raises(NoCost, match="unit `cube`"):
        kernel_cost(product.specialise({}, {}), device, [(64, 512), (512, 64), (64, 64)], ())
    with pytest.raises(NoCost, match="no way from ub to gm"):
        kernel_cost(repeated.specialise({}, {}), device, [(16, 64)], (1, 0))
