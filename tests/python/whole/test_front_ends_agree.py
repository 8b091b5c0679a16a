"""The same kernel is accepted, or refused, whether it is a chain of calls, instructions in Python or text."""

from __future__ import annotations

import pytest

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule, parse
from pto_wsp.errors import CarriedValue, InvalidIR
from pto_wsp.ir.verify import verify
from tests.python.lang.programs import error_of, execute, ir_of

F32, I32 = ElementType.F32, ElementType.I32

# Each line is one statement of all three forms; a block is a head and the statements inside it.
LOAD, STORE, ADD = "load", "store", "add"
PROGRAMS: dict[str, tuple[tuple[object, ...], bool]] = {
    "straight": ((LOAD, ADD, STORE), True),
    "nothing written": ((STORE,), False),
    "read before": ((ADD, LOAD, STORE), False),
    "both arms": ((("if", (LOAD,), (LOAD,)), STORE), True),
    "one arm": ((("if", (LOAD,), ()), STORE), False),
    "inside the arm": ((("if", (LOAD, STORE), ()),), True),
    "loop that runs": ((("for", 2, (LOAD,)), STORE), True),
    "loop that never runs": ((("for", 0, (LOAD,)), STORE), False),
    "loop of unknown length": ((("for", "n", (LOAD,)), STORE), False),
    "carried by a loop": ((("for", 2, (ADD, LOAD)), STORE), False),
    "arms inside a loop": ((("for", 1, (("if", (LOAD,), (LOAD,)),)), STORE), True),
}
SIMPLE = {
    LOAD: ("%t = tload %x[:, :] : !pto.tile<8x8xf32>", "ptoisa.TLOAD(t, x)"),
    STORE: ("tstore %t, %y[:, :]", "ptoisa.TSTORE(y, t)"),
    ADD: ("%t = tadd %t, %t : !pto.tile<8x8xf32>", "ptoisa.TADD(t, t, t)"),
}


def as_text(body: tuple[object, ...]) -> list[str]:
    found: list[str] = []
    for item in body:
        match item:
            case ("if", tuple(then), tuple(other)):
                middle = ["ELSE", *as_text(other)] if other else []
                found += ["IF %n > 3:u1", *as_text(then), *middle, "ENDIF"]
            case ("for", stop, tuple(inner)):
                stop = f"%{stop}" if isinstance(stop, str) else stop
                found += [f"FOR %i{len(found)}:idx, 0:idx, {stop}:idx, 1:idx", *as_text(inner), "ENDFOR"]
            case name:
                found.append(SIMPLE[str(name)][0])
    return found


def as_python(body: tuple[object, ...], indent: str = "    ") -> list[str]:
    found: list[str] = []
    for item in body:
        match item:
            case ("if", tuple(then), tuple(other)):
                found += [f"{indent}if n > 3:", *as_python(then, indent + "    ")]
                found += [f"{indent}else:", *as_python(other, indent + "    ")] if other else []
            case ("for", stop, tuple(inner)):
                found += [f"{indent}for i{len(found)} in range({stop}):", *as_python(inner, indent + "    ")]
            case name:
                found.append(indent + SIMPLE[str(name)][1])
    return found


def build(builder: PTOFunctionBuilder, body: tuple[object, ...], depth: int = 0) -> PTOFunctionBuilder:
    for item in body:
        match item:
            case ("if", tuple(then), tuple(other)):
                builder = build(builder.if_then("n > 3"), then, depth + 1)
                builder = build(builder.else_block(), other, depth + 1) if other else builder
                builder = builder.endif()
            case ("for", stop, tuple(inner)):
                builder = build(builder.for_loop(f"i{depth}", 0, stop, 1), inner, depth + 1).end_for()
            case "load":
                builder = builder.load("t", "x")
            case "store":
                builder = builder.store("t", "y")
            case _:
                builder = builder.add("t", "t", "t")
    return builder


def text_accepts(body: tuple[object, ...]) -> bool:
    lines = "\n  ".join(as_text(body))
    text = f"""// PTO Module: m
// Entry: @f

// Function Type: InCore (tile-level computation)
func @f(%x: !pto.memref<gm,8x8,f32> {{in, tile}}, %y: !pto.memref<gm,8x8,f32> {{inout, tile}}, %n: i64) {{
  %t = alloc_tile : !pto.tile<8x8xf32>
  {lines}
  return
}}
"""
    try:
        verify(parse(text))
    except InvalidIR as error:
        assert "`t` is read before every path has written it" in error.message
        return False
    return True


def builder_accepts(body: tuple[object, ...]) -> bool:
    module = PTOModule("m")
    builder = PTOFunctionBuilder("f").in_core().scalar("n", I32).tile("t", 8, 8, F32)
    for name in ("x", "y"):
        builder = builder.memref(name, MemorySpace.GM, F32, (8, 8))
    try:
        module.add_function(build(builder, body).build())
        verify(module.ir)
    except CarriedValue as error:
        assert "`t` is read before every path has written it" in str(error)
        return False
    return True


def python_accepts(body: tuple[object, ...]) -> bool:
    lines = "\n".join(as_python(body))
    source = f"""@ptoisa_kernel
def k(x: In[Tile[8, 8, f32]], y: InOut[Tile[8, 8, f32]], n: Scalar[i64]):
    t = ptoisa.tile(8, 8, f32)
{lines}
"""
    try:
        ir_of(execute(source)["k"])
    except CarriedValue:
        error = error_of(source)
        assert "`t` is read before every path has written it" in str(error)
        return False
    return True


@pytest.mark.parametrize("name", PROGRAMS)
def test_front_ends_agree(name: str) -> None:
    body, is_sound = PROGRAMS[name]
    found = {"text": text_accepts(body), "builder": builder_accepts(body), "python": python_accepts(body)}
    assert found == dict.fromkeys(found, is_sound)
