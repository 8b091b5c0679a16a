"""The verifier: what every module that reaches a target must satisfy.

Front ends report users' mistakes with their places before this runs; what is found here is a defect of a
front end, a pass or hand-built IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import assert_never
from weakref import WeakValueDictionary

from pto_wsp.errors import InvalidIR
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Merged, Region, Rows, TileRange
from pto_wsp.ir.expression_types import SCALAR_DTYPES, require_types
from pto_wsp.ir.module import Module, called_functions
from pto_wsp.ir.paths import require_written
from pto_wsp.ir.rules import (
    region_rank,
    require,
    require_distinct,
    require_element,
    require_space,
    require_tile,
    view_rank_and_dtype,
)
from pto_wsp.ir.scalar import (
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
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Var,
    element_dtype,
    format_expr,
    walk,
)
from pto_wsp.ir.verify_schedule import verify_schedule
from pto_wsp.ir.verify_workload import verify_workload
from pto_wsp.isa.attributes import unknown_attribute
from pto_wsp.isa.forms import Form, FormError, data_operands, result_type
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import b1, i32, i64
from pto_wsp.types.tile import ScalarType, TileType

_VERIFIED: WeakValueDictionary[int, Module] = WeakValueDictionary()
"""Modules that satisfy every rule, by identity: a module cannot change."""


def verify(module: Module) -> Module:
    """Return `module`, or raise InvalidIR at the first node that breaks a rule."""
    if _VERIFIED.get(id(module)) is not module:
        _verify(module)
        _VERIFIED[id(module)] = module
    return module


def _verify(module: Module) -> None:
    names = [f.name for f in (*module.kernels, *module.workloads)]
    require(module.name.isprintable() and module.name == module.name.strip(), "the module's name", None)
    require_distinct(names, None, "two functions are called `{}`")
    for name in names:
        require(name.isidentifier(), f"`{name}` is not an identifier", None)
    fitting: set[tuple[object, ...]] = set()
    for kernel in module.kernels:
        _KernelVerifier(module, kernel, fitting).run()
    for workload in module.workloads:
        verify_workload(module, workload)
    _require_no_recursion(module)
    verify_schedule(module.schedule)
    require(not module.entry or module.entry in names, f"entry `{module.entry}` does not exist", None)


def _require_no_recursion(module: Module) -> None:
    """Refuse functions that call themselves, through others or not."""
    functions = {function.name: function for function in (*module.kernels, *module.workloads)}
    calls = {name: called_functions(function) for name, function in functions.items()}
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        *others, first = reversed(error.args[1])
        through = f" through {', '.join(f'`{name}`' for name in others[1:])}" if others[1:] else ""
        message = f"`{first}` calls itself{through}; repeat with a loop"
        raise InvalidIR(message=message, loc=functions[first].loc) from None


class _KernelVerifier:
    """Checks a kernel.

    Attributes:
        fitting: instructions of the module that are known to be sound, by row and types of the operands.
    """

    def __init__(self, module: Module, kernel: k.KernelFunction, fitting: set[tuple[object, ...]]) -> None:
        self.module = module
        self.kernel = kernel
        self.tiles = dict(kernel.tiles)
        self.plain = {n: t if t.space is None else replace(t, space=None) for n, t in self.tiles.items()}
        self.scalars = {name: t.dtype for name, t in kernel.scalars}
        self.scalars |= {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ScalarType)}
        self.scalars[k.BLOCK_IDX] = i64
        self.views = {p.name: p for p in kernel.views}
        self.fitting = fitting

    def run(self) -> None:
        declared = (*self.kernel.tiles, *self.kernel.scalars)
        names = [name for name, _ in declared] + [p.name for p in self.kernel.params]
        require_distinct(names, self.kernel.loc)
        for name in names:
            require(name.isidentifier(), f"`{name}` is not an identifier", self.kernel.loc)
        for name, dtype in self.scalars.items():
            require(dtype in SCALAR_DTYPES, f"scalar `{name}` is not an i64, f32 or b1", self.kernel.loc)
        for param in self.kernel.params:
            if isinstance(param.type, TileType):
                require_tile(param.name, param.type, param.loc or self.kernel.loc)
                require(param.type.space is None, f"`{param.name}` is a view: it has no space", param.loc)
        for name, tile in self.kernel.tiles:
            require_tile(name, tile, self.kernel.loc)
        require(self.kernel.unit in k.UNITS, f"there is no unit `{self.kernel.unit}`", self.kernel.loc)
        require(self.kernel.block_dim > 0, "a task has at least one block", self.kernel.loc)
        self.statements(self.kernel.body or ())
        require_written(self.kernel)
        if self.kernel.native is not None:
            self.native(self.kernel.native)

    def native(self, native: k.Native) -> None:
        """Refuse names that would be something else in C++ than a name."""
        loc = self.kernel.loc
        require(self.kernel.body is None, f"`{self.kernel.name}` has C++ and another body", loc)
        constants = [name for name, _ in native.constants]
        params = [p.name for p in self.kernel.params]
        for name in (*constants, *params, *([native.entry] if native.entry else [])):
            require(name.isidentifier() and name.isascii(), f"`{name}` is not a name in C++", loc)
        require(sorted(native.order) == sorted(constants + params), "parameters of the C++ text", loc)
        for header in native.includes:
            require(bool(k.HEADER.fullmatch(header)), f"`{header}` is not a header", loc)

    def statements(self, body: Sequence[k.Stmt]) -> None:
        for stmt in body:
            match stmt:
                case k.Instr():
                    self.instruction(stmt)
                case k.Load() | k.Store():
                    self.transfer(stmt)
                case k.Prefetch(region=region, rows=rows):
                    self.prefetch(region, rows, stmt.loc)
                case k.Assign(name=name, value=value):
                    self.expressions([value], stmt.loc, reads_tiles=True)
                    require(self.scalars.get(name) is value.dtype, f"`{name}` has another type", stmt.loc)
                case k.For():
                    self.loop(stmt)
                case k.If() | k.While() | k.Assert():
                    self.conditional(stmt)
                case k.Print():
                    self.print(stmt)
                case k.KernelCall():
                    self.call(stmt)
                case _:
                    assert_never(stmt)

    def conditional(self, stmt: k.If | k.While | k.Assert) -> None:
        self.expressions([stmt.condition], stmt.loc)
        require(stmt.condition.dtype is b1, "a condition is a truth value", stmt.loc)
        for block in k.blocks(stmt):
            self.statements(block)

    def loop(self, stmt: k.For) -> None:
        start, stop, var = stmt.start, stmt.stop, stmt.var
        self.expressions([start, stop], stmt.loc)
        integers = start.dtype is i64 and stop.dtype is i64
        require(integers, "the bounds of a loop are integers", stmt.loc)
        require(stmt.step > 0, "a loop's step must be positive", stmt.loc)
        require(var not in self.scalars, f"loop variable `{var}` is declared twice", stmt.loc)
        self.scalars[var] = start.dtype
        self.statements(stmt.body)
        del self.scalars[var]

    def print(self, stmt: k.Print) -> None:
        self.expressions(stmt.scalars, stmt.loc)
        require(bool(stmt.parts), "a print without parts", stmt.loc)
        for name in stmt.tiles:
            require(name in self.tiles, f"there is no tile `{name}` to print", stmt.loc)

    def call(self, call: k.KernelCall) -> None:
        callee = next((f for f in self.module.kernels if f.name == call.kernel), None)
        require(callee is not None, f"kernel `{call.kernel}` is not in the module", call.loc)
        assert callee is not None
        require(callee.body is not None, f"`{callee.name}` has no body to call", call.loc)
        require(callee.block_dim == 1, f"`{callee.name}` is several blocks", call.loc)
        require(len(call.args) == len(callee.params), f"arguments of `{callee.name}`", call.loc)
        written: list[str] = []
        for param, arg in zip(callee.params, call.args, strict=True):
            if isinstance(arg, str):
                own = self.views.get(arg)
                require(own is not None, f"`{arg}` is not a view", call.loc)
                assert own is not None
                require(own.type == param.type, f"`{callee.name}` takes {param.type}", call.loc)
                fits = own.role in (param.role, k.INOUT)
                require(fits, f"`{arg}` is {own.role}, and `{callee.name}` takes {param.role}", call.loc)
                written += [arg] * (param.role != k.IN)
            else:
                self.expressions([arg], call.loc)
                require(arg.dtype is param.type.dtype, f"`{param.name}` takes {param.type}", call.loc)
        twice = any(isinstance(a, str) and call.args.count(a) > 1 for a in written)
        require(not twice, f"`{callee.name}` writes a view that it takes twice", call.loc)

    def transfer(self, stmt: k.Load | k.Store) -> None:
        tile, region, rows, loc = stmt.tile, stmt.region, stmt.rows, stmt.loc
        is_store = isinstance(stmt, k.Store)
        require(tile in self.tiles, "load or store of an unknown tile", loc)
        param = self.region(region, loc)
        used = (tile,) if rows is None else (tile, rows)
        moves = (Form.STORE, Form.SCATTER) if is_store else (Form.LOAD, Form.GATHER)
        types = [self.tiles[name] for name in used if name in self.tiles]
        require_space("store" if is_store else "load", moves[len(types) - 1], used, types, loc)
        if is_store:
            require(param.role != k.IN, f"`{param.name}` is an input and is stored to", loc)
        dtype = view_rank_and_dtype(param)[1]
        require(self.tiles[tile].dtype is dtype, f"`{tile}` and `{param.name}` differ in dtype", loc)
        if rows is not None:
            count = self.row_numbers(rows, loc)
            require(self.tiles[tile].rows == count, f"`{tile}` has not one row per element of `{rows}`", loc)

    def prefetch(self, region: Region, rows: str | None, loc: Location | None) -> None:
        self.region(region, loc)
        if rows is not None:
            self.row_numbers(rows, loc)

    def region(self, region: Region, loc: Location | None) -> k.Param:
        """Check a region that moves as a tile; return its view."""
        param = self.views.get(region.tensor)
        require(param is not None, f"`{region.tensor}` is not a view", loc)
        assert param is not None
        rank, _ = view_rank_and_dtype(param)
        require(len(region.dims) == rank, f"`{param.name}` has {rank} dimensions", loc)
        is_box = not any(isinstance(dim, (Rows, Merged, TileRange)) for dim in region.dims)
        require(is_box, "a kernel loads and stores boxes", loc)
        require(region_rank(region) == 2, "a tile is loaded and stored through two dimensions", loc)
        self.expressions(region.expressions, loc)
        return param

    def row_numbers(self, rows: str, loc: Location | None) -> int:
        """Check a tile of row numbers; return how many it has."""
        kind = self.tiles.get(rows)
        names_rows = kind is not None and kind.dtype is i32 and 1 in kind.shape
        require(names_rows, f"`{rows}` is not a row or column of i32", loc)
        assert kind is not None
        return kind.rows * kind.cols

    def instruction(self, instr: k.Instr) -> None:
        if instr.scalars:
            self.expressions(instr.scalars, instr.loc)
        if instr.attrs:
            self.attributes(instr)
            self.types(instr)
            return
        types = map(id, map(self.tiles.get, (instr.dst, *instr.tiles)))
        kinds = (instr.op, *types, *(scalar.dtype.name for scalar in instr.scalars))
        if kinds not in self.fitting:
            self.types(instr)
            self.fitting.add(kinds)

    def attributes(self, instr: k.Instr) -> None:
        """Check the expressions among the attributes of an instruction; `types` checks which it has."""
        for key, value in instr.attrs:
            if not isinstance(value, (str, int)):
                require(value.dtype is i64, f"`{key}` takes an integer expression", instr.loc)
                self.expressions([value], instr.loc)

    def types(self, instr: k.Instr) -> None:
        """Check the operands of an instruction against its row."""
        row = TABLE.get(instr.op)
        require(row is not None, f"there is no instruction `{instr.op}`", instr.loc)
        assert row is not None
        for name in (instr.dst, *instr.tiles):
            require(name in self.tiles, f"tile `{name}` is not declared", instr.loc)
        counts = (len(instr.tiles), len(instr.scalars))
        require(counts == (row.form.num_tiles, row.form.num_scalars), f"operands of `{instr.op}`", instr.loc)
        element = self.tiles[instr.tiles[-1] if instr.tiles else instr.dst].dtype
        for scalar in instr.scalars:
            fits = (scalar.dtype.is_float, scalar.dtype.kind == "b") == (
                element.is_float,
                element.kind == "b",
            )
            require(fits, f"`{instr.op}` takes scalars that are {element}", instr.loc)
        used = (instr.dst, *instr.tiles)
        require_space(instr.op, row.form, used, [self.tiles[name] for name in used], instr.loc)
        dst = self.plain[instr.dst]
        wrong = unknown_attribute(row.form, dict(instr.attrs))
        require(not wrong, f"`{instr.op}` has {wrong}", instr.loc)
        attrs = dict(instr.attrs) | {"shape": dst.shape, "dtype": dst.dtype}
        try:
            result = result_type(row.form, [self.plain[t] for t in instr.tiles], attrs)
        except FormError as error:
            raise InvalidIR(message=f"`{instr.op}`: {error}", loc=instr.loc) from error
        require(result == dst, f"`{instr.op}` makes {result}, not {dst}", instr.loc)
        for tile in data_operands(row.form, [self.plain[name] for name in instr.tiles]):
            require(tile.dtype in row.dtypes, f"`{instr.op}` is not defined for {tile.dtype}", instr.loc)

    def extent(self, node: Extent, loc: Location | None) -> None:
        """Check an extent of a tile or view against the number of its dimensions."""
        known = node.name in self.tiles or node.name in self.views
        require(known, f"`{node.name}` has no extents", loc)
        rank = 2 if node.name in self.tiles else view_rank_and_dtype(self.views[node.name])[0]
        if not 0 <= node.dim < rank:
            message = f"`{node.name}` has dimensions 0 to {rank - 1}, not a dimension {node.dim}"
            raise InvalidIR(message=message, loc=node.loc or loc)

    def element(self, node: Element, loc: Location | None) -> None:
        param = self.views.get(node.name)
        require(param is not None and param.role == k.IN, f"`{node.name}` is not an input", loc)
        assert param is not None
        require_element(node, *view_rank_and_dtype(param), loc)

    def tile_element(self, node: TileElement, loc: Location | None) -> None:
        tile = self.tiles.get(node.name)
        require(tile is not None, f"`{node.name}` is not a tile", loc)
        assert tile is not None
        require(len(node.indices) == 2, "an element of a tile has a row and a column", loc)
        fits = node.dtype is element_dtype(tile.dtype)
        require(fits, f"an element of `{node.name}` is read as {element_dtype(tile.dtype)}", loc)

    def expressions(self, exprs: Iterable[Expr], loc: Location | None, reads_tiles: bool = False) -> None:
        for expr in exprs:
            for node in (expr,) if isinstance(expr, (Const, Var)) else walk(expr):
                match node:
                    case Var(name=name, dtype=dtype):
                        if self.scalars.get(name) is not dtype:
                            raise InvalidIR(message=f"scalar `{name}` is not declared as {dtype}", loc=loc)
                    case Extent():
                        self.extent(node, loc)
                    case LoopStart() | LoopExtent() | Slot() | FlushValue() | Binary(op="within"):
                        require(False, f"`{format_expr(node)}` occurs in workloads only", loc)
                    case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
                        require(False, f"`{format_expr(node)}` occurs in keys only", loc)
                    case _:
                        require_types(node, loc)
                        if isinstance(node, Element):
                            self.element(node, loc)
                        elif isinstance(node, TileElement):
                            require(reads_tiles, "an assignment alone reads an element of a tile", loc)
                            self.tile_element(node, loc)
