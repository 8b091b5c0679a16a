"""Run the orchestrations in C with kernels of the builder's programs, and compare them with numpy.

python -m examples.c_api [--tokens N] [--workers N] [--threshold N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from examples.c_api.build import Programs
from examples.pto_programs import reference
from examples.pto_programs.__main__ import TOLERANCE, llama_tensors
from examples.pto_programs.bgemm import TREE_K, bgemm_module
from examples.pto_programs.llama import LARGE_ROWS, ROWS, llama_module
from examples.pto_programs.softmax import COLS, softmax_module
from pto_wsp import PTOModule

Result = tuple[int, float, np.ndarray, np.ndarray]
"""Tasks, seconds to build and run them, what was found, and what numpy finds."""


def llama(folder: Path, tokens: int, workers: int, threshold: int) -> Result:
    """Run the layer, on large tiles where their number is even."""
    rows = LARGE_ROWS if tokens % LARGE_ROWS == 0 else ROWS
    tensors = llama_tensors(tokens // ROWS, np.random.default_rng(4))
    seconds = programs(folder, llama_module(min_range=ROWS)).llama(tensors, rows, workers, threshold)
    n = tokens // rows
    return 16 * n + 3 * n * n, seconds, tensors["output"], reference.llama_layer(tensors)


def softmax(folder: Path, tokens: int, workers: int, threshold: int) -> Result:
    """Run the softmax on `tokens` rows."""
    x = np.random.default_rng(1).standard_normal((tokens, COLS)).astype(np.float32)
    y = np.empty_like(x)
    seconds = programs(folder, softmax_module()).softmax(x, y, workers, threshold)
    return 5 * -(-tokens // 8), seconds, y, reference.softmax(x)


def bgemm(folder: Path, tokens: int, workers: int, threshold: int) -> Result:
    """Run the product that adds up one after another."""
    tile, m, k = 16, max(4, tokens // 256), 3
    a, b, c = _matrices(2, m, k, tile)
    seconds = programs(folder, bgemm_module(tile)).bgemm(a, b, c, workers, threshold)
    return 2 * 2 * m * m * k, seconds, c, reference.bgemm(a, b)


def bgemm_tree(folder: Path, tokens: int, workers: int, threshold: int) -> Result:
    """Run the product that adds up in a tree."""
    tile, m = 16, max(4, tokens // 256)
    a, b, c = _matrices(2, m, TREE_K, tile)
    seconds = programs(folder, bgemm_module(tile)).bgemm_tree(a, b, c, workers, threshold)
    return 15 * 2 * m * m, seconds, c, reference.bgemm(a, b)


def programs(folder: Path, module: PTOModule) -> Programs:
    """Return the orchestrations with the kernels of a module."""
    kernels = folder / f"{module.ir.name}.so"
    module.compile().save_kernels(kernels)
    return Programs(folder, kernels)


def _matrices(batch: int, m: int, k: int, tile: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((batch, m, k, tile, tile)).astype(np.float32)
    b = rng.standard_normal((batch, k, m, tile, tile)).astype(np.float32)
    return a, b, np.zeros((batch, m, m, tile, tile), np.float32)


RUNS: tuple[Callable[[Path, int, int, int], Result], ...] = (softmax, bgemm, bgemm_tree, llama)


def main() -> None:
    """Run every orchestration and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024, help="rows of the inputs, a multiple of 32")
    parser.add_argument("--workers", type=int, default=0, help="threads; all cores by default")
    parser.add_argument("--threshold", type=int, default=0, help="begin when more tasks are built; 0: all")
    options = parser.parse_args()
    if options.tokens < ROWS or options.tokens % ROWS != 0:
        parser.error(f"--tokens: a multiple of {ROWS}")
    with tempfile.TemporaryDirectory() as name:
        for run in RUNS:
            tasks, seconds, found, expected = run(
                Path(name), options.tokens, options.workers, options.threshold
            )
            distance = float(np.abs(found - expected).max())
            print(
                f"{run.__name__:12} {tasks:8} tasks {1e3 * seconds:10.2f} ms   within {distance:.1e} of numpy"
            )
            assert distance < TOLERANCE, f"{run.__name__} is wrong"


if __name__ == "__main__":
    main()
