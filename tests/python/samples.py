"""Modules built by hand that several tests share."""

from pto_wsp.ir.core import Full, Region, TileRange
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Param, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Var
from pto_wsp.ir.workload import Loop, ScalarParam, SizeParam, Task, TensorParam, WorkloadFunction
from pto_wsp.types import ScalarType, TensorType, TileType, f32

TILE = TileType(64, 128, f32)
WHOLE = (Full(), Full())


def scale_kernel() -> KernelFunction:
    """y = x * factor on a tile of 64 x 128."""
    return KernelFunction(
        "scale",
        (Param("x", "in", TILE), Param("y", "out", TILE), Param("factor", "in", ScalarType(f32))),
        tiles=(("x0", TILE), ("t0", TILE)),
        body=(
            Load("x0", Region("x", WHOLE)),
            Instr("muls", "t0", ("x0",), (Var("factor", f32),)),
            Store(Region("y", WHOLE), "t0"),
        ),
    )


def scale_module() -> Module:
    """Section 1 of the tour: rows of 128, in tiles of 64 rows."""
    rows = (TileRange("rows"), Full())
    task = Task("scale", (Region("X", rows), Region("Y", rows), Var("factor", f32)), (Var("rows"),))
    workload = WorkloadFunction(
        "scale_rows",
        (
            SizeParam("n"),
            TensorParam("X", TensorType(f32, ("n", 128))),
            TensorParam("Y", TensorType(f32, ("n", 128))),
            ScalarParam("factor", ScalarType(f32)),
        ),
        (Loop("parallel", "rows", Var("n"), 64, (task,)),),
    )
    return Module("scale_rows", (scale_kernel(),), (workload,), "scale_rows")
