"""The verifier: what every module that reaches a target must satisfy.

Front ends report users' mistakes with their places before this runs; what is found here is a defect of a
front end, a pass or hand-built IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pto_wsp.errors import InvalidIR
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Element, Expr, Extent, Var, walk
from pto_wsp.isa.forms import FormError, data_operands, result_type
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, i32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType


def verify(module: Module) -> Module:
    """Return `module`, or raise InvalidIR at the first node that breaks a rule."""
    names = [f.name for f in (*module.kernels, *module.workloads)]
    for name in names:
        _require(names.count(name) == 1, f"two functions are called `{name}`", None)
        _require(name.isidentifier(), f"`{name}` is not an identifier", None)
    for kernel in module.kernels:
        _KernelVerifier(kernel).run()
    for workload in module.workloads:
        _WorkloadVerifier(module, workload).run()
    _require(not module.entry or module.entry in names, f"entry `{module.entry}` does not exist", None)
    return module


def _require(condition: bool, message: str, loc: Location | None) -> None:
    if not condition:
        raise InvalidIR(message=message, loc=loc)


def region_rank(region: Region) -> int:
    """Return the number of dimensions of the view that a region makes."""
    return len(region.kept)


class _KernelVerifier:
    def __init__(self, kernel: k.KernelFunction) -> None:
        self.kernel = kernel
        self.tiles = dict(kernel.tiles)
        self.scalars = {name: t.dtype for name, t in kernel.scalars}
        self.scalars |= {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ScalarType)}
        self.scalars[k.BLOCK_IDX] = i64
        self.views = {p.name: p for p in kernel.views}

    def run(self) -> None:
        declared = (*self.kernel.tiles, *self.kernel.scalars)
        names = [name for name, _ in declared] + [p.name for p in self.kernel.params]
        for name in names:
            _require(names.count(name) == 1, f"`{name}` is declared twice", self.kernel.loc)
            _require(name.isidentifier(), f"`{name}` is not an identifier", self.kernel.loc)
        self.statements(self.kernel.body or ())

    def statements(self, body: Sequence[k.Stmt]) -> None:
        for stmt in body:
            match stmt:
                case k.Load(tile=tile, region=region) | k.Store(tile=tile, region=region):
                    self.transfer(tile, region, stmt.rows, isinstance(stmt, k.Store), stmt.loc)
                case k.Instr():
                    self.instruction(stmt)
                case k.Assign(name=name, value=value):
                    self.expressions([value], stmt.loc)
                    _require(self.scalars.get(name) is value.dtype, f"`{name}` has another type", stmt.loc)
                case k.For(var=var, start=start, stop=stop, step=step):
                    self.expressions([start, stop], stmt.loc)
                    _require(step > 0, "a loop's step must be positive", stmt.loc)
                    _require(var not in self.scalars, f"loop variable `{var}` is declared twice", stmt.loc)
                    self.scalars[var] = start.dtype
                    self.statements(stmt.body)
                    del self.scalars[var]
                case k.If(condition=condition, then=then, other=other):
                    self.expressions([condition], stmt.loc)
                    self.statements(then)
                    self.statements(other)
                case k.While(condition=condition):
                    self.expressions([condition], stmt.loc)
                    self.statements(stmt.body)

    def transfer(
        self, tile: str, region: Region, rows: str | None, is_store: bool, loc: Location | None
    ) -> None:
        param = self.views.get(region.tensor)
        _require(param is not None and tile in self.tiles, "load or store of an unknown name", loc)
        assert param is not None
        if is_store:
            _require(param.role != k.IN, f"`{param.name}` is an input and is stored to", loc)
        rank, dtype = view_rank_and_dtype(param)
        _require(len(region.dims) == rank, f"`{param.name}` has {rank} dimensions", loc)
        _require(region_rank(region) == 2, "a tile is loaded and stored through two dimensions", loc)
        _require(self.tiles[tile].dtype is dtype, f"`{tile}` and `{param.name}` differ in dtype", loc)
        self.expressions(region.expressions, loc)
        if rows is not None:
            kind = self.tiles.get(rows)
            names_rows = kind is not None and kind.dtype is i32 and 1 in kind.shape
            _require(names_rows, f"`{rows}` is no row or column of i32", loc)
            assert kind is not None
            count = kind.rows * kind.cols
            _require(self.tiles[tile].rows == count, f"`{tile}` has not one row per element of `{rows}`", loc)

    def instruction(self, instr: k.Instr) -> None:
        row = TABLE.get(instr.op)
        _require(row is not None, f"there is no instruction `{instr.op}`", instr.loc)
        assert row is not None
        for name in (instr.dst, *instr.tiles):
            _require(name in self.tiles, f"tile `{name}` is not declared", instr.loc)
        counts = (len(instr.tiles), len(instr.scalars))
        _require(counts == (row.form.num_tiles, row.form.num_scalars), f"operands of `{instr.op}`", instr.loc)
        self.expressions(instr.scalars, instr.loc)
        element = self.tiles[instr.tiles[-1] if instr.tiles else instr.dst].dtype
        for scalar in instr.scalars:
            fits = (scalar.dtype.is_float, scalar.dtype.kind == "b") == (
                element.is_float,
                element.kind == "b",
            )
            _require(fits, f"`{instr.op}` takes scalars that are {element}", instr.loc)
        self.expressions([v for _, v in instr.attrs if not isinstance(v, (str, int))], instr.loc)
        dst = self.tiles[instr.dst]
        attrs = dict(instr.attrs) | {"shape": dst.shape, "dtype": dst.dtype}
        try:
            result = result_type(row.form, [self.tiles[t] for t in instr.tiles], attrs)
        except FormError as error:
            raise InvalidIR(message=f"`{instr.op}`: {error}", loc=instr.loc) from error
        _require(result == dst, f"`{instr.op}` makes {result}, not {dst}", instr.loc)
        for tile in data_operands(row.form, [self.tiles[name] for name in instr.tiles]):
            _require(tile.dtype in row.dtypes, f"`{instr.op}` is not defined for {tile.dtype}", instr.loc)

    def element(self, node: Element, loc: Location | None) -> None:
        param = self.views.get(node.name)
        _require(param is not None and param.role == k.IN, f"`{node.name}` is no input", loc)
        assert param is not None
        _require_element(node, *view_rank_and_dtype(param), loc)

    def expressions(self, exprs: Iterable[Expr], loc: Location | None) -> None:
        for expr in exprs:
            for node in walk(expr):
                if isinstance(node, Var):
                    _require(node.name in self.scalars, f"scalar `{node.name}` is not declared", loc)
                elif isinstance(node, Element):
                    self.element(node, loc)
                elif isinstance(node, Extent):
                    known = node.name in self.tiles or node.name in self.views
                    _require(known, f"`{node.name}` has no extents", loc)


def _require_element(node: Element, rank: int, dtype: DType, loc: Location | None) -> None:
    _require(len(node.indices) == rank, f"`{node.name}` has {rank} dimensions", loc)
    _require(dtype.is_integer, f"elements of `{node.name}` are no integers", loc)


class _WorkloadVerifier:
    def __init__(self, module: Module, workload: w.WorkloadFunction) -> None:
        self.kernels = {kernel.name: kernel for kernel in module.kernels}
        self.workload = workload
        self.tensors = {t.name: t for t in workload.tensors}
        self.names = {p.name for p in workload.params if isinstance(p, (w.SizeParam, w.ScalarParam))}
        self.loops: dict[str, w.Loop] = {}

    def run(self) -> None:
        names = [p.name for p in self.workload.params]
        for name in names:
            _require(names.count(name) == 1, f"`{name}` is declared twice", self.workload.loc)
        sizes = {p.name for p in self.workload.params if isinstance(p, w.SizeParam)}
        for tensor in self.workload.tensors:
            for dim in tensor.type.dims:
                _require(isinstance(dim, int) or dim in sizes, f"size `{dim}` is not declared", tensor.loc)
        for ragged in self.workload.raggeds:
            offsets = self.tensors.get(ragged.offsets)
            _require(
                offsets is not None and offsets.type.dims == (ragged.count,),
                "offsets of a ragged axis",
                ragged.loc,
            )
            _require(ragged.outer in sizes, f"size `{ragged.outer}` is not declared", ragged.loc)
        self.nodes(self.workload.body)

    def nodes(self, body: Sequence[w.Node]) -> None:
        for node in body:
            if isinstance(node, w.Task):
                self.task(node)
                continue
            self.expression(node.extent, node.loc)
            _require(node.var not in self.names, f"`{node.var}` is declared twice", node.loc)
            _require(node.tile is None or node.tile > 0, "a tile has at least one element", node.loc)
            owned = {node.var} | ({node.start, node.length} if node.tile is not None else set())
            self.loops[node.var] = node
            self.names |= owned
            self.nodes(node.body)
            self.names -= owned
            del self.loops[node.var]

    def task(self, task: w.Task) -> None:
        kernel = self.kernels.get(task.kernel)
        _require(kernel is not None, f"kernel `{task.kernel}` is not in the module", task.loc)
        assert kernel is not None
        _require(len(task.args) == len(kernel.params), f"arguments of `{kernel.name}`", task.loc)
        for param, arg in zip(kernel.params, task.args, strict=True):
            if isinstance(arg, Region):
                self.region(param, arg, task.loc)
            else:
                _require(isinstance(param.type, ScalarType), f"`{param.name}` takes a tensor", task.loc)
                self.expression(arg, task.loc)
        for key in task.keys:
            self.expression(key, task.loc)

    def region(self, param: k.Param, region: Region, loc: Location | None) -> None:
        tensor = self.tensors.get(region.tensor)
        _require(tensor is not None, f"tensor `{region.tensor}` is not declared", loc)
        _require(not isinstance(param.type, ScalarType), f"`{param.name}` takes a scalar", loc)
        assert tensor is not None
        rank, dtype = view_rank_and_dtype(param)
        _require(len(region.dims) == len(tensor.type.dims), f"rank of `{tensor.name}`", loc)
        _require(region_rank(region) == rank, f"`{param.name}` takes {rank} dimensions", loc)
        _require(tensor.type.dtype is dtype, f"`{param.name}` takes {dtype}", loc)
        for dim in region.dims:
            if isinstance(dim, TileRange):
                loop = self.loops.get(dim.loop)
                _require(loop is not None and loop.tile is not None, f"`{dim.loop}` is no tiles loop", loc)
        for expr in region.expressions:
            self.expression(expr, loc)

    def expression(self, expr: Expr, loc: Location | None) -> None:
        for node in walk(expr):
            _require(not isinstance(node, Extent), "extents of views occur in kernels only", loc)
            if isinstance(node, Element):
                tensor = self.tensors.get(node.name)
                _require(tensor is not None, f"tensor `{node.name}` is not declared", loc)
                assert tensor is not None
                _require_element(node, len(tensor.type.dims), tensor.type.dtype, loc)
            if isinstance(node, Var):
                _require(node.name in self.names, f"`{node.name}` is not declared", loc)


def view_rank_and_dtype(param: k.Param) -> tuple[int, DType]:
    """Return the rank and element type of a specialised tensor parameter."""
    match param.type:
        case TileType(dtype=dtype):
            return 2, dtype
        case ViewType(dtype=dtype, dims=dims) if dims is not None and dtype is not None:
            return len(dims), dtype
        case _:
            raise InvalidIR(message=f"parameter `{param.name}` is not specialised", loc=param.loc)
