"""A fused softmax, built step by step."""

from __future__ import annotations

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule

GLOBAL, F32 = MemorySpace.GLOBAL, ElementType.F32


def softmax_module() -> PTOModule:
    """Five InCore functions on tiles of 8 x 8, and the Orchestration that calls them for every tile."""
    module = PTOModule("softmax_module")

    def in_core(name: str, *memrefs: str) -> PTOFunctionBuilder:
        builder = PTOFunctionBuilder(name, module=module).in_core()
        for memref in memrefs:
            builder.memref(memref, GLOBAL, F32)
        return builder.tile("x", 8, 8, F32)

    def rows(name: str) -> PTOFunctionBuilder:
        return in_core(name, "input_x", "input_row", "output").tile("row", 8, 1, F32)

    in_core("rowmax", "input", "output").tile("result", 8, 1, F32).load("x", "input").rowmax(
        "result", "x"
    ).store("output", "result").build()
    rows("rowexpandsub").load("x", "input_x").load("row", "input_row").rowexpandsub("y", "x", "row").store(
        "output", "y"
    ).build()
    in_core("elem_exp", "input", "output").load("x", "input").exp("y", "x").store("output", "y").build()
    in_core("rowsum", "input", "output").load("x", "input").rowsum("y", "x").store("y", "output").build()
    rows("rowexpanddiv").load("x", "input_x").load("row", "input_row").rowexpanddiv("y", "x", "row").store(
        "output", "y"
    ).build()
    (
        PTOFunctionBuilder("dynamic_softmax", module=module)
        .not_in_core()
        .memref("input", GLOBAL, F32)
        .memref("output", GLOBAL, F32)
        .scalar("num_tiles", ElementType.I32)
        .for_loop("tile_idx", 0, "num_tiles", 1)
        .call("rowmax", {"input": ("input", "tile_idx", 0), "output": ("temp_max", "tile_idx", 0)})
        .call(
            "rowexpandsub",
            {
                "input_x": ("input", "tile_idx", 0),
                "input_row": ("temp_max", "tile_idx", 0),
                "output": ("temp_shifted", "tile_idx", 0),
            },
        )
        .call("elem_exp", {"input": ("temp_shifted", "tile_idx", 0), "output": ("temp_exp", "tile_idx", 0)})
        .call("rowsum", {"input": ("temp_exp", "tile_idx", 0), "output": ("temp_sum", "tile_idx", 0)})
        .call(
            "rowexpanddiv",
            {
                "input_x": ("temp_exp", "tile_idx", 0),
                "input_row": ("temp_sum", "tile_idx", 0),
                "output": ("output", "tile_idx", 0),
            },
        )
        .end_for()
        .build()
    )
    return module
