"""Lowering: what the bytes hold."""

import pytest

from pto_wsp.errors import NotYetSupported
from pto_wsp.ir.core import Full, Index, Range, Region, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, LoopExtent, LoopStart, Select, Var, add, mul
from pto_wsp.ir.workload import Loop, Node, Task, WorkloadFunction
from pto_wsp.lower import bytecode as bc
from pto_wsp.lower.bytecode import Op
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.support.record import replace
from pto_wsp.types import f32
from tests.python.samples import scale_module


def lower(module: Module) -> Lowered:
    return lower_workload_to_bytecode(module, [k.name for k in module.kernels], 0x1234)


def instructions(lowered: Lowered) -> list[tuple[Op, int, int]]:
    count = bc.HEADER.unpack_from(lowered.code)[2]
    found = []
    for i in range(count):
        op, flags, a, b = bc.INSTRUCTION.unpack_from(lowered.code, bc.HEADER.size + 8 * i)
        assert flags == 0
        found.append((Op(op), a, b))
    return found


def with_body(*body: Node) -> Module:
    module = scale_module()
    return replace(module, workloads=(replace(module.workloads[0], body=body),))


def test_header_and_instructions_of_the_first_program() -> None:
    lowered = lower(scale_module())
    header = bc.HEADER.unpack_from(lowered.code)
    assert header[:2] == (bc.MAGIC, bc.VERSION)
    assert header[3:9] == (1, 1, 2, 2, 1, 3)  # axes, kernels, tensors, symbols, constants, registers
    assert header[9] == len(lowered.code) and header[10] == 0x1234
    assert instructions(lowered) == [
        (Op.PARALLEL_FOR, 0, 9),
        (Op.TASK, 0, 2 << 16 | 1),
        (Op.PARAM_SYMBOL, 0, 1),
        (Op.IO_INPUT, 0, 0),
        (Op.DIM_TILE, 0, 0),
        (Op.DIM_FULL, 0, 0),
        (Op.IO_OUTPUT, 1, 0),
        (Op.DIM_TILE, 0, 0),
        (Op.DIM_FULL, 0, 0),
        (Op.END_LOOP, 0, 0),
        (Op.HALT, 0, 0),
        (Op.EXPR_SYMBOL, 0, 0),
        (Op.EXPR_END, 0, 0),
        (Op.EXPR_CONST, 0, 0),
        (Op.EXPR_END, 0, 0),
    ]
    assert lowered.symbols == ("n", "factor") and lowered.tensors == ("X", "Y")
    assert lowered.registers == {"rows": 0, LoopStart("rows"): 1, LoopExtent("rows"): 2}
    assert {place: [loop.var for loop in loops] for place, loops in lowered.enclosing.items()} == {
        0: [],
        1: ["rows"],
        **{place: [] for place in range(11, 15)},  # the expressions of the loop
    }
    assert scale_module().written == {"Y"}


def test_equal_expressions_are_written_once() -> None:
    offset = add(mul(Var("i"), Const(64)), Const(8))
    rows = (Range(offset, Const(64)), Full())
    task = Task("scale", (Region("X", rows), Region("Y", rows), Const(2.0, f32)))
    found = instructions(lower(with_body(Loop("range", "i", Const(4), None, (task, task)))))
    starts = {operand for op, _, operand in found if op is Op.DIM_RANGE}
    assert len(starts) == 1
    begin = starts.pop()
    assert [op for op, _, _ in found[begin : begin + 6]] == [
        Op.EXPR_REG,
        Op.EXPR_CONST,
        Op.EXPR_MUL,
        Op.EXPR_CONST,
        Op.EXPR_ADD,
        Op.EXPR_END,
    ]


def test_comparisons_without_an_opcode_are_the_opposite_of_one_that_has() -> None:
    expr = Select(Binary("gt", Var("i"), Const(1)), Var("i"), Const(0))
    task = Task("scale", (Region("X", (Index(expr), Full())), Region("Y", (Full(), Full())), Const(2.0, f32)))
    found = instructions(lower(with_body(Loop("range", "i", Const(4), None, (task,)))))
    begin = next(operand for op, _, operand in found if op is Op.DIM_INDEX)
    assert [op for op, _, _ in found[begin : begin + 8]] == [
        Op.EXPR_REG,
        Op.EXPR_CONST,
        Op.EXPR_LE,
        Op.EXPR_NOT,
        Op.EXPR_REG,
        Op.EXPR_CONST,
        Op.EXPR_SELECT,
        Op.EXPR_END,
    ]


def test_registers_are_those_of_each_loop() -> None:
    task = Task("scale", (*(Region(t, (TileRange("j"), Full())) for t in "XY"), Const(2.0, f32)))
    inner = Loop("seq", "j", Var("n"), 64, (task,))
    lowered = lower(
        with_body(Loop("range", "i", Const(4), None, (inner,)), Loop("parallel", "k", Const(1), None, ()))
    )
    assert lowered.registers == {"i": 0, "j": 1, LoopStart("j"): 2, LoopExtent("j"): 3, "k": 4}
    assert [op for op, _, _ in instructions(lowered) if op < Op.TASK] == [
        Op.RANGE_FOR,
        Op.FOR_EACH,
        Op.END_LOOP,
        Op.END_LOOP,
        Op.PARALLEL_FOR,
        Op.END_LOOP,
        Op.HALT,
    ]


def test_arithmetic_on_float_scalars_is_refused_by_name() -> None:
    whole = (Full(), Full())
    twice = Binary("mul", Var("factor", f32), Const(2.0, f32))
    with pytest.raises(NotYetSupported, match="float scalars"):
        lower(with_body(Task("scale", (Region("X", whole), Region("Y", whole), twice))))


def test_loops_inside_each_other_have_a_limit() -> None:
    body: tuple[Node, ...] = ()
    for depth in range(bc.MAX_LOOP_DEPTH + 1):
        body = (Loop("range", f"i{depth}", Const(1), None, body),)
    with pytest.raises(NotYetSupported, match="16 loops"):
        lower(with_body(*body))
    assert lower(with_body(*body[0].body))


def test_the_size_does_not_depend_on_extents() -> None:
    def size(extent: int) -> int:
        loop = Loop("parallel", "i", Const(extent), None, ())
        return len(lower(Module("m", (), (WorkloadFunction("w", (), (loop,)),), "w")).code)

    assert size(10) == size(10**6)
