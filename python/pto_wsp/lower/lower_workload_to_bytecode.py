"""Lower the entry workload of a module to bytecode.

The size of the result follows from the program's text alone: O(IR), not O(tasks).

An expression that reads an element of a tensor that a task of the run writes is a flush point: it becomes a
SET of a register of its own in front of the node that it belongs to, and the node reads the register.
docs/bytecode.md describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import assert_never

from pto_wsp.errors import NotYetSupported
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.flush_points import reads_element
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import WorkloadRenaming, workload_names
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import Const, Expr, FlushValue, Name, Unary, Var, name_of
from pto_wsp.location import Location
from pto_wsp.lower import bytecode as bc
from pto_wsp.lower.bytecode import Op
from pto_wsp.lower.postfix import Key, Postfix, float_arithmetic, key_of
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType, b1, f32, i64
from pto_wsp.types.tile import ScalarType


@record
class Lowered:
    """Bytecode and the meaning of its numbers.

    Attributes:
        code: the bytes.
        tensors: names of the tensor table's entries.
        symbols: names of the symbol table's entries.
        sites: the node that starts at an instruction. Where it reads what tasks of the run write, it reads
            the register that its flush point sets.
        enclosing: the loops around the node that starts at an instruction, outermost first; of an
            instruction of an expression, the loops around every node that evaluates it.
        places: source location of an instruction of an expression.
        registers: register of each loop variable, range of a loop, variable and flush point.
        refusals: the meaning of the reason number of a FAIL.
        written: names of the tensors that some task writes.
    """

    code: bytes
    tensors: tuple[str, ...]
    symbols: tuple[str, ...]
    sites: Mapping[int, w.Node]
    enclosing: Mapping[int, tuple[w.Loop, ...]]
    places: Mapping[int, Location | None]
    registers: Mapping[Name, int]
    refusals: tuple[w.Refuse, ...]
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
        NotYetSupported: more loops inside each other or more names than the engine takes, arithmetic on
            float scalars, or an expression with too many operands.
    """
    return _Lowering(module, kernel_order).run(kernel_table_hash)


@record
class _Instruction:
    op: Op
    operand1: int = 0
    operand2: int = 0
    expr: Expr | None = None  # operand2 becomes the place of this expression
    around: tuple[w.Loop, ...] = ()  # the loops around an instruction with an expression


_LOOP_OPS = {w.PARALLEL: Op.PARALLEL_FOR, w.SEQUENTIAL: Op.FOR_EACH, w.RANGE: Op.RANGE_FOR}
_IO_OPS = {"in": Op.IO_INPUT, "out": Op.IO_OUTPUT, "inout": Op.IO_INOUT}


@record
class _Axis:
    reg: int
    loop: w.Loop
    around: tuple[w.Loop, ...]


