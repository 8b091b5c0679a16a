"""Run the programs with data, and compare them with numpy.

python -m examples.pto_programs [PROGRAM ...] [--tokens N] [--workers N] [--text]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from examples.pto_programs import reference
from examples.pto_programs.bgemm import BLOCK, TREE_K, bgemm_module, bgemm_tree_module
from examples.pto_programs.llama import DIM, LARGE_ROWS, MEMREFS, ROWS, llama_module
from examples.pto_programs.softmax import COLS, softmax_module
from pto_wsp import Program, parse
from pto_wsp.runtime.compiling import compile_module

TOLERANCE = 2e-5  # absolute: results are of order 1
Arrays = dict[str, Any]


def llama_tensors(num_tiles: int, rng: np.random.Generator) -> Arrays:
    """Return arrays for all tensors of the layer on `num_tiles` tiles of rows."""
    found: Arrays = {}
    for name in MEMREFS:
        if name in ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"):
            found[name] = (rng.standard_normal((DIM, DIM)) / np.sqrt(DIM)).astype(np.float32)
        elif name.endswith(("norm_weights", "_cache")):
            found[name] = rng.standard_normal((ROWS, DIM)).astype(np.float32)
        elif name.startswith("const"):
            cols = DIM if name.endswith("large") else 1
            found[name] = np.full((ROWS, cols), -inf if name.endswith("inf") else 0, np.float32)
        else:
            wide = LARGE_ROWS if name in ("temp_scores", "temp_attn_weights") else DIM
            cols = 1 if name.endswith("_vec") or name == "temp_scale" else wide
            found[name] = np.zeros((num_tiles * ROWS, cols), np.float32)
    found["input"] = rng.standard_normal(found["input"].shape).astype(np.float32)
    return found


def run_softmax(rows: int, workers: int | None) -> tuple[Program, float]:
    """Run the softmax on `rows` rows; return the program, and how far it is from numpy."""
    x = np.random.default_rng(1).standard_normal((rows, COLS)).astype(np.float32)
    y = np.empty_like(x)
    program = softmax_module().compile()
    program(input=x, output=y, total_rows=rows, workers=workers)
    return program, _distance(y, reference.softmax(x))


def run_bgemm(tokens: int, workers: int | None) -> tuple[Program, float]:
    """Run the batched product; see `run_softmax`."""
    tile, batch, k = 16, 2, 3
    m = n = max(1, tokens // (BLOCK * tile * 16)) * BLOCK
    rng = np.random.default_rng(2)
    a = rng.standard_normal((batch, m, k, tile, tile)).astype(np.float32)
    b = rng.standard_normal((batch, k, n, tile, tile)).astype(np.float32)
    c = np.zeros((batch, m, n, tile, tile), np.float32)
    columns: Arrays = {name: array.reshape(-1, tile) for name, array in (("A", a), ("B", b), ("C", c))}
    program = bgemm_module(tile).compile()
    program(**columns, num_batches=batch, m=m, n=n, k=k, workers=workers)
    return program, _distance(c, reference.bgemm(a, b))


def run_bgemm_tree(tokens: int, workers: int | None) -> tuple[Program, float]:
    """Run the batched product that adds up in a tree; see `run_softmax`."""
    rows, inner, cols, batch = 16, 32, 16, 2
    m = n = max(1, tokens // (rows * 16))
    rng = np.random.default_rng(3)
    a = rng.standard_normal((batch, m, TREE_K, rows, inner)).astype(np.float32)
    b = rng.standard_normal((batch, TREE_K, n, inner, cols)).astype(np.float32)
    c = np.empty((batch, m, n, rows, cols), np.float32)
    columns: Arrays = {"A": a.reshape(-1, inner), "B": b.reshape(-1, cols), "C": c.reshape(-1, cols)}
    program = bgemm_tree_module(rows, inner, cols).compile()
    program(**columns, num_batches=batch, m=m, n=n, workers=workers)
    return program, _distance(c, reference.bgemm(a, b))


def run_llama(tokens: int, workers: int | None) -> tuple[Program, float]:
    """Run the layer as its text says it, on large tiles where their number is even; see `run_softmax`."""
    num_tiles = tokens // ROWS
    tensors = llama_tensors(num_tiles, np.random.default_rng(4))
    program = compile_module(parse(str(llama_module(min_range=ROWS))), "cpu")
    program(**tensors, seq_len=tokens, num_tiles=num_tiles, workers=workers)
    return program, _distance(tensors["output"], reference.llama_layer(tensors))


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max(initial=0.0))


PROGRAMS: dict[str, Callable[[int, int | None], tuple[Program, float]]] = {
    "softmax": run_softmax,
    "bgemm": run_bgemm,
    "bgemm_tree": run_bgemm_tree,
    "llama": run_llama,
}


def main() -> None:
    """Run the programs that are named, or all, and print what they did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--tokens", type=int, default=1024, help="rows of the inputs")
    parser.add_argument("--workers", type=int, default=None, help="threads; all cores by default")
    parser.add_argument("--text", action="store_true", help="print the softmax as .pto text first")
    options = parser.parse_args()
    if options.tokens < ROWS:
        parser.error(f"--tokens: at least {ROWS}")
    if options.text:
        print(softmax_module())
    for name in options.programs or PROGRAMS:
        if name not in PROGRAMS:
            parser.error(f"{name}: none of {', '.join(PROGRAMS)}")
        program, distance = PROGRAMS[name](options.tokens, options.workers)
        stats = program.stats
        assert stats is not None
        print(f"{name:12} {stats.tasks:8} tasks {stats.run_ms:9.2f} ms   within {distance:.1e} of numpy")
        assert distance < TOLERANCE, f"{name} is wrong"


if __name__ == "__main__":
    main()
