"""There is a method for every row of the instruction table, and it makes that instruction."""

from __future__ import annotations

import pytest

from pto_wsp import PTOFunctionBuilder
from pto_wsp.builder.operands import MOVES, methods
from pto_wsp.ir import kernel as k
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.isa import TABLE, Instruction
from pto_wsp.isa.attributes import CONSTANTS
from pto_wsp.types import i32
from pto_wsp.types.dtype import f32, u8
from tests.python.isa.operands import QUANTISED, makes_shape, operand_shapes, operand_types

SEED = (
    "add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shl shr abs neg bitwise_not exp log sqrt "
    "rsqrt recip relu mov transpose adds subs muls divs rems maxs mins rowsum rowmax rowmin colsum colmax "
    "colmin rowexpandsub rowexpanddiv rowexpandmul expands rowexpand colexpand matmul matmul_acc"
).split()


def test_the_methods_of_the_seed_exist() -> None:
    assert set(SEED) <= methods().keys()
    assert methods().keys() == {row.name for row in TABLE.values() if row.form not in MOVES}


@pytest.mark.parametrize("row", methods().values(), ids=lambda row: row.name)
def test_a_method_makes_its_instruction(row: Instruction) -> None:
    dtype = f32 if f32 in row.dtypes else i32 if i32 in row.dtypes else sorted(row.dtypes, key=str)[0]
    wanted = {"mode": "lt", "run": 4, "rmode": "floor", "trans_a": False, "trans_b": False}
    wanted["format"] = QUANTISED.name
    options = {name: wanted[name] for name in CONSTANTS.get(row.form, {})}
    shapes = operand_shapes(row, {"trans_a": False, "trans_b": False}, (8, 16), 24)
    builder = PTOFunctionBuilder("f")
    names = [f"t{number}" for number in range(len(shapes))]
    types = operand_types(row, dtype)
    for name, shape, type in zip(names, shapes, types, strict=True):
        builder.memref(f"m_{name}", dtype=type).tile(name, *shape, type).load(name, f"m_{name}")
    is_declared = makes_shape(row) or row.name == "cvt"
    made = i32 if row.name in ("cvt", "extract_topk_indices") else dtype
    if is_declared:
        dtypes = {"merge": types[0] if types else dtype, "extract_topk_values": f32}
        builder.tile("d", 8, 16, dtypes.get(row.name, made))
    if row.name == "quantise":
        builder.tile("d", 8, 40, u8)
    scalars = [2] * row.form.num_scalars
    getattr(builder, row.name)("d", *names, *scalars, **options)
    kernel = builder.build()
    assert isinstance(kernel, k.KernelFunction)
    verify(Module("m", (kernel,)))
    instr = next(s for s in kernel.body or () if isinstance(s, k.Instr))
    assert (instr.op, instr.dst, list(instr.tiles)) == (row.name, "d", names)
    assert [s.value for s in instr.scalars if hasattr(s, "value")] == scalars
    assert dict(instr.attrs).items() >= {(n, v) for n, v in options.items() if v is not False}


def test_modes_may_stand_behind_the_operands() -> None:
    built = [
        PTOFunctionBuilder("f").tile("a", 8, 8).expands("a", 1.0).cmp("m", "a", "a", *mode, **named).build()
        for mode, named in ((("GT",), {}), ((), {"mode": "gt"}))
    ]
    assert built[0] == built[1]
