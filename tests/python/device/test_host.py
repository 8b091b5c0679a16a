"""The device `host`: cores with caches of their own, one memory, and one pipe for all arithmetic."""

from pathlib import Path

import pytest

from pto_wsp import DYN, In, InOut, Out, Tensor, Tile, f32, kernel, pto
from pto_wsp.calibration.host import MachineFigures, description
from pto_wsp.calibration.instructions import FREE, GROUPS
from pto_wsp.calibration.overhead import TaskOverhead
from pto_wsp.device.describe import describe
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.model import Device, InstructionCost
from pto_wsp.device.reader import get_device, host_path
from pto_wsp.device.topology import SystemCache, Topology, read_topology
from pto_wsp.errors import BadDevice, NotCalibrated, UnknownDevice
from pto_wsp.isa.table import TABLE
from tests.python.device.tables import device_of

FIGURES = MachineFigures(
    clock_ghz=2.0,
    peak_gflops=100.0,
    own_rates=(64.0, 32.0),
    shared_rate=40.0,
    shared_core_rate=24.0,
    gm_rate=20.0,
    gm_core_rate=16.0,
    hit_ns=20.0,
    miss_ns=60.0,
)
COSTS = {row: InstructionCost(start=2.0, repeat=1.0, block=0.5, block_of_4=0.5, right=1.0) for row in TABLE}
CACHES = (SystemCache(1, 32 << 10, 1), SystemCache(2, 1 << 20, 1), SystemCache(3, 8 << 20, 2))


def host_text(cores: int = 2, costs: dict[str, InstructionCost] = COSTS) -> str:
    topology = Topology("made by a test", cores, CACHES)
    return description(topology, FIGURES, costs, TaskOverhead(5000.0, 10.0, 50.0))


def made(folder: Path) -> Device:
    return device_of(folder, host_text())


@kernel
def attend(a: In[Tile[4, 64, f32]], b: In[Tensor[f32, 64, 32]], c: Out[Tile[4, 32, f32]]):
    pto.store(c, pto.exp(pto.matmul(a, b)))


@kernel
def add_product(a: In[Tile[4, 64, f32]], b: In[Tensor[f32, 64, 32]], c: InOut[Tile[4, 32, f32]]):
    pto.store(c, pto.matmul(a, b, acc=c))


@kernel
def read(x: In[Tensor[f32, DYN, 256]], y: InOut[Tile[1, 256, f32]]):
    for r in pto.tiles(x.rows, 32):
        pto.store(y, pto.colsum(x[r]))


def test_every_instruction_has_a_group() -> None:
    rows = [row for rows in GROUPS.values() for row in rows.split()]
    known = [*rows, *FREE.split(), "matmul", "matmul_acc", "matmul_bias", "quantise", "matmul_quantised"]
    assert sorted(known) == sorted(TABLE)
    assert set(GROUPS) <= set(rows)


def test_the_description_has_the_figures(tmp_path: Path) -> None:
    device = made(tmp_path)
    assert device.by_unit["cube"] is device.by_unit["vector"] is device.by_unit["control"]
    assert [(cache.size, cache.rate) for cache in device.core_caches] == [(32 << 10, 32), (1 << 20, 16)]
    assert (device.gm_rate, device.gm_core_rate) == (10, 8)
    assert (device.l2.size, device.l2.rate, device.l2.core_rate) == (8 << 20, 20, 12)
    assert (device.l2.hit, device.l2.miss) == (40, 120)
    assert device.groups == {"cpu": 2} and device.dispatchers.dispatch == 10
    assert device.costs["exp"] == InstructionCost(start=2, repeat=1, block=0.5, block_of_4=0.5, right=1)
    text = describe(device)
    assert "2 caches of each core" in text and "(measured)" in text


def test_products_and_vector_work_share_a_pipe(tmp_path: Path) -> None:
    device = made(tmp_path)
    cost = kernel_cost(attend.specialise({}, {}), device, [(4, 64), (64, 32), (4, 32)], ())
    right = 64 * 32 / device.widths.cols
    product, exp = 2 + right * (4 * 0.5 + 1), 2 + 4 * 32 / device.widths.cols
    assert cost.units == ("cpu",)
    assert cost.busy["vector"] == product + exp
    assert cost.cycles >= product + exp
    assert cost.loaded == (1024, 8192, 0) and cost.stored == (0, 0, 512)


def test_a_product_adds_to_a_tile_that_was_loaded_at_no_cost(tmp_path: Path) -> None:
    device = made(tmp_path)
    cost = kernel_cost(add_product.specialise({}, {}), device, [(4, 64), (64, 32), (4, 32)], ())
    assert cost.busy["vector"] == 2 + 64 * 32 / device.widths.cols * (4 * 0.5 + 1)
    assert cost.spilled == 0 and cost.loaded == (1024, 8192, 512)


@pytest.mark.parametrize(("rows", "rate"), [(32, 32), (33, 16), (1024, 16), (1025, 12)])
def test_loads_come_from_the_nearest_cache_that_holds_the_view(
    tmp_path: Path, rows: int, rate: float
) -> None:
    device = made(tmp_path)
    cost = kernel_cost(read.specialise({}, {}), device, [(rows, 256), (1, 256)], ())
    loads = sum(min(32, rows - at) * 1024 // rate for at in range(0, rows, 32))
    stores = -(-rows // 32) * 1024 // 32
    assert cost.busy["memory"] == loads + stores


def test_a_device_without_a_table_states_every_cost(tmp_path: Path) -> None:
    few = {row: cost for row, cost in COSTS.items() if row != "exp"}
    with pytest.raises(BadDevice, match="none of `exp`"):
        device_of(tmp_path, host_text(costs=few))


def test_host_reads_the_calibration_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTO_WSP_CACHE", str(tmp_path))
    with pytest.raises(NotCalibrated, match="pto devices --calibrate"):
        get_device("host")
    text, about = host_text(), f'about = "{read_topology().about}"'
    host_path().write_text(text)
    with pytest.raises(NotCalibrated, match="made by a test, 2 cores"):
        get_device("host")
    host_path().write_text(text.replace('about = "made by a test, 2 cores"', about))
    assert get_device("host").name == "host"


def test_a_wrong_name_is_compared_with_host() -> None:
    with pytest.raises(UnknownDevice, match="did you mean `host`"):
        get_device("hots")
