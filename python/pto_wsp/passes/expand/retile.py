"""Make a kernel for larger tiles.

    %a = tload %x[:, :] : tile<32x128xf32>    ->    %a = tload %x[:, :] : tile<64x128xf32>

The dimensions that grow are classes of `analysis/dimensions.py`. A *periodic* view stays as it is: its rows
repeat in the larger tile, as if the kernel ran once per tile of the old size.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pto_wsp.analysis.dimensions import Dim, DimensionClasses
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Range, Region
from pto_wsp.ir.names import kernel_names
from pto_wsp.ir.scalar import Const
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import i32
from pto_wsp.types.tile import ScalarType, TileType, ViewType


def retile(
    kernel: k.KernelFunction,
    name: str,
    factor: int,
    classes: DimensionClasses,
    growing: AbstractSet[Dim],
    periodic: AbstractSet[str],
) -> k.KernelFunction:
    """Return a kernel for tiles that are `factor` times as large in some dimensions.

    Args:
        kernel: a kernel whose tiles are moved as a whole.
        name: of the new kernel.
        factor: how many times as large.
        classes: the classes of its dimensions.
        growing: the classes that grow, each by its representative.
        periodic: views whose rows repeat.
    """
    return _Retiling(kernel, factor, classes, growing, periodic).run(name)


class _Retiling:
    def __init__(
        self,
        kernel: k.KernelFunction,
        factor: int,
        classes: DimensionClasses,
        growing: AbstractSet[Dim],
        periodic: AbstractSet[str],
    ) -> None:
        self.kernel = kernel
        self.factor = factor
        self.growing = growing
        self.periodic = periodic
        self.classes = classes
        self.old = dict(kernel.tiles)
        self.fresh = Fresh(kernel_names(kernel))
        self.periods: dict[int, str] = {}

    def run(self, name: str) -> k.KernelFunction:
        tiles = {tile: self.tile_type(tile, kind) for tile, kind in self.old.items()}
        params = tuple(self.param(param) for param in self.kernel.params)
        body = self.statements(self.kernel.body or ())
        first: list[k.Stmt] = []
        for rows, period in self.periods.items():
            tiles[period] = TileType(1, rows * self.factor, i32)
            first.append(k.Instr("iota", period, (), (Const(0),)))
            first.append(k.Instr("rems", period, (period,), (Const(rows),)))
        return replace(
            self.kernel, name=name, params=params, tiles=tuple(tiles.items()), body=(*first, *body)
        )

    def grows(self, dim: Dim) -> bool:
        return self.classes.of(dim) in self.growing

    def tile_type(self, name: str, kind: TileType, is_view: bool = False) -> TileType:
        rows, cols = (
            size * self.factor if self.grows(Dim(name, dim, is_view)) else size
            for dim, size in enumerate(kind.shape)
        )
        return replace(kind, rows=rows, cols=cols)

    def param(self, param: k.Param) -> k.Param:
        if param.name in self.periodic or isinstance(param.type, ScalarType):
            return param
        if isinstance(param.type, TileType):
            return replace(param, type=self.tile_type(param.name, param.type, is_view=True))
        dims = tuple(
            size * self.factor if size is not None and self.grows(Dim(param.name, dim, True)) else size
            for dim, size in enumerate(param.type.dims or ())
        )
        return replace(param, type=ViewType(param.type.dtype, dims))

    def statements(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        return tuple(self.statement(stmt) for stmt in body)

    def statement(self, stmt: k.Stmt) -> k.Stmt:
        match stmt:
            case k.Load(tile=tile, region=region) if region.tensor in self.periodic and self.grows(
                Dim(tile, 0)
            ):
                return replace(stmt, rows=self.period(self.old[tile].rows))
            case k.Load(region=region) | k.Store(region=region) | k.Prefetch(region=region):
                return replace(stmt, region=self.region(region))
            case _:
                return k.rebuild(stmt, self.statements)

    def region(self, region: Region) -> Region:
        dims = (self.select(region.tensor, dim, entry) for dim, entry in enumerate(region.dims))
        return replace(region, dims=tuple(dims))

    def select(self, view: str, dim: int, entry: DimSelect) -> DimSelect:
        if isinstance(entry, Range) and view not in self.periodic and self.grows(Dim(view, dim, True)):
            assert isinstance(entry.extent, Const)
            return replace(entry, extent=Const(int(entry.extent.value) * self.factor))
        return entry

    def period(self, rows: int) -> str:
        """Return the tile that numbers the rows of a larger tile from 0 to `rows`, again and again."""
        if rows not in self.periods:
            self.periods[rows] = self.fresh.name(f"period_{rows}")
        return self.periods[rows]
