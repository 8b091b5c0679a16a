"""The case `cuda` of the benchmarks, on substitutes for a GPU: its programs agree with torch."""

from __future__ import annotations

import pytest

from benchmarks.cuda import case
from benchmarks.harness import Bench
from tests.python.test_benchmarks import bench_with

pytestmark = [pytest.mark.usefixtures("gpu"), pytest.mark.slow]


def quick() -> Bench:
    bench = bench_with(iter(lambda: 1.0, 0.0))
    bench.quick = True
    return bench


def test_rows_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = quick()
    monkeypatch.setattr(case, "SOME_BLOCKS", 3)
    case.on_the_gpu(bench)
    assert tuple(row.name for row in bench.rows) == case.WITHOUT_TORCH
    assert all(row.value is not None and row.value > 0 for row in bench.rows)


def test_rows_with_torch() -> None:
    pytest.importorskip("torch", reason="needs `pip install torch`")
    from benchmarks.cuda import peers

    bench = quick()
    peers.run(bench, peers.Place("cpu"), peers.SMALL)
    on_cards = {f"gpu_layer_decode_vs_{peer}" for peer in ("compiled", "cuda_graph", "new_graphs")}
    names = [row.name for row in bench.rows]
    of_kernels = [name for name in names if name.startswith("gpu_roofline_")]
    assert [n for n in names if n not in of_kernels] == [n for n in case.WITH_TORCH if n not in on_cards]
    assert {"gpu_roofline_gemm_product_pct", "gpu_roofline_decode_attend_pct"} < set(of_kernels)
    assert sum(name.startswith("gpu_roofline_layer_") for name in of_kernels) > 5
    assert all(row.value is not None and row.value > 0 for row in bench.rows)


def test_programs_that_differ_are_not_timed() -> None:
    torch = pytest.importorskip("torch", reason="needs `pip install torch`")
    from benchmarks.cuda import peers

    one = torch.ones(3)
    peers.require_close(one, one * 1.01, "ones")
    for other in (one * 1.1, one * float("nan")):
        with pytest.raises(peers.Differs, match="ones"):
            peers.require_close(one, other, "ones")
