"""Lower the entry workload of a module to bytecode.

The size of the result follows from the program's text alone: O(IR), not O(tasks).
Source: seed 002 section 3; docs/bytecode.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from pto_wsp.errors import NotYetSupported
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region, TileRange
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Select, Unary, Var
from pto_wsp.location import Location
from pto_wsp.passes import bytecode as bc
from pto_wsp.passes.bytecode import Op
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType, b1, i64
from pto_wsp.types.tile import ScalarType


@record
class Lowered:
    """Bytecode and what its numbers stand for.

    Attributes:
        code: the bytes.
        tensors: names of the tensor table's entries.
        symbols: names of the symbol table's entries.
        sites: the loop or task that starts at an instruction.
        enclosing: loop variables around the loop or task that starts at an instruction, outermost first.
        places: source location of an instruction of an expression.
        registers: register of each loop variable.
        written: names of the tensors that some task writes.
    """

    code: bytes
    tensors: tuple[str, ...]
    symbols: tuple[str, ...]
    sites: Mapping[int, w.Node]
    enclosing: Mapping[int, tuple[str, ...]]
    places: Mapping[int, Location | None]
    registers: Mapping[str, int]
    written: frozenset[str]


def lower_workload_to_bytecode(
    module: Module, kernel_order: Sequence[str], kernel_table_hash: int
) -> Lowered:
    """Lower the entry of a verified module.

    Args:
        module: the module.
        kernel_order: names of the kernel library's table, in its order.
        kernel_table_hash: the library's hash, which the engine compares.

    Raises:
        NotYetSupported: more loops inside each other than the engine takes, or arithmetic on float scalars.
    """
    return _Lowering(module, kernel_order).run(kernel_table_hash)


@record
class _Instruction:
    op: Op
    operand1: int = 0
    operand2: int = 0
    expr: Expr | None = None  # operand2 becomes the place of this expression


_LOOP_OPS = {w.PARALLEL: Op.PARALLEL_FOR, w.SEQUENTIAL: Op.FOR_EACH, w.RANGE: Op.RANGE_FOR}
_IO_OPS = {"in": Op.IO_INPUT, "out": Op.IO_OUTPUT, "inout": Op.IO_INOUT}
_BINARY_OPS = {
    "add": Op.EXPR_ADD,
    "sub": Op.EXPR_SUB,
    "mul": Op.EXPR_MUL,
    "floordiv": Op.EXPR_FLOORDIV,
    "mod": Op.EXPR_MOD,
    "min": Op.EXPR_MIN,
    "max": Op.EXPR_MAX,
    "lt": Op.EXPR_LT,
    "le": Op.EXPR_LE,
    "eq": Op.EXPR_EQ,
    "ne": Op.EXPR_NE,
    "and": Op.EXPR_AND,
    "or": Op.EXPR_OR,
}
_SWAPPED = {"gt": "lt", "ge": "le"}


@record
class _Axis:
    reg: int
    loop: w.Loop


class _Lowering:
    def __init__(self, module: Module, kernel_order: Sequence[str]) -> None:
        self.module = module
        self.workload = module.entry_workload
        self.kernel_order = kernel_order
        self.tensors = {t.name: i for i, t in enumerate(self.workload.tensors)}
        self.symbols = {p.name: i for i, p in enumerate(self.workload.symbols)}
        self.written = written_tensors(module)
        self.code: list[_Instruction] = []
        self.axes: list[_Axis] = []
        self.kernels: list[str] = []
        self.constants: dict[bytes, int] = {}
        self.expressions: dict[Expr, int] = {}
        self.sites: dict[int, w.Node] = {}
        self.enclosing: dict[int, tuple[str, ...]] = {}
        self.places: dict[int, Location | None] = {}
        self.registers: dict[str, int] = {}
        self.open_axes: dict[str, int] = {}
        self.num_registers = 0

    def run(self, kernel_table_hash: int) -> Lowered:
        self.nodes(self.workload.body)
        self.emit(Op.HALT)
        axis_exprs = [self.axis_expressions(axis) for axis in self.axes]
        self.place_expressions([e for pair in axis_exprs for e in pair if e is not None])
        return Lowered(
            self.pack(axis_exprs, kernel_table_hash),
            tuple(self.tensors),
            tuple(self.symbols),
            self.sites,
            self.enclosing,
            self.places,
            self.registers,
            frozenset(self.written),
        )

    # --- structure ---

    def emit(self, op: Op, operand1: int = 0, operand2: int = 0, expr: Expr | None = None) -> int:
        self.code.append(_Instruction(op, operand1, operand2, expr))
        return len(self.code) - 1

    def nodes(self, body: Sequence[w.Node]) -> None:
        for node in body:
            self.sites[len(self.code)] = node
            self.enclosing[len(self.code)] = tuple(self.open_axes)
            if isinstance(node, w.Loop):
                self.loop(node)
            else:
                self.task(node)

    def loop(self, loop: w.Loop) -> None:
        if len(self.open_axes) == bc.MAX_LOOP_DEPTH:
            raise NotYetSupported(
                feature=f"more than {bc.MAX_LOOP_DEPTH} loops inside each other",
                detail="",
                advice="",
                loc=loop.loc,
            )
        axis = len(self.axes)
        self.axes.append(_Axis(self.num_registers, loop))
        self.registers[loop.var] = self.num_registers
        if loop.tile is not None:
            self.registers[loop.start] = self.num_registers + 1
            self.registers[loop.length] = self.num_registers + 2
        self.num_registers += 1 if loop.tile is None else 3
        self.open_axes[loop.var] = axis
        begin = self.emit(_LOOP_OPS[loop.kind], axis)
        self.nodes(loop.body)
        self.code[begin] = replace(self.code[begin], operand2=self.emit(Op.END_LOOP, axis, begin))
        del self.open_axes[loop.var]

    def task(self, task: w.Task) -> None:
        kernel = self.module.kernel(task.kernel)
        if kernel.name not in self.kernels:
            self.kernels.append(kernel.name)
        num_io, num_scalars = len(kernel.views), len(kernel.scalar_params)
        self.emit(Op.TASK, self.kernels.index(kernel.name), num_io << 16 | num_scalars)
        pairs = list(zip(kernel.params, task.args, strict=True))
        for param, arg in pairs:
            if isinstance(param.type, ScalarType):
                assert not isinstance(arg, Region)
                self.scalar(arg, param.type.dtype, task.loc)
        for param, arg in pairs:
            if isinstance(arg, Region):
                self.emit(_IO_OPS[param.role], self.tensors[arg.tensor])
                self.region(arg)

    def scalar(self, arg: Expr, dtype: DType, loc: Location | None) -> None:
        match arg:
            case Const(value=value):
                layout = "<q" if not dtype.is_float else ("<d" if dtype.name == "f64" else "<f4x")
                number = float(value) if dtype.is_float else int(value)
                self.emit(Op.PARAM_CONST, operand2=self.constant(struct.pack(layout, number)))
            case Var(name=name, dtype=own) if name in self.symbols and own is dtype:
                self.emit(Op.PARAM_SYMBOL, operand2=self.symbols[name])
            case Var(name=name) if name in self.registers and not dtype.is_float:
                self.emit(Op.PARAM_LOOPVAR, operand2=self.registers[name])
            case _ if not dtype.is_float and arg.dtype in (i64, b1):
                self.emit(Op.PARAM_EXPR, expr=arg)
            case _:
                raise NotYetSupported(
                    feature="arithmetic on float scalars in a workload",
                    detail=f"expected a literal or a scalar parameter of type {dtype}",
                    advice="compute it in the kernel, or pass the value to the program",
                    loc=arg.loc or loc,
                )

    def region(self, region: Region) -> None:
        for dim in region.dims:
            match dim:
                case Full():
                    self.emit(Op.DIM_FULL)
                case Index(at=at):
                    self.emit(Op.DIM_INDEX, expr=at)
                case TileRange(loop=loop):
                    self.emit(Op.DIM_TILE, self.open_axes[loop])
                case Range(start=start, extent=extent):
                    self.emit(Op.DIM_RANGE, expr=start)
                    self.emit(Op.DIM_EXTENT, expr=extent)

    # --- expressions ---

    def constant(self, bits: bytes) -> int:
        return self.constants.setdefault(bits, len(self.constants))

    def axis_expressions(self, axis: _Axis) -> tuple[Expr, Expr | None]:
        tile = axis.loop.tile
        return axis.loop.extent, None if tile is None else Const(tile)

    def place_expressions(self, of_axes: Sequence[Expr]) -> None:
        """Append every expression after HALT, each once, and point to it."""
        wanted = [i.expr for i in self.code if i.expr is not None] + list(of_axes)
        for expr in wanted:
            if expr not in self.expressions:
                self.expressions[expr] = len(self.code)
                self.expression(expr)
                self.emit(Op.EXPR_END)
        for at, instruction in enumerate(self.code):
            if instruction.expr is not None:
                self.code[at] = replace(instruction, operand2=self.expressions[instruction.expr])

    def expression(self, expr: Expr) -> None:
        self.operation(expr)
        self.places[len(self.code) - 1] = expr.loc

    def operation(self, expr: Expr) -> None:
        match expr:
            case Const() | Var() | Element():
                self.leaf(expr)
            case Unary(op="neg" | "not" as op, a=a):
                self.expression(a)
                self.emit(Op.EXPR_NEG if op == "neg" else Op.EXPR_NOT)
            case Unary(op="i64", a=a):
                self.expression(a)
            case Binary(op="gt" | "ge" as op, a=a, b=b, loc=loc):
                self.expression(Binary(_SWAPPED[op], b, a, loc))
            case Binary(op=op, a=a, b=b) if op in _BINARY_OPS:
                self.expression(a)
                self.expression(b)
                self.emit(_BINARY_OPS[op])
            case Select(condition=condition, then=then, other=other):
                for part in (condition, then, other):
                    self.expression(part)
                self.emit(Op.EXPR_SELECT)
            case _:
                raise NotYetSupported(
                    feature="this expression in a workload", detail="", advice="", loc=expr.loc
                )

    def leaf(self, expr: Const | Var | Element) -> None:
        match expr:
            case Const(value=value):
                self.emit(Op.EXPR_CONST, operand2=self.constant(struct.pack("<q", int(value))))
            case Var(name=name) if name in self.registers:
                self.emit(Op.EXPR_REG, operand2=self.registers[name])
            case Var(name=name):
                self.emit(Op.EXPR_SYMBOL, operand2=self.symbols[name])
            case Element(name=name, indices=indices):
                if name in self.written:
                    raise NotYetSupported(
                        feature=f"deciding by `{name}`, which a task of the same run writes,",
                        detail="read here",
                        advice="fill it in an earlier run",
                        loc=expr.loc,
                    )
                for index in indices:
                    self.expression(index)
                self.emit(Op.EXPR_ELEMENT, self.tensors[name], len(indices))

    # --- packing ---

    def pack(self, axis_exprs: Sequence[tuple[Expr, Expr | None]], kernel_table_hash: int) -> bytes:
        sections = [
            [bc.INSTRUCTION.pack(i.op, 0, i.operand1, i.operand2) for i in self.code],
            [self.pack_axis(axis, *exprs) for axis, exprs in zip(self.axes, axis_exprs, strict=True)],
            [self.pack_kernel(self.module.kernel(name)) for name in self.kernels],
            [self.pack_tensor(tensor) for tensor in self.workload.tensors],
            [self.pack_symbol(p) for p in self.workload.symbols],
            list(self.constants),
        ]
        body = b"".join(entry for section in sections for entry in section)
        counts = [len(section) for section in sections]
        header = bc.HEADER.pack(
            bc.MAGIC, bc.VERSION, *counts, self.num_registers, bc.HEADER.size + len(body), kernel_table_hash
        )
        return header + body

    def pack_axis(self, axis: _Axis, extent: Expr, tile: Expr | None) -> bytes:
        kind = bc.AxisKind.DENSE if tile is None else bc.AxisKind.TILES
        tile_expr = 0 if tile is None else self.expressions[tile]
        return bc.AXIS.pack(kind, 0, axis.reg, self.expressions[extent], tile_expr, 0)

    def pack_kernel(self, kernel: KernelFunction) -> bytes:
        index = list(self.kernel_order).index(kernel.name)
        return bc.KERNEL.pack(bc.fnv1a(kernel.name), index, len(kernel.views), len(kernel.scalar_params), 0)

    def pack_tensor(self, tensor: w.TensorParam) -> bytes:
        dims = [d if isinstance(d, int) else -1 - self.symbols[d] for d in tensor.type.dims]
        padded = dims + [0] * (bc.MAX_TENSOR_RANK - len(dims))
        written = tensor.name in self.written
        return bc.TENSOR.pack(tensor.type.dtype.code, len(dims), written, tensor.is_distinct, *padded)

    def pack_symbol(self, param: w.SizeParam | w.ScalarParam) -> bytes:
        if isinstance(param, w.ScalarParam):
            return bc.SYMBOL.pack(bc.SymbolKind.SCALAR, param.type.dtype.code)
        return bc.SYMBOL.pack(bc.SymbolKind.SIZE, i64.code)


def written_tensors(module: Module) -> set[str]:
    """Return the names of the tensors that some task of the entry writes."""
    written: set[str] = set()
    for task in w.tasks(module.entry_workload.body):
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True):
            if isinstance(arg, Region) and param.role != "in":
                written.add(arg.tensor)
    return written