class _Lowering:
    def __init__(self, module: Module, kernel_order: Sequence[str]) -> None:
        self.module = module
        self.workload = module.entry_workload
        self.kernel_order = kernel_order
        self.tensors = {t.name: i for i, t in enumerate(self.workload.tensors)}
        self.symbols = {p.name: i for i, p in enumerate(self.workload.symbols)}
        self.written = module.written
        self.code: list[_Instruction] = []
        self.axes: list[_Axis] = []
        self.kernels: list[str] = []
        self.constants: dict[bytes, int] = {}
        self.expressions: dict[int, int] = {}  # by identity: the code and the axes hold them all
        self.sites: dict[int, w.Node] = {}
        self.enclosing: dict[int, tuple[w.Loop, ...]] = {}
        self.places: dict[int, Location | None] = {}
        self.registers: dict[Name, int] = {}
        self.labels: dict[str, int] = {}
        self.refusals: list[w.Refuse] = []
        self.open_axes: dict[str, int] = {}
        self.open_loops: list[w.Loop] = []
        self.around: tuple[w.Loop, ...] = ()  # the open loops, each with its own variable
        self.fresh = Fresh(workload_names(self.workload))
        self.num_registers = 0
        self.cond_depth = 0

    def run(self, kernel_table_hash: int) -> Lowered:
        for name in self.workload.variables:
            self.register(name)
        self.nodes(self.workload.body)
        self.emit(Op.HALT)
        axis_exprs = [self.axis_expressions(axis) for axis in self.axes]
        pairs = zip(self.axes, axis_exprs, strict=True)
        self.place_expressions([(e, axis.around) for axis, pair in pairs for e in pair if e is not None])
        return Lowered(
            self.pack(axis_exprs, kernel_table_hash),
            tuple(self.tensors),
            tuple(self.symbols),
            self.sites,
            self.enclosing,
            self.places,
            self.registers,
            tuple(self.refusals),
            self.written,
        )

    # --- structure ---

    def emit(self, op: Op, operand1: int = 0, operand2: int = 0, expr: Expr | None = None) -> int:
        if operand1 > bc.MAX_OPERAND1:
            raise NotYetSupported(
                feature=f"more than {bc.MAX_OPERAND1} loops, kernels, tensors or variables in one workload",
                detail="",
                advice="",
                loc=self.workload.loc,
            )
        self.code.append(_Instruction(op, operand1, operand2, expr, () if expr is None else self.around))
        return len(self.code) - 1

    def register(self, name: Name, count: int = 1) -> int:
        """Give a name the next of `count` registers."""
        self.registers[name] = self.num_registers
        self.num_registers += count
        return self.registers[name]

    def register_of(self, expr: Expr) -> int | None:
        name = name_of(expr)
        return None if name is None else self.registers.get(name)

    def nodes(self, body: Sequence[w.Node]) -> None:
        for found in map(self.distinct, body):
            node = found if isinstance(found, w.Set) else self.flushed(found)
            self.begin(node)
            match node:
                case w.Loop():
                    assert isinstance(found, w.Loop)
                    self.open_loops.append(found)
                    self.loop(node)
                    self.open_loops.pop()
                case w.Task():
                    self.task(node)
                case w.Cond():
                    self.condition(node)
                case w.Set(name=name, value=value):
                    self.emit(Op.SET, self.registers[name], expr=value)
                case w.Refuse(size=size):
                    self.emit(Op.FAIL, len(self.refusals), expr=size)
                    self.refusals.append(node)
                case w.Process() | w.Send() | w.Receive() | w.Delay():
                    self.part_of_network(node)
                case w.WorkloadCall(workload=name, loc=loc):
                    raise call_left(name, loc)

    def distinct(self, node: w.Node) -> w.Node:
        """Return a node; with other variables than those of loops and tokens before it."""
        match node:
            case w.Loop(var=var) if var in self.registers:
                return WorkloadRenaming({var: self.fresh.name(var)}).node(node)
            case w.Send() | w.Receive():
                scalars = node.scalars if isinstance(node, w.Receive) else ()
                names = [name for name in (node.slot, node.index, *scalars) if name in self.registers]
                return WorkloadRenaming(variables={n: self.fresh.name(n) for n in names}).node(node)
            case _:
                return node

    # --- networks ---

    def part_of_network(self, node: w.NetworkNode) -> None:
        match node:
            case w.Delay(cycles=cycles):
                register, self.num_registers = self.num_registers, self.num_registers + 1
                self.assign("cycles", register, cycles, node.loc)
                self.begin(node)
                self.emit(Op.WAIT, register)
                return
            case w.Process():
                begin, end = self.emit(Op.PROCESS), Op.END_PROCESS
            case w.Send(channel=channel, scalars=scalars):
                first = self.token(channel, node.slot, node.index)
                names = self.ring(channel).scalars
                for number, (name, scalar) in enumerate(zip(names, scalars, strict=True)):
                    self.assign(name, first + 2 + number, scalar, node.loc)
                self.begin(node)
                begin, end = self.emit(Op.SEND, first, self.tensors[channel]), Op.END_SEND
            case w.Receive(channel=channel, scalars=scalars):
                first = self.token(channel, node.slot, node.index)
                self.registers |= {name: first + 2 + number for number, name in enumerate(scalars)}
                op = Op.RECEIVE_EACH if node.ends_loop else Op.RECEIVE
                begin, end = self.emit(op, first, self.tensors[channel]), Op.END_RECEIVE
            case _:
                assert_never(node)
        self.nodes(node.body)
        last = self.emit(end, 0, begin)
        if isinstance(node, w.Process):
            self.code[begin] = replace(self.code[begin], operand2=last)

    def token(self, channel: str, slot: str, index: str) -> int:
        """Give a token its registers: buffer, number, scalars. Return the first one."""
        first = self.register(slot, 2 + len(self.ring(channel).scalars))
        self.registers[index] = first + 1
        return first

    def ring(self, channel: str) -> w.Ring:
        ring = self.workload.tensor(channel).channel
        assert ring is not None
        return ring

    def assign(self, stem: str, register: int, value: Expr, loc: Location | None) -> None:
        """Set a register of a network, with a name like `stem`."""
        name = self.fresh.name(stem)
        self.registers[name] = register
        self.begin(w.Set(name, value, value.loc or loc))
        self.emit(Op.SET, register, expr=value)

    def begin(self, node: w.Node) -> None:
        self.sites[len(self.code)] = node
        self.enclosing[len(self.code)] = self.around

    def flushed(self, node: w.Node) -> w.Node:
        """Put the flush points of a node in front of it; return the node that reads their registers."""
        found: dict[Expr, Expr] = {}
        for expr in w.node_expressions(node):
            if reads_element(expr, self.written) and expr not in found:
                value = FlushValue(self.num_registers, expr.dtype, expr.loc)
                self.begin(w.Set(value, expr, expr.loc or node.loc))
                self.emit(Op.SET, self.register(value), expr=expr)
                found[expr] = value
        return w.map_expressions(node, lambda expr: found.get(expr, expr)) if found else node

    def condition(self, node: w.Cond) -> None:
        self.cond_depth += 1
        self.require_depth(self.cond_depth, bc.MAX_COND_DEPTH, "conditions", node.loc)
        begin = self.emit(Op.COND, expr=node.condition)
        self.nodes(node.then)
        if node.other:
            self.emit(Op.ELSE, 0, begin)
            self.nodes(node.other)
        self.emit(Op.END_COND, 0, begin)
        self.cond_depth -= 1

    def require_depth(self, depth: int, limit: int, what: str, loc: Location | None) -> None:
        if depth > limit:
            feature = f"more than {limit} {what} inside each other"
            raise NotYetSupported(feature=feature, detail="", advice="", loc=loc)

    def loop(self, loop: w.Loop) -> None:
        self.require_depth(len(self.open_axes) + 1, bc.MAX_LOOP_DEPTH, "loops", loop.loc)
        axis = len(self.axes)
        reg = self.register(loop.var, 1 if loop.tile is None else 3)
        outer = self.around
        self.axes.append(_Axis(reg, loop, outer))
        if loop.tile is not None:
            self.registers |= {loop.start: reg + 1, loop.length: reg + 2}
        self.open_axes[loop.var] = axis
        self.around = (*outer, loop)
        begin = self.emit(_LOOP_OPS[loop.kind], axis)
        self.nodes(loop.body)
        self.code[begin] = replace(self.code[begin], operand2=self.emit(Op.END_LOOP, axis, begin))
        del self.open_axes[loop.var]
        self.around = outer

    def task(self, task: w.Task) -> None:
        kernel = self.module.kernel(task.kernel)
        if kernel.name not in self.kernels:
            self.kernels.append(kernel.name)
        num_io, num_scalars = len(kernel.views), len(kernel.scalar_params)
        if max(num_io, num_scalars) > bc.MAX_ARGUMENTS:
            feature = f"a kernel with more than {bc.MAX_ARGUMENTS} arguments of one kind"
            raise NotYetSupported(feature=feature, detail="", advice="", loc=task.loc)
        at = self.emit(Op.TASK, self.kernels.index(kernel.name), num_io << 16 | num_scalars)
        if task.label:
            self.labels[task.label] = at
        pairs = list(zip(kernel.params, task.args, strict=True))
        for param, arg in pairs:
            if isinstance(param.type, ScalarType):
                assert not isinstance(arg, Region)
                self.scalar(arg, param.type.dtype, task.loc)
        for param, arg in pairs:
            if isinstance(arg, Region):
                self.emit(_IO_OPS[param.role], self.tensors[arg.tensor])
                self.region(arg)
        self.amounts(task)
        for label in task.after:
            self.emit(Op.AFTER, operand2=self.labels[label])

    def amounts(self, task: w.Task) -> None:
        for op, amount in ((Op.WORKSPACE, task.workspace), (Op.COST, task.cost)):
            if amount is not None:
                self.emit(op, expr=amount)
        for directive in self.module.schedule:
            for number, key in enumerate(directive.engine_keys(self.module.kernel(task.kernel))):
                found = TaskKeys(self.module, key).at(task, self.open_loops)
                if found is not None:
                    self.emit(Op[directive.mark], directive.engine_operand(number), expr=found)

    def scalar(self, arg: Expr, dtype: DType, loc: Location | None) -> None:
        match arg:
            case Const(value=value):
                layout = "<q" if not dtype.is_float else ("<d" if dtype.name == "f64" else "<f4x")
                number = float(value) if dtype.is_float else int(value)
                self.emit(Op.PARAM_CONST, operand2=self.constant(struct.pack(layout, number)))
            case Var(name=name, dtype=own) if name in self.symbols and own is dtype:
                self.emit(Op.PARAM_SYMBOL, operand2=self.symbols[name])
            case _ if (
                register := self.register_of(arg)
            ) is not None and arg.dtype.is_float == dtype.is_float:
                self.emit(Op.PARAM_LOOPVAR, operand2=register)
            case Unary(op="f32") if dtype is f32:
                self.emit(Op.PARAM_EXPR, expr=arg)
            case _ if not dtype.is_float and arg.dtype in (i64, b1):
                self.emit(Op.PARAM_EXPR, expr=arg)
            case _:
                raise float_arithmetic(arg.loc or loc)

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
                case Rows(indices=indices, start=start, extent=extent):
                    self.emit(Op.DIM_ROWS, self.tensors[indices], expr=start)
                    self.emit(Op.DIM_EXTENT, expr=extent)
                case Merged():
                    self.emit(Op.DIM_MERGED)

    # --- expressions ---

    def constant(self, bits: bytes) -> int:
        return self.constants.setdefault(bits, len(self.constants))

    def axis_expressions(self, axis: _Axis) -> tuple[Expr, Expr | None]:
        tile = axis.loop.tile
        return axis.loop.extent, None if tile is None else Const(tile)

    def place_expressions(self, of_axes: Sequence[tuple[Expr, tuple[w.Loop, ...]]]) -> None:
        """Append every expression after HALT, each once, and point to it."""
        postfix = Postfix(self.emit_placed, self.constant, self.registers, self.symbols, self.tensors)
        wanted = [(i.expr, i.around) for i in self.code if i.expr is not None] + list(of_axes)
        written: dict[Key, int] = {}
        around: dict[int, tuple[w.Loop, ...]] = {}
        for expr, loops in wanted:
            place = self.expressions.get(id(expr))
            if place is None:
                key = key_of(expr)
                if key not in written:
                    written[key] = len(self.code)
                    postfix.write(expr)
                place = self.expressions[id(expr)] = written[key]
            around[place] = _common(around.get(place, loops), loops)
        for place, end in pairwise([*sorted(around), len(self.code)]):
            self.enclosing.update(dict.fromkeys(range(place, end), around[place]))
        for at, instruction in enumerate(self.code):
            if instruction.expr is not None:
                place = self.expressions[id(instruction.expr)]
                self.code[at] = replace(instruction, operand2=place)

    def emit_placed(self, op: Op, operand1: int, operand2: int, loc: Location | None) -> None:
        self.places[self.emit(op, operand1, operand2)] = loc

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
        tile_expr = 0 if tile is None else self.expressions[id(tile)]
        return bc.AXIS.pack(kind, 0, axis.reg, self.expressions[id(extent)], tile_expr, 0)

    def pack_kernel(self, kernel: KernelFunction) -> bytes:
        index = list(self.kernel_order).index(kernel.name)
        return bc.KERNEL.pack(bc.fnv1a(kernel.name), index, len(kernel.views), len(kernel.scalar_params), 0)

    def pack_tensor(self, tensor: w.TensorParam) -> bytes:
        dims = [d if isinstance(d, int) else -1 - self.symbols[d] for d in tensor.type.dims]
        padded = dims + [0] * (bc.MAX_TENSOR_RANK - len(dims))
        written = tensor.name in self.written
        # The engine does not rely on assumptions: an exported program binds arrays without checking them.
        is_distinct = tensor.is_distinct and tensor.is_local
        kind, scalars, merge = bc.ChannelKind.NONE, 0, bc.MergeKind.TURNS
        if tensor.channel is not None:
            kind, scalars = self.channel_kind(tensor.channel, tensor.loc), len(tensor.channel.scalars)
            merge = bc.MergeKind.TURNS if tensor.channel.merge == w.TURNS else bc.MergeKind.TIME
        dtype = tensor.type.dtype.code
        return bc.TENSOR.pack(dtype, len(dims), written, is_distinct, kind, scalars, merge, *padded)

    @staticmethod
    def channel_kind(ring: w.Ring, loc: Location | None) -> bc.ChannelKind:
        if ring.depth > bc.MAX_BUFFERS or len(ring.scalars) > bc.MAX_TOKEN_SCALARS:
            limit = f"{bc.MAX_BUFFERS} buffers or {bc.MAX_TOKEN_SCALARS} scalars per token"
            feature = f"a channel with more than {limit}"
            raise NotYetSupported(feature=feature, detail="", advice="", loc=loc)
        return bc.ChannelKind.RING if ring.depth else bc.ChannelKind.RENDEZVOUS

    def pack_symbol(self, param: w.SizeParam | w.ScalarParam) -> bytes:
        if isinstance(param, w.ScalarParam):
            return bc.SYMBOL.pack(bc.SymbolKind.SCALAR, param.type.dtype.code)
        return bc.SYMBOL.pack(bc.SymbolKind.SIZE, i64.code)


def _common(a: tuple[w.Loop, ...], b: tuple[w.Loop, ...]) -> tuple[w.Loop, ...]:
    """Return the outermost loops that both have."""
    pairs = takewhile(lambda pair: pair[0] is pair[1], zip(a, b, strict=False))
    return tuple(loop for loop, _ in pairs)
