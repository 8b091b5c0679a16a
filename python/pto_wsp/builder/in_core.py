"""From the steps of an InCore function to a kernel.

Tiles are places, as in `@ptoisa_kernel`: a destination that is not declared is declared by its first write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from pto_wsp.analysis.stored_parts import missing_element
from pto_wsp.builder import operands
from pto_wsp.builder.callees import Recorded, called, in_order, wrong_kind
from pto_wsp.builder.memrefs import MemrefAccess, MemrefUse, box, require_integers, settled
from pto_wsp.builder.names import scalar_dtype
from pto_wsp.builder.scalars import ScalarReader, fitted
from pto_wsp.builder.steps import (
    METHODS,
    CallStep,
    ChannelDeclaration,
    CheckStep,
    Declaration,
    IfStep,
    ImportStep,
    LeaveStep,
    LoopStep,
    Memref,
    Operand,
    Plain,
    PrintStep,
    ProcessStep,
    ReceiveStep,
    ReturnStep,
    ScalarDeclaration,
    ScalarStep,
    SendStep,
    StepBlock,
    TileDeclaration,
    TileStep,
    Transfer,
    Tree,
    WaitStep,
    WhileStep,
    assigned_once,
    assignments,
    tiles_and_loops,
)
from pto_wsp.errors import BadOperand, NameClash, NotYetSupported, UnknownName, did_you_mean
from pto_wsp.ir import kernel as k
from pto_wsp.ir.scalar import Const, Element, Expr, Extent, TileElement, Var, element_dtype
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.isa import TABLE
from pto_wsp.isa.attributes import EXTENTS, PLACES
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.isa.meaning import COMPARE_MODES
from pto_wsp.lang import arithmetic
from pto_wsp.lang.kernel.builder import Builder, Site
from pto_wsp.lang.kernel.compositions import compose, composed, made_type
from pto_wsp.lang.kernel.outputs import stored_outputs
from pto_wsp.lang.kernel.ptoisa_body import check_written
from pto_wsp.lang.kernel.tile_ops import TileOps
from pto_wsp.lang.kernel.values import TileValue, ViewValue
from pto_wsp.lang.workload.expansion import NOT_EXPANDED
from pto_wsp.location import Location
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType, b1, f32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType

_ASSIGNING = frozenset(
    {"getval", *(f"scalar_{op}" for op in ("mov", "add", "sub", "mul", "div", *COMPARE_MODES))}
)
"""Methods that assign a scalar when the function comes to them."""


def make_kernel(function: Recorded) -> k.KernelFunction:
    """Return the kernel that the steps of a function describe.

    Raises:
        FrontendError: a step has no meaning in it.
    """
    return _InCore(function).function()


class _InCore:
    def __init__(self, function: Recorded) -> None:
        self.name, self.functions, self.loc = function.name, function.functions, function.loc
        self.declared, self.tree = declared, tree = function.declared, function.tree
        self.constants = assigned_once(tree, ("li",))
        assigned = frozenset(step.dst for step in assignments(tree))
        self.uses = {n: MemrefUse(n, d) for n, d in declared.items() if isinstance(d, Memref)}
        views = {
            n: k.Param(n, k.IN, ViewType(use.memref.dtype, (None, None))) for n, use in self.uses.items()
        }
        for item, use in self.uses.items():
            if use.memref.is_local:
                feature = f"the memref `{item}` outside of global memory in an InCore function"
                advice = "memory on the core is tiles; what tasks hand on is a tensor of an Orchestration"
                raise NotYetSupported(feature=feature, detail="", advice=advice, loc=use.memref.loc)
        self.views = views
        self.params = [n for n, d in declared.items() if n in views or _is_parameter(n, d, assigned)]
        self.builder = Builder(tuple(views.values()))
        variables = {n for n, d in declared.items() if isinstance(d, ScalarDeclaration) and n in assigned}
        self.builder.reserve({*declared, *tiles_and_loops(tree)} - variables)
        self.tiles: dict[str, TileValue] = {}
        self.scalars: dict[str, Expr] = {}
        self.loops: list[str] = []
        self.reader = ScalarReader(self)
        for item, declaration in declared.items():
            if isinstance(declaration, ChannelDeclaration):
                raise wrong_kind("channel", self.name, "Orchestration", declaration.loc)
            if isinstance(declaration, TileDeclaration):
                self.declare_tile(item, declaration.type)
            elif isinstance(declaration, ScalarDeclaration) and item not in self.constants:
                self.declare_scalar(item, declaration, item in assigned)

    def function(self) -> k.KernelFunction:
        self.steps(self.tree)
        types = {name: use.type() for name, use in self.uses.items()}
        kernel = k.KernelFunction(
            self.name,
            tuple(self.param(name, types) for name in self.params),
            tuple(self.builder.tiles.items()),
            tuple(self.builder.scalars.items()),
            _settled(self.builder.statements(), types),
            self.loc,
        )
        check_written(kernel)
        callees = {f.name: f for f in self.functions.values() if isinstance(f, k.KernelFunction)}
        stored = stored_outputs(kernel, callees)

        def is_whole(param: k.Param) -> bool:
            return param.name in stored and missing_element(kernel, param) is None

        params = tuple(
            replace(p, role=k.INOUT) if p.role == k.OUT and not is_whole(p) else p for p in kernel.params
        )
        return replace(kernel, params=params)

    # --- names ---

    def declare_tile(self, name: str, type: TileType) -> TileValue:
        self.tiles[name] = self.builder.place(name, type)
        return self.tiles[name]

    def declare_scalar(self, name: str, declaration: ScalarDeclaration, is_variable: bool) -> None:
        dtype = scalar_dtype(declaration.dtype)
        assert dtype is not None
        self.scalars[name] = Var(name, dtype)
        if is_variable:
            self.scalars[name] = self.builder.scalar(name, ScalarType(dtype))

    def param(self, name: str, types: Mapping[str, TileType | ViewType]) -> k.Param:
        declaration = self.declared[name]
        if name in types:
            return k.Param(name, self.uses[name].role, types[name], declaration.loc)
        return k.Param(name, k.IN, ScalarType(self.scalars[name].dtype), declaration.loc)

    def scalar(self, name: str, loc: Location | None) -> Expr:
        """Return the value of a name in an expression."""
        if name in self.loops:
            return Var(name, i64, loc)
        if name not in self.scalars:
            known = [*self.scalars, *self.loops]
            where = f"`{self.name}` as a scalar"
            raise UnknownName(name=name, where=where, advice=did_you_mean(name, known), loc=loc)
        return replace(self.scalars[name], loc=loc)

    def element(self, name: str, indices: tuple[Expr, ...], op: str, loc: Location | None) -> Expr:
        """Return an element of a memref of integers, or of a tile where a scalar is assigned."""
        if op == "getval" or name in self.tiles:
            return self.tile_element(name, indices, op, loc)
        use = self.use(name, loc)
        require_integers(name, use.memref, indices, op, loc)
        use.elements.append((op, loc))
        return Element(use.name, indices, loc)

    def tile_element(
        self, name: str, indices: tuple[Expr, ...], op: str, loc: Location | None
    ) -> TileElement:
        """Return an element of a tile, which is read here and now."""
        tile = self.tile(name, loc)
        if op not in _ASSIGNING:
            expected = "a scalar that `getval` has assigned"
            raise BadOperand(op=op, expected=expected, found=f"an element of the tile `{name}`", loc=loc)
        if len(indices) != 2 or any(index.dtype is not i64 for index in indices):
            found = ", ".join(str(index.dtype) for index in indices)
            raise BadOperand(op=op, expected=f"2 integers after `{name}`", found=found, loc=loc)
        return TileElement(name, indices, element_dtype(tile.type.dtype), loc)

    def extent(self, name: str, dim: int, op: str, loc: Location | None) -> Extent:
        """Return how many rows or columns of a tile or memref are valid."""
        if name not in self.views:
            self.tile(name, loc)
        return Extent(name, dim, loc)

    def tile(self, name: Operand, loc: Location | None) -> TileValue:
        tile = self.tiles.get(name) if isinstance(name, str) else None
        if tile is None:
            raise operands.unknown_tile(name, f"`{self.name}` as a tile", [*self.tiles], loc)
        return tile

    def use(self, name: Operand, loc: Location | None) -> MemrefUse:
        use = self.uses.get(name) if isinstance(name, str) else None
        if use is None:
            advice = did_you_mean(str(name), self.uses)
            raise UnknownName(name=str(name), where=f"`{self.name}` as a memref", advice=advice, loc=loc)
        return use

    # --- steps ---

    def steps(self, tree: Tree) -> None:
        for step in tree:
            if isinstance(step, StepBlock):
                self.block(step)
            else:
                self.step(step)

    def step(self, step: Plain) -> None:
        match step:
            case Transfer():
                self.transfer(step)
            case TileStep(row=row) if row in COMPOSITIONS:
                self.composition(step)
            case TileStep():
                self.instruction(step)
            case ScalarStep():
                self.assign(step)
            case CallStep():
                self.call(step)
            case PrintStep():
                self.print(step)
            case CheckStep(condition=condition, message=message, loc=loc):
                test = self.reader.truth(condition, "check", loc)
                self.builder.emit(k.Assert(test, message, loc))
            case WaitStep(loc=loc):
                raise wrong_kind("wait", self.name, "Orchestration", loc)
            case ImportStep() | ReturnStep() | LeaveStep():
                assert not isinstance(step, LeaveStep), "early exits are removed before"
            case _:
                assert_never(step)

    def block(self, block: StepBlock) -> None:
        match block.opening:
            case ProcessStep() | SendStep() | ReceiveStep() as step:
                raise wrong_kind(METHODS[type(step)], self.name, "Orchestration", step.loc)
            case LoopStep() as step:
                self.builder.emit(self.loop(step, block.body))
            case WhileStep(condition=condition, loc=loc, unless=unless):
                test = self.reader.truth(condition, "while_loop", loc)
                if unless:
                    goes_on = arithmetic.combine("eq", self.scalar(unless, loc), Const(0), loc)
                    test = arithmetic.select(goes_on, test, Const(False, b1), loc)
                body = self.nested(block.body)
                self.builder.emit(k.While(test, body, loc))
            case IfStep() as step:
                test = condition_of(self.reader, step)
                then, other = self.nested(block.body), self.nested(block.other)
                self.builder.emit(k.If(test, then, other, step.loc))

    def nested(self, tree: Tree) -> tuple[k.Stmt, ...]:
        with self.builder.nested() as body:
            self.steps(tree)
        return tuple(body)

    def loop(self, step: LoopStep, body: Tree) -> k.For:
        if step.expansion != NOT_EXPANDED or step.kind != "range":
            raise wrong_kind("for_loop` with ranges or a kind", self.name, "Orchestration", step.loc)
        start = self.reader.integer(step.lower, "for_loop", step.loc)
        if step.tile is None:
            stop = self.reader.integer(step.upper, "for_loop", step.loc)
        else:
            stop = Extent(self.tile(step.tile[0], step.loc).name, step.tile[1], step.loc)
        for names in (self.tiles, self.scalars, self.views, self.loops):
            if step.var in names:
                raise NameClash(kind="things in a function", name=step.var, loc=step.loc)
        self.loops.append(step.var)
        inner = self.nested(body)
        self.loops.pop()
        return k.For(step.var, start, stop, step.step, inner, step.loc)

    def transfer(self, step: Transfer) -> None:
        method = step.method
        is_store = method in ("store", "scatter", "store_fp")
        is_tile_last = is_store and step.second in self.tiles and step.first not in self.tiles
        is_memref_first = step.first in self.uses or is_tile_last
        name, memref = (step.second, step.first) if is_memref_first else (step.first, step.second)
        use = self.use(memref, step.loc)
        row, col = (self.reader.integer(value, method, step.loc) for value in (step.row, step.col))
        if name not in self.tiles and method in ("load", "gather"):
            self.declare_tile(name, self.loaded_type(name, use, step))
        tile = self.tile(name, step.loc)
        numbers = None if step.rows is None else self.tile(step.rows, step.loc)
        if step.scale is not None:
            tile = self.scaled(tile, use.memref.dtype, *step.scale, self.site(method, step.loc))
        access = MemrefAccess(tile.type, row, col, is_store, numbers is not None, step.loc)
        use.accesses.append(access)
        dims, extents = box(access), (Const(tile.type.rows), Const(tile.type.cols))
        view = ViewValue(self.views[memref], use.memref.dtype, dims, (None, None), extents, False)
        site = self.site(method, step.loc)
        if is_store:
            self.builder.store(view, tile, site, numbers)
        elif method == "prefetch":
            self.builder.prefetch(view, None, site)
        elif numbers is not None:
            self.builder.gather(view, numbers, site, tile)
        else:
            self.builder.load(view, site, tile)

    def loaded_type(self, name: str, use: MemrefUse, step: Transfer) -> TileType:
        """Return the type of a tile that its load declares: the memref's shape."""
        match use.memref.shape:
            case (int() as rows, int() as cols) if step.rows is None:
                return TileType(rows, cols, use.memref.dtype)
            case _:
                raise operands.unknown_tile(name, f"`{self.name}` as a tile", [*self.tiles], step.loc)

    def instruction(self, step: TileStep) -> None:
        row = TABLE[step.row]
        operands.require_count(step)
        tiles = [self.tile(name, step.loc) for name in step.operands[: row.form.num_tiles]]
        flags = operands.constants_of(step)
        dst = self.tiles.get(step.dst)
        if dst is None:
            made = operands.made_type(step, [t.type for t in tiles], dict(flags))
            dst = self.declare_tile(step.dst, made)
        site = self.site(step.method, step.loc)
        like = tiles[-1].type.dtype if tiles else dst.type.dtype
        ops = TileOps(self.builder)
        scalars = [
            ops.element(self.reader.read(value, step.method, step.loc), like, site)
            for value in step.operands[row.form.num_tiles :]
        ]
        flags += self.places(step)
        self.builder.write(step.row, dst, tiles, scalars, site, flags=flags, valid=self.extents(step, dst))

    def composition(self, step: TileStep) -> None:
        operands.require_count(step)
        composition = COMPOSITIONS[step.row]
        tiles = [self.tile(name, step.loc) for name in step.operands]
        dst = self.tiles.get(step.dst)
        if dst is None:
            operands.require_decided(step)
            site = self.site(step.method, step.loc)
            dst = self.declare_tile(step.dst, made_type(composition, tiles, f32, site))
        known = ("rmode",) if composition.rounds else ()
        for name in step.options:
            if name not in known:
                expected = "no options" if not known else "the option `rmode`"
                raise BadOperand(op=step.method, expected=expected, found=f"`{name}`", loc=step.loc)
        rmode = operands.rounding(step.method, step.options.get("rmode", ""), step.loc)
        compose(self.builder, composition, dst, tiles, self.site(step.method, step.loc), rmode)

    def scaled(self, tile: TileValue, dtype: DType, fp: str, rmode: str, site: Site) -> TileValue:
        """Return what a `store_fp` stores."""
        rmode = operands.rounding(site.label, rmode, site.loc)
        tiles = [tile, self.tile(fp, site.loc)]
        return composed(self.builder, COMPOSITIONS["store_fp"], tiles, dtype, site, rmode)

    def places(self, step: TileStep) -> tuple[tuple[str, k.AttrValue], ...]:
        """Return where the part of a tile starts, in the dimensions in which that is not 0."""
        found: list[tuple[str, k.AttrValue]] = []
        for name in PLACES.get(TABLE[step.row].form, ()):
            value = step.options.get(name, 0)
            if not (isinstance(value, (str, int)) or isinstance(value, Expr)):
                raise BadOperand(
                    op=step.method, expected=f"`{name}`: an integer", found=repr(value), loc=step.loc
                )
            place = self.reader.integer(value, step.method, step.loc)
            found += [(name, place)] if place != Const(0) else []
        return tuple(found)

    def extents(self, step: TileStep, dst: TileValue) -> tuple[Expr, Expr]:
        """Return the valid extents that an instruction makes, where its form makes any."""
        names = EXTENTS.get(TABLE[step.row].form, ())
        found: list[Expr] = []
        for name, size in zip(("rows", "cols"), dst.type.shape, strict=True):
            value = step.options.get(name, size) if name in names else size
            if not (isinstance(value, (str, int)) or isinstance(value, Expr)):
                raise BadOperand(
                    op=step.method, expected=f"`{name}`: an integer", found=repr(value), loc=step.loc
                )
            found.append(self.reader.integer(value, step.method, step.loc))
        return found[0], found[1]

    def assign(self, step: ScalarStep) -> None:
        value = self.reader.compute(step.op, step.operands, step.loc)
        for names in (self.tiles, self.views, self.loops):
            if step.dst in names:
                raise NameClash(kind="things in a function", name=step.dst, loc=step.loc)
        declaration = self.declared.get(step.dst)
        is_declared = isinstance(declaration, ScalarDeclaration)
        dtype = scalar_dtype(declaration.dtype) if is_declared else value.dtype
        value = fitted(value, dtype or value.dtype, step.dst, step.loc)
        if step.dst in self.constants:
            self.scalars[step.dst] = value
            return
        if step.dst not in self.scalars:
            self.scalars[step.dst] = self.builder.scalar(step.dst, ScalarType(value.dtype))
        variable = self.scalars[step.dst]
        assert isinstance(variable, Var)
        self.builder.slot(variable.name)
        self.builder.emit(k.Assign(variable.name, value, step.loc))

    def call(self, step: CallStep) -> None:
        callee = called(step, self.functions)
        if isinstance(callee, WorkloadFunction):
            raise wrong_kind(f"call` of `{callee.name}", self.name, "Orchestration", step.loc)
        args: list[str | Expr] = []
        for name, value in in_order(step, [p.name for p in callee.params]):
            param = callee.param(name)
            if isinstance(param.type, ScalarType) and not isinstance(value, tuple):
                expr = self.reader.read(value, "call", step.loc)
                args.append(fitted(expr, param.type.dtype, name, step.loc))
            elif not isinstance(param.type, ScalarType) and isinstance(value, str) and value in self.uses:
                self.uses[value].passed.append((param.type, param.role))
                args.append(value)
            else:
                expected = (
                    f"for `{name}`, the name of a {'scalar' if param in callee.scalar_params else 'memref'}"
                )
                raise BadOperand(op="call", expected=expected, found=f"`{value}`", loc=step.loc)
        self.builder.emit(k.KernelCall(callee.name, tuple(args), step.loc))

    def print(self, step: PrintStep) -> None:
        parts: list[k.Words | str | Expr] = [k.Words(step.text)] if step.text else []
        for value in step.values:
            if isinstance(value, str) and value in self.tiles:
                parts.append(value)
            else:
                parts.append(self.reader.read(value, "print", step.loc))
        self.builder.emit(k.Print(tuple(parts), step.loc))

    def site(self, method: str, loc: Location) -> Site:
        return Site(loc, method)


