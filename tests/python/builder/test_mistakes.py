# ruff: noqa: E501 - a program is on one line, as its error says
"""Mistakes in builders are errors that name them, at the line of the call."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from pto_wsp import ElementType, MemorySpace, PtoError, PTOFunctionBuilder, PTOModule
from tests.python.builder.test_orchestration import add_kernels

X = '.memref("x").tile("t", 8, 8).load("t", "x")'
CALL = '.not_in_core().memref("x").scalar("n", ElementType.I32).call'
ARGS = '{"x": "x", "y": "x", "factor": 1.0}'

IN_CORE: dict[str, tuple[str, str]] = {
    '.load("t", "y")': ("unknown-name", "`y` is not defined in `f` as a memref"),
    X + '.add("u", "t", "v")': ("unknown-name", "`v` is not defined in `f` as a tile"),
    X + '.ad("u", "t", "t")': ("unknown-instruction", "did you mean `add`?"),
    '.memref("x", MemorySpace.L1).tile("t", 8, 8).load("t", "x")': (
        "not-supported",
        "outside of global memory",
    ),
    '.intermediate_buffer("x", 256).tile("t", 8, 8).load("t", "x")': (
        "not-supported",
        "outside of global memory",
    ),
    '.call("scale", ["x"])': ("bad-operand", """expected `{"parameter": argument}`, found `['x']`"""),
    '.memref("x", "gm")': ("bad-operand", "expected a memory space: `MemorySpace.GLOBAL`, found `'gm'`"),
    X + '.add("u", "t")': ("bad-operand", "expected 2 operands after the destination, found 1"),
    X + '.adds("u", "t", "s")': ("unknown-name", "`s` is not defined in `f` as a scalar"),
    X + '.adds("u", "t", "1 +")': ("bad-operand", "an expression of them"),
    X + '.adds("u", "t", "f(1)")': ("bad-operand", "an expression of them"),
    X + '.adds("u", "t", None)': ("bad-operand", "found NoneType"),
    X + '.matmul("u", "t", "t", trans_c=True)': ("bad-operand", "trans_a, trans_b, found `trans_c`"),
    X + '.cmp("m", "t", "t", "greater")': ("bad-operand", "`mode`: one of eq, ne, lt"),
    X + '.expands("u", 1.0)': ("unknown-name", "declare it first"),
    X + '.tile("u", 4, 8).add("u", "t", "t")': (
        "shape-mismatch",
        "expected tile<8x8xf32>, found tile<4x8xf32>",
    ),
    X + '.tile("t", 8, 8)': ("name-clash", "`t`"),
    X + '.tile("u", 0, 8)': ("bad-operand", "positive sizes"),
    X + '.tile("u v", 8, 8)': ("bad-operand", "an identifier as a name"),
    '.tile("u", 8, 8, "f32")': ("bad-operand", "an element type"),
    '.memref("x", MemorySpace.GM, ElementType.F16).tile("t", 8, 8).load("t", "x")': ("dtype-mismatch", "f16"),
    '.memref("x").load("t", "x")': ("unknown-name", "`t` is not defined in `f` as a tile"),
    '.memref("x")': ("memref-shape", "expected a load, a store or a shape"),
    X + '.tile("u", 8, 4).load("u", "x")': ("memref-shape", "tiles of 8 columns, or a shape, found 4"),
    '.memref("x", MemorySpace.GM, ElementType.F32, (2, 3, 4))': (
        "not-supported",
        "3 dimensions in an InCore",
    ),
    '.scalar("s", ElementType.F64)': ("not-supported", "a scalar of type f64"),
    '.scalar("s").scalar_add("r", "s", 1).scalar_add("s", "s", 1)': ("carried-value", "`s` is read before"),
    '.scalar("s", ElementType.I32).scalar_li("s", 1.5)': ("dtype-mismatch", "help: declare it as f32"),
    '.scalar("n", ElementType.I32).if_then("n").scalar_li("s", 1).endif().scalar_mov("r", "s")': (
        "carried-value",
        "`s` is read before every path has written it",
    ),
    X + '.add("t", "u", "t")': ("unknown-name", "tiles so far: `t`"),
    '.tile("t", 8, 8).memref("x").store("x", "t")': ("carried-value", "`t` is read before"),
    '.for_loop("i", 0, 4, 0).end_for()': ("bad-operand", "a positive step"),
    '.for_loop("i", 0, 4, max_range=8).end_for()': ("wrong-function-kind", "Orchestration functions"),
    '.for_loop("i", 0, "1.5").end_for()': ("bad-operand", "expected an integer"),
    '.for_loop("i", 0, 4, 1, min_range=4).end_for()': ("bad-operand", "a `max_range` with them"),
    '.for_loop("i", 0, 4, 1, 8, 16).end_for()': ("bad-operand", "a `min_range` of at most 8, found 16"),
    '.for_loop("i", 0, 4, 1, 8, 4, {3: 32}).end_for()': ("bad-operand", "powers of two"),
    '.for_loop("i", 0, 4).for_loop("i", 0, 4).end_for().end_for()': ("name-clash", "`i`"),
    '.if_bit("n", 6)': ("bad-operand", "a power of two"),
    '.if_then("n").endif()': ("unknown-name", "`n` is not defined"),
    ".else_block()": ("bad-block", "expected an open block that it belongs to, found none"),
    ".if_then(1).else_block().else_block()": ("bad-block", "found a second one"),
    ".end_for()": ("bad-block", "`end_for` does not fit"),
    '.tile_loop("i", "t")': ("bad-block", "expected `end_for`, found the end"),
    '.tile_loop("i", "t", "depth")': ("bad-operand", "the dimension `rows` or `cols`"),
    '.ret().tile("u", 8, 8).scalar_li("s", 1)': ("bad-block", "expected the end, found more steps"),
    '.ret("x")': ("not-supported", "a value in `ret`"),
    '.import_func("scales")': ("unknown-kernel", "did you mean `scale`?"),
    '.call("scales")': ("unknown-kernel", "did you mean `scale`?"),
    '.call("orchestration")': ("wrong-function-kind", "Orchestration functions"),
    '.memref("x").call("scale", {"x": "x"})': ("unknown-argument", "is called without `y`"),
    '.memref("x").call("scale", ' + ARGS.replace("1.0}", '1.0, "z": 1}') + ")": (
        "unknown-argument",
        "has no parameter `z`",
    ),
    '.memref("x").call("scale", ' + ARGS.replace('"x", "f', '("x", 1, 0), "f') + ")": (
        "bad-operand",
        "for `y`, the name of a memref",
    ),
    X + '.call("scale", ' + ARGS + ")": ("memref-shape", "expected tile<4x8xf32>, found tile<8x8xf32>"),
    '.intermediate_buffer("b", 7)': ("bad-operand", "a multiple of 4 bytes"),
    '.intermediate_buffer("b", 8, scope_local=False)': ("not-supported", "outlives the run"),
    '.scalar_cmp("c", 1, 2, "above")': ("bad-operand", "one of eq, ne"),
    '.memref("x").scalar_load("n", "x")': ("bad-operand", "expected a memref of integers, found `x` of f32"),
    '.memref("x", MemorySpace.GM, ElementType.I32).scalar_mov("n", "x[0]")': (
        "bad-operand",
        "2 integers after `x`",
    ),
    X + '.scalar_mov("n", "dim(u, 0)")': ("unknown-name", "`u` is not defined in `f` as a tile"),
    X + '.scalar_mov("n", "dim(t, 2)")': ("bad-operand", "an expression of them"),
    X + '.scalar_store("z", 1.0)': ("unknown-name", "`z` is not defined in `f` as a memref"),
    X + '.scalar_load("n", "u")': ("unknown-name", "`u` is not defined in `f` as a memref"),
    '.memref("x", MemorySpace.GM, ElementType.I32).tile("t", 8, 8, ElementType.I32).load("t", "x")'
    '.store("x", "t").scalar_load("n", "x")': (
        "bad-operand",
        "expected a memref that the function only reads",
    ),
}

ORCHESTRATION: dict[str, tuple[str, str]] = {
    '.not_in_core().memref("x").scalar_load("n", "x")': ("bad-operand", "expected a memref of integers"),
    '.not_in_core().memref("x").if_then("y[0, 0]").endif()': ("unknown-name", "`y` is not defined in `f`"),
    '.not_in_core().scalar("n").if_then("dim(n, 0) > 1").endif()': (
        "wrong-function-kind",
        "`dim` in `if_then`",
    ),
    '.not_in_core().memref("x", MemorySpace.L2, ElementType.I32, (4, 4)).if_then("x[0, 0]").endif()': (
        "bad-operand",
        "expected a memref of global memory, found `x`, which the run makes",
    ),
    ".not_in_core().cube()": ("wrong-function-kind", "`cube` has no meaning"),
    '.not_in_core().tile("t", 8, 8)': ("wrong-function-kind", "InCore functions"),
    '.not_in_core().memref("x").load("t", "x")': ("wrong-function-kind", "`load` has no meaning"),
    '.not_in_core().add("t", "t", "t")': ("wrong-function-kind", "`add` has no meaning"),
    '.not_in_core().while_loop("1 > 0").end_while()': ("wrong-function-kind", "`while_loop`"),
    '.not_in_core().tile_loop("i", "t").end_for()': ("wrong-function-kind", "`tile_loop`"),
    '.not_in_core().for_loop("i", 0, "n").end_for()': ("unknown-name", "`n` is not defined"),
    '.not_in_core().for_loop("i", 0, 2, kind="both").end_for()': ("bad-operand", "the kind `range`"),
    CALL + '("scale", {"x": "q", "y": "x", "factor": 1.0})': (
        "unknown-name",
        "`q` is not defined in `f` as a tensor",
    ),
    CALL + '("scale", {"x": ("x", "n"), "y": "x", "factor": 1.0})': ("bad-operand", '`("tensor", row, col)`'),
    CALL + '("scale", {"x": ("x", "m", 0), "y": "x", "factor": 1.0})': ("unknown-name", "`m`"),
    CALL + '("scale", {"x": ("x", 0, 4), "y": "x", "factor": 1.0})': (
        "memref-shape",
        "where the next row begins",
    ),
    CALL + '("scale", {"x": ("x", 0, 0, 5, 8), "y": "x", "factor": 1.0})': (
        "argument-shape",
        "at most 4, found 5",
    ),
    CALL + '("scale", {"x": "x", "y": "x", "factor": ("x", 0, 0)})': ("bad-operand", "a place in a tensor"),
    CALL + '("scale", {"x": "x", "y": "x", "factor": "x"})': (
        "unknown-name",
        "`x` is not defined in `f` as a scalar",
    ),
    '.not_in_core().memref("x", MemorySpace.GM, ElementType.I32).call("scale", ' + ARGS + ")": (
        "argument-dtype",
        "expected f32, found i32",
    ),
    '.not_in_core().memref("x", shape=(2, 3, 4)).call("scale", ' + ARGS + ")": (
        "not-supported",
        "3 dimensions",
    ),
    CALL + '("scale", {"x": "x", "y": "x", "factor": 1.0}).call("narrow", {"x": "x"})': (
        "memref-shape",
        "expected tiles of 8 columns, or a shape, found 4 columns",
    ),
    '.not_in_core().memref("x").scalar("s").for_loop("i", 0, 4).scalar_mov("s", 0.5).end_for()': (
        "not-supported",
        "the variable `s` of type f32",
    ),
    '.not_in_core().scalar("s", ElementType.I32).for_loop("i", 0, "s").scalar_li("s", 4).end_for()': (
        "unknown-name",
        "`s` is not defined in what comes before",
    ),
    '.not_in_core().for_loop("i", 0, 4).scalar_li("i", 1).end_for()': ("name-clash", "`i`"),
    '.not_in_core().memref("x").scalar_li("x", 1)': ("name-clash", "`x`"),
    # What the run makes is read where it is made.
    CALL
    + '("scale", {"x": "x", "y": ("q", 0, 0), "factor": 1.0}).call("scale", {"x": ("q", 1, 0), "y": "x", "factor": 1.0})': (
        "unknown-name",
        "`q` is not defined in what comes before this task, not for all that it reads",
    ),
    CALL.replace(".call", '.for_loop("i", 0, "n").call')
    + '("scale", {"x": "x", "y": ("q", "i", 0), "factor": 1.0})'
    + '.for_loop("j", 0, "n").call("scale", {"x": ("q", "j", 0), "y": "x", "factor": 1.0}).end_for().end_for()': (
        "unknown-name",
        "not for all that it reads",
    ),
    CALL.replace(".call", '.if_then("n").call')
    + '("scale", {"x": "x", "y": "q", "factor": 1.0}).endif().call("scale", {"x": "q", "y": "x", "factor": 1.0})': (
        "unknown-name",
        "not for all that it reads",
    ),
    '.not_in_core().memref("x").memref("b", MemorySpace.L2).call("scale", {"x": "b", "y": "x", "factor": 1.0})': (
        "unknown-name",
        "`b` is not defined in what comes before",
    ),
    '.not_in_core().memref("b", MemorySpace.L2)': ("memref-shape", "expected a shape, found none"),
    CALL + '("orchestration", {"y": ("x", 1, 0)})': ("not-supported", "a part of a tensor"),
    CALL + '("orchestration", {"y": "q"})': ("unknown-name", "`q`"),
    '.not_in_core().memref("x", MemorySpace.GM, ElementType.I32).call("orchestration", {"y": "x"})': (
        "argument-dtype",
        "expected f32, found i32",
    ),
}


@pytest.fixture(scope="module")
def module() -> PTOModule:
    module = PTOModule("m")
    add_kernels(module)
    narrow = PTOFunctionBuilder("narrow", module).memref("x").tile("t", 4, 4).load("t", "x")
    narrow.store("t", "x").build()
    caller = PTOFunctionBuilder("orchestration", module).not_in_core().memref("y")
    caller.call("scale", {"x": "y", "y": "y", "factor": 1.0}).build()
    return module


@pytest.mark.parametrize("chain", [*IN_CORE, *ORCHESTRATION])
def test_mistakes(chain: str, module: PTOModule, tmp_path: Path) -> None:
    code, message = {**IN_CORE, **ORCHESTRATION}[chain]
    path = tmp_path / "program.py"
    path.write_text(f"builder = (\n    PTOFunctionBuilder('f', PTOModule('m'))\n{chain}\n)\n")
    names = {
        "PTOFunctionBuilder": lambda *_: PTOFunctionBuilder("f", copy_of(module)),
        "PTOModule": PTOModule,
        "ElementType": ElementType,
        "MemorySpace": MemorySpace,
    }
    linecache.checkcache(str(path))
    with pytest.raises(PtoError) as caught:
        exec(compile(path.read_text(), str(path), "exec"), names)
        names["builder"].build()
    assert caught.value.code == code, caught.value
    assert message in str(caught.value)
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (str(path), 3)


def copy_of(module: PTOModule) -> PTOModule:
    found = PTOModule(module.name)
    for function in module.get_all_functions():
        found.import_function(function)
    return found


def test_the_place_is_that_of_the_call_in_a_chain(module: PTOModule) -> None:
    builder = PTOFunctionBuilder("f").memref("x").tile("t", 8, 8).load("t", "x").add("t", "t", "u")
    with pytest.raises(PtoError) as caught:
        builder.build()
    loc = caught.value.loc
    assert loc is not None and loc.file == __file__
    line = loc.source_line() or ""
    assert not loc.col or line[loc.col - 1 :].startswith('add("t", "t", "u")')
