"""Kernels made by hand for tests of targets."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.scalar import Expr, const
from pto_wsp.isa.forms import result_type
from pto_wsp.isa.table import TABLE
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import ScalarType, TileType


def whole(view: str) -> Region:
    return Region(view, (Full(), Full()))


class KernelMaker:
    """Collects the statements of a kernel whose tensor parameters are tiles."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: list[k.Param] = []
        self.tiles: dict[str, TileType] = {}
        self.scalars: dict[str, ScalarType] = {}
        self.body: list[k.Stmt] = []

    def input(self, name: str, rows: int, cols: int, dtype: DType) -> str:
        """Declare an In tile and load it; return the tile."""
        kind = TileType(rows, cols, dtype)
        self.params.append(k.Param(name, k.IN, kind))
        self.tiles["t" + name] = kind
        self.body.append(k.Load("t" + name, whole(name)))
        return "t" + name

    def op(
        self,
        op: str,
        *tiles: str,
        dst: str = "",
        scalars: Sequence[object] = (),
        shape: tuple[int, int] | None = None,
        dtype: DType | None = None,
        **attrs: object,
    ) -> str:
        """Add an instruction; return its destination."""
        known = dict(attrs)
        if shape is not None:
            known["shape"] = shape
        if dtype is not None:
            known["dtype"] = dtype
        kind = result_type(TABLE[op].form, [self.tiles[t] for t in tiles], known)
        dst = dst or f"x{len(self.tiles)}"
        self.tiles[dst] = kind
        values = tuple(s if isinstance(s, Expr) else const(s) for s in scalars)
        self.body.append(k.Instr(op, dst, tiles, values, tuple(attrs.items())))
        return dst

    def store(self, tile: str, name: str) -> None:
        """Store a tile to a new Out parameter."""
        self.params.append(k.Param(name, k.OUT, self.tiles[tile]))
        self.body.append(k.Store(whole(name), tile))

    def done(self) -> k.KernelFunction:
        """Return the kernel."""
        tiles, scalars = tuple(self.tiles.items()), tuple(self.scalars.items())
        return k.KernelFunction(self.name, tuple(self.params), tiles, scalars, tuple(self.body))