def condition_of(reader: ScalarReader, step: IfStep) -> Expr:
    """Return the condition of an IF, or of an IF_BIT: whether a bit of a scalar is set."""
    if step.bit is None:
        return reader.truth(step.condition, "if_then", step.loc)
    value = reader.integer(step.condition, "if_bit", step.loc)
    bit = arithmetic.combine("bitand", value, Const(step.bit), step.loc)
    return arithmetic.truth(bit, step.loc)


def _is_parameter(name: str, declaration: Declaration, assigned: frozenset[str]) -> bool:
    return isinstance(declaration, ScalarDeclaration) and name not in assigned


def _settled(body: Sequence[k.Stmt], types: Mapping[str, TileType | ViewType]) -> tuple[k.Stmt, ...]:
    """Give the regions of loads and stores the form that the types of the parameters ask for."""
    found: list[k.Stmt] = []
    for stmt in body:
        match stmt:
            case (
                k.Load(region=region, rows=rows)
                | k.Store(region=region, rows=rows)
                | k.Prefetch(region=region, rows=rows)
            ):
                region = settled(region, types[region.tensor], rows is not None)
                found.append(replace(stmt, region=region))
            case k.For(body=inner) | k.While(body=inner):
                found.append(replace(stmt, body=_settled(inner, types)))
            case k.If(then=then, other=other):
                found.append(replace(stmt, then=_settled(then, types), other=_settled(other, types)))
            case _:
                found.append(stmt)
    return tuple(found)
