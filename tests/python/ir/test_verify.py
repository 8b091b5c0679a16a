"""The verifier refuses what no front end should build."""

from collections.abc import Callable

import pytest

from pto_wsp.errors import InvalidIR
from pto_wsp.ir.core import Full, Index, Region, TileRange
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Param, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Extent, Var
from pto_wsp.ir.verify import verify
from pto_wsp.ir.workload import Loop, Task, WorkloadFunction
from pto_wsp.support.record import replace
from pto_wsp.types import TileType, ViewType, f32, i32
from tests.python.samples import TILE, WHOLE, scale_kernel, scale_module

Change = Callable[[KernelFunction], KernelFunction]


def test_a_sound_module_passes() -> None:
    module = scale_module()
    assert verify(module) is module


def with_body(*body: object) -> Change:
    return lambda kernel: replace(kernel, body=body)


KERNEL_MISTAKES: dict[str, tuple[Change, str]] = {
    "unknown tile": (with_body(Load("q", Region("x", WHOLE))), "unknown tile"),
    "unknown view": (with_body(Load("x0", Region("q", WHOLE))), "`q` is not a view"),
    "store to an input": (with_body(Store(Region("x", WHOLE), "x0")), "is an input"),
    "rank of a region": (with_body(Load("x0", Region("x", (Full(),)))), "has 2 dimensions"),
    "rank of a view": (with_body(Load("x0", Region("x", (Full(), Index(Const(0)))))), "two dimensions"),
    "dtype of a tile": (
        lambda kernel: replace(kernel, tiles=(("x0", TileType(64, 128, i32)), ("t0", TILE))),
        "differ in dtype",
    ),
    "unknown instruction": (with_body(Instr("fma", "t0", ("x0",))), "no instruction `fma`"),
    "operands": (with_body(Instr("add", "t0", ("x0",))), "operands of `add`"),
    "shape": (
        lambda kernel: replace(kernel, tiles=(("x0", TileType(64, 128, f32)), ("t0", TileType(8, 128, f32)))),
        "makes tile<64x128xf32>",
    ),
    "unknown scalar": (
        with_body(Instr("muls", "t0", ("x0",), (Var("gamma", f32),))),
        "`gamma` is not declared",
    ),
    "unknown extent": (with_body(Instr("expands", "t0", (), (Extent("q", 0),))), "`q` has no extents"),
    "declared twice": (lambda kernel: replace(kernel, tiles=(*kernel.tiles, ("x0", TILE))), "declared twice"),
    "not specialised": (
        lambda kernel: replace(kernel, params=(Param("x", "in", ViewType(None, None)), *kernel.params[1:])),
        "is not specialised",
    ),
    "not an identifier": (lambda kernel: replace(kernel, name="sc ale"), "not an identifier"),
}


@pytest.mark.parametrize("mistake", KERNEL_MISTAKES)
def test_kernel_mistakes(mistake: str) -> None:
    change, message = KERNEL_MISTAKES[mistake]
    with pytest.raises(InvalidIR, match=message):
        verify(Module("m", (change(scale_kernel()),)))


def workload_with(*body: object) -> Module:
    module = scale_module()
    workload = replace(module.workloads[0], body=body)
    return replace(module, workloads=(workload,))


def scale_task(dims: tuple[object, ...], kernel: str = "scale") -> Task:
    return Task(kernel, (Region("X", dims), Region("Y", dims), Var("factor", f32)))


WORKLOAD_MISTAKES: dict[str, tuple[Module, str]] = {
    "unknown kernel": (workload_with(scale_task(WHOLE, "scales")), "is not in the module"),
    "number of arguments": (workload_with(Task("scale", ())), "arguments of `scale`"),
    "tiles of no loop": (workload_with(scale_task((TileRange("rows"), Full()))), "is not a tiles loop"),
    "unknown variable": (
        workload_with(scale_task((Index(Var("i")), Full(), Full()))),
        "dimensions of `X`, found 3",
    ),
    "rank": (workload_with(scale_task((Index(Const(0)), Full()))), "takes 2 dimensions"),
    "variable declared twice": (
        workload_with(Loop("range", "n", Const(2), None, ())),
        "`n` is declared twice",
    ),
    "undeclared bound": (workload_with(Loop("range", "i", Var("m"), None, ())), "`m` is not declared"),
    "scalar for a tensor": (
        workload_with(Task("scale", (Var("n"), Region("Y", WHOLE), Var("factor", f32)))),
        "takes a tensor",
    ),
    "tensor for a scalar": (
        workload_with(Task("scale", (Region("X", WHOLE), Region("Y", WHOLE), Region("X", WHOLE)))),
        "takes a scalar",
    ),
}


@pytest.mark.parametrize("mistake", WORKLOAD_MISTAKES)
def test_workload_mistakes(mistake: str) -> None:
    module, message = WORKLOAD_MISTAKES[mistake]
    with pytest.raises(InvalidIR, match=message):
        verify(module)


def test_names_are_unique_and_the_entry_exists() -> None:
    module = scale_module()
    with pytest.raises(InvalidIR, match="two functions"):
        verify(replace(module, workloads=(replace(module.workloads[0], name="scale"),)))
    with pytest.raises(InvalidIR, match="entry `f` does not exist"):
        verify(replace(module, entry="f"))
    empty = WorkloadFunction("w", (), ())
    assert verify(Module("m", (), (empty,), "w"))
