"""Random modules of IR that verify, with every kind of node; most mean nothing useful."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pto_wsp.analysis.stored_parts import missing_element
from pto_wsp.errors import OutRead
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import (
    ARITHMETIC,
    BITWISE,
    CHECKS,
    COMPARISONS,
    LOGIC,
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    KernelNumber,
    Name,
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
    element_dtype,
)
from pto_wsp.ir.schedule import Bounds, Count, Directives, Key, Keys, Stage, Stages
from pto_wsp.isa.attributes import CONSTANTS, EXTENTS, MODES, PLACES
from pto_wsp.isa.forms import FormError, result_type
from pto_wsp.isa.table import TABLE, Instruction
from pto_wsp.lang.kernel.outputs import stored_outputs
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.support.record import replace
from pto_wsp.types import DTYPES, ScalarType, TensorType, TileType, ViewType, b1, f32, i32, i64
from pto_wsp.types.dtype import DType
from tests.generators.drawing import Draw
from tests.generators.networks import random_network
from tests.python.isa.operands import operand_shapes, operand_types

Leaf = Callable[[DType], Expr | None]
SHAPES = ((1, 1), (4, 8), (8, 1), (1, 16), (32, 32))
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e-05, 3.4e38, 1e300, 0.35355339059327373, math.inf, -math.inf)


class Expressions:
    """Writes expressions over the names that `leaf` gives."""

    def __init__(self, draw: Draw, leaf: Leaf, checks: Iterable[str] = ()) -> None:
        self.draw = draw
        self.leaf = leaf
        self.of_integers = (*BITWISE, *checks)

    def make(self, dtype: DType, depth: int = 3) -> Expr:
        """Return an expression of a type."""
        if depth == 0 or self.draw.random() < 0.25:
            found = self.leaf(dtype) if self.draw.random() < 0.7 else None
            return self.literal(dtype) if found is None else found
        if self.draw.random() < 0.1:
            condition = self.make(b1, depth - 1)
            return Select(condition, self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if self.draw.random() < 0.25:
            return self.unary(dtype, depth - 1)
        ops = [*LOGIC, *COMPARISONS] if dtype is b1 else [*ARITHMETIC]
        op = self.draw.choice(ops + ([*self.of_integers] if dtype is i64 else []))
        operand = self.draw.choice((i64, f32)) if op in COMPARISONS else dtype
        if dtype is not b1 and op in ("floordiv", "mod", "div"):
            op = "div" if dtype is f32 else self.draw.choice(("floordiv", "mod"))
        return Binary(op, self.make(operand, depth - 1), self.make(operand, depth - 1))

    def unary(self, dtype: DType, depth: int) -> Expr:
        if dtype is b1:
            op = self.draw.choice(("not", "b1"))
            return Unary(op, self.make(b1 if op == "not" else i64, depth))
        if dtype is f32:
            op = self.draw.choice(("neg", "f32"))
            return Unary(op, self.make(f32 if op == "neg" else i64, depth))
        op = self.draw.choice(("neg", "invert", "i64", "u64"))
        return Unary(op, self.make(b1 if op == "i64" else i64, depth))

    def literal(self, dtype: DType) -> Expr:
        if dtype is b1:
            return Const(self.draw.random() < 0.5, b1)
        if dtype is f32:
            return Const(self.draw.choice(FLOATS), f32)
        return Const(self.draw.choice((0, 1, -1, 7, 64, 2**63 - 1, -(2**63))))


class KernelWriter:
    """Writes one kernel."""

    def __init__(self, draw: Draw, name: str, callees: list[k.KernelFunction]) -> None:
        self.draw = draw
        self.name = name
        self.callees = callees
        self.tiles: dict[str, TileType] = {}
        self.scalars: dict[str, DType] = {k.BLOCK_IDX: i64}
        self.params = self.parameters()
        self.declared = {f"s{n}": self.draw.choice((i64, f32, b1)) for n in range(draw.randrange(3))}
        self.scalars |= self.declared
        self.exprs = Expressions(draw, self.leaf)

    def parameters(self) -> tuple[k.Param, ...]:
        draw, found = self.draw, []
        for number in range(draw.randrange(1, 5)):
            name = f"p{number}"
            dtype = draw.choice(sorted(TABLE["expands"].dtypes, key=str))
            kind = draw.choice(("tile", "view", "scalar"))
            if kind == "scalar":
                dtype = draw.choice((i64, f32, b1))
                self.scalars[name] = dtype
                found.append(k.Param(name, k.IN, ScalarType(dtype)))
                continue
            role = draw.choice((k.IN, k.OUT, k.INOUT))
            dims = tuple(draw.choice((None, 8, 64)) for _ in range(draw.randrange(1, 4)))
            rows, cols = draw.choice(SHAPES)
            view = TileType(rows, cols, dtype) if kind == "tile" else ViewType(dtype, dims)
            found.append(k.Param(name, role, view))
        return tuple(found)

    def leaf(self, dtype: DType) -> Expr | None:
        options: list[Expr] = [Var(n, t) for n, t in self.scalars.items() if t is dtype]
        if dtype is i64:
            for param in self.params:
                if not isinstance(param.type, ScalarType):
                    options.append(Extent(param.name, 0))
                match param.type:
                    case ViewType(dtype=DType() as kind, dims=tuple() as dims) if param.role == k.IN:
                        if kind.is_integer or kind is b1:
                            options.append(Element(param.name, (Const(1),) * len(dims)))
        return self.draw.choice(options) if options else None

    def tile(self, shape: tuple[int, int], dtype: DType) -> str:
        name = f"t{len(self.tiles)}"
        self.tiles[name] = TileType(*shape, dtype)
        return name

    def write(self) -> k.KernelFunction:
        """Return the kernel: a declaration, C++, or a body."""
        draw, kind = self.draw, self.draw.random()
        unit, blocks = draw.choice(k.UNITS), draw.choice((1, 1, 4))
        if kind < 0.1:
            return k.KernelFunction(self.name, self.params, unit=unit, block_dim=blocks)
        if kind < 0.25:
            return k.KernelFunction(self.name, self.params, native=self.native(), unit=unit, block_dim=blocks)
        body = self.block(3)
        body = (*self.first_writes(), *body)
        tiles = tuple(self.tiles.items())
        scalars = tuple((name, ScalarType(dtype)) for name, dtype in self.declared.items())
        kernel = k.KernelFunction(self.name, self.params, tiles, scalars, body, unit=unit, block_dim=blocks)
        return self.with_sound_outputs(kernel)

    def with_sound_outputs(self, kernel: k.KernelFunction) -> k.KernelFunction:
        """Return the kernel, with what some path reads or does not store in and out."""
        try:
            stored = stored_outputs(kernel, {callee.name: callee for callee in self.callees})
        except OutRead as error:
            stored = frozenset({p.name for p in kernel.params} - {str(error.fields["param"])})
        outputs = [p for p in kernel.params if p.role == k.OUT]
        unsound = [p for p in outputs if p.name not in stored or missing_element(kernel, p) is not None]
        if not unsound:
            return kernel
        params = tuple(replace(p, role=k.INOUT) if p in unsound else p for p in kernel.params)
        return self.with_sound_outputs(replace(kernel, params=params))

    def first_writes(self) -> list[k.Stmt]:
        """Return statements that write everything, so that nothing is read before."""
        found: list[k.Stmt] = [k.Assign(n, self.exprs.literal(dtype)) for n, dtype in self.declared.items()]
        for name, tile in self.tiles.items():
            kind = b1 if tile.dtype is b1 else f32 if tile.dtype.is_float else i64
            found.append(k.Instr("expands", name, (), (self.exprs.literal(kind),)))
        return found

    def native(self) -> k.Native:
        draw = self.draw
        values = (3, -1, 2.5, math.inf, True, 'a "quoted"\n\ttext \\ with\r all', f32, 2**70)
        constants = tuple((f"c{n}", draw.choice(values)) for n in range(draw.randrange(3)))
        order = [p.name for p in self.params] + [name for name, _ in constants]
        draw.shuffle(order)
        text = draw.choice(
            ("", "x(0, 0) = 1;", "\n  int a;\n}\n// ENDCPP\nENDCPP\n\n", "|", "func @f() {\r\n}")
        )
        entry = draw.choice(("", "entry"))
        return k.Native(
            text, entry, ("<cmath>", '"mine.hpp"')[: draw.randrange(3)], "", constants, tuple(order)
        )

    def block(self, depth: int) -> tuple[k.Stmt, ...]:
        makers = [self.transfer, *[self.instruction] * 4, self.assignment, self.call, self.debugging]
        if depth:
            makers += [lambda: self.control(depth - 1)]
        made = (self.draw.choice(makers)() for _ in range(self.draw.randrange(9)))
        return tuple(stmt for stmt in made if stmt is not None)

    def transfer(self) -> k.Stmt | None:
        draw = self.draw
        views = [p for p in self.params if not isinstance(p.type, ScalarType)]
        views = [p for p in views if isinstance(p.type, TileType) or len(p.type.dims or ()) >= 2]
        if not views:
            return None
        param = draw.choice(views)
        assert not isinstance(param.type, ScalarType) and param.type.dtype is not None
        rank = 2 if isinstance(param.type, TileType) else len(param.type.dims or ())
        dims: list[DimSelect] = [Index(self.exprs.make(i64, 1)) for _ in range(rank - 2)]
        dims += [draw.choice((Full(), Range(self.exprs.make(i64, 1), Const(4)))) for _ in range(2)]
        tile = self.tile((4, 8), param.type.dtype)
        rows = self.tile(draw.choice(((4, 1), (1, 4))), i32) if draw.random() < 0.3 else None
        region = Region(param.name, tuple(dims))
        if draw.random() < 0.2:
            return k.Prefetch(region, None, rows)
        if param.role == k.IN or draw.random() < 0.5:
            return k.Load(tile, region, None, rows)
        return k.Store(region, tile, None, rows)

    def debugging(self) -> k.Stmt:
        draw = self.draw
        if draw.random() < 0.5:
            return k.Assert(self.exprs.make(b1, 1), draw.choice(("", 'a "message"', "two\nlines")))
        parts = [k.Words(draw.choice(("", "x", "%t {0}\\"))), self.exprs.make(i64, 2), self.tile((4, 8), f32)]
        return k.Print(tuple(draw.sample(parts, draw.randint(1, 3))))

    def instruction(self) -> k.Stmt | None:
        rows = [r for r in TABLE.values() if r.numpy is not None]
        row = self.draw.choice(rows)
        if self.draw.random() < 0.5:
            row = self.draw.choice([r for r in rows if r.form in CONSTANTS])
        flags = {key: self.draw.random() < 0.5 for key in ("trans_a", "trans_b")}
        shape, form = self.draw.choice(SHAPES), row.form
        attrs: list[tuple[str, k.AttrValue]] = [
            (key, True) for key, value in flags.items() if value and key in CONSTANTS.get(form, {})
        ]
        for key, (_, default) in CONSTANTS.get(form, {}).items():
            if key in MODES and (default is None or self.draw.random() < 0.8):
                attrs.append((key, self.draw.choice(MODES[key])))
        if row.name == "mrgsort":
            attrs = [("run", 4)]
        for key in (*EXTENTS.get(form, ()), *PLACES.get(form, ())):
            if self.draw.random() < 0.5:
                attrs.append((key, self.draw.choice((Const(3), self.exprs.make(i64, 1)))))
        dtype = self.draw.choice(sorted(row.dtypes, key=str))
        return self.typed(row, shape, dtype, flags, tuple(attrs))

    def typed(
        self,
        row: Instruction,
        shape: tuple[int, int],
        dtype: DType,
        flags: dict[str, bool],
        attrs: tuple[tuple[str, k.AttrValue], ...],
    ) -> k.Stmt | None:
        shapes = operand_shapes(row, {**flags, **dict(attrs)}, shape, 4)
        if any(0 in size for size in shapes):
            return None
        tiles = [self.tile(s, d) for s, d in zip(shapes, operand_types(row, dtype), strict=True)]
        given = {"shape": shape, "dtype": dtype, **flags, **dict(attrs)}
        try:
            made = result_type(row.form, [self.tiles[t] for t in tiles], given)
        except FormError:
            return None
        kind = b1 if dtype is b1 else f32 if dtype.is_float else i64
        scalars = tuple(self.exprs.make(kind, 1) for _ in range(row.form.num_scalars))
        return k.Instr(row.name, self.tile(made.shape, made.dtype), tuple(tiles), scalars, attrs)

    def assignment(self) -> k.Stmt | None:
        if not self.declared:
            return None
        name = self.draw.choice([*self.declared])
        element = self.element(self.declared[name]) if self.draw.random() < 0.3 else None
        return k.Assign(name, element or self.exprs.make(self.declared[name]))

    def element(self, dtype: DType) -> Expr | None:
        tiles = [name for name, tile in self.tiles.items() if element_dtype(tile.dtype) is dtype]
        if not tiles:
            return None
        found = TileElement(self.draw.choice(tiles), (Const(0), self.exprs.make(i64, 1)), dtype)
        return Binary("mul", found, self.exprs.literal(f32)) if dtype is f32 else found

    def call(self) -> k.Stmt | None:
        for callee in self.callees:
            args: list[str | Expr] = []
            for param in callee.params:
                if isinstance(param.type, ScalarType):
                    args.append(self.exprs.make(param.type.dtype, 1))
                else:
                    fits = [p.name for p in self.params if p.type == param.type and p.role == param.role]
                    args += fits[:1]
            names = [a for a in args if isinstance(a, str)]
            if len(args) == len(callee.params) and len(names) == len(set(names)):
                return k.KernelCall(callee.name, tuple(args))
        return None

    def control(self, depth: int) -> k.Stmt:
        kind = self.draw.randrange(3)
        if kind == 0:
            var = f"i{len(self.scalars)}"
            start, stop = self.exprs.make(i64, 1), self.exprs.make(i64, 1)
            self.scalars[var] = i64
            body = self.block(depth)
            del self.scalars[var]
            return k.For(var, start, stop, self.draw.choice((1, 2, 64)), body)
        condition = self.exprs.make(b1, 2)
        if kind == 1:
            return k.While(condition, self.block(depth))
        return k.If(condition, self.block(depth), self.block(depth))


class WorkloadWriter:
    """Writes one workload."""

    def __init__(
        self,
        draw: Draw,
        name: str,
        kernels: list[k.KernelFunction],
        callees: list[w.WorkloadFunction],
    ) -> None:
        self.draw = draw
        self.name = name
        self.kernels = kernels
        self.callees = callees
        self.params: list[w.WorkloadParam] = []
        self.loops: list[w.Loop] = []
        self.names: dict[Name, DType] = {}
        self.labels = 0
        self.known: list[str] = []
        self.exprs = Expressions(draw, self.leaf, CHECKS)

    def leaf(self, dtype: DType) -> Expr | None:
        options: list[Expr] = [
            Var(n, t) if isinstance(n, str) else n for n, t in self.names.items() if t is dtype
        ]
        if dtype is i64:
            for param in self.params:
                match param:
                    case w.TensorParam(name=name, type=TensorType(dtype=kind, dims=dims)):
                        if kind.is_integer or kind is b1:
                            options.append(Element(name, (Const(0),) * len(dims)))
                    case _:
                        pass
        return self.draw.choice(options) if options else None

    def parameters(self) -> None:
        draw, params = self.draw, self.params
        params += [w.SizeParam("n", draw.choice((None, 5))), w.SizeParam("m.0")]
        params.append(w.SizeParam("twice", value=Binary("mul", Var("n"), Const(2))))
        params.append(w.ScalarParam("x", ScalarType(f32)))
        params.append(
            w.ScalarParam("y", ScalarType(f32), None, Binary("add", Var("x", f32), Const(1.5, f32)))
        )
        self.names |= {"n": i64, "m.0": i64, "twice": i64, "x": f32, "y": f32}
        for number in range(draw.randrange(1, 4)):
            dims = tuple(draw.choice(("n", "m.0", "twice", 1, 64)) for _ in range(draw.randrange(1, 4)))
            kind = TensorType(draw.choice((f32, draw.choice([*DTYPES.values()]))), dims)
            params.append(w.TensorParam(f"T{number}", kind, None, draw.random() < 0.2))
        params.append(w.TensorParam("I", TensorType(i32, (64, 1)), None, True, True))
        if draw.random() < 0.5:
            count = w.SizeParam("kv.count", value=Binary("add", Var("n"), Const(1)))
            params += [w.RaggedParam("kv", "n"), count]
            params.append(w.TensorParam("kv.offsets", TensorType(i64, ("kv.count",))))
            self.names["kv.count"] = i64
        if draw.random() < 0.3:
            count = w.SizeParam("pick.count", value=Binary("add", Var("n"), Const(1)))
            params += [w.SparseParam("pick", "n"), count, w.SizeParam("pick.entries")]
            params.append(w.TensorParam("pick.offsets", TensorType(i64, ("pick.count",))))
            params.append(w.TensorParam("pick.indices", TensorType(i32, ("pick.entries", 1))))
        if draw.random() < 0.2:
            params.append(w.TensorParam("E", TensorType(i64, ("n",)), None, True, axis="groups"))

    def write(self) -> w.WorkloadFunction:
        """Return the workload."""
        self.parameters()
        self.names |= {Slot(3): i64, "v": i64}
        body = (*self.block(3), w.Set(Slot(3), self.exprs.make(i64)), w.Set("v", self.exprs.make(b1)))
        return w.WorkloadFunction(self.name, tuple(self.params), body)

    def block(self, depth: int) -> tuple[w.Node, ...]:
        makers: list[Callable[[], w.Node | None]] = [self.task, self.task, self.other, self.call]
        if depth:
            makers += [lambda: self.loop(depth - 1), lambda: self.condition(depth - 1)]
        known = len(self.known)
        made = (self.draw.choice(makers)() for _ in range(self.draw.randrange(4)))
        found = tuple(node for node in made if node is not None)
        del self.known[known:]
        return found

    def other(self) -> w.Node:
        if self.draw.random() < 0.3:
            return w.Refuse("pick", (1, 8), self.exprs.make(i64))
        return w.Set("v", self.exprs.make(self.draw.choice((i64, b1))))

    def loop(self, depth: int) -> w.Node:
        draw = self.draw
        var = f"i{len(self.names)}" + draw.choice(("", ".x"))
        tile = draw.choice((None, None, 1, 64))
        most = draw.choice((None, 64)) if tile is None else None
        least = draw.choice((None, 16)) if most else None
        levels = draw.choice(((), ((64, 128), (16, 64), (0, 32)))) if most else ()
        kind = draw.choice((w.PARALLEL, w.SEQUENTIAL, w.RANGE))
        loop = w.Loop(kind, var, self.exprs.make(i64, 1), tile, (), None, most, least, levels)
        owned: list[Name] = [var] if tile is None else [var, loop.start, loop.length]
        self.names |= dict.fromkeys(owned, i64)
        self.loops.append(loop)
        called = draw.choice(("", "", "row"))
        body = self.block(depth)
        self.loops.pop()
        for name in owned:
            del self.names[name]
        return w.Loop(kind, var, loop.extent, tile, body, None, most, least, levels, called)

    def condition(self, depth: int) -> w.Node:
        return w.Cond(self.exprs.make(b1), self.block(depth), self.block(depth))

    def region(self, name: str, dims: int, rank: int) -> Region:
        """Return a region of `rank` dimensions of a tensor that has `dims`."""
        draw = self.draw
        entries: list[DimSelect] = [Index(self.exprs.make(i64, 1)) for _ in range(dims - rank)]
        if entries and rank > 1 and draw.random() < 0.5:
            entries = [Rows("I", self.exprs.make(i64, 1), Const(4)), *([Merged()] * len(entries))]
            rank -= 1
        for _ in range(rank):
            tiled = [TileRange(loop.var) for loop in self.loops if loop.tile is not None]
            entries.append(draw.choice((Full(), Range(self.exprs.make(i64, 1), Const(8)), *tiled)))
        return Region(name, tuple(entries))

    def task(self) -> w.Node | None:
        draw = self.draw
        kernel = draw.choice(self.kernels)
        args: list[Region | Expr] = []
        for param in kernel.params:
            match param.type:
                case ScalarType(dtype=dtype):
                    args.append(self.exprs.make(dtype, 2))
                    continue
                case TileType(dtype=dtype):
                    rank = 2
                case ViewType(dtype=dtype, dims=dims):
                    rank = len(dims or ())
            fits = [p for p in self.params if isinstance(p, w.TensorParam) and p.type.dtype is dtype]
            fits = [p for p in fits if len(p.type.dims) >= rank and p.name != "I"]
            if not fits:
                return None
            tensor = draw.choice(fits)
            args.append(self.region(tensor.name, len(tensor.type.dims), rank))
        keys = tuple(self.exprs.make(i64, 1) for _ in range(draw.randrange(3)))
        amounts = [self.exprs.make(i64, 1) if draw.random() < 0.2 else None for _ in range(2)]
        self.labels += 1
        label = f"{kernel.name}.task_{self.labels}" if draw.random() < 0.2 else ""
        after = tuple(draw.sample(self.known, min(len(self.known), draw.randrange(3))))
        self.known += [label] if label else []
        return w.Task(kernel.name, tuple(args), keys, None, label, after, *amounts)

    def whole(self, kind: TensorType) -> list[Region]:
        """Return whole dimensions of a tensor that has them, if there is any."""
        tensors = [p for p in self.params if isinstance(p, w.TensorParam) and p.type.dtype is kind.dtype]
        for tensor in tensors:
            more = len(tensor.type.dims) - len(kind.dims)
            if more >= 0:
                indices = tuple(Index(self.exprs.make(i64, 1)) for _ in range(more))
                return [Region(tensor.name, (*indices, *(Full(),) * len(kind.dims)))]
        return []

    def call(self) -> w.Node | None:
        for callee in self.callees:
            args: list[Region | Expr] = []
            for param in callee.open_params:
                match param:
                    case w.TensorParam(type=kind):
                        args += self.whole(kind)
                    case w.ScalarParam(type=ScalarType(dtype=dtype)):
                        args.append(self.exprs.make(dtype, 1))
                    case w.SizeParam():
                        args.append(self.exprs.make(i64, 1))
                    case _:
                        pass
            if len(args) == len(callee.open_params):
                return w.WorkloadCall(callee.name, tuple(args))
        return None


def random_schedule(draw: Draw) -> Directives:
    """Return a schedule with any policy for each directive."""
    keys = (TaskIndex("b"), Binary("mul", TaskKernel(), ArgExtent("k", 1)), KernelNumber("attend"))
    found = []
    for directive in DIRECTIVES.values():
        policy = draw.choice([*directive.policies.values()])
        values = {Key: draw.choice(keys), Bounds: (4, 9), Keys: (draw.choice(keys), keys[0])}
        values[Stages] = (Stage(("attend",), 3), Stage(("index", "sort"), 1))
        values[Count] = draw.choice([8, *(p.least for p in policy.takes if isinstance(p, Count))])
        found.append(directive(policy.name, **{p.field: values[type(p)] for p in policy.takes}))
    return Directives(found)


def random_module(draw: Draw) -> Module:
    """Return a module of a few kernels and workloads, or a network that can be run."""
    kernels: list[k.KernelFunction] = []
    for number in range(draw.randrange(1, 5)):
        callees = [f for f in kernels if f.body is not None and f.block_dim == 1]
        kernels.append(KernelWriter(draw, f"kernel_{number}", callees).write())
    workloads: list[w.WorkloadFunction] = []
    for number in range(draw.randrange(4)):
        workloads.append(WorkloadWriter(draw, f"workload_{number}", kernels, workloads[:]).write())
    if not workloads and draw.random() < 0.2:
        return random_network(draw)
    names = [f.name for f in (*kernels, *workloads)]
    return Module(
        draw.choice(("m", "a module", "", "ä-1")), tuple(kernels), tuple(workloads), draw.choice(("", *names))
    ).with_schedule(random_schedule(draw) if draw.random() < 0.3 else Directives())
