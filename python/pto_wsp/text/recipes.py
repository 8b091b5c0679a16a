"""Functions as calls of a function builder: how one that it can build would be built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pto_wsp.builder.names import ElementType, MemorySpace
from pto_wsp.builder.steps import Argument, Operand
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.names import WorkloadRenaming
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, TileElement, format_expr
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import ScalarType, TileType, ViewType

Function = k.KernelFunction | w.WorkloadFunction


@record
class Call:
    """One call of a method of the builder."""

    method: str
    args: tuple[object, ...] = ()
    options: tuple[tuple[str, object], ...] = ()


class NoRecipe(Exception):
    """A function that no calls of the builder's methods make."""


def recipe(function: Function, functions: Mapping[str, Function], has_shapes: bool) -> list[Call]:
    """Return calls that may make a function; whether they do, only the builder can say.

    Args:
        function: the function.
        functions: those that it can call.
        has_shapes: whether memrefs are declared with their shapes, or left to be found.

    Raises:
        NoRecipe: it holds something that the builder has no method for.
    """
    if isinstance(function, k.KernelFunction):
        return [Call("in_core"), *_kernel(function, functions, has_shapes)]
    return [Call("not_in_core"), *_workload(function, functions, has_shapes)]


def _element(dtype: DType) -> ElementType:
    return next(e for e in ElementType if e.value == dtype.name)


def _memref(name: str, dtype: DType, shape: tuple[int | None, ...] | None) -> Call:
    args = (name, MemorySpace.GM, _element(dtype))
    return Call("memref", args if shape is None else (*args, shape))


def _operand(expr: Expr) -> Operand:
    """Return an expression as the builder takes it: a number, a name, or text."""
    match expr:
        case Const(value=value) if not isinstance(value, bool):
            return value
        case _:
            return format_expr(expr)


def _in_tiles(dim: DimSelect, tile: int | None) -> Operand:
    """Return where a range begins, in tiles with this number of rows."""
    match dim:
        case Full():
            return 0
        case Range(start=Const(value=value)) if tile and value % tile == 0:
            return int(value) // tile
        case Range(start=Binary(op="mul", a=a, b=Const(value=size))) if size == tile:
            return _operand(a)
        case Range(start=start) if tile == 1:
            return _operand(start)
        case _:
            raise NoRecipe


def _in_elements(dim: DimSelect) -> Operand:
    match dim:
        case Full():
            return 0
        case Range(start=start):
            return _operand(start)
        case _:
            raise NoRecipe


# --- InCore functions ---


def _kernel(
    function: k.KernelFunction, functions: Mapping[str, Function], has_shapes: bool
) -> Iterator[Call]:
    if function.body is None or function.block_dim != 1 or function.unit not in ("any", "cube", "vector"):
        raise NoRecipe
    if function.unit != "any":
        yield Call("cube", () if function.unit == "cube" else (False,))
    for param in function.params:
        match param.type:
            case ScalarType(dtype=dtype):
                yield Call("scalar", (param.name, _element(dtype)))
            case TileType(dtype=dtype) as tile:
                yield _memref(param.name, dtype, tile.shape if has_shapes else None)
            case ViewType(dtype=DType() as dtype, dims=tuple() as dims):
                is_column = dims[:1] == (None,) and not has_shapes
                yield _memref(param.name, dtype, None if is_column else dims)
            case _:
                raise NoRecipe
    for name, tile in function.tiles:
        space = () if tile.space is None else (MemorySpace(tile.space.value),)
        yield Call("tile", (name, tile.rows, tile.cols, _element(tile.dtype), *space))
    for name, scalar in function.scalars:
        yield Call("scalar", (name, _element(scalar.dtype)))
    loads = (s for s in k.walk_statements(function.body) if isinstance(s, k.Load))
    known = _Known(functions, dict(function.tiles), {s.region.tensor: s.tile for s in loads})
    yield from _statements(function.body, known)


