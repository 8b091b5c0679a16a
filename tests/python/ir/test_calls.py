"""Functions that call functions, ranges of loops for binary expansion, and kernels as entries."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.errors import InvalidIR
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.workload import run_workload
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module, called_functions
from pto_wsp.ir.scalar import Const, Var
from pto_wsp.ir.verify import verify
from pto_wsp.support.record import replace
from pto_wsp.types import ScalarType, TensorType, f32, i64
from pto_wsp.types.tile import ViewType
from tests.python.samples import WHOLE, scale_kernel, scale_module


def twice_kernel(*args: str | Const | Var) -> k.KernelFunction:
    return replace(scale_kernel(), name="twice", body=(k.KernelCall("scale", args),), tiles=())


def layers_module(*args: Region | Const | Var) -> Module:
    """A workload that scales each of L matrices with the workload of `scale_module`."""
    module = scale_module()
    dims = ("L", "m", 128)
    params = (
        w.SizeParam("L"),
        w.SizeParam("m"),
        w.TensorParam("A", TensorType(f32, dims)),
        w.TensorParam("B", TensorType(f32, dims)),
        w.ScalarParam("by", ScalarType(f32)),
    )
    loop = w.Loop("range", "i", Var("L"), None, (w.WorkloadCall("scale_rows", args),))
    caller = w.WorkloadFunction("layers", params, (loop,))
    return replace(module, workloads=(*module.workloads, caller), entry="layers")


def matrix(tensor: str) -> Region:
    return Region(tensor, (Index(Var("i")), Full(), Full()))


SOUND = (matrix("A"), matrix("B"), Var("by", f32))


def test_calls_are_checked_and_printed() -> None:
    module = verify(layers_module(*SOUND))
    assert module.workloads[0].open_params == tuple(p for p in module.workloads[0].params if p.name != "n")
    assert "    CALL @scale_rows(%A[at(%i), :, :], %B[at(%i), :, :], %by)\n" in str(module)
    assert called_functions(module.workloads[1]) == {"scale_rows"}
    kernels = (scale_kernel(), twice_kernel("x", "y", Var("factor", f32)))
    assert "  CALL @scale(%x, %y, %factor)\n" in str(verify(Module("m", kernels)))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "arguments of `scale_rows`"),
        ((Const(1), *SOUND[1:]), "`X` takes a tensor"),
        ((*SOUND[:2], matrix("A")), "`factor` takes a scalar"),
        ((*SOUND[:2], Var("i")), "`factor` takes f32"),
        ((Region("A", (Full(),) * 3), *SOUND[1:]), "`X` takes 2 dimensions"),
        ((Region("A", (Index(Const(0)), Range(Const(0), Const(1)), Full())), *SOUND[1:]), "whole dimensions"),
        ((Region("C", WHOLE), *SOUND[1:]), "`C` is not declared"),
    ],
)
def test_mistakes_in_calls_of_workloads(args: tuple[Region | Const | Var, ...], message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        verify(layers_module(*args))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("x", "y"), "arguments of `scale`"),
        (("x", "x", Const(1.0, f32)), "`x` is in, and `scale` takes out"),
        (("x", "y", Const(1)), "`factor` takes f32"),
        (("x", "z", Const(1.0, f32)), "`z` is not a view"),
    ],
)
def test_mistakes_in_calls_of_kernels(args: tuple[str | Const, ...], message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        verify(Module("m", (scale_kernel(), twice_kernel(*args))))


def test_views_of_a_call_have_the_type_and_are_written_once() -> None:
    kernel = twice_kernel("x", "y", Const(1.0, f32))
    wide = replace(kernel.params[0], type=ViewType(f32, (None, 128)))
    with pytest.raises(InvalidIR, match="takes tile<64x128xf32>"):
        verify(Module("m", (scale_kernel(), replace(kernel, params=(wide, *kernel.params[1:])))))
    both = twice_kernel("y", "y", Const(1.0, f32))
    inout = replace(both.params[1], role=k.INOUT)
    with pytest.raises(InvalidIR, match="writes a view that it takes twice"):
        verify(Module("m", (scale_kernel(), replace(both, params=(both.params[0], inout, both.params[2])))))


def test_no_function_calls_itself() -> None:
    for calls, through in (({"f": "f"}, ""), ({"f": "g", "g": "f"}, " through `.`")):
        functions = tuple(
            w.WorkloadFunction(name, (), (w.WorkloadCall(to, ()),)) for name, to in calls.items()
        )
        with pytest.raises(InvalidIR, match=f"`.` calls itself{through}; repeat with a loop"):
            verify(Module("m", (), functions))


WIDE = (64, 128)


def nothing(*_: object) -> None: ...


def test_what_is_not_inlined_does_not_run() -> None:
    module = layers_module(*SOUND)
    with pytest.raises(InvalidIR, match="call of `scale_rows` is not inlined"):
        run_workload(module, {"A": np.zeros((1, 1, 128)), "B": np.zeros((1, 1, 128))}, {"L": 1}, nothing)
    with pytest.raises(InvalidIR, match="call of `scale` is not inlined"):
        run_kernel(twice_kernel("x", "y", Const(1.0, f32)), (np.zeros(WIDE), np.zeros(WIDE), 1.0))


def ranged(**ranges: object) -> Module:
    loop = replace(w.Loop("range", "i", Var("n"), None, ()), **ranges)
    return Module("m", (), (w.WorkloadFunction("f", (w.SizeParam("n"),), (loop,)),), "f")


def test_ranges_are_printed() -> None:
    text = str(verify(ranged(max_range=4096, min_range=256, tile_levels=((4096, 64), (0, 32)))))
    levels = "max_range=4096 min_range=256 tile_levels={4096:64,0:32}"
    assert f"  FOR %i:idx, 0:idx, %n:idx, 1:idx {levels} {{range}}\n" in text


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"max_range": 48}, "48 is not a power of two"),
        ({"max_range": 0}, "at least one iteration"),
        ({"min_range": 8}, "need a `max_range`"),
        ({"max_range": 8, "min_range": 16}, "above `max_range`"),
        ({"max_range": 8, "tile_levels": ((0, 8), (4, 8))}, "descend"),
        ({"max_range": 8, "tile_levels": ((3, 8),)}, "3 is not a power of two"),
        ({"max_range": 8, "tile_levels": ((4, 0),)}, "at least one row"),
        ({"max_range": 8, "tile": 4}, "over tiles is not expanded"),
    ],
)
def test_mistakes_in_ranges(ranges: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        verify(ranged(**ranges))


def test_a_kernel_as_entry_is_one_task() -> None:
    kernel = replace(scale_kernel(), params=(*scale_kernel().params[:2], scale_kernel().params[2]))
    module = verify(with_entry_workload(Module("m", (kernel,), (), "scale")))
    entry = module.entry_workload
    assert (entry.name, [p.name for p in entry.params if not isinstance(p, w.SizeParam)]) == (
        "scale_once",
        ["x", "y", "factor"],
    )
    assert entry.tensor("x").type.dims == ("x_rows", "x_cols")
    assert with_entry_workload(module) is module


def test_a_derived_size_follows_from_numbers_of_the_call() -> None:
    count = w.ScalarParam("count", ScalarType(i64))
    size = w.SizeParam("rows", value=Var("count"))
    verify(Module("m", (), (w.WorkloadFunction("f", (count, size), ()),)))
    with pytest.raises(InvalidIR, match="follows from more than sizes"):
        verify(Module("m", (), (w.WorkloadFunction("f", (size,), ()),)))
