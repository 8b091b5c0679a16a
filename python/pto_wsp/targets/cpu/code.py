"""What all code of one kernel needs: names, source marks, checks, scalar values, windows, scratch."""

from __future__ import annotations

from pathlib import PurePath

from pto_wsp.analysis.extents import ExtentTable, upper_bound
from pto_wsp.analysis.steps import Asked, Step, Valid, ValidOf, may_be_beyond, rows_dim, scalar_tile
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import OUT, Instr, KernelFunction, Load, Prefetch, Store
from pto_wsp.ir.scalar import Element, Expr, TileElement, can_fail, walk
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.cpu.expressions import (
    FIELDS,
    ExpressionWriter,
    literal,
    scalar_type,
    tile_name,
    view_name,
)
from pto_wsp.targets.cpu.memory import assign_memory, row_stride
from pto_wsp.targets.cpu.parts import Part, moves
from pto_wsp.targets.cpu.plan import Alone, Node, plan, walk_nodes
from pto_wsp.targets.cpu.templates import ROUNDING, STORAGE, lane_type, vector_type
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import TileType, ViewType


class KernelCode:
    """The C++ of one kernel while it is written.

    Attributes:
        out: where lines go.
        checks: the run-time checks so far; number n is at index n - 1.
        parts: what the kernel calls that is compiled apart from it.
    """

    def __init__(self, kernel: KernelFunction, lanes: int, out: TextWriter) -> None:
        self.kernel = kernel
        self.lanes = lanes
        self.out = out
        self.types: dict[str, TileType] = dict(kernel.tiles)
        self.nodes = plan(kernel)
        self.memory = assign_memory(kernel, self.nodes, lanes)
        self.checks: list[Check] = []
        self.parts: set[Part] = set()
        self._alone = {id(node.step.stmt): node for node in walk_nodes(self.nodes) if isinstance(node, Alone)}
        self._node_numbers = {id(node): i for i, node in enumerate(walk_nodes(self.nodes))}
        self._expressions = ExpressionWriter({p.name: p.type.dtype for p in kernel.views})
        self._extents = ExtentTable(kernel)
        self._ahead: dict[int, str] = {}
        self._names = 0
        self._marked = ""

    def name(self, stem: str) -> str:
        """Return a C++ name that no other variable of the function has."""
        self._names += 1
        return f"{stem}{self._names}"

    def mark(self, loc: Location | None) -> None:
        """Name the source line that the code below comes from, without folders."""
        text = f"// {PurePath(loc.file).name}:{loc.line}" if loc else ""
        if text and text != self._marked:
            self.out.line(text)
            self._marked = text

    def check(self, bad: str, message: str, loc: Location | None) -> None:
        """Leave the kernel with the number of a new check where `bad` holds."""
        self.checks.append(Check(loc, message))
        self.out.line(f"if ({bad}) return {len(self.checks)};")

    def value(self, expr: Expr, loc: Location | None) -> str:
        """Return the value of an expression, checked where it can fail."""
        if not can_fail(expr):
            return self._expressions.text(expr, "")
        name = self.name("e")
        self.out.line(f"bool {name}_failed = false;")
        text = self._expressions.text(expr, f"{name}_failed")
        self.out.line(f"const {scalar_type(expr.dtype)} {name} = {text};")
        message = "an expression overflows 64 bits or divides by zero"
        for kind, what in ((Element, "a view"), (TileElement, "the valid part of a tile")):
            if any(isinstance(node, kind) for node in walk(expr)):
                message += f", or reads outside of {what}"
        self.check(f"{name}_failed", message, loc)
        return name

    def scalar_operand(self, expr: Expr, instr: Instr, narrow: str = "") -> str:
        """Write a scalar operand as a vector of the tile's type; return its name.

        It is rounded to a float type, and checked to lie in the range of an integer one.
        """
        dtype = self.types[scalar_tile(instr)].dtype
        text = self.value(expr, instr.loc)
        if dtype.is_float:
            vector = ROUNDING.get(dtype.name, "{0}").format(f"splat(static_cast<float>({text}))")
        elif dtype.kind == "b":
            vector = f"splat({text} != 0)" if scalar_type(expr.dtype) != "bool" else f"splat({text})"
        else:
            if may_be_beyond(expr, dtype):
                low, high = (literal(limit, i64) for limit in dtype.integer_range)
                self.check(
                    f"{text} < {low} || {text} > {high}",
                    f"a scalar is beyond the range of {dtype}",
                    instr.loc,
                )
            splat, lane = ("splat_narrow", narrow) if narrow else ("splat", lane_type(dtype))
            vector = f"{splat}(static_cast<{lane}>({text}))"
        name = self.name("c")
        kind = f"Narrow<{narrow}>" if narrow else vector_type(dtype)
        self.out.line(f"const {kind} {name} = {vector};")
        return name

    # --- memory -----------------------------------------------------------------------------------------

    def storage(self, tile: str) -> str:
        """Return the C++ type of a tile's elements in memory."""
        return STORAGE[self.types[tile].dtype.name]

    def buffer(self, tile: str) -> str:
        """Return the pointer and row stride of a tile's own memory; null where it lives in registers only."""
        if tile not in self.memory.offsets:
            return "nullptr, 0"
        place = _scratch(self.memory.offsets[tile], self.storage(tile))
        return f"{place}, {row_stride(self.types[tile], self.lanes)}"

    def is_same_memory(self, tile: str, other: str) -> bool:
        """Return whether two tiles that are in use together are made at the same place."""
        return tile == other or self.memory.offsets.get(tile, -1) == self.memory.offsets.get(other)

    def extra(self, node: Node, purpose: str, storage: str) -> str | None:
        """Return a pointer to memory that a node has beside its tiles, or None if it has none for that."""
        offset = self.memory.extra.get((self._node_numbers[id(node)], purpose))
        return None if offset is None else _scratch(offset, storage)

    # --- regions ----------------------------------------------------------------------------------------

    def load(self, stmt: Load) -> None:
        """Write a load: the tile is a window of the view where that is safe, else a copy."""
        window = self.moved(stmt)
        tile = self.types[stmt.tile]
        bounds = self._bounds(stmt.region)
        if stmt.rows is not None:
            bounds[0] = tile.rows
        too_large = [
            f"{window}.{extent} > {capacity}"
            for extent, capacity, bound in zip(FIELDS, tile.shape, bounds, strict=True)
            if bound is None or bound > capacity
        ]
        if too_large:
            message = f"a tile of {tile.rows} x {tile.cols} cannot hold this part of `{stmt.region.tensor}`"
            self.check(" || ".join(too_large), message, stmt.loc)
        if stmt.tile in self.memory.windows:
            self.out.line(f"{tile_name(stmt.tile)} = {window};")
            return
        how = "borrow" if stmt.tile in self.memory.in_place else "copy"
        if stmt.tile in self.memory.together:
            how = "bring_together"
        made, views = f"{how}({window}, {self.buffer(stmt.tile)})", self.memory.in_place.get(stmt.tile)
        if views:
            clear = " && ".join(f"apart(footprint({window}), {self._footprint(view)})" for view in views)
            made = f"{clear} ? {made} : copy({window}, {self.buffer(stmt.tile)})"
        self.out.line(f"{tile_name(stmt.tile)} = {made};")

    def _footprint(self, tensor: str) -> str:
        """Return the footprint of a whole view."""
        kind = self.kernel.param(tensor).type
        dims = kind.shape if isinstance(kind, TileType) else kind.dims if isinstance(kind, ViewType) else None
        assert dims is not None and kind.dtype is not None
        return f"footprint({view_name(tensor)}, {len(dims)}, {kind.dtype.itemsize})"

    def store_window(self, step: Step, stmt: Store) -> str:
        """Write the window of a store and the check that the tile fits it; return its name."""
        tile = tile_name(stmt.tile)
        window = self.moved(stmt)
        wrong = [f"{tile}.{FIELDS[a.dim]} != {window}.{FIELDS[a.dim]}" for a, _ in step.unequal]
        if wrong:
            message = f"the valid shape of the tile is not that of this part of `{stmt.region.tensor}`"
            self.check(" || ".join(wrong), message, stmt.loc)
        return window

    def prefetch(self, stmt: Prefetch) -> None:
        """Write what is needed soon: for the product that it is spread over, else all at once."""
        window = self.moved(stmt)
        if any(stmt is paired for paired in self.memory.ahead.values()):
            self._ahead[id(stmt)] = self.name("ahead")
            self.out.line(f"const Ahead {self._ahead[id(stmt)]}({window});")
        else:
            self.out.line(f"prefetch({window});")

    def has_ahead(self, instr: Instr) -> bool:
        """Return whether anything is prefetched while a product works, but what lies behind its operand."""
        return id(instr) in self.memory.ahead

    def ahead(self, instr: Instr) -> str:
        """Return what is prefetched while a product works."""
        return self._ahead[id(self.memory.ahead[id(instr)])] if self.has_ahead(instr) else "Ahead{}"

    def moved(self, stmt: Load | Store | Prefetch) -> str:
        """Write the window that a load or prefetch reads or a store writes; return its name."""
        window = self.window(stmt.region, stmt.loc)
        if stmt.rows is None:
            return window
        rows, picked = tile_name(stmt.rows), self.name("w")
        lies_along = rows_dim(self.types[stmt.rows])
        place = self.extra(self._alone[id(stmt)], "rows", "int32_t")
        self.out.line(f"const auto {picked} = pick({window}, {rows}, {rows}.{FIELDS[lies_along]}, {place});")
        message = f"a row outside `{stmt.region.tensor}` is named"
        self.check(f"{picked}.rows < 0", message, stmt.loc)
        return picked

    def _bounds(self, region: Region) -> list[int | None]:
        """Return the largest extents that a region can have, where they are known."""
        found: list[int | None] = []
        for dim, entry in enumerate(region.dims):
            limits = [self._extents.bound(region.tensor, dim)]
            if isinstance(entry, Range):
                limits.append(upper_bound(entry.extent))
            if not isinstance(entry, Index):
                found.append(min((n for n in limits if n is not None), default=None))
        return found

    def window(self, region: Region, loc: Location | None) -> str:
        """Write the window that a region selects, checked to lie inside its view; return its name."""
        view = view_name(region.tensor)
        index, offsets, shape = "nullptr", [], []
        for dim, entry in enumerate(region.dims):
            start, extent = self._select(region.tensor, dim, entry, loc)
            row = start
            if extent is not None:
                shape.append(extent)
            if dim == 0 and extent is None:
                row = f"({view}.rows ? {view}.rows[{start}] : {start})"
            elif dim == 0:
                index = f"({view}.rows ? {view}.rows + {start} : nullptr)" if start else f"{view}.rows"
                row = f"({view}.rows ? 0 : {start})" if start else ""
            if row:
                offsets.append(f"{row} * {view}.stride[{dim}]")
        stride, step = (f"{view}.stride[{dim}]" for dim in region.kept)
        if region.kept[1] == len(region.dims) - 1:
            step = "1"
        param = self.kernel.param(region.tensor)
        dtype = param.type.dtype
        assert dtype is not None
        storage = STORAGE[dtype.name]
        self.parts.add(moves(storage))
        data = " + ".join([f"static_cast<{storage}*>({view}.data)", *offsets])
        name = self.name("w")
        fields = f"{data}, {stride}, {step}, {index}, {shape[0]}, {shape[1]}"
        if param.role == OUT:
            fields += f", {view}.streams"
        self.out.line(f"const Window<{storage}> {name}{{{fields}}};")
        return name

    def _select(self, tensor: str, dim: int, entry: object, loc: Location | None) -> tuple[str, str | None]:
        """Return the start ("" for 0) and extent (None for an index) of one dimension of a region."""
        size = f"{view_name(tensor)}.shape[{dim}]"
        match entry:
            case Full():
                return "", size
            case Index(at=at):
                start, extent = self.value(at, loc), None
            case Range(start=first, extent=count):
                start = self.value(first, loc)
                extent = self.name("n")
                self.out.line(f"const int64_t {extent} = at_least_zero({self.value(count, loc)});")
            case _:
                raise AssertionError("tile ranges occur in workloads only")
        self.check(
            f"!inside({start}, {extent or 1}, {size})", f"`{tensor}` is indexed outside dimension {dim}", loc
        )
        return start, extent

    # --- valid shapes -----------------------------------------------------------------------------------

    def agree(self, step: Step, instr: Instr) -> None:
        """Write the check that operands have the valid shapes that their instruction asks for."""
        if step.unequal:
            wrong = [f"{self._valid(instr, a)} != {self._valid(instr, b)}" for a, b in step.unequal]
            message = f"the valid shapes of the operands of `{instr.op}` do not fit"
            self.check(" || ".join(wrong), message, instr.loc)

    def result(self, step: Step, instr: Instr) -> None:
        """Write where the result of an instruction is and what its valid shape is."""
        self.out.line(
            f"{tile_name(instr.dst)} = {{{self.buffer(instr.dst)}, {self.result_extents(step, instr)}}};"
        )

    def result_extents(self, step: Step, instr: Instr) -> str:
        """Return the valid rows and columns of the result of an instruction."""
        assert step.valid is not None
        rows, cols = (self._valid(instr, v) for v in step.valid)
        return f"{rows}, {cols}"

    def _valid(self, instr: Instr, valid: Valid) -> str:
        match valid:
            case ValidOf(name=name, dim=dim):
                return f"{tile_name(name)}.{FIELDS[dim]}"
            case Asked(dim=dim):
                return self._asked(instr, dim)
            case _:
                return f"int64_t{{{valid}}}"

    def _asked(self, instr: Instr, dim: int) -> str:
        """Return the valid extent that a fill or expand instruction is asked to make, checked."""
        asked = instr.attr(FIELDS[dim])
        capacity = self.types[instr.dst].shape[dim]
        if asked is None:
            return f"int64_t{{{capacity}}}"
        assert not isinstance(asked, str | int)
        count = self.value(asked, instr.loc)
        message = f"a tile with {capacity} {FIELDS[dim]} cannot have that many valid ones"
        self.check(f"{count} < 0 || {count} > {capacity}", message, instr.loc)
        return count


def _scratch(offset: int, storage: str) -> str:
    return f"at<{storage}>(context, {offset})"
