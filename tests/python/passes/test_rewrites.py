"""Single rewrites of kernels and workloads, before and after."""

from __future__ import annotations

import pytest

from pto_wsp.analysis.buffers import buffer_use
from pto_wsp.analysis.steps import TOTAL
from pto_wsp.errors import TilesTooLarge
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Extent, Var, add, mul
from pto_wsp.ir.verify import verify
from pto_wsp.isa.table import TABLE
from pto_wsp.passes.pipeline import parse_pipeline, run_pipeline
from pto_wsp.support.record import replace
from pto_wsp.targets.cpu.templates import TEMPLATES, CallTemplate
from pto_wsp.text import parse
from pto_wsp.types import ScalarType, TensorType, TileType, ViewType, f32, i32, i64
from tests.python.samples import scale_module

TILE = TileType(8, 8, f32)
WHOLE = (Full(), Full())


def kernel(*body: k.Stmt, types: tuple[TileType, ...] = (TILE,) * 4) -> Module:
    """Tiles a, b, c, d; views x, y, z of at most 8 x 8, v of any size; scalars n and m, which it assigns."""
    params = [k.Param(name, role, TILE) for name, role in (("x", k.IN), ("y", k.INOUT), ("z", k.INOUT))]
    params += [k.Param("v", k.INOUT, ViewType(f32, (None, None))), k.Param("n", k.IN, ScalarType(i64))]
    tiles = tuple(zip("abcd", types, strict=True))
    function = k.KernelFunction("f", tuple(params), tiles, (("m", ScalarType(i64)),), body)
    return verify(Module("m", (function,)))


def after(module: Module, passes: str) -> str:
    """The instructions of the kernel that passes make, without indentation."""
    text = str(run_pipeline(module, parse_pipeline(passes)))
    lines = text[text.index("// Instructions") :].splitlines()
    return "\n".join(line.strip() for line in lines[1:-2])


def load(tile: str, view: str, start: object = None) -> k.Load:
    return k.Load(tile, region(view, start))


def store(view: str, tile: str, start: object = None) -> k.Store:
    return k.Store(region(view, start), tile)


def region(view: str, start: object) -> Region:
    rows = Full() if start is None else Range(Const(start) if isinstance(start, int) else start, Const(2))  # type: ignore[arg-type]
    return Region(view, (rows, Full()))


def exp(dst: str, src: str) -> k.Instr:
    return k.Instr("exp", dst, (src,))


# --- dce ----------------------------------------------------------------------------------------------------


def test_what_nothing_reads_goes() -> None:
    module = kernel(
        load("a", "x"),
        exp("b", "a"),  # nothing reads it
        load("c", "x"),
        k.Assign("m", Var("n")),
        k.For("i", Const(0), Var("n"), 1, (exp("b", "a"), k.Assign("m", Const(1)))),
        k.For("i", Const(3), Const(3), 1, (store("y", "a"),)),
        k.If(Binary("lt", Var("n"), Const(2)), (exp("d", "a"),), (exp("d", "c"),)),
        k.While(Const(False, dtype=Binary("lt", Var("n"), Const(2)).dtype), (exp("a", "a"),)),
        store("y", "a"),
    )
    text = str(run_pipeline(module, parse_pipeline("dce")))
    assert "%b" not in text and "%m" not in text
    assert after(module, "dce") == "%a = tload %x[:, :] : !pto.tile<8x8xf32>\ntstore %a, %y[:, :]"


def test_what_can_fail_stays() -> None:
    larger, element = add(Var("n"), Const(1)), Element("idx", (Const(0), Const(0)))
    module = kernel(
        load("a", "v"), k.Assign("m", larger), k.For("i", Const(0), larger, 1, ()), load("b", "x", 4)
    )
    assert after(module, "dce").count("\n") == 4
    function = module.kernels[0]
    params = (*function.params, k.Param("idx", k.IN, TileType(1, 1, i32)))
    reads = replace(function, params=params, body=(k.Assign("m", element),))
    assert "%idx[0, 0]" in after(verify(Module("m", (reads,))), "dce")


def test_forms_without_failures_are_known() -> None:
    fails = {name for name, made in TEMPLATES.items() if isinstance(made, CallTemplate) and made.failure}
    assert fails and not [name for name in fails if TABLE[name].form in TOTAL]


