"""Batched matrix products of matrices of tiles: added up one after another, or in a tree.

A is a [batch, m, k] grid of tiles, B one of [batch, k, n] and C one of [batch, m, n], each a column of tiles
in row-major order.
"""

from __future__ import annotations

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule

GM, F32, I32 = MemorySpace.GM, ElementType.F32, ElementType.I32
BLOCK = 4
"""Tiles that the outer loops step over, as their inner loops cover them."""

TREE_K = 8
"""Products that the tree adds up for each tile of C."""


def _in_core(module: PTOModule, rows: int, inner: int, cols: int) -> None:
    gemm = _on_two(module, "gemm_tile", (rows, inner), (inner, cols)).cube()
    gemm.matmul("c", "a", "b").store("c", "output").build()
    add = _on_two(module, "tile_add", (rows, cols), (rows, cols)).cube(False)
    add.add("c", "a", "b").store("c", "output").build()


def _on_two(module: PTOModule, name: str, a: tuple[int, int], b: tuple[int, int]) -> PTOFunctionBuilder:
    """Begin a function that loads two tiles."""
    builder = PTOFunctionBuilder(name, module).in_core()
    for memref in ("input_a", "input_b", "output"):
        builder.memref(memref, GM, F32)
    return builder.tile("a", *a, F32).tile("b", *b, F32).load("a", "input_a").load("b", "input_b")


def bgemm_module(tile: int = 64) -> PTOModule:
    """C += A @ B, a product and a sum per step of k: 2 * batch * m * n * k tasks; m and n in blocks of 4."""
    module = PTOModule("bgemm")
    _in_core(module, tile, tile, tile)
    row, col = "(sm + lm)", "(sn + ln)"
    a = f"batch * (m * k) + {row} * k + k_idx"
    b = f"batch * (k * n) + k_idx * n + {col}"
    c = f"batch * (m * n) + {row} * n + {col}"
    (
        PTOFunctionBuilder("bgemm_dynamic", module)
        .not_in_core()
        .memref("A", GM, F32)
        .memref("B", GM, F32)
        .memref("C", GM, F32)
        .scalar("num_batches", I32)
        .scalar("m", I32)
        .scalar("n", I32)
        .scalar("k", I32)
        .for_loop("batch", 0, "num_batches", 1)
        .for_loop("sm", 0, "m", BLOCK)
        .for_loop("sn", 0, "n", BLOCK)
        .for_loop("k_idx", 0, "k", 1)
        .for_loop("lm", 0, BLOCK, 1)
        .for_loop("ln", 0, BLOCK, 1)
        .call("gemm_tile", {"input_a": ("A", a, 0), "input_b": ("B", b, 0), "output": ("P", c, 0)})
        .call("tile_add", {"input_a": ("C", c, 0), "input_b": ("P", c, 0), "output": ("C", c, 0)})
        .end_for()
        .end_for()
        .end_for()
        .end_for()
        .end_for()
        .end_for()
        .build()
    )
    module.set_entry("bgemm_dynamic")
    return module


def bgemm_tree_module(rows: int = 64, inner: int = 128, cols: int = 64) -> PTOModule:
    """C = A @ B for k = 8: 8 products and 7 sums per tile of C, 15 tasks of which at most 4 wait in a row."""
    module = PTOModule("bgemm_tree")
    _in_core(module, rows, inner, cols)
    builder = (
        PTOFunctionBuilder("bgemm_tree", module)
        .not_in_core()
        .memref("A", GM, F32)
        .memref("B", GM, F32)
        .memref("C", GM, F32)
        .scalar("num_batches", I32)
        .scalar("m", I32)
        .scalar("n", I32)
        .for_loop("batch", 0, "num_batches", 1)
        .for_loop("i", 0, "m", 1)
        .for_loop("j", 0, "n", 1)
    )
    c = "batch * (m * n) + i * n + j"
    for k in range(TREE_K):
        a, b = f"batch * (m * {TREE_K}) + i * {TREE_K} + {k}", f"batch * ({TREE_K} * n) + {k} * n + j"
        product = ("P0", f"{TREE_K} * ({c}) + {k}", 0)
        builder.call("gemm_tile", {"input_a": ("A", a, 0), "input_b": ("B", b, 0), "output": product})
    width = TREE_K
    for level in range(1, TREE_K.bit_length()):
        width //= 2
        for k in range(width):
            parts = [(f"P{level - 1}", f"{2 * width} * ({c}) + {2 * k + side}", 0) for side in (0, 1)]
            total = ("C", c, 0) if width == 1 else (f"P{level}", f"{width} * ({c}) + {k}", 0)
            builder.call("tile_add", {"input_a": parts[0], "input_b": parts[1], "output": total})
    builder.end_for().end_for().end_for().build()
    module.set_entry("bgemm_tree")
    return module
