"""The pictures of the README, the cookbook and `docs/visualize.md`: `python -m docs.pictures`."""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from docs.cookbook import FOLDER, recipes
from docs.figures import README
from examples.cases import cases
from examples.llama.kernels import Shape, Types
from examples.llama.model import Cache, Chunk, Layer, pack, random_weights
from pto_wsp import Program, f32
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.task_graph import TaskGraph
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.graph import graph_drawing
from pto_wsp.visualize.report import run_graph

IMAGES = Path(__file__).parent / "images"
LENGTHS = [6000, 300, 50, 2500, 1200]


def readme_names() -> dict[str, Any]:
    """Return the names of the README's program, after a run from a file, as kernels are parsed from files."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "readme.py")
        path.write_text(program, "utf-8")
        exec(compile(program, path, "exec"), names)
    return names


def ragged_batch() -> None:
    """Draw decode attention of a ragged batch on two workers: the fastest of ten runs."""
    names = readme_names()
    program, kv = names["program"], names["Ragged"].lengths(LENGTHS)
    q = np.random.rand(len(LENGTHS), 8, 4, 128).astype(np.float32)
    k, v = np.random.rand(2, sum(LENGTHS), 8, 128).astype(np.float32)
    best = None
    for _ in range(10):
        program.run(kv=kv, Q=q, K=k, V=v, O=np.empty_like(q), workers=2, trace=True)
        if best is None or program.stats.run_ms < best:
            best = program.stats.run_ms
            program.trace.save_svg(IMAGES / "ragged_batch.svg")


def layer_graph() -> None:
    """Draw what the tasks of a LLaMA layer depend on, by call: three requests, two of them new."""
    rng, shape = np.random.default_rng(0), Shape(8, 64, 1376)
    layer = Layer(shape, pack(random_weights(rng, shape), shape, f32), Types(f32, f32))
    cache = Cache.of(shape, 3, 300)
    batch = [Chunk(0, 0, 200), Chunk(1, 0, 90), Chunk(2, 0, 1)]
    hidden = rng.standard_normal((sum(chunk.tokens for chunk in batch), shape.hidden), np.float32)
    layer(hidden, batch, cache, trace=True)
    trace = layer.program.trace
    assert trace is not None
    picture = to_svg(graph_drawing(run_graph(trace.timeline())))
    (IMAGES / "layer_graph.svg").write_text(picture, "utf-8")


def cookbook() -> None:
    """Draw the tasks of every program of the cookbook."""
    for name in recipes():
        recipe_graph(name).save_svg(IMAGES / "cookbook" / f"{name}.svg")


def recipe_graph(name: str) -> TaskGraph:
    """Run a program of the cookbook and return the tasks of its last call."""
    with patch.object(Program, "__call__", autospec=True, side_effect=Program.__call__) as call:
        runpy.run_path(str(FOLDER / f"{name}.py"))
    (program,), arguments = call.call_args
    return program.task_graph(**arguments)


def simulated_layer() -> None:
    """Draw the LLaMA layer of `examples/llama` on a simulated device."""
    run = dict(cases())["llama/workload.py"]()
    program = compile_module(run.module, "sim", "ascend_910b")
    program.run(**run.arguments, trace=True)
    assert program.trace is not None
    program.trace.save_svg(IMAGES / "simulated_layer.svg")


if __name__ == "__main__":
    (IMAGES / "cookbook").mkdir(parents=True, exist_ok=True)
    cookbook()
    ragged_batch()
    layer_graph()
    simulated_layer()
