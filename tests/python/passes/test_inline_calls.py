"""Bodies of called functions in the places of their calls."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.errors import CannotInline
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Region, TileRange
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Slot, Var, add
from pto_wsp.ir.verify import verify
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types import ScalarType, TensorType, TileType, f32, i64
from tests.golden import Golden
from tests.python.samples import WHOLE, scale_module

MATRIX = Region("A", (Index(Var("i")), Full(), Full()))


def body_of(text: str, function: str) -> str:
    lines = text[text.index(f"func @{function}(") :].split("\n}")[0].splitlines()
    return "\n".join(line.strip() for line in lines[1:] if not line.strip().startswith("//"))


# --- kernels ---


def power_kernel() -> k.KernelFunction:
    """y = x * f ** n; it changes its own scalar and has a loop."""
    factor = Var("f", f32)
    loop = k.For("i", Const(1), Var("n"), 1, (k.Assign("f", Binary("mul", factor, Var("g", f32))),))
    start = k.Assign("g", factor)
    load = k.Load("t", Region("x", WHOLE))
    scaled = k.Instr("muls", "t", ("t",), (factor,))
    tile = TileType(8, 8, f32)
    params = (
        k.Param("x", k.IN, tile),
        k.Param("y", k.OUT, tile),
        k.Param("f", k.IN, ScalarType(f32)),
        k.Param("n", k.IN, ScalarType(i64)),
    )
    body = (start, loop, load, scaled, k.Store(Region("y", WHOLE), "t"))
    return k.KernelFunction("power", params, (("t", tile),), (("g", ScalarType(f32)),), body)


def caller_kernel() -> k.KernelFunction:
    """z = x * 2 ** 3 * x.rows ** m, through y."""
    power = power_kernel()
    params = (
        power.params[0],
        replace(power.params[1], name="y", role=k.INOUT),
        replace(power.params[1], name="z"),
    )
    body = (
        k.KernelCall("power", ("x", "y", Const(2.0, f32), Const(3))),
        k.For(
            "i",
            Const(0),
            Const(1),
            1,
            (k.KernelCall("power", ("y", "z", Const(8.0, f32), add(Var("m"), Var("i")))),),
        ),
    )
    return k.KernelFunction("caller", (*params, k.Param("m", k.IN, ScalarType(i64))), (), (), body)


def test_a_kernel_in_a_kernel(golden: Golden) -> None:
    module = verify(inline_calls(verify(Module("m", (caller_kernel(), power_kernel()), (), "caller"))))
    golden("power_twice.pto", str(module))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    for target in ("interp", "cpu"):
        y, z = np.zeros_like(x), np.zeros_like(x)
        program = Program(verify(with_entry_workload(module)), {}, target)
        program(x=x, y=y, z=z, m=2)
        assert (y == x * 8).all() and (z == x * 8 * 64).all()


# --- workloads ---


def layers_module(*args: Region | Expr, sets: tuple[w.Node, ...] = ()) -> Module:
    """A workload that scales each of L matrices, through a tensor of its own, with another workload."""
    scale = scale_module()
    inner = scale.workloads[0]
    rows = (TileRange("rows"), Full())
    passes = [
        w.Task("scale", (Region(a, rows), Region(b, rows), Var("factor", f32)), (Var("rows"),), None, label)
        for a, b, label in (("X", "T", "first"), ("T", "Y", ""))
    ]
    passes[1] = replace(passes[1], after=("first",))
    local = w.TensorParam("T", TensorType(f32, ("n", 128)), None, True)
    counted = w.Set("count", add(Var("count"), Const(1)))
    loop = w.Loop("parallel", "rows", Var("n"), 64, (*passes, counted))
    inner = replace(inner, params=(*inner.params, local), body=(loop,))
    dims = ("L", "m", 128)
    params = (
        w.SizeParam("L"),
        w.SizeParam("m"),
        *(w.TensorParam(name, TensorType(f32, dims)) for name in ("A", "B")),
        w.ScalarParam("by", ScalarType(f32)),
    )
    outer = w.Loop("range", "i", Var("L"), None, (*sets, w.WorkloadCall("scale_rows", args)))
    caller = w.WorkloadFunction("layers", params, (outer,))
    return Module("layers", scale.kernels, (inner, caller), "layers")


SOUND = (MATRIX, replace(MATRIX, tensor="B"), Var("by", f32))


def test_a_workload_in_a_workload() -> None:
    module = verify(inline_calls(verify(layers_module(*SOUND))))
    text = str(module)
    assert '%T: !pto.memref<gm,"m"x128,f32> {local}' in text[text.index("func @layers") :]
    assert body_of(text, "layers") == (
        """\
