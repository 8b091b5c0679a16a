"""Products that widen their right operand themselves.

    %w = tload ...                              %w = tload ...
    %f = tcvt %w : i8 -> f32            ->
    %c = tmatmul %x, %f                         %c = tmatmul %x, %w

A product widens small elements in registers, with the same bits as a conversion before it. Without the
conversion, memory is read where it lies, and no tile of f32 is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_wsp.ir.effects import names_in, names_read, tile_written
from pto_wsp.ir.kernel import (
    Instr,
    KernelFunction,
    Load,
    Stmt,
    rebuild,
    statement_expressions,
    walk_statements,
)
from pto_wsp.isa.forms import factors
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import replace
from pto_wsp.targets.cpu.memory import is_right_operand
from pto_wsp.types.dtype import DType, bf16, f16, f32, i8

SMALL = (i8, f16, bf16)
"""Element types that products widen."""


def without_conversions(kernel: KernelFunction) -> KernelFunction:
    """Return the kernel with its products reading what was converted to f32 for them alone."""
    if not kernel.body:
        return kernel
    return _Widening(kernel).run()


class _Widening:
    def __init__(self, kernel: KernelFunction) -> None:
        self.kernel = kernel
        self.types = dict(kernel.tiles)
        statements = list(walk_statements(kernel.body or ()))
        self.writers = Counter(tile_written(stmt) for stmt in statements)
        # The rows of a gathered operand are added in another order than those of a tile.
        self.gathered = {s.tile for s in statements if isinstance(s, Load) and s.rows is not None}
        self.readers: dict[str, list[Stmt]] = {}
        for stmt in statements:
            for name in names_read(stmt):
                self.readers.setdefault(name, []).append(stmt)
        self.sources: dict[str, str] = {}

    def run(self) -> KernelFunction:
        body = self.body(self.kernel.body or ())
        tiles = tuple((name, kind) for name, kind in self.kernel.tiles if name not in self.sources)
        return replace(self.kernel, tiles=tiles, body=body)

    def body(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        for position, stmt in enumerate(body):
            if isinstance(stmt, Instr) and self.is_left_out(stmt, body[position + 1 :]):
                self.sources[stmt.dst] = stmt.tiles[0]
        rebuilt = (rebuild(stmt, self.body) for stmt in body)
        return tuple(self.reading_sources(s) for s in rebuilt if tile_written(s) not in self.sources)

    def is_left_out(self, stmt: Instr, after: Sequence[Stmt]) -> bool:
        """Return whether a statement converts what products after it, in its own body, can widen."""
        if stmt.op != "cvt" or stmt.attr("rmode") or self.types[stmt.dst].dtype is not f32:
            return False
        source, readers = stmt.tiles[0], self.readers.get(stmt.dst, [])
        if self.types[source].dtype not in SMALL or source in self.gathered or not readers:
            return False
        if self.writers[source] != 1 or self.writers[stmt.dst] != 1:
            return False
        following = {id(other) for other in after}
        dtype = self.types[source].dtype
        return all(id(r) in following and self.can_widen(r, stmt.dst, dtype) for r in readers)

    def can_widen(self, stmt: Stmt, tile: str, dtype: DType) -> bool:
        """Return whether a statement reads a tile as the right operand of a product, and gives equal bits."""
        if not is_right_operand(tile, stmt) or tile in names_in(*statement_expressions(stmt)):
            return False
        assert isinstance(stmt, Instr)
        left = self.types[factors(TABLE[stmt.op].form, stmt.tiles)[0]].dtype
        return dtype is not bf16 or left is not bf16  # whose products are added in pairs

    def reading_sources(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Instr):
            return stmt
        return replace(stmt, tiles=tuple(self.sources.get(tile, tile) for tile in stmt.tiles))
