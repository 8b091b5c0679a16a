"""Statements of a kernel with facts about the valid shapes of their operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from pto_wsp.analysis.extents import ExtentTable, Pair, Symbol
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.effects import written
from pto_wsp.ir.kernel import (
    Assert,
    Assign,
    For,
    If,
    Instr,
    KernelCall,
    KernelFunction,
    Load,
    Prefetch,
    Print,
    Simple,
    Stmt,
    Store,
    blocks,
    statement_expressions,
)
from pto_wsp.ir.scalar import Const, Expr, can_fail
from pto_wsp.isa.forms import ELEMENTWISE, PRODUCTS, Form, result_valid, valid_pairs_that_agree
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.tile import ScalarType, TileType

REDUCTIONS = frozenset({Form.ROW_REDUCE, Form.COL_REDUCE})

TOTAL = ELEMENTWISE | REDUCTIONS | PRODUCTS | {Form.TRANSPOSE, Form.ROW_ARG, Form.SORT}
"""Forms whose instructions have a result for all values of their operands."""


@record
class ValidOf:
    """The valid extent `dim` of the tile `name`, when the statement starts."""

    name: str
    dim: int


@record
class Asked:
    """The valid extent `dim` that a fill or expand instruction is asked to make."""

    dim: int


Valid = ValidOf | Asked | int


@dataclass(slots=True)
class Step:
    """A statement without a body of its own.

    Attributes:
        valid: for instructions, where the valid extents of the result come from.
        unequal: extents that must agree and are not known to: compared at run time.
        space: extents that an elementwise step iterates over.
        live: tiles whose value is read after this step.
    """

    stmt: Simple
    valid: tuple[Valid, Valid] | None = None
    unequal: list[tuple[ValidOf, Valid]] = field(default_factory=list)
    space: Pair | None = None
    live: frozenset[str] = frozenset()


class StepReader:
    """Makes the steps of one kernel, in program order."""

    def __init__(self, kernel: KernelFunction) -> None:
        self.types: dict[str, TileType] = dict(kernel.tiles)

    def step(self, stmt: Simple, extents: ExtentTable) -> Step:
        """Return the step of a statement, and record its effect on valid shapes in `extents`."""
        match stmt:
            case Assign(name=name):
                extents.assign([name])
                return Step(stmt)
            case Prefetch() | Print() | Assert():
                return Step(stmt)
            case Load(tile=tile):
                extents.set_tile(tile, self.moved_extents(stmt, extents))
                return Step(stmt)
            case Store(tile=tile):
                step = Step(stmt)
                wanted = extents.resolve(self.moved_extents(stmt, extents))
                for dim in (0, 1):
                    if extents.tile(tile)[dim] != wanted[dim]:
                        step.unequal.append((ValidOf(tile, dim), dim))
                        extents.equate(extents.tile(tile)[dim], wanted[dim])
                step.space = extents.tile(tile)
                return step
            case Instr():
                return self.instruction(stmt, extents)

    def moved_extents(self, stmt: Load | Store, extents: ExtentTable) -> Pair:
        """Return the symbols of the extents that a load or store moves."""
        rows, cols = region_extents(stmt.region, extents)
        if stmt.rows is not None:
            rows = extents.tile(stmt.rows)[rows_dim(self.types[stmt.rows])]
        return rows, cols

    def instruction(self, instr: Instr, extents: ExtentTable) -> Step:
        """Return the step of an instruction."""
        row = TABLE[instr.op]
        tokens = [(ValidOf(t, 0), ValidOf(t, 1)) for t in instr.tiles]
        attrs = dict(instr.attrs) | {"valid": (Asked(0), Asked(1))}
        step = Step(instr)

        def symbol(valid: object) -> Symbol:
            match valid:
                case ValidOf(name=name, dim=dim):
                    return extents.tile(name)[dim]
                case Asked(dim=dim):
                    asked = instr.attr(("rows", "cols")[dim])
                    capacity = self.types[instr.dst].shape[dim]
                    return extents.resolve_one(capacity if asked is None else extents.value(_expr(asked)))
                case _:
                    assert isinstance(valid, int)
                    return valid

        for a, b in valid_pairs_that_agree(row.form, tokens, attrs):
            if symbol(a) != symbol(b):
                assert isinstance(a, ValidOf) and isinstance(b, ValidOf | int)
                step.unequal.append((a, b))
                extents.equate(symbol(a), symbol(b))
        valid = result_valid(row.form, tokens, attrs)
        result = (symbol(valid[0]), symbol(valid[1]))
        if row.form in ELEMENTWISE:
            step.space = result
        elif row.form in REDUCTIONS:
            step.space = extents.tile(instr.tiles[0])
        assert isinstance(valid[0], Valid) and isinstance(valid[1], Valid)
        step.valid = (valid[0], valid[1])
        extents.set_tile(instr.dst, result)
        return step


def rows_dim(tile: TileType) -> int:
    """Return the dimension along which a tile has row numbers."""
    return 1 if tile.rows == 1 else 0


def scalar_tile(instr: Instr) -> str:
    """Return the tile whose type the scalar operands of an instruction take."""
    return instr.tiles[-1] if instr.tiles else instr.dst


def may_fail(step: Step, types: dict[str, TileType]) -> bool:
    """Return whether a step has a check of its own."""
    stmt = step.stmt
    if step.unequal:
        return True
    match stmt:
        case Assign(value=value):
            return can_fail(value)
        case Print(scalars=scalars):
            return any(map(can_fail, scalars))
        case Assert():
            return True
        case Instr(scalars=scalars):
            asked = [stmt.attr(key) for key in ("rows", "cols")]
            dtype = types[scalar_tile(stmt)].dtype
            bad = any(can_fail(s) or may_be_beyond(s, dtype) for s in scalars)
            return bad or any(a is not None for a in asked) or TABLE[stmt.op].form not in TOTAL
        case Load(region=region) | Store(region=region) | Prefetch(region=region):
            return any(not isinstance(dim, Full) for dim in region.dims) or isinstance(stmt, Load)


def may_be_beyond(expr: Expr, dtype: DType) -> bool:
    """Return whether a scalar operand can have a value that a tile of `dtype` cannot hold."""
    if not dtype.is_integer:
        return False
    low, high = dtype.integer_range
    return not (isinstance(expr, Const) and low <= expr.value <= high) and dtype is not i64


def region_extents(region: Region, extents: ExtentTable) -> Pair:
    """Return the symbols of a region's two kept extents."""
    found: list[Symbol] = []
    for dim, entry in enumerate(region.dims):
        match entry:
            case Full():
                found.append(extents.view(region.tensor, dim))
            case Range(extent=extent):
                found.append(extents.value(extent))
            case Index():
                pass
            case _:
                raise AssertionError("tile ranges occur in workloads only")
    return found[0], found[1]


