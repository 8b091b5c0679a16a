"""The calibration of the machine that runs this: slow, because its kernels are compiled."""

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.calibration.host import calibrate
from pto_wsp.device.reader import get_device, host_path
from pto_wsp.device.topology import read_topology
from pto_wsp.isa.table import TABLE
from pto_wsp.simulation import report_of


@kernel
def multiply(a: In[Tile[64, 128, f32]], b: In[Tile[128, 64, f32]], y: Out[Tile[64, 64, f32]]):
    pto.store(y, pto.matmul(a, b))


@workload
def products(A: Tensor[f32, "n", 64, 128], B: Tensor[f32, 128, 64], Y: Tensor[f32, "n", 64, 64]):
    for i in P("n"):
        multiply[i](a=A[i], b=B, y=Y[i])


@pytest.mark.slow
def test_this_machine_is_calibrated_and_simulated() -> None:
    topology, steps = read_topology(), list[str]()
    assert calibrate(steps.append) == host_path() and len(steps) == 3
    host = get_device("host")
    assert host.by_unit["vector"].count == topology.cores and set(host.costs) == set(TABLE)
    assert [cache.size for cache in host.core_caches] == [cache.size for cache in topology.own]
    assert 0.1 < host.clock_ghz < 10
    assert host.costs["exp"].repeat > 0 and host.costs["matmul"].block_of_4 > 0
    a, b = np.ones((40, 64, 128), np.float32), np.ones((128, 64), np.float32)
    program, y = products.compile("sim", device="host"), np.zeros((40, 64, 64), np.float32)
    program.run(A=a, B=b, Y=y)
    assert (y == 128).all()
    report = report_of(program)
    cost = host.costs["matmul"].of_product(64, 128, 64, 4, host.widths)
    assert report.operations == 40 * 2 * 64 * 128 * 64
    assert report.cycles >= 40 * cost / topology.cores
