"""The tiles of a kernel of a vector core: variables of the library, and moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pto_wsp.analysis.steps import rows_dim
from pto_wsp.ir.kernel import KernelFunction, Load, Prefetch, Store, walk_statements
from pto_wsp.targets.ascend.core import CoreCode
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.hazards import LOAD, SCALAR, STORE, VECTOR, Touched
from pto_wsp.targets.ascend.memory import (
    SELECT_BYTES,
    assign_memory,
    broadcast_scratch,
    physical_bytes,
    physical_shape,
)
from pto_wsp.targets.ascend.repeated_rows import periods
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name
from pto_wsp.types.dtype import DType, b1
from pto_wsp.types.tile import TileType

Operand = tuple[str, str | Touched | tuple[Touched, ...]]
Operands = dict[str, Operand]
_OPERAND = re.compile(r"\{(\w+)\}")


class VectorTiles(CoreCode):
    """The tiles of one kernel while its calls are written.

    A tile is a variable of the library that has the memory of the tile. A tile of one column has two: `c_`
    is a column, for broadcasts and sums of rows, and `r_` is the same bytes as a row, for arithmetic.

    Args:
        kernel: with a body.
        generation: what it is written for.
        draft: the kernel as it was written before, which knows the flags and the variables; or None.

    Attributes:
        memory: where the tiles are.
        has_elements: whether the scalar unit reads or writes elements so far.
    """

    def __init__(
        self, kernel: KernelFunction, generation: Generation, draft: VectorTiles | None = None
    ) -> None:
        super().__init__(kernel, generation, draft)
        self.memory = assign_memory(kernel, generation)
        self._periods = periods(kernel)
        self.has_elements = False

    # --- instructions on the vector pipe ----------------------------------------------------------------

    def access(self, name: str) -> Touched:
        """Return the bytes of a tile."""
        start = self.memory.offsets[name]
        return Touched("ub", start, start + physical_bytes(self.types[name]), self._shift(name))

    def _shift(self, name: str) -> int:
        return self.memory.shifts.get(name, 0)

    def vector(self, template: str, guard: str, tiles: Mapping[str, Operand], **texts: str) -> None:
        """Write a vector instruction.

        Args:
            template: a call whose first tile is written, with the keys of `tiles` and `texts` in braces.
            guard: the tile without whose elements there is nothing to do.
            tiles: per key, the variable of a tile, and its name or bytes; the temporary tile has the name "".
            texts: other operands.
        """
        keys = [key for key in _OPERAND.findall(template) if key in tiles]
        written = {0, *(i for i, key in enumerate(keys) if key == "t")}
        accesses = [
            (i in written, access) for i, key in enumerate(keys) for access in self._bytes(tiles[key])
        ]
        reads = tuple(access for is_written, access in accesses if not is_written)
        writes = tuple(access for is_written, access in accesses if is_written)
        if template.startswith("TROWEXPAND"):
            writes += broadcast_scratch(self.generation)
        known = texts | {key: variable for key, (variable, _) in tiles.items()}
        call = _OPERAND.sub(lambda found: known[found[1]], template)
        self.issue(VECTOR, call, f"{tile_name(guard)}.has_elements()", reads, writes)

    def _bytes(self, operand: Operand) -> tuple[Touched, ...]:
        """Return what an instruction touches of an operand."""
        _, name = operand
        if isinstance(name, tuple):
            return name
        if isinstance(name, Touched):
            return (name,)
        if name:
            return (self.access(name),)
        return (Touched("ub", self.memory.scratch, self.memory.total_bytes),)

    # --- variables --------------------------------------------------------------------------------------

    def row_variable(self, name: str) -> str:
        """Return the variable of a tile for arithmetic."""
        tile = self.types[name]
        variable = f"{'r' if tile.cols == 1 else 'v'}_{tile_name(name)}"
        return self._row(variable, tile, self.memory.offsets[name], self._shift(name))

    def column_variable(self, name: str) -> str:
        """Return the variable of a tile of one column as a column."""
        tile, variable = self.types[name], f"c_{tile_name(name)}"
        kind = f"Column<{STORAGE[tile.dtype.name]}, {physical_shape(tile)[1]}>"
        line = f"{kind} {variable}({tile.rows});"
        self.declare(variable, line, self.memory.offsets[name], self._shift(name))
        return variable

    def scratch_variable(self, like: str) -> str:
        """Return the temporary tile, of the shape of another tile, with its valid shape."""
        tile = self.types[like]
        variable = f"tmp_{tile.dtype}_{tile.rows}_{tile.cols}"
        self._row(variable, tile, self.memory.scratch)
        self._resize(variable, like)
        return variable

    def elements(self, name: str) -> str:
        """Return the elements of a tile as the scalar unit reads and writes them."""
        self.has_elements = True
        is_column = str(self.types[name].cols == 1).lower()
        return f"elements({self.row_variable(name)}, {tile_name(name)}, {is_column})"

    def _row(self, variable: str, tile: TileType, address: int, shift: int = 0) -> str:
        rows, cols = physical_shape(tile)
        kind = f"Matrix<{STORAGE[tile.dtype.name]}, {rows}, {cols}>"
        self.declare(variable, f"{kind} {variable}({rows}, {cols});", address, shift)
        return variable

    def _resize(self, variable: str, like: str) -> None:
        extents = tile_name(like)
        if self.types[like].dtype is b1:
            rows, cols = physical_shape(self.types[like])
            sizes = f"{rows if self.types[like].cols == 1 else f'{extents}.rows'}, {cols}"
            self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape({sizes});")
            return
        sizes = f"1, {extents}.rows" if self.types[like].cols == 1 else f"{extents}.rows, {extents}.cols"
        self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape({sizes});")

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has these valid extents."""
        super().set_tile(name, extents)
        known = self._draft.variables if self._draft else self.variables
        row = f"{'r' if self.types[name].cols == 1 else 'v'}_{tile_name(name)}"
        if row in known:
            self._resize(row, name)
        if f"c_{tile_name(name)}" in known:
            guard = f"if ({tile_name(name)}.has_elements()) "
            self.out.line(f"{guard}c_{tile_name(name)}.SetValidRow({tile_name(name)}.rows);")

    def _fixed_row(self, stem: str, dtype: DType, cols: int, address: int) -> Operand:
        """Return the variable and the bytes of a row at an address, all of it valid."""
        variable = f"{stem}{cols}_{address:x}"
        line = f"Matrix<{STORAGE[dtype.name]}, 1, {cols}> {variable}(1, {cols});"
        self.declare(variable, line, address)
        return variable, Touched("ub", address, address + cols * dtype.itemsize)

    def _select_scratch(self) -> Operand:
        """Return the temporary tile of a select."""
        variable, address = "tmp_select", self.memory.scratch
        self.declare(variable, f"Matrix<uint32_t, 1, 16> {variable}(1, 16);", address)
        return variable, Touched("ub", address, address + SELECT_BYTES)

    # --- moves ------------------------------------------------------------------------------------------

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write the window of the rows that a tile names, or that repeat."""
        assert stmt.rows is not None
        picked = self.name("w")
        if self._repeats(stmt):
            rows = f"{tile_name(stmt.rows)}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
            self.out.line(f"const auto {picked} = repeated({window}, {self._periods[stmt.rows]}, {rows});")
            return picked
        call = f"const auto {picked} = named({window}, {self.elements(stmt.rows)})"
        self.issue(SCALAR, call, "", (self.access(stmt.rows),), ())
        return picked

    def row_outside(self, stmt: Load | Store | Prefetch, window: str) -> Sequence[str]:
        """Return the first row outside of a window that a tile names, and the rows of the window."""
        if stmt.rows is None or self._repeats(stmt):
            return ()
        return f"first_outside({window}, {self.elements(stmt.rows)})", f"{window}.rows"

    def _repeats(self, stmt: Load | Store | Prefetch) -> bool:
        return not isinstance(stmt, Store) and stmt.rows in self._periods

    def load(self, stmt: Load, window: str) -> None:
        """Write a load of a window that is known to fit the tile."""
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
        self._move("Load", stmt, window)

    def store(self, stmt: Store, window: str) -> None:
        """Write a store to a window of the tile's valid shape."""
        self._move("Store", stmt, window)

    def _move(self, verb: str, stmt: Load | Store, window: str) -> None:
        tile, tensor = (self.access(stmt.tile),), self.in_tensor(stmt.region)
        pipe, reads, writes = (LOAD, tensor, tile) if verb == "Load" else (STORE, tile, tensor)
        is_named = stmt.rows is not None and not self._repeats(stmt)
        address = self.address(self.memory.offsets[stmt.tile], self._shift(stmt.tile))
        arguments = f"{self.row_variable(stmt.tile)}, {address}, {window}"
        self.require_rows(stmt)
        if is_named and self.types[stmt.tile].cols == 1:
            self._load_elements(stmt, window)
            return
        if self.types[stmt.tile].cols == 1:
            self.require_column(stmt, window)
            call = f"move_column<{verb}>({self.row_variable(stmt.tile)}, {window})"
        elif is_named:
            assert stmt.rows is not None
            call = f"move_named<{verb}>({arguments}, {self.elements(stmt.rows)})"
        else:
            call = f"move<{verb}>({arguments})"
        picks = (self.access(stmt.rows),) if is_named and stmt.rows else ()
        self.issue(pipe, call, f"{tile_name(stmt.tile)}.has_elements()", reads, writes, picks)

    def _load_elements(self, stmt: Load | Store, window: str) -> None:
        """Write a load of one element of each row that a tile names: rows of the buffer are whole blocks."""
        assert stmt.rows is not None
        stored = {s.region.tensor for s in walk_statements(self.kernel.body or ()) if isinstance(s, Store)}
        if stmt.region.tensor in stored:
            what = f"a move of single elements of `{stmt.region.tensor}`, which the kernel stores to"
            raise self.refused(what, "move 32 bytes of each row, and extract the column", stmt.loc)
        call = f"load_elements({self.elements(stmt.tile)}, {window}, {self.elements(stmt.rows)})"
        self.issue(SCALAR, call, "", (self.access(stmt.rows),), (self.access(stmt.tile),))
