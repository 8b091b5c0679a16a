"""Every example in Python as a program with small inputs: `python -m examples` simulates and checks them."""

from __future__ import annotations

import importlib
import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from pto_wsp import Program, bf16, f32
from pto_wsp.ir.module import Module
from pto_wsp.support.record import record

HERE = Path(__file__).parent
LEFT_OUT = {
    "c_api": "tasks come from C",
    "llm": "weights come from the folder of a model",
    "minilm": "a task holds 768 KB of weights, more than the 512 KB of L1 of a core",
    "planner": "a C++ library without programs",
}
"""Folders that are not simulated, with the reason."""

DEVICE = "ascend_910b_seed"
Arguments = Mapping[str, Any]


@record
class Run:
    """A program and the arguments of one run."""

    module: Module
    arguments: Arguments


class _Recorder:
    """A program that keeps the arguments of its last run, for classes that bind their own."""

    def __init__(self, program: Program) -> None:
        self.arguments: Arguments = {}
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def run(self, **values: Any) -> None:
        """Run, and keep copies of the arguments."""
        options = ("workers", "trace")
        self.arguments = {key: copied(value) for key, value in values.items() if key not in options}
        self._program.run(**values)

    def again(self) -> Run:
        """Return the same run. Tensors that tasks write are zero, because tasks may write parts of them."""
        blank = {
            name: np.zeros_like(self.arguments[name]) for name in self.module.written & self.arguments.keys()
        }
        return Run(self.module, {**self.arguments, **blank})


def copied(value: Any) -> Any:
    """Return a copy of an array, and anything else as it is."""
    return value.copy() if isinstance(value, np.ndarray) else value


def _scale_rows() -> Run:
    module = importlib.import_module("examples.01_scale_rows.scale_rows")
    x = np.random.default_rng(0).random((1000, module.COLS), dtype=np.float32)
    return Run(module.scale_rows.trace().module, {"X": x, "Y": np.zeros_like(x), "factor": 2.0})


def _paged_decode() -> Run:
    module = importlib.import_module("examples.02_paged_decode.paged_decode")
    batch = module.random_batch(np.random.default_rng(0), np.array([0, 5, 1500, 300, 2100]), f32)
    return Run(module.paged_decode(f32).trace().module, batch._asdict())


def _moe() -> Run:
    module = importlib.import_module("examples.03_moe.moe")
    rng, shape = np.random.default_rng(0), module.Shape(experts=8, hidden=128, inner=128)
    weights = module.random_weights(rng, shape)
    batch = module.random_batch(rng, 200, weights, shape)
    arguments = {"tokens": len(batch.X), **batch._asdict(), **weights._asdict()}
    return Run(module.moe(shape).trace().module, arguments)


def _sparse_attention() -> Run:
    module = importlib.import_module("examples.04_sparse_attention.sparse_attention")
    batch = module.random_batch(np.random.default_rng(0), module.Shape(), np.array([100, 5000, 9000]), 9000)
    return Run(module.sparse_attention(module.Shape()).trace().module, batch._asdict())


def _decode_loop() -> Run:
    module = importlib.import_module("examples.05_decode_loop.decode_loop")
    rng, cache = np.random.default_rng(0), module.Cache(200, bf16)
    for request, length in enumerate((1000, 17, 333)):
        cache.append(request, rng.standard_normal((length, 2, module.KV_HEADS, module.DIM), np.float32))
    attn = module.BatchDecode(
        module.Q_HEADS, module.KV_HEADS, module.DIM, page_size=module.PAGE, kv_dtype=bf16, workers=2
    )
    program = attn.program = _Recorder(attn.program)
    attn.plan(*cache.plan_arrays())
    attn.run(rng.standard_normal((3, module.Q_HEADS, module.DIM), np.float32), cache.data)
    return program.again()


def _tuned_decode() -> Run:
    module = importlib.import_module("examples.06_tuned_decode.tuned_decode")
    batch = module.make_batch(8, 2000)
    return Run(module.decode.trace().module, {**batch._asdict(), "O": np.zeros_like(batch.Q)})


def _pipeline() -> Run:
    module = importlib.import_module("examples.07_pipeline.pipeline")
    x = np.random.default_rng(0).standard_normal((40, module.ROWS, module.COLS)).astype(np.float32)
    return Run(module.build(2, 2).trace().module, {"X": x, "Y": np.zeros_like(x)})


def _expert_network() -> Run:
    module = importlib.import_module("examples.08_expert_network.expert_network")
    batch = module.random_batch(np.random.default_rng(0), 24)
    return Run(module.build(3).trace().module, {**batch._asdict(), "Y": np.zeros_like(batch.Y)})