@record
class _Known:
    """What statements of a kernel mention: functions, tiles, and a tile that is loaded from each memref."""

    functions: Mapping[str, Function]
    tiles: Mapping[str, TileType]
    loaded: Mapping[str, str]


def _statements(body: Sequence[k.Stmt], known: _Known) -> Iterator[Call]:
    for stmt in body:
        match stmt:
            case k.Load() | k.Store() | k.Prefetch():
                yield _transfer(stmt, known)
            case k.Instr(op=op, dst=dst, tiles=names, scalars=scalars, attrs=attrs):
                options = tuple((key, v if isinstance(v, (str, int)) else _operand(v)) for key, v in attrs)
                yield Call(op, (dst, *names, *map(_operand, scalars)), options)
            case k.Assign():
                yield _assignment(stmt)
            case k.Print():
                yield _print(stmt)
            case k.Assert(condition=condition, message=message):
                yield Call("check", (_operand(condition), message))
            case k.KernelCall():
                yield _call(stmt, known)
            case _:
                yield from _control(stmt, known)


def _call(stmt: k.KernelCall, known: _Known) -> Call:
    names = [param.name for param in known.functions[stmt.kernel].params]
    given = [arg if isinstance(arg, str) else _operand(arg) for arg in stmt.args]
    return Call("call", (stmt.kernel, dict(zip(names, given, strict=True))))


def _control(stmt: k.For | k.While | k.If, known: _Known) -> Iterator[Call]:
    match stmt:
        case k.For(var=var, start=start, stop=stop, step=step):
            yield Call("for_loop", (var, _operand(start), _operand(stop), step))
            yield from _statements(stmt.body, known)
            yield Call("end_for")
        case k.While(condition=condition):
            yield Call("while_loop", (_operand(condition),))
            yield from _statements(stmt.body, known)
            yield Call("end_while")
        case k.If(condition=condition, then=then, other=other):
            yield Call("if_then", (_operand(condition),))
            yield from _statements(then, known)
            if other:
                yield Call("else_block")
                yield from _statements(other, known)
            yield Call("endif")


def _print(stmt: k.Print) -> Call:
    """Return a print whose text, if it has any, comes first."""
    first, *others = stmt.parts
    if not isinstance(first, k.Words):
        first, others = k.Words(""), [*stmt.parts]
    if any(isinstance(part, k.Words) for part in others):
        raise NoRecipe
    values = (
        part if isinstance(part, str) else _operand(part) for part in others if not isinstance(part, k.Words)
    )
    return Call("print", (first.text, *values))


def _assignment(stmt: k.Assign) -> Call:
    match stmt.value:
        case Element(name=memref, indices=(row, col)):
            return Call("scalar_load", (stmt.name, memref, _operand(row), _operand(col)))
        case TileElement(name=tile, indices=(row, col)):
            return Call("getval", (stmt.name, tile, _operand(row), _operand(col)))
        case value:
            return Call("scalar_mov", (stmt.name, _operand(value)))


_METHODS = {k.Load: ("load", "gather"), k.Store: ("store", "scatter"), k.Prefetch: ("prefetch", None)}
"""Methods that move a tile, and rows that another one names."""


def _transfer(stmt: k.Load | k.Store | k.Prefetch, known: _Known) -> Call:
    memref, dims = stmt.region.tensor, stmt.region.dims
    tile = known.loaded.get(memref) if isinstance(stmt, k.Prefetch) else stmt.tile
    if len(dims) != 2 or tile is None:
        raise NoRecipe
    method, of_rows = _METHODS[type(stmt)]
    pair = (memref, tile) if isinstance(stmt, k.Store) else (tile, memref)
    if stmt.rows is not None:
        if of_rows is None:
            raise NoRecipe
        return Call(of_rows, (*pair, stmt.rows))
    row, col = _in_tiles(dims[0], known.tiles[tile].rows), _in_elements(dims[1])
    return Call(method, pair if (row, col) == (0, 0) else (*pair, row, col))


