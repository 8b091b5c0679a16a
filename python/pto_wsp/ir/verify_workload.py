"""The verifier of workload functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.expression_types import require_types
from pto_wsp.ir.module import Module
from pto_wsp.ir.rules import region_rank, require, require_distinct, require_element, view_rank_and_dtype
from pto_wsp.ir.scalar import (
    NUM_SLOTS,
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    FlushValue,
    KernelNumber,
    LoopExtent,
    LoopStart,
    Name,
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
    format_expr,
    name_of,
    walk,
)
from pto_wsp.ir.verify_network import verify_network
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1, i32, i64
from pto_wsp.types.space import LOCAL_SPACES
from pto_wsp.types.tile import ScalarType, TensorType


def verify_workload(module: Module, workload: w.WorkloadFunction) -> None:
    """Raise InvalidIR at the first node of `workload`, a function of `module`, that breaks a rule."""
    _WorkloadVerifier(module, workload).run()


class _WorkloadVerifier:
    def __init__(self, module: Module, workload: w.WorkloadFunction) -> None:
        self.kernels = {kernel.name: kernel for kernel in module.kernels}
        self.workloads = {function.name: function for function in module.workloads}
        self.workload = workload
        self.tensors = {t.name: t for t in workload.tensors}
        self.sizes = {p.name: p for p in workload.params if isinstance(p, w.SizeParam)}
        self.variables: frozenset[Name] = frozenset(workload.variables)
        self.names: set[Name] = {p.name for p in workload.symbols} | self.variables
        self.loops: dict[str, w.Loop] = {}
        self.labels: set[str] = set()

    def run(self) -> None:
        names = [p.name for p in self.workload.params]
        require_distinct(names, self.workload.loc)
        for name in names:
            self.name(name, self.workload.loc)
        for tensor in self.workload.tensors:
            self.tensor(tensor)
        for axis in (*self.workload.raggeds, *self.workload.sparses):
            self.axis(axis)
        for size in self.sizes.values():
            self.size(size)
        for scalar in self.workload.symbols:
            if isinstance(scalar, w.ScalarParam) and scalar.value is not None:
                self.scalar(scalar, scalar.value)
        for variable in self.workload.variables:
            match variable:
                case Slot(number=number):
                    require(0 <= number < NUM_SLOTS, f"there is no slot {number}", self.workload.loc)
                case FlushValue():
                    require(False, "flush points are set by the lowering alone", self.workload.loc)
                case name:
                    self.variable(name)
        self.nodes(self.workload.body, frozenset())
        verify_network(self.workload, self.kernels)

    # --- parameters ---

    def tensor(self, tensor: w.TensorParam) -> None:
        for dim in tensor.type.dims:
            known = isinstance(dim, int) or dim in self.sizes
            require(known, f"size `{dim}` is not declared", tensor.loc)
        space = tensor.type.space
        sound = space is None or (tensor.is_local and space in LOCAL_SPACES)
        require(sound, f"`{tensor.name}` cannot lie in {space}", tensor.loc)
        can_differ = tensor.type.dtype.is_integer or not tensor.is_distinct
        require(
            can_differ, f"`{tensor.name}` does not hold integers, which alone can be distinct", tensor.loc
        )
        holds_offsets = tensor.is_local and tensor.type.dtype is i64 and len(tensor.type.dims) == 1
        require(tensor.axis is None or holds_offsets, f"`{tensor.name}` cannot hold offsets", tensor.loc)
        channel = tensor.channel
        if channel is not None:
            sound = tensor.is_local and tensor.type.dims[:1] == (channel.buffers,)
            require(sound, f"`{tensor.name}` is not the ring of a channel", tensor.loc)
            cycles = channel.latency
            known = isinstance(cycles, int) or cycles in self.sizes
            require(known, f"size `{cycles}` is not declared", tensor.loc)
            least = min(channel.depth, cycles if isinstance(cycles, int) else 0)
            require(least >= 0, f"`{tensor.name}` has a number below 0", tensor.loc)
            require_distinct(channel.scalars, tensor.loc)
        match tensor.type.dims:
            case (*_, int() as panels, _, int() as width) if tensor.columns is not None and width > 0:
                in_panels = panels == -(-tensor.columns // width)
            case _:
                in_panels = tensor.columns is None
        columns = f"{tensor.columns} columns in panels"
        require(in_panels, f"`{tensor.name}` does not hold {columns}", tensor.loc)

    def axis(self, axis: w.RaggedParam | w.SparseParam) -> None:
        require(axis.outer in self.sizes, f"size `{axis.outer}` is not declared", axis.loc)
        self.hidden(axis.offsets, (axis.count,), axis.loc)
        if isinstance(axis, w.SparseParam):
            self.hidden(axis.indices, (axis.entries, 1), axis.loc)
            self.index_tensor(axis.indices, axis.loc)

    def hidden(self, name: str, dims: tuple[int | str, ...], loc: Location | None) -> None:
        tensor = self.tensors.get(name)
        require(tensor is not None and tensor.type.dims == dims, f"`{name}` is not what its axis needs", loc)
        assert tensor is not None
        require(tensor.type.dtype in (i32, i64), f"`{name}` holds no integers", loc)

    def size(self, size: w.SizeParam) -> None:
        """Check that a derived size follows from others and from numbers of the call, and not from itself."""
        given = {
            p.name
            for p in self.workload.symbols
            if isinstance(p, w.ScalarParam) and p.value is None and p.type.dtype is i64
        }
        require(size.value is None or size.default is None, f"`{size.name}` has two values", size.loc)
        seen = {size.name}
        pending = [size.value]
        while pending:
            value = pending.pop()
            for node in () if value is None else walk(value):
                name = node.name if isinstance(node, Var) else ""
                sound = name in self.sizes or name in given or not isinstance(node, (Var, Element, Extent))
                require(sound, f"`{size.name}` follows from more than sizes", size.loc)
                if name in self.sizes and self.sizes[name].value is not None:
                    require(name not in seen, f"`{size.name}` follows from itself", size.loc)
                    seen.add(name)
                    pending.append(self.sizes[name].value)

    def scalar(self, scalar: w.ScalarParam, value: Expr) -> None:
        """Check that a derived scalar follows from symbols that a call gives."""
        require(scalar.default is None, f"`{scalar.name}` has two values", scalar.loc)
        given = {p.name for p in self.workload.symbols if p.value is None}
        sound = all(
            part.name in given if isinstance(part, Var) else not isinstance(part, (Element, Extent))
            for part in walk(value)
        )
        require(sound, f"`{scalar.name}` follows from more than symbols", scalar.loc)

    def variable(self, name: str) -> None:
        params = {p.name for p in self.workload.params}
        require(name not in params, f"`{name}` is declared twice", self.workload.loc)
        require(not name.startswith("slot."), f"`{name}` is not a slot", self.workload.loc)
        self.name(name, self.workload.loc)

    def name(self, name: str, loc: Location | None) -> None:
        parts = name.split(".")
        sound = parts[0].isidentifier() and all(p.isidentifier() or p.isdecimal() for p in parts)
        require(sound, f"`{name}` is not a name", loc)

    # --- nodes ---

    def nodes(self, body: Sequence[w.Node], before: frozenset[str]) -> frozenset[str]:
        """Check a block that begins after the tasks labelled `before`.

        Returns the labels that later tasks may name: those of its conditionals too, but of no loop's.
        """
        for node in body:
            match node:
                case w.Task():
                    before = self.task(node, before)
                case w.Loop():
                    self.loop(node, before)
                case w.Cond(condition=condition, then=then, other=other):
                    self.expression(condition, node.loc)
                    require(condition.dtype is b1, "a condition is a truth value", node.loc)
                    before = self.nodes(then, before) | self.nodes(other, before)
                case w.Set(value=value):
                    self.expression(value, node.loc)
                    require(value.dtype in (i64, b1), f"`{node.name}` is an integer", node.loc)
                case w.Refuse(size=size, bounds=bounds):
                    self.integer(size, node.loc)
                    require(list(bounds) == sorted(set(bounds)), "the bounds of tiers ascend", node.loc)
                case w.WorkloadCall():
                    self.call(node)
                case w.Process() | w.Send() | w.Receive() | w.Delay():
                    self.part_of_network(node, before)
                case _:
                    assert_never(node)
        return before

    def part_of_network(self, node: w.NetworkNode, before: frozenset[str]) -> None:
        match node:
            case w.Delay(cycles=cycles):
                self.integer(cycles, node.loc)
            case w.Process():
                self.nodes(node.body, frozenset())
            case w.Send(slot=slot, index=index, scalars=scalars):
                for scalar in scalars:
                    self.integer(scalar, node.loc)
                self.inside(node, (slot, index), before)
            case w.Receive(slot=slot, index=index, scalars=scalars):
                self.inside(node, (slot, index, *scalars), before)
            case _:
                assert_never(node)

    def inside(self, node: w.Send | w.Receive, names: Sequence[str], before: frozenset[str]) -> None:
        """Check the body of a send or receive, in which `names` are known."""
        for name in names:
            self.name(name, node.loc)
            require(name not in self.names, f"`{name}` is declared twice", node.loc)
            self.names.add(name)
        self.nodes(node.body, before)
        self.names -= {*names}

    def loop(self, loop: w.Loop, before: frozenset[str]) -> None:
        self.integer(loop.extent, loop.loc)
        require(loop.kind in (w.PARALLEL, w.SEQUENTIAL, w.RANGE), f"no kind of loop: {loop.kind}", loop.loc)
        require(
            loop.tile is None or loop.tile > 0, f"a tile has at least one row, found {loop.tile}", loop.loc
        )
        owned: set[Name] = {loop.var} | ({loop.start, loop.length} if loop.tile is not None else set())
        for leaf in owned:
            name = leaf if isinstance(leaf, str) else format_expr(leaf)
            require(name not in self.names, f"`{name}` is declared twice", loop.loc)
        self.ranges(loop)
        self.loops[loop.var] = loop
        self.names |= owned
        self.nodes(loop.body, before)
        self.names -= owned
        del self.loops[loop.var]

    def ranges(self, loop: w.Loop) -> None:
        """Check what binary expansion is told."""
        most, least = loop.max_range, loop.min_range
        blocks = [block for block, _ in loop.tile_levels]
        for block in (most, least, *blocks):
            sound = block is None or block == 0 or block & (block - 1) == 0 < block
            require(sound, f"{block} is not a power of two", loop.loc)
        require(0 not in (most, least), "a block has at least one iteration", loop.loc)
        require(loop.tile is None or most is None, "a loop over tiles is not expanded", loop.loc)
        require(most is not None or (least is None and not blocks), "ranges need a `max_range`", loop.loc)
        require((least or 1) <= (most or 1), "`min_range` is above `max_range`", loop.loc)
        require(blocks == sorted(set(blocks), reverse=True), "blocks of tile levels descend", loop.loc)
        require(all(rows > 0 for _, rows in loop.tile_levels), "a tile has at least one row", loop.loc)

    def call(self, call: w.WorkloadCall) -> None:
        callee = self.workloads.get(call.workload)
        require(callee is not None, f"workload `{call.workload}` is not in the module", call.loc)
        assert callee is not None
        require(not callee.processes, f"`{callee.name}` is a network, which cannot be called", call.loc)
        given = callee.open_params
        require(len(call.args) == len(given), f"arguments of `{callee.name}`", call.loc)
        for param, arg in zip(given, call.args, strict=True):
            match param:
                case w.TensorParam(type=TensorType(dtype=dtype, dims=dims)):
                    require(isinstance(arg, Region), f"`{param.name}` takes a tensor", call.loc)
                    assert isinstance(arg, Region)
                    self.selected(arg, len(dims), dtype, param.name, call.loc)
                    sound = all(isinstance(dim, (Full, Index)) for dim in arg.dims)
                    require(sound, "a call takes whole dimensions and indices", call.loc)
                case w.SizeParam() | w.ScalarParam():
                    require(not isinstance(arg, Region), f"`{param.name}` takes a scalar", call.loc)
                    assert not isinstance(arg, Region)
                    self.expression(arg, call.loc)
                    dtype = i64 if isinstance(param, w.SizeParam) else param.type.dtype
                    found = f"`{param.name}` takes {dtype}, found {arg.dtype}"
                    require(arg.dtype is dtype, found, call.loc)
                case _:
                    require(False, f"`{callee.name}` has an axis with rows", call.loc)

    def task(self, task: w.Task, before: frozenset[str]) -> frozenset[str]:
        """Check a task; return the labels that later tasks may name."""
        kernel = self.kernels.get(task.kernel)
        require(kernel is not None, f"kernel `{task.kernel}` is not in the module", task.loc)
        assert kernel is not None
        require(len(task.args) == len(kernel.params), f"arguments of `{kernel.name}`", task.loc)
        for param, arg in zip(kernel.params, task.args, strict=True):
            if isinstance(arg, Region):
                self.region(param, arg, task.loc)
            else:
                require(isinstance(param.type, ScalarType), f"`{param.name}` takes a tensor", task.loc)
                found = f"`{param.name}` takes {param.type}, found {arg.dtype}"
                require(arg.dtype is param.type.dtype, found, task.loc)
                self.expression(arg, task.loc)
        self.own_indices(kernel, task)
        for key in task.keys:
            self.expression(key, task.loc)
        for amount in (task.workspace, task.cost):
            if amount is not None:
                self.integer(amount, task.loc)
        for label in task.after:
            known = label in before
            require(known, f"`{label}` labels no task before this one in a block around it", task.loc)
        if not task.label:
            return before
        self.name(task.label, task.loc)
        require(task.label not in self.labels, f"label `{task.label}` is given twice", task.loc)
        self.labels.add(task.label)
        return before | {task.label}

    def own_indices(self, kernel: k.KernelFunction, task: w.Task) -> None:
        """A kernel looks at the indices of its row sets while it runs: its task may not write them."""
        pairs = [(p, a) for p, a in zip(kernel.params, task.args, strict=True) if isinstance(a, Region)]
        written = {a.tensor for p, a in pairs if p.role != k.IN}
        for _, region in pairs:
            for dim in region.dims:
                own = isinstance(dim, Rows) and dim.indices in written
                require(not own, "a task writes the indices of its own row set", task.loc)

    # --- regions ---

    def region(self, param: k.Param, region: Region, loc: Location | None) -> None:
        require(not isinstance(param.type, ScalarType), f"`{param.name}` takes a scalar", loc)
        rank, dtype = view_rank_and_dtype(param)
        self.selected(region, rank, dtype, param.name, loc)
        for number, dim in enumerate(region.dims):
            match dim:
                case TileRange(loop=name):
                    loop = self.loops.get(name)
                    require(loop is not None and loop.tile is not None, f"`{name}` is not a tiles loop", loc)
                case Rows(indices=indices):
                    require(number == 0 and rank > 1, "a row set is the first dimension of several", loc)
                    self.index_tensor(indices, loc)
                case Merged():
                    follows = number > 0 and isinstance(region.dims[number - 1], (Rows, Merged))
                    require(follows, "a merged dimension follows a row set", loc)
                case Full() | Index() | Range():
                    pass
                case _:
                    assert_never(dim)

    def selected(self, region: Region, rank: int, dtype: DType, param: str, loc: Location | None) -> None:
        """Check that a region is one of a declared tensor, and of the rank and type that `param` takes."""
        tensor = self.tensors.get(region.tensor)
        require(tensor is not None, f"tensor `{region.tensor}` is not declared", loc)
        assert tensor is not None
        dims, given, found = len(tensor.type.dims), region_rank(region), tensor.type.dtype
        has = f"expected {dims} dimensions of `{tensor.name}`, found {len(region.dims)}"
        require(len(region.dims) == dims, has, loc)
        require(given == rank, f"`{param}` takes {rank} dimensions, found {given} of `{tensor.name}`", loc)
        require(found is dtype, f"`{param}` takes {dtype}, and `{tensor.name}` is {found}", loc)
        for expr in region.expressions:
            self.integer(expr, loc)

    def index_tensor(self, name: str, loc: Location | None) -> None:
        tensor = self.tensors.get(name)
        require(tensor is not None, f"tensor `{name}` is not declared", loc)
        assert tensor is not None
        sound = tensor.type.dtype is i32 and len(tensor.type.dims) == 2 and tensor.type.dims[1] == 1
        require(sound, f"`{name}` is not a column of i32 indices", loc)

    # --- expressions ---

    def integer(self, expr: Expr, loc: Location | None) -> None:
        self.expression(expr, loc)
        require(expr.dtype is i64, "an integer is needed here", loc)

    def expression(self, expr: Expr, loc: Location | None) -> None:
        for node in walk(expr):
            require_types(node, loc)
            match node:
                case Extent():
                    require(False, "extents of views occur in kernels only", loc)
                case Element(name=name):
                    tensor = self.tensors.get(name)
                    require(tensor is not None, f"tensor `{name}` is not declared", loc)
                    assert tensor is not None
                    require_element(node, len(tensor.type.dims), tensor.type.dtype, loc)
                case LoopStart() | LoopExtent() | Slot() | FlushValue():
                    require(name_of(node) in self.names, f"`{format_expr(node)}` is not declared", loc)
                case Var(name=name, dtype=dtype):
                    require(name in self.names, f"`{name}` is not declared", loc)
                    is_typed = name not in self.variables or dtype is i64
                    require(is_typed, f"variable `{name}` is an integer", loc)
                case TileElement():
                    require(False, "tiles occur in kernels only", loc)
                case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
                    require(False, f"`{format_expr(node)}` occurs in keys only", loc)
                case Const() | Unary() | Binary() | Select():
                    pass
                case _:
                    assert_never(node)