def _streaming_attention() -> Run:
    module = importlib.import_module("examples.09_streaming_attention.streaming_attention")
    batch = module.random_batch(np.random.default_rng(0), np.array([1, 300, 128, 900]))
    return Run(module.build(3).trace().module, {**batch._asdict(), "O": np.zeros_like(batch.O)})


def _decode_server() -> Run:
    module = importlib.import_module("examples.10_decode_server.decode_server")
    requests = module.random_requests(np.random.default_rng(0), 8)
    return Run(module.build(4, 2).trace().module, requests._asdict())


def _deepseek() -> Run:
    model = importlib.import_module("examples.deepseek_v32.model")
    config = importlib.import_module("examples.deepseek_v32.config").SMALL
    weights = importlib.import_module("examples.deepseek_v32.reference").random_weights
    rng = np.random.default_rng(0)
    layer = model.Layer(config, model.pack(config, weights(rng, config)))
    program = layer.program = _Recorder(layer.program)
    hidden = rng.standard_normal((60, config.hidden), np.float32)
    layer(hidden, [model.Chunk(0, 0, 50), model.Chunk(1, 0, 10)], model.Cache.of(config, 2, 64))
    return program.again()


def _llama() -> Run:
    model = importlib.import_module("examples.llama.model")
    shape = model.Shape(heads=2, dim=32, inner=96)
    rng = np.random.default_rng(0)
    layer = model.Layer(shape, model.pack(model.random_weights(rng, shape), shape))
    chunks, cache = [model.Chunk(0, 0, 150), model.Chunk(1, 0, 40)], model.Cache.of(shape, 2, 200)
    hidden = rng.standard_normal((190, shape.hidden), np.float32)
    return Run(layer.program.module, layer.arguments(hidden, chunks, cache))


def _cookbook(name: str) -> Run:
    runs: list[Run] = []

    def recorded(program: Program, **values: Any) -> None:
        runs.append(Run(program.module, {key: copied(value) for key, value in values.items()}))
        program.run(**values)

    with mock.patch.object(Program, "__call__", recorded):
        runpy.run_path(str(HERE / "cookbook" / f"{name}.py"))
    return runs[-1]


def _softmax() -> Run:
    module = importlib.import_module("examples.pto_programs.softmax")
    x = np.random.default_rng(1).standard_normal((203, module.COLS)).astype(np.float32)
    return Run(module.softmax_module().ir, {"input": x, "output": np.zeros_like(x), "total_rows": len(x)})


def _bgemm() -> Run:
    module, tile, sizes = importlib.import_module("examples.pto_programs.bgemm"), 16, (2, 8, 8, 3)
    (batch, m, n, k), rng = sizes, np.random.default_rng(2)
    rows = {"A": batch * m * k * tile, "B": batch * k * n * tile, "C": batch * m * n * tile}
    arrays = {name: rng.standard_normal((count, tile)).astype(np.float32) for name, count in rows.items()}
    return Run(module.bgemm_module(tile).ir, {**arrays, "num_batches": batch, "m": m, "n": n, "k": k})


def _pto_llama() -> Run:
    module = importlib.import_module("examples.pto_programs.llama")
    tensors = importlib.import_module("examples.pto_programs.__main__").llama_tensors
    arguments = tensors(8, np.random.default_rng(4))
    sizes = {"seq_len": 8 * module.ROWS, "num_tiles": 8}
    return Run(module.llama_module(min_range=module.ROWS).ir, {**arguments, **sizes})


def cases() -> Iterator[tuple[str, Callable[[], Run]]]:
    """Yield the examples by the paths of their programs."""
    yield "01_scale_rows/scale_rows.py", _scale_rows
    yield "02_paged_decode/paged_decode.py", _paged_decode
    yield "03_moe/moe.py", _moe
    yield "04_sparse_attention/sparse_attention.py", _sparse_attention
    yield "05_decode_loop/decode_loop.py", _decode_loop
    yield "06_tuned_decode/tuned_decode.py", _tuned_decode
    yield "07_pipeline/pipeline.py", _pipeline
    yield "08_expert_network/expert_network.py", _expert_network
    yield "09_streaming_attention/streaming_attention.py", _streaming_attention
    yield "10_decode_server/decode_server.py", _decode_server
    for path in sorted((HERE / "cookbook").glob("*.py")):
        yield f"cookbook/{path.name}", lambda name=path.stem: _cookbook(name)
    yield "deepseek_v32/graphs.py", _deepseek
    yield "llama/workload.py", _llama
    yield "pto_programs/softmax.py", _softmax
    yield "pto_programs/bgemm.py", _bgemm
    yield "pto_programs/llama.py", _pto_llama
