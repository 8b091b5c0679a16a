# ruff: noqa: E501 - text is compared line by line
"""The dump is `.pto` text."""

from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import For, If, Instr, KernelFunction, Load, Param, Store, While
from pto_wsp.ir.printer import print_kernel
from pto_wsp.ir.scalar import Binary, Const, Extent, Var, ceildiv
from pto_wsp.location import Location
from pto_wsp.support.record import replace
from pto_wsp.types import TileType, ViewType, bf16, f32
from tests.golden import Golden
from tests.python.samples import scale_module


def test_module(golden: Golden) -> None:
    golden("scale.pto", str(scale_module()))


def test_control_flow_and_regions(golden: Golden) -> None:
    tile = TileType(64, 128, bf16)
    region = Region("k", (Index(Var("h")), Range(Const(0), Const(64)), Full()))
    body = (
        For("r", Const(0), ceildiv(Extent("k", 1), 64), 1, (Load("a", region),)),
        If(Binary("lt", Var("h"), Const(2)), (Instr("neg", "a", ("a",)),), (Instr("abs", "a", ("a",)),)),
        While(Binary("gt", Var("h"), Const(0)), (Store(Region("o", (Full(), Full())), "a"),)),
    )
    kernel = KernelFunction(
        "f",
        (Param("k", "in", ViewType(bf16, (None, None, 128))), Param("o", "out", tile)),
        tiles=(("a", tile),),
        body=body,
    )
    golden("control.pto", print_kernel(kernel) + "\n")


def test_signatures_of_instructions() -> None:
    a, b, c = TileType(4, 128, f32), TileType(64, 128, bf16), TileType(4, 64, f32)
    kernel = KernelFunction(
        "f",
        (),
        tiles=(("a", a), ("b", b), ("c", c), ("m", TileType(4, 1, f32))),
        body=(
            Instr("matmul", "c", ("a", "b"), (), (("trans_b", True),)),
            Instr("rowmax", "m", ("c",)),
            Instr("rowexpandsub", "c", ("c", "m")),
            Instr("expands", "m", (), (Const(1.5, f32),)),
        ),
    )
    lines = print_kernel(kernel).splitlines()
    assert [line.strip() for line in lines if " = t" in line] == [
        "%c = tmatmul %a, %b {trans_b = true} : (!pto.tile<4x128xf32>, !pto.tile<64x128xbf16>) -> !pto.tile<4x64xf32>",
        "%m = trowmax %c : !pto.tile<4x64xf32> -> !pto.tile<4x1xf32>",
        "%c = trowexpandsub %c, %m : !pto.tile<4x64xf32>, !pto.tile<4x1xf32> -> !pto.tile<4x64xf32>",
        "%m = texpands %1.5 : f32, !pto.tile<4x1xf32>",
    ]


def test_places_are_not_part_of_a_module() -> None:
    module = scale_module()
    moved = replace(module, kernels=(replace(module.kernels[0], loc=Location("other.py", 7)),))
    assert moved == module
    assert str(moved) == str(module)