def _expr(value: object) -> Expr:
    assert isinstance(value, Expr)
    return value


# --- whole kernels ------------------------------------------------------------------------------------------


def failing(kernel: KernelFunction) -> frozenset[int]:
    """Return the `id` of every statement that may end a kernel with an error; of loops, their bounds."""
    reader = StepReader(kernel)
    found: set[int] = set()
    _find_failing(kernel.body or (), reader, ExtentTable(kernel), found, _capacities(kernel))
    return frozenset(found)


def _capacities(kernel: KernelFunction) -> dict[str, tuple[int | None, ...]]:
    """Return the largest extents of each view, None where there is no largest."""
    found: dict[str, tuple[int | None, ...]] = {}
    for param in kernel.views:
        assert not isinstance(param.type, ScalarType)
        found[param.name] = param.type.shape if isinstance(param.type, TileType) else param.type.dims or ()
    return found


def _find_failing(
    body: tuple[Stmt, ...],
    reader: StepReader,
    extents: ExtentTable,
    found: set[int],
    capacities: dict[str, tuple[int | None, ...]],
) -> None:
    for stmt in body:
        inner = blocks(stmt)
        if isinstance(stmt, Simple):
            fails = may_fail(reader.step(stmt, extents), reader.types)
            if isinstance(stmt, Load) and _fits(stmt, reader.types[stmt.tile], capacities):
                fails = False
        else:
            fails = isinstance(stmt, KernelCall) or any(map(can_fail, statement_expressions(stmt)))
        if fails:
            found.add(id(stmt))
        for block in inner:
            tiles, scalars = written(block)
            scalars |= {stmt.var} if isinstance(stmt, For) else set()
            if not isinstance(stmt, If):
                extents.forget(tiles, scalars)
            _find_failing(block, reader, extents.copy(), found, capacities)
        for block in inner:
            extents.forget(*written(block))


def _fits(load: Load, tile: TileType, capacities: dict[str, tuple[int | None, ...]]) -> bool:
    """Whether a load takes a whole view that is never larger than its tile."""
    sizes = capacities[load.region.tensor]
    is_whole = load.rows is None and all(isinstance(dim, Full) for dim in load.region.dims)
    return is_whole and all(
        size is not None and size <= most for size, most in zip(sizes, tile.shape, strict=True)
    )