def test_valid_shapes_are_read() -> None:
    rows = Range(Const(0), Extent("b", 0))
    module = kernel(load("b", "x"), load("a", "x"), k.Store(Region("y", (rows, Full())), "a"))
    assert "%b = tload" in after(module, "dce") and "%c" not in str(
        run_pipeline(module, parse_pipeline("dce"))
    )
    assert "%b = tload" in after(module, "reuse")


def test_what_only_iterations_read_goes() -> None:
    loop = k.For("i", Const(0), Var("n"), 1, (exp("b", "b"),))
    module = kernel(load("a", "x"), load("b", "x"), loop, store("y", "a"))
    assert "texp" not in after(module, "dce")


def test_workloads_lose_what_makes_no_tasks() -> None:
    module = scale_module()
    workload = module.workloads[0]
    task = workload.body[0]
    local = w.TensorParam("T", TensorType(f32, ("n", 128)), None, True)
    empty = w.Loop("range", "i", Var("n"), None, (w.Set("unread", Const(1)),))
    body = (
        w.Set("kept", Var("n")),
        empty,
        w.Cond(Binary("lt", Var("kept"), Const(2)), (empty,)),
        w.Cond(
            Const(True, dtype=Binary("lt", Var("n"), Const(2)).dtype), (task,), (w.Set("never", Const(2)),)
        ),
        w.Loop("range", "j", Binary("sub", Var("n"), Const(1)), None, ()),  # its extent may be below 0
    )
    spare = replace(module.kernels[0], name="spare")
    module = verify(
        replace(
            module,
            kernels=(*module.kernels, spare),
            workloads=(replace(workload, params=(*workload.params, local), body=body),),
        )
    )
    found = run_pipeline(module, parse_pipeline("dce"))
    assert found.workloads[0].body == (task, body[-1])
    assert [f.name for f in found.kernels] == ["scale"] and "%T" not in str(found)


# --- forward ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ((load("a", "x"), load("b", "x")), "a = tload x; b = tmov a"),
        ((load("a", "x"), load("a", "x")), "a = tload x"),
        ((load("a", "x"), store("y", "a"), load("b", "y")), "a = tload x; y = a; b = tmov a"),
        ((load("a", "x"), store("y", "a"), load("b", "x")), "a = tload x; y = a; b = tload x"),  # y may be x
        ((load("a", "y"), store("y", "a")), "a = tload y"),
        ((load("a", "y"), exp("a", "a"), store("y", "a")), "a = tload y; a = texp a; y = a"),
        (
            (load("a", "y", 0), load("b", "y", 2), store("y", "b", 4), load("c", "y", 0)),
            "a = tload y; b = tload y; y = b; c = tmov a",
        ),
        (
            (load("a", "y", 0), load("b", "y", 2), store("y", "b", 1), load("c", "y", 0)),
            "a = tload y; b = tload y; y = b; c = tload y",
        ),
        (
            (
                load("a", "y", Var("n")),
                load("b", "y", 2),
                store("y", "b", add(Var("n"), Const(2))),
                load("c", "y", Var("n")),
            ),
            "a = tload y; b = tload y; y = b; c = tmov a",
        ),
        (
            (
                k.Assign("m", Const(0)),
                load("a", "v", Var("m")),
                k.Assign("m", Const(1)),
                load("b", "v", Var("m")),
            ),
            "m = 0; a = tload v; m = 1; b = tload v",
        ),
        (
            (
                load("a", "x"),
                k.For("i", Const(0), Const(2), 1, (load("b", "x"), exp("b", "b"))),
                load("c", "x"),
            ),
            "a = tload x; FOR; b = tmov a; b = texp b; ENDFOR; c = tmov a",
        ),
        (
            (load("a", "x"), k.For("i", Const(0), Const(2), 1, (load("b", "x"), store("y", "b")))),
            "a = tload x; FOR; b = tload x; y = b; ENDFOR",
        ),
        (
            (
                load("a", "x"),
                k.If(Binary("lt", Var("n"), Const(2)), (exp("a", "a"),), (load("b", "x"),)),
                load("c", "x"),
            ),
            "a = tload x; IF; a = texp a; ELSE; b = tmov a; ENDIF; c = tload x",
        ),
    ],
)
def test_what_is_known_is_not_moved_again(body: tuple[k.Stmt, ...], expected: str) -> None:
    found = []
    for line in after(kernel(*body), "forward").splitlines():
        words = line.replace("%", "").split(" : ")[0].split("[")[0].split()
        if words[0] == "tstore":
            words = [words[2], "=", words[1].rstrip(",")]
        found.append(words[0] if words[0].isupper() else " ".join(words))
    assert "; ".join(found) == expected


