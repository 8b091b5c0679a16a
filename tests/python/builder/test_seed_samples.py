# fmt: off
"""Samples of PTO programs as others write them; only their imports are ours."""

from __future__ import annotations

import numpy as np
import pytest

from examples.pto_programs.llama import llama_module
from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_wsp.ir import workload as w
from tests.python.builder.softmax import softmax_module

TILE_ROWS_BY_LEVEL = {4096: 64, 2048: 64, 1024: 64, 512: 64, 256: 64, 0: 32}


def test_overview() -> None:
    module = PTOModule("my_module")
    builder = PTOFunctionBuilder("my_function", module=module)
    program = (builder
        .in_core()
        .memref("input", MemorySpace.GLOBAL, ElementType.F32)
        .memref("output", MemorySpace.GLOBAL, ElementType.F32)
        .tile("x", 8, 8, ElementType.F32)
        .load("x", "input")
        .exp("y", "x")
        .store("output", "y")
        .build())
    assert module.get_function("my_function") == program
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
    y = np.empty_like(x)
    module.compile("interp")(input=x, output=y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_an_orchestration_with_temporaries() -> None:
    module = softmax_module()
    built = (PTOFunctionBuilder("dynamic_softmax_sample", module=module)
        .not_in_core()
        .memref("input", MemorySpace.GLOBAL, ElementType.F32)
        .memref("output", MemorySpace.GLOBAL, ElementType.F32)
        .scalar("num_tiles", ElementType.I32)

        .for_loop("tile_idx", 0, "num_tiles", 1)
            .call("rowmax", {
                "input": ("input", "tile_idx", 0),
                "output": ("temp_max", "tile_idx", 0)
            })
            .call("rowexpandsub", {
                "input_x": ("input", "tile_idx", 0),
                "input_row": ("temp_max", "tile_idx", 0),
                "output": ("temp_shifted", "tile_idx", 0)
            })
        .end_for()
    .build())
    assert isinstance(built, w.WorkloadFunction)
    assert [t.name for t in built.tensors if t.is_local] == ["temp_max", "temp_shifted"]
    assert built.tensor("output").type.dims == ("output_rows", "output_cols")


def test_the_phases_of_flash_attention() -> None:
    builder = PTOFunctionBuilder("phases", module=llama_module()).not_in_core()
    for name in ("input", "wq", "attn_norm_weights", "all_q_rope", "all_k_rope"):
        builder.memref(name, MemorySpace.GLOBAL, ElementType.F32)
    built = (builder
        .scalar("num_tiles", ElementType.I32)
        .for_loop("tile_i", 0, "num_tiles", 1)
            .call("rmsnorm_tile", {
                "input": ("input", "tile_i", 0),
                "weights": "attn_norm_weights",
                "output": ("temp_norm", "tile_i", 0)
            })
            .call("tile_matmul", {
                "input_a": ("temp_norm", "tile_i", 0),
                "input_b": "wq",
                "output": ("all_q_tiles", "tile_i", 0)
            })
        .end_for()
        .for_loop("q_tile", 0, "num_tiles", 1,
                  max_range=4096, min_range=256, tile_levels=TILE_ROWS_BY_LEVEL)
            .for_loop("kv_tile", 0, "num_tiles", 1,
                      max_range=4096, min_range=256, tile_levels=TILE_ROWS_BY_LEVEL)
                .call("flash_attn_score_block", {
                    "input_q": ("all_q_rope", "q_tile", 0),
                    "input_k": ("all_k_rope", "kv_tile", 0),
                    "output_s": ("temp_scores", "q_tile", 0)
                })
            .end_for()
        .end_for()
        .build())
    assert isinstance(built, w.WorkloadFunction)
    loops = [node for node in w.walk_nodes(built.body) if isinstance(node, w.Loop)]
    assert [loop.max_range for loop in loops] == [None, 4096, 4096]
    assert loops[1].tile_levels == tuple(sorted(TILE_ROWS_BY_LEVEL.items(), reverse=True))
    assert [len([*w.tasks((node,))]) for node in built.body] == [2, 1]


@pytest.mark.parametrize("store", [("output", "y"), ("y", "output")])
def test_a_store_takes_its_operands_in_either_order(store: tuple[str, str]) -> None:
    def built(*names: str) -> object:
        builder = PTOFunctionBuilder("f").memref("output").tile("y", 8, 8).expands("y", 1.0)
        return builder.store(*names).build()

    assert built(*store) == built("y", "output")
