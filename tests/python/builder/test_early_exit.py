"""`break_loop` and `continue_loop`: random programs against Python's own `break` and `continue`."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given

from pto_wsp import PTOFunctionBuilder, PTOModule, errors, parse
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.text import to_python
from pto_wsp.types import i32
from tests.generators.drawing import DRAWS, Draw, tries


class Programs:
    """Writes one program twice: as steps of a builder, and as lines of Python."""

    def __init__(self, draw: Draw, builder: PTOFunctionBuilder) -> None:
        self.draw = draw
        self.builder = builder
        self.lines = ["s = 0"]
        self.loops = 0
        builder.scalar("s", i32).scalar_mov("s", 0)

    def say(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def block(self, depth: int, loop: str) -> None:
        """Write some statements; `loop` is the variable of the loop around them, if any."""
        for _ in range(self.draw.randint(1, 3)):
            self.statement(depth, loop)
        if loop and depth < 6 and self.draw.random() < 0.3:
            self.leave(depth)

    def leave(self, depth: int) -> None:
        is_break = self.draw.random() < 0.5
        self.say(depth, "break" if is_break else "continue")
        self.builder.break_loop() if is_break else self.builder.continue_loop()

    def statement(self, depth: int, loop: str) -> None:
        kinds = ["add"] * 2 + (["if", "if", "for", "while"] if depth < 4 else [])
        match self.draw.choice(kinds):
            case "add":
                amount = self.draw.randint(1, 9)
                self.say(depth, f"s = (s * 3 + {amount}) % 1000003")
                self.builder.scalar_mov("s", f"(s * 3 + {amount}) % 1000003")
            case "if":
                self.branch(depth, loop)
            case "for":
                self.loops += 1
                var, count = f"i{self.loops}", self.draw.randint(0, 4)
                self.say(depth, f"for {var} in range({count}):")
                self.builder.for_loop(var, 0, count)
                self.block(depth + 1, var)
                self.builder.end_for()
            case _:
                self.repeat(depth)

    def branch(self, depth: int, loop: str) -> None:
        name, modulus = (
            loop if loop and self.draw.random() < 0.5 else "s",
            self.draw.randint(2, 3),
        )
        self.say(depth, f"if {name} % {modulus} == 0:")
        self.builder.if_then(f"{name} % {modulus} == 0")
        self.block(depth + 1, loop)
        if loop and self.draw.random() < 0.6:
            self.leave(depth + 1)
        if self.draw.random() < 0.4:
            self.say(depth, "else:")
            self.builder.else_block()
            self.block(depth + 1, loop)
        self.builder.endif()

    def repeat(self, depth: int) -> None:
        """Write a loop whose condition a step computes, at its beginning in Python."""
        self.loops += 1
        name, limit = f"n{self.loops}", self.draw.randint(1, 4)
        self.say(depth, f"{name} = 0")
        self.say(depth, "while True:")
        self.say(depth + 1, f"{name} = {name} + 1")
        self.say(depth + 1, f"if {name} >= {limit}: break")
        self.builder.scalar_mov(name, 0).scalar_mov(name, f"{name} + 1").while_loop(f"{name} < {limit}")
        self.block(depth + 1, name)
        self.builder.scalar_mov(name, f"{name} + 1").end_while(num_tests=1)


def random_function(draw: Draw, module: PTOModule, name: str) -> int | None:
    """Add a function to a module; return what it stores, or None where a step follows one that leaves."""
    builder = PTOFunctionBuilder(name, module).memref("out", dtype=i32, shape=(1, 1))
    program = Programs(draw, builder)
    try:
        program.block(0, "")
        builder.scalar_store("out", "s").build()
    except errors.BadBlock as error:
        assert "never run" in str(error)
        return None
    scope: dict[str, int] = {}
    exec("\n".join(program.lines), scope)
    return scope["s"]


def check(module: PTOModule, wanted: dict[str, int], target: str) -> None:
    assert parse(str(module)) == module
    for name, value in wanted.items():
        out = np.zeros((1, 1), np.int32)
        module.compile(target, entry=name)(out=out)
        assert out[0, 0] == value, name


def test_random_programs() -> None:
    built: list[bool] = []

    @tries(180)
    @given(DRAWS)
    def leaves(draw: Draw) -> None:
        module = PTOModule("m")
        value = random_function(draw, module, "f")
        built.append(value is not None)
        check(module, {} if value is None else {"f": value}, "interp")

    leaves()
    assert True in built and False in built


def test_random_programs_on_the_cpu() -> None:
    """All in one library, which is compiled once."""
    module, wanted = PTOModule("m"), {}
    for seed in range(20):
        value = random_function(random.Random(seed), module, f"f{seed}")
        wanted |= {} if value is None else {f"f{seed}": value}
    assert len(wanted) > 5
    check(module, wanted, "cpu")


def test_an_orchestration_leaves_loops() -> None:
    module = PTOModule("m")
    (
        PTOFunctionBuilder("mark", module)
        .memref("y", dtype=i32)
        .tile("t", 1, 1, i32)
        .expands("t", 1)
        .store("y", "t")
        .build()
    )
    (
        PTOFunctionBuilder("some", module)
        .not_in_core()
        .memref("y", dtype=i32)
        .memref("flags", dtype=i32, shape=(None, 1))
        .scalar("n", i32)
        .for_loop("i", 0, "n")
        .if_then("flags[i, 0] == 1")
        .continue_loop()
        .endif()
        .if_then("flags[i, 0] == 2")
        .break_loop()
        .endif()
        .call("mark", {"y": ("y", "i", 0)})
        .end_for()
        .build()
    )
    flags = np.array([[0], [1], [0], [0], [2], [0], [7]], np.int32)
    for target in ("cpu", "interp"):
        y = np.zeros((7, 1), np.int32)
        module.compile(target, entry="some")(y=y, flags=flags, n=7)
        assert y.ravel().tolist() == [1, 0, 1, 1, 0, 0, 0]
    names: dict[str, object] = {"__name__": "made"}
    exec(to_python(module.ir), names)
    assert str(names["ir"]) == str(module)


def test_what_is_left_is_not_evaluated() -> None:
    """Neither the condition nor the steps that compute it are done once a loop is left."""
    text = """func @f(%table: !pto.memref<gm,4x1,i32>, %out: !pto.memref<gm,1x1,i32>) {
  %i = alloc_scalar : i32
  %v = alloc_scalar : i32
  %c = alloc_scalar : u1
  MOV %i:i32, 0
  WHILE (), ()
    MOV %v:i32, %table[%i, 0]
    CMP %c:u1, %v:i32, 100, LT
  DO
    ADD %i:i32, %i:i32, 1
    IF %i > 3:u1
      BREAK
    ENDIF
    IF %v > 50:u1
      CONTINUE
    ENDIF
    ADD %i:i32, %i:i32, 0
  ENDWHILE %c:u1
  STORE %i:i32, %out[0, 0]
}
"""
    program = compile_module(parse(text), "cpu")
    for table, wanted in (([1, 60, 3, 4], 4), ([1, 2, 200, 4], 2), ([300, 0, 0, 0], 0)):
        out = np.zeros((1, 1), np.int32)
        program(table=np.array(table, np.int32)[:, None], out=out)
        assert out[0, 0] == wanted


def test_blocks_give_values() -> None:
    text = """func @f(%x: !pto.memref<gm,8x8,f32>, %y: !pto.memref<gm,8x8,f32>) {
  %a = alloc_tile : !pto.tile<8x8xf32>
  %b = alloc_tile : !pto.tile<8x8xf32>
  %n = alloc_scalar : i32
  %s = alloc_scalar : f32
  %h = alloc_scalar : f32
  %a = tload %x[0, 0] : (memref, index, index) -> tile
  %b = texp %a : !pto.tile<8x8xf32>
  LI %h:f32, 0.5
  MOV %s:f32, 1.0
  IF (%s:f32, %b), %n > 3:u1, (%a)
    YIELD (%h, %a)
  ENDIF
  %b = tmuls %b, %s : !pto.tile<8x8xf32>, f32
  tstore %b, %y[0, 0]
}
"""
    program = compile_module(parse(text), "cpu")
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    for n, wanted in ((4, x * np.float32(0.5)), (3, np.exp(x))):
        y = np.zeros_like(x)
        program(x=x, y=y, n=n)
        assert np.allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "step",
    [
        lambda b: b.break_loop(),
        lambda b: b.if_then("n").continue_loop().endif(),
        lambda b: b.for_loop("i", 0, "n").break_loop().scalar_mov("s", 1).end_for(),
        lambda b: (
            b.not_in_core().for_loop("i", 0, "n", kind="parallel").if_then("i").break_loop().endif().end_for()
        ),
    ],
)
def test_mistakes(step) -> None:
    with pytest.raises(errors.BadBlock) as caught:
        step(PTOFunctionBuilder("f").scalar("n", i32)).build()
    assert caught.value.loc is not None
