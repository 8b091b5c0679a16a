"""Memory spaces of tiles and tensors are read, printed, verified, and refused by targets without them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule, parse
from pto_wsp.errors import BadOperand, InvalidIR, PtoError, UnsupportedByTarget
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.verify import verify
from pto_wsp.passes.pipeline import parse_pipeline, run_pipeline
from pto_wsp.runtime.program import Program
from pto_wsp.text.python_text import to_python
from pto_wsp.tools.main import main
from pto_wsp.types.space import LOCAL_SPACES, TILE_SPACES, Space
from pto_wsp.types.tile import TensorType, TileType

F32, GM = ElementType.F32, MemorySpace.GM

TEXT = """// PTO Module: m
// Functions: product
// Entry: @product

// Function Type: InCore (tile-level computation)
func @product(%x: !pto.memref<gm,16x16,f32> {in, tile}, %y: !pto.memref<gm,16x16,f32> {out, tile}) {
  // Tile Declarations
  %near = alloc_tile : !pto.tile<16x16xf32,l1>
  %a = alloc_tile : !pto.tile<16x16xf32,l0a>
  %b = alloc_tile : !pto.tile<16x16xf32,l0b>
  %c = alloc_tile : !pto.tile<16x16xf32,l0c>
  // Instructions
  %near = tload %x[:, :] : !pto.tile<16x16xf32,l1>
  %a = tmov %near : !pto.tile<16x16xf32,l0a>
  %b = tmov %near : !pto.tile<16x16xf32,l0b>
  %c = tmatmul %a, %b : (!pto.tile<16x16xf32,l0a>, !pto.tile<16x16xf32,l0b>) -> !pto.tile<16x16xf32,l0c>
  tstore %c, %y[:, :]
  return
}
"""


def test_text_keeps_spaces() -> None:
    module = verify(parse(TEXT))
    assert str(module) == TEXT
    spaces = {name: tile.space for name, tile in module.kernel("product").tiles}
    assert spaces == {"near": Space.L1, "a": Space.L0A, "b": Space.L0B, "c": Space.L0C}
    renamed = run_pipeline(module, parse_pipeline("canonical,reuse,dce"))
    assert [tile.space for _, tile in renamed.kernel("product").tiles] == [*spaces.values()]
    assert TileType(8, 8, F32.dtype, Space.UB) != TileType(8, 8, F32.dtype)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("%a = alloc_tile : !pto.tile<16x16xf32,l0a>", "%a = alloc_tile : !pto.tile<16x16xf32,ub>", "`l0a`"),
        ("l0c", "ub", "takes `c` in `l0c`, not in `ub`"),
        ("l1>", "l0a>", "`load` takes `near` in `ub` or `l1`, not in `l0a`"),
        ("%x: !pto.memref<gm,", "%x: !pto.memref<l1,", "a memory: gm"),
        ("16x16xf32,l0a", "16x16xf32,l2", "a memory: ub, l1, l0a, l0b, l0c"),
    ],
)
def test_wrong_spaces_are_refused(before: str, after: str, message: str) -> None:
    text = TEXT.replace(before, after)
    if "alloc_tile" in before:
        text = text.replace("!pto.tile<16x16xf32,l0a>", "!pto.tile<16x16xf32,ub>")
    with pytest.raises(PtoError) as caught:
        verify(parse(text))
    assert message in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_target_without_the_memory_refuses_it(target: str) -> None:
    arrays = {"x": np.ones((16, 16), np.float32), "y": np.empty((16, 16), np.float32)}
    with pytest.raises(UnsupportedByTarget, match="the memory `l1`, in which `near` is to lie"):
        Program(with_entry_workload(parse(TEXT)), {}, target)(**arrays)
    text = TEXT
    for space in TILE_SPACES:
        text = text.replace(f",{space.value}>", ">")
    Program(with_entry_workload(parse(text)), {}, target)(**arrays)
    assert np.array_equal(arrays["y"], np.full((16, 16), 16, np.float32))


@pytest.mark.parametrize("command", [["check", "--target", "cpu"], ["emit"], ["emit", "--kernel", "double"]])
def test_commands_refuse_the_memory(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "double.pto"
    path.write_text(str(doubled(MemorySpace.UB, MemorySpace.LOCAL).ir))
    assert main([command[0], str(path), *command[1:]]) == 1
    assert "does not support the memory `ub`, in which `t` is to lie" in capsys.readouterr().err


def doubled(space: MemorySpace | None, between: MemorySpace) -> PTOModule:
    """Return a module that doubles twice, on tiles in `space` and by way of a memref in `between`."""
    module = PTOModule("m")
    builder = PTOFunctionBuilder("double").in_core().tile("t", 8, 8, F32, space)
    builder = builder.memref("x", GM, F32, (8, 8)).memref("y", GM, F32, (8, 8))
    module.add_function(builder.load("t", "x").adds("t", "t", 0.0).add("t", "t", "t").store("t", "y").build())
    outer = PTOFunctionBuilder("f", module=module).not_in_core()
    outer = outer.memref("x", GM, F32, (8, 8)).memref("y", GM, F32, (8, 8)).memref("b", between, F32, (8, 8))
    calls = outer.call("double", {"x": "x", "y": "b"}).call("double", {"x": "b", "y": "y"})
    module.add_function(calls.build())
    module.set_entry("f")
    return module


@pytest.mark.parametrize(
    ("space", "between"),
    [*product((None, MemorySpace.UB), (MemorySpace.LOCAL, MemorySpace.L2, MemorySpace.L1))],
)
def test_builder_keeps_spaces(space: MemorySpace | None, between: MemorySpace) -> None:
    module = doubled(space, between)
    ir = verify(module.ir)
    assert ir.kernel("double").tiles[0][1].space is (None if space is None else Space.UB)
    assert ir.entry_workload.tensor("b").type.space is between.among(LOCAL_SPACES)
    assert parse(str(ir)) == ir
    arrays = {"x": np.ones((8, 8), np.float32), "y": np.empty((8, 8), np.float32)}
    if space is None and between is MemorySpace.LOCAL:
        module.compile("cpu")(**arrays)
        assert np.array_equal(arrays["y"], 4 * arrays["x"])
    else:
        for target in ("cpu", "interp"):
            with pytest.raises(UnsupportedByTarget, match="the memory"):
                module.compile(target)(**arrays)


def test_python_text_keeps_spaces() -> None:
    module = doubled(MemorySpace.UB, MemorySpace.LOCAL).ir
    assert "MemorySpace.UB" in to_python(module)


def test_each_kind_has_its_memories() -> None:
    with pytest.raises(BadOperand, match="a memory of tiles"):
        PTOFunctionBuilder("f").in_core().tile("t", 8, 8, F32, GM)
    with pytest.raises(BadOperand, match="a memory of memrefs"):
        PTOFunctionBuilder("f").in_core().memref("x", MemorySpace.UB)
    assert str(TensorType(F32.dtype, (8,), Space.L2)) != ""
    with pytest.raises(InvalidIR, match="cannot lie in"):
        verify(parse(str(doubled(None, MemorySpace.L2).ir).replace(" {local}", "")))