# --- Orchestration functions ---


def _workload(
    function: w.WorkloadFunction, functions: Mapping[str, Function], has_shapes: bool
) -> Iterator[Call]:
    for param in function.params:
        match param:
            case w.TensorParam(name=name, type=type, is_local=False):
                dims = tuple(dim if isinstance(dim, int) else None for dim in type.dims)
                is_column = dims[:1] == (None,) and not has_shapes
                yield _memref(name, type.dtype, None if is_column else dims)
            case w.ScalarParam(name=name, type=type, value=None):
                yield Call("scalar", (name, _element(type.dtype)))
            case w.TensorParam(type=type) if type.space is not None:
                raise NoRecipe
            case w.TensorParam() | w.SizeParam():
                pass
            case _:
                raise NoRecipe
    for name in function.variables:
        yield Call("scalar", (name, ElementType.I64))
    yield from _nodes(function.body, functions)


def _nodes(body: Sequence[w.Node], functions: Mapping[str, Function]) -> Iterator[Call]:
    for node in body:
        match node:
            case w.Loop(tile=None, var=var, body=body):
                yield _loop(node)
                yield from _nodes(WorkloadRenaming({var: node.called}).nodes(body), functions)
                yield Call("end_for")
            case w.Cond(condition=condition, then=then, other=other):
                yield Call("if_then", (_operand(condition),))
                yield from _nodes(then, functions)
                if other:
                    yield Call("else_block")
                    yield from _nodes(other, functions)
                yield Call("endif")
            case w.Set(name=name, value=value):
                yield Call("scalar_mov", (name, _operand(value)))
            case w.Task(kernel=kernel, args=args):
                params = functions[kernel].params
                given = [_argument(p, a) for p, a in zip(params, args, strict=True)]
                yield Call("call", (kernel, dict(zip([p.name for p in params], given, strict=True))))
            case w.WorkloadCall(workload=workload, args=args):
                callee = functions[workload]
                assert isinstance(callee, w.WorkloadFunction)
                given = [a.tensor if isinstance(a, Region) else _operand(a) for a in args]
                yield Call(
                    "call", (workload, dict(zip([p.name for p in callee.open_params], given, strict=True)))
                )
            case _:
                raise NoRecipe


def _loop(loop: w.Loop) -> Call:
    options: list[tuple[str, object]] = []
    for name, value in (("max_range", loop.max_range), ("min_range", loop.min_range)):
        options += [] if value is None else [(name, value)]
    options += [("tile_levels", dict(loop.tile_levels))] if loop.tile_levels else []
    options += [] if loop.kind == w.RANGE else [("kind", loop.kind)]
    return Call("for_loop", (loop.called, 0, _operand(loop.extent), 1), tuple(options))


def _argument(param: k.Param | w.WorkloadParam, arg: Region | Expr) -> Argument:
    if not isinstance(arg, Region):
        return _operand(arg)
    assert isinstance(param, k.Param)
    if len(arg.dims) != 2:
        raise NoRecipe
    match param.type:
        case TileType(rows=rows, cols=cols) | ViewType(dims=(rows, cols)):
            row, col = _in_tiles(arg.dims[0], rows), _in_elements(arg.dims[1])
        case _:
            raise NoRecipe
    extents = [_extent(dim, size) for dim, size in zip(arg.dims, (rows, cols), strict=True)]
    if extents != [None, None]:
        found = [
            size if extent is None else extent for extent, size in zip(extents, (rows, cols), strict=True)
        ]
        if None in found:
            raise NoRecipe
        return (arg.tensor, row, col, *[extent for extent in found if extent is not None])
    return arg.tensor if (row, col) == (0, 0) else (arg.tensor, row, col)


def _extent(dim: DimSelect, size: int | None) -> Operand | None:
    """Return the extent of a range that is not that of the view."""
    match dim:
        case Range(extent=extent) if extent != (None if size is None else Const(size)):
            return _operand(extent)
        case _:
            return None