# --- unroll -------------------------------------------------------------------------------------------------


def test_loops_are_repeated_with_a_rest() -> None:
    loop = k.For("i", Const(1), Const(20), 2, (load("a", "v", mul(Var("i"), Const(2))),))
    starts = [
        line.split("[")[1].split(" :+")[0]
        for line in after(kernel(loop), "unroll").splitlines()
        if "tload" in line
    ]
    assert starts == ["%i * 2", "(%i + 2) * 2", "(%i + 4) * 2", "(%i + 6) * 2", "34", "38"]
    assert "FOR %i:idx, 1:idx, 17:idx, 8:idx" in after(kernel(loop), "unroll")
    assert after(kernel(loop), "unroll{full=10}").count("tload") == 10
    assert after(kernel(loop), "unroll{factor=1}") == after(kernel(loop), "dce")
    assert after(kernel(replace(loop, stop=Var("n"))), "unroll").count("tload") == 1


def test_loops_that_would_be_too_long_stay() -> None:
    body = tuple(k.Assign("m", Const(i)) for i in range(300))
    assert after(kernel(k.For("i", Const(0), Const(4), 1, body)), "unroll").count("FOR") == 2


# --- reuse --------------------------------------------------------------------------------------------------


def test_tiles_that_are_not_in_use_together_are_one() -> None:
    module = kernel(
        load("a", "x"), exp("b", "a"), exp("c", "b"), k.Instr("add", "d", ("c", "b")), store("y", "d")
    )
    assert after(module, "reuse") == (
        """\
%a = tload %x[:, :] : !pto.tile<8x8xf32>
%a = texp %a : !pto.tile<8x8xf32>
%c = texp %a : !pto.tile<8x8xf32>
%a = tadd %c, %a : !pto.tile<8x8xf32>
tstore %a, %y[:, :]"""
    )
    use = buffer_use(module.kernels[0])
    assert (use.separate, use.shared, use.peak) == (1024, 512, (("b", 256), ("c", 256)))


def test_what_tiles_take_is_what_is_listed() -> None:
    """A tile begins at a multiple of 64 bytes: small ones take more than their elements."""
    text = """func @k(%x: !pto.memref<gm,5x3,f32> {in, tile}, %y: !pto.memref<gm,5x3,f32> {out, tile}) {
  %a = alloc_tile : !pto.tile<5x3xf32>
  %c = alloc_tile : !pto.tile<5x1xf32>
  %a = tload %x[:, :] : !pto.tile<5x3xf32>
  %c = trowsum %a : !pto.tile<5x3xf32> -> !pto.tile<5x1xf32>
  %a = trowexpandmul %a, %c : !pto.tile<5x3xf32>, !pto.tile<5x1xf32> -> !pto.tile<5x3xf32>
  tstore %a, %y[:, :]
  return
}
"""
    use = buffer_use(parse(text).kernels[0])
    assert (use.shared, use.peak) == (128, (("a", 64), ("c", 64)))


def test_what_a_loop_carries_keeps_its_tile() -> None:
    carried = k.For(
        "i", Const(0), Var("n"), 1, (k.Instr("add", "b", ("b", "a")), load("c", "x"), store("y", "c"))
    )
    module = kernel(load("a", "x"), load("b", "x"), carried, load("d", "x"), store("z", "b"))
    text = after(module, "reuse")
    assert (
        "%b = tadd %b, %a" in text
        and "%c = tload" in text
        and "%a = tload %x[:, :] : !pto.tile<8x8xf32>\ntstore %b" in text
    )


def test_products_do_not_write_over_operands() -> None:
    product = k.Instr("matmul", "c", ("a", "b"))
    text = after(kernel(load("a", "x"), load("b", "x"), product, store("y", "c")), "reuse")
    assert "%c = tmatmul %a, %b" in text


def test_what_does_not_fit_a_core_is_refused() -> None:
    body = (load("a", "x"), load("b", "x"), k.Instr("add", "c", ("a", "b")), store("y", "c"))
    module = kernel(*body)
    assert after(module, "reuse{capacity=512}")
    with pytest.raises(TilesTooLarge) as caught:
        after(module, "reuse{capacity=511}")
    assert "take 512 bytes, and a core has 511" in str(caught.value)
    assert "in use together: `a` (256), `b` (256)" in str(caught.value)
