"""A product of bf16 as a prompt of 512 tokens has it, against oneDNN as OpenVINO runs it."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from pto_wsp import bf16
from pto_wsp.ops.matmul import PackedMatrix, matmul

ROWS, SIZE = 512, 4096
PEER = "oneDNN (in OpenVINO)"


def measure_product(bench: Bench) -> None:
    """Add the row: rows and result of bf16, and a packed matrix on both sides."""
    rng, row = np.random.default_rng(0), f"gemm_bf16_{ROWS}_vs_onednn"
    x = rng.standard_normal((ROWS, SIZE), np.float32).astype(bf16.to_numpy())
    weight = rng.standard_normal((SIZE, SIZE), np.float32) / 64
    packed = PackedMatrix(weight, bf16)
    try:
        library, ops = import_module("openvino"), import_module("openvino.opset15")
    except ImportError:
        bench.skipped[PEER] = "openvino is not installed: make bench needs the extra [bench]"
        bench.rows.append(Row(row, None, "ms", PEER, goal="ratio >= 1"))
        return
    given = ops.parameter([ROWS, SIZE], library.Type.bf16)
    product = ops.matmul(ops.convert(given, "f32"), ops.constant(weight), False, False)
    model = library.Model([ops.convert(product, "bf16")], [given], "product")
    options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1}
    request = library.Core().compile_model(model, "CPU", options).create_infer_request()
    bits = x.view(np.float16)  # the library takes bf16 as memory of this type
    request.set_input_tensor(0, library.Tensor(bits, [ROWS, SIZE], library.Type.bf16))
    request.infer()
    theirs = request.get_output_tensor(0).data.view(bf16.to_numpy()).astype(np.float32)
    if np.abs(theirs - matmul(x, packed).astype(np.float32)).max() > 0.1:
        raise AssertionError("the products differ")
    functions = {
        "ours": lambda: elapsed_ms(lambda: matmul(x, packed)),
        "peer": lambda: elapsed_ms(request.infer),
    }
    measured = bench.measure(functions, rounds=bench.rounds(15, 5), threads=THREADS)
    mine, other = measured["ours"], measured["peer"]
    noisy = mine.noisy or other.noisy
    ratio = other.value / mine.value
    bench.rows.append(Row(row, mine.value, "ms", PEER, other.value, ratio, "ratio >= 1", noisy))
