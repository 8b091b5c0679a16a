"""Fused softmax over rows of any number: five InCore functions, and the Orchestration that calls them."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp import CompareMode, ElementType, MemorySpace, PTOFunctionBuilder, PTOModule

ROWS, COLS = 8, 8
Place = Callable[[str, int], tuple[str | int, ...]]
"""Gives the place of a tile in a tensor with this number of columns."""

GM, F32, I32, U1 = MemorySpace.GM, ElementType.F32, ElementType.I32, ElementType.U1


def softmax_module(rows: int = ROWS, cols: int = COLS) -> PTOModule:
    """Return the module; its entry is `dynamic_softmax`."""
    module = PTOModule("softmax_module")
    _reduction("rowmax", rows, cols, module).rowmax("result", "x").store("result", "output").build()
    _broadcast("rowexpandsub", rows, cols, module).rowexpandsub("y", "x", "row").store("y", "output").build()
    (
        PTOFunctionBuilder("elem_exp", module)
        .in_core()
        .memref("input", GM, F32)
        .memref("output", GM, F32)
        .tile("x", rows, cols, F32)
        .load("x", "input")
        .exp("y", "x")
        .store("y", "output")
        .build()
    )
    _reduction("rowsum", rows, cols, module).rowsum("result", "x").store("result", "output").build()
    _broadcast("rowexpanddiv", rows, cols, module).rowexpanddiv("y", "x", "row").store("y", "output").build()
    _orchestration(rows, cols, module)
    module.set_entry("dynamic_softmax")
    return module


def _reduction(name: str, rows: int, cols: int, module: PTOModule) -> PTOFunctionBuilder:
    return (
        PTOFunctionBuilder(name, module)
        .in_core()
        .memref("input", GM, F32)
        .memref("output", GM, F32)
        .tile("x", rows, cols, F32)
        .tile("result", rows, 1, F32)
        .load("x", "input")
    )


def _broadcast(name: str, rows: int, cols: int, module: PTOModule) -> PTOFunctionBuilder:
    return (
        PTOFunctionBuilder(name, module)
        .in_core()
        .memref("input_x", GM, F32)
        .memref("input_row", GM, F32)
        .memref("output", GM, F32)
        .tile("x", rows, cols, F32)
        .tile("row", rows, 1, F32)
        .load("x", "input_x")
        .load("row", "input_row")
    )


def _orchestration(rows: int, cols: int, module: PTOModule) -> None:
    """Whole tiles in a loop; the rows that are left, fewer than a tile has, once more."""
    builder = (
        PTOFunctionBuilder("dynamic_softmax", module)
        .not_in_core()
        .memref("input", GM, F32)
        .memref("output", GM, F32)
        .scalar("total_rows", I32)
        .scalar("tile_rows", I32)
        .scalar("num_full_tiles", I32)
        .scalar("full_rows", I32)
        .scalar("tail_rows", I32)
        .scalar("zero", I32)
        .scalar("has_tail", U1)
        .scalar_li("tile_rows", rows)
        .scalar_li("zero", 0)
        .scalar_div("num_full_tiles", "total_rows", "tile_rows")
        .scalar_mul("full_rows", "num_full_tiles", "tile_rows")
        .scalar_sub("tail_rows", "total_rows", "full_rows")
        .scalar_cmp("has_tail", "tail_rows", "zero", CompareMode.GT)
        .for_loop("tile_idx", 0, "num_full_tiles", 1)
    )
    _calls(builder, lambda tensor, _: (tensor, "tile_idx", 0))
    builder.end_for().if_then("has_tail")
    _calls(builder, lambda tensor, width: (tensor, "num_full_tiles", 0, "tail_rows", width), cols)
    builder.endif().build()


def _calls(builder: PTOFunctionBuilder, place: Place, cols: int = COLS) -> None:
    x, y = place("input", cols), place("output", cols)
    top, total = place("temp_rowmax", 1), place("temp_rowsum", 1)
    shifted, powers = place("temp_shifted", cols), place("temp_exp", cols)
    (
        builder.call("rowmax", {"input": x, "output": top})
        .call("rowexpandsub", {"input_x": x, "input_row": top, "output": shifted})
        .call("elem_exp", {"input": shifted, "output": powers})
        .call("rowsum", {"input": powers, "output": total})
        .call("rowexpanddiv", {"input_x": powers, "input_row": total, "output": y})
    )
