"""The C++ of one kernel except the shared writer: memory, moves and scalars as vectors."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.steps import rows_dim, scalar_tile
from pto_wsp.ir.kernel import OUT, Instr, KernelFunction, Load, Prefetch, Print, Store, Words
from pto_wsp.ir.scalar import Expr
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.kernel import KernelWriter
from pto_wsp.targets.c_style.plan import Alone, Node, steps_of, walk_nodes
from pto_wsp.targets.c_style.spelling import FIELDS, c_string, scalar_type, tile_name, view_name
from pto_wsp.targets.cpu.memory import assign_memory, row_stride
from pto_wsp.targets.cpu.parts import Instances, moves
from pto_wsp.targets.cpu.spelling import CppSpelling
from pto_wsp.targets.cpu.templates import HEADERS, ROUNDING, STORAGE, lane_type, vector_type
from pto_wsp.types.tile import TileType, ViewType

_STEP_COST, _MATH_COST = 3, 12


class KernelCode(KernelWriter):
    """The C++ of one kernel while it is written.

    Attributes:
        lanes: 32-bit lanes of a vector.
        memory: places of the kernel's tiles.
        parts: what the kernel calls that is compiled apart from it.
    """

    def __init__(self, kernel: KernelFunction, lanes: int, out: TextWriter) -> None:
        super().__init__(kernel, CppSpelling(), out)
        self.lanes = lanes
        self.memory = assign_memory(kernel, self.nodes, lanes)
        self.parts: set[Instances] = set()
        self._alone = {id(node.step.stmt): node for node in walk_nodes(self.nodes) if isinstance(node, Alone)}
        self._node_numbers = {id(node): i for i, node in enumerate(walk_nodes(self.nodes))}
        self._ahead: dict[int, str] = {}

    def tile(self, name: str) -> str:
        """Return the type of a tile's variable."""
        return f"{'Window' if name in self.memory.windows else 'Tile'}<{self.storage(name)}>"

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has its own memory and these valid extents."""
        self.out.line(f"{tile_name(name)} = {{{self.buffer(name)}, {extents}}};")

    def begin(self) -> None:
        """Write what makes stores past the caches visible before the kernel returns."""
        write_fence(self.kernel, self.out)

    @property
    def cost(self) -> int:
        """How long the kernel takes to compile: a node is 1, its steps and their mathematics come on top.

        Against the length of the code of 1,284 kernels, nodes and steps explain 98 % of the variance.
        """
        nodes = [*walk_nodes(self.nodes)]
        stmts = [step.stmt for node in nodes for step in steps_of(node)]
        num_math = sum(isinstance(stmt, Instr) and HEADERS.get(stmt.op) == "math" for stmt in stmts)
        return len(nodes) + _STEP_COST * len(stmts) + _MATH_COST * num_math

    def node_of(self, instr: Instr) -> Alone:
        """Return the node of an instruction that has code of its own."""
        return self._alone[id(instr)]

    def scalar_operand(self, expr: Expr, instr: Instr, narrow: str = "") -> str:
        """Write a scalar operand as a vector of the tile's type; return its name.

        It is rounded to a float type, and checked to lie in the range of an integer one.
        """
        dtype = self.types[scalar_tile(instr)].dtype
        text = self.scalar(expr, instr)
        if dtype.is_float:
            vector = ROUNDING.get(dtype.name, "{0}").format(f"splat(static_cast<float>({text}))")
        elif dtype.kind == "b":
            vector = f"splat({text} != 0)" if scalar_type(expr.dtype) != "bool" else f"splat({text})"
        else:
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
        """Return a pointer to memory of a node other than its tiles, or None if it has none for that."""
        offset = self.memory.extra.get((self._node_numbers[id(node)], purpose))
        return None if offset is None else _scratch(offset, storage)

    # --- moves ------------------------------------------------------------------------------------------

    def moved(self, stmt: Load | Store | Prefetch) -> str:
        """Write the window that a statement moves; return its name."""
        dtype = self.kernel.param(stmt.region.tensor).type.dtype
        assert dtype is not None
        self.parts.add(moves(STORAGE[dtype.name]))
        return super().moved(stmt)

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write the window of the rows of another one that `stmt.rows` names; return its name."""
        assert stmt.rows is not None
        rows, picked = tile_name(stmt.rows), self.name("w")
        lies_along = rows_dim(self.types[stmt.rows])
        place = self.extra(self._alone[id(stmt)], "rows", "int32_t")
        self.out.line(f"const auto {picked} = pick({window}, {rows}, {rows}.{FIELDS[lies_along]}, {place});")
        return picked

    def row_outside(self, stmt: Load | Store | Prefetch, window: str) -> Sequence[str]:
        """Return the first row outside of a window that `stmt.rows` names, and the rows of the window."""
        assert stmt.rows is not None
        rows = tile_name(stmt.rows)
        count = f"{rows}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
        return f"first_outside({rows}, {count}, {window}.rows)", f"{window}.rows"

    def load(self, stmt: Load, window: str) -> None:
        """Write a load: the tile is a window of the view where that is safe, else a copy."""
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

    def store(self, stmt: Store, window: str) -> None:
        """Write a store."""
        self.out.line(f"write({window}, {tile_name(stmt.tile)});")

    def prefetch(self, stmt: Prefetch, window: str) -> None:
        """Write what is needed soon: for the product that it is spread over, else in one go."""
        if any(stmt is paired for paired in self.memory.ahead.values()):
            self._ahead[id(stmt)] = self.name("ahead")
            self.out.line(f"const Ahead {self._ahead[id(stmt)]}({window});")
        else:
            self.out.line(f"prefetch({window});")

    def print(self, stmt: Print) -> None:
        """Write the call that prints the parts of a statement."""
        parts = [self._printed(part, stmt) for part in stmt.parts]
        name = self.name("parts")
        self.out.line(f"const Printed {name}[] = {{{', '.join(parts)}}};")
        self.out.line(f"print(context, {c_string(self.kernel.name)}, {name});")

    def _printed(self, part: Words | str | Expr, stmt: Print) -> str:
        if isinstance(part, Words):
            return f"printed({c_string(part.text)})"
        if isinstance(part, str):
            return f"printed(DType::{self.types[part].dtype.name}, {tile_name(part)})"
        return f"printed({self.value(part, stmt.loc)})"

    def has_ahead(self, instr: Instr) -> bool:
        """Return whether anything is prefetched while a product works, except what follows its operand."""
        return id(instr) in self.memory.ahead

    def ahead(self, instr: Instr) -> str:
        """Return what is prefetched while a product works."""
        return self._ahead[id(self.memory.ahead[id(instr)])] if self.has_ahead(instr) else "Ahead{}"


def write_fence(kernel: KernelFunction, out: TextWriter) -> None:
    """Write what makes stores past the caches visible before the kernel returns."""
    outputs = [f"views[{i}].streams" for i, param in enumerate(kernel.views) if param.role == OUT]
    if outputs:
        out.line(f"const StoreFence fence({' || '.join(outputs)});")


def _scratch(offset: int, storage: str) -> str:
    return f"at<{storage}>(context, {offset})"