FOR %i:idx, 0:idx, %L:idx, 1:idx {range}
%count = 0 : i64
FOR %rows:idx, 0:idx, %m:idx, 64:idx {parallel, tiles}
CALL @scale[%rows](%A[at(%i), %rows, :], %T[%rows, :], %by) {label = first}
CALL @scale[%rows](%T[%rows, :], %B[at(%i), %rows, :], %by) {after = [first]}
%count = %count + 1 : i64
ENDFOR
ENDFOR
return"""
    )
    a = np.random.default_rng(0).standard_normal((3, 100, 128)).astype(np.float32)
    for target in ("interp", "cpu"):
        b = np.zeros_like(a)
        Program(verify(layers_module(*SOUND)), {}, target)(A=a, B=b, by=0.5)
        assert (b == a * np.float32(0.25)).all()


def test_two_calls_have_names_of_their_own() -> None:
    module = layers_module(*SOUND)
    outer = module.workloads[1].body[0]
    assert isinstance(outer, w.Loop)
    twice = replace(outer, body=outer.body * 2)
    module = replace(module, workloads=(module.workloads[0], replace(module.workloads[1], body=(twice,))))
    text = str(verify(inline_calls(verify(module))))
    assert "{label = first_1}" in text and "after = [first_1]" in text and "%T_1[%rows_1, :]" in text


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((MATRIX, Region("A", (Full(), Index(Const(0)), Full())), SOUND[2]), "more than one size"),
        ((Region("A", (Full(), Full(), Index(Const(0)))), SOUND[1], SOUND[2]), "128 in a dimension"),
    ],
)
def test_refusals(args: tuple[Region | Expr, ...], reason: str) -> None:
    with pytest.raises(CannotInline) as caught:
        inline_calls(verify(layers_module(*args)))
    assert reason in str(caught.value)


def test_numbers_are_those_of_the_call() -> None:
    """The callee is given a variable that its own tasks' walk changes."""
    index = w.TensorParam("I", TensorType(i64, (4,)))
    tile = TileType(1, 1, f32)
    move = k.KernelFunction(
        "move",
        (k.Param("x", k.IN, tile), k.Param("y", k.OUT, tile)),
        (("t", tile),),
        (),
        (k.Load("t", Region("x", WHOLE)), k.Store(Region("y", WHOLE), "t")),
    )
    tensors = [w.TensorParam(t, TensorType(f32, (4, 1, 1))) for t in "XY"]
    at = Var("at")
    callee = w.WorkloadFunction(
        "callee",
        (*tensors, w.ScalarParam("at", ScalarType(i64))),
        (
            w.Set(Slot(0), add(Slot(0), Const(1))),
            w.Task("move", tuple(Region(t, (Index(at), Full(), Full())) for t in "XY")),
        ),
    )
    whole = tuple(Region(t, (Full(),) * 3) for t in "XY")
    loop = w.Loop(
        "range",
        "i",
        Const(2),
        None,
        (
            w.WorkloadCall("callee", (*whole, Slot(0))),
            w.WorkloadCall("callee", (*whole, Element("I", (Var("i"),)))),
        ),
    )
    caller = w.WorkloadFunction("caller", (*tensors, index), (w.Set(Slot(0), Const(0)), loop))
    module = verify(Module("m", (move,), (callee, caller), "caller"))
    x = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
    for target in ("interp", "cpu"):
        y = np.zeros_like(x)
        Program(module, {}, target)(X=x, Y=y, I=np.array([3, 0, 0, 0], np.int64))
        assert y.ravel().tolist() == [1, 0, 3, 4]  # slot 0 is 0, then 2; I holds 3, then 0
