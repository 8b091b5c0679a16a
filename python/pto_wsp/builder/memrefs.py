"""What a kernel's memrefs are: from how it loads and stores them to parameters of the IR.

A memref without a shape is a row of tiles, one below the other, as wide as the tiles that are moved. Offsets
count whole tiles in the rows and elements in the columns.
"""

from __future__ import annotations

from pto_wsp.builder.steps import Memref
from pto_wsp.errors import BadOperand, MemrefShape, NotYetSupported
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.kernel import IN, INOUT, OUT
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import b1, i64
from pto_wsp.types.tile import TileType, ViewType

ZERO = Const(0)


@record
class MemrefAccess:
    """One load or store of a tile.

    Attributes:
        row: in tiles.
        col: in elements.
        is_rows: whether another tile names the rows.
    """

    tile: TileType
    row: Expr
    col: Expr
    is_store: bool
    is_rows: bool
    loc: Location

    @property
    def is_at_start(self) -> bool:
        """Whether the tile lies at the beginning of the memref."""
        return self.row == ZERO and self.col == ZERO and not self.is_rows


class MemrefUse:
    """How a kernel uses a memref.

    Attributes:
        accesses: its loads and stores.
        passed: types and roles of the parameters that it is given to in calls.
        elements: what reads one element of it, and where.
    """

    def __init__(self, name: str, memref: Memref) -> None:
        self.name = name
        self.memref = memref
        self.accesses: list[MemrefAccess] = []
        self.passed: list[tuple[TileType | ViewType, str]] = []
        self.elements: list[tuple[str, Location | None]] = []

    @property
    def role(self) -> str:
        """What the kernel does with it: a memref that nothing is loaded from and that is stored to is out."""
        is_read = any(not a.is_store for a in self.accesses) or any(role != OUT for _, role in self.passed)
        is_written = any(a.is_store for a in self.accesses) or any(role != IN for _, role in self.passed)
        return INOUT if is_read and is_written else OUT if is_written else IN

    def type(self) -> TileType | ViewType:
        """Return the type of the parameter.

        Raises:
            MemrefShape: its uses say too little, or disagree.
            BadOperand: an element of it is read, and it is stored to.
        """
        if self.elements and self.role != IN:
            found = f"`{self.name}`, which it stores to"
            expected = "a memref that the function only reads"
            op, loc = self.elements[0]
            raise BadOperand(op=op, expected=expected, found=found, loc=loc)
        declared = self.memref.shape
        if declared is not None and len(declared) != 2:
            feature = f"the memref `{self.name}` of {len(declared)} dimensions in an InCore function"
            raise NotYetSupported(feature=feature, detail="", advice="give it two", loc=self.memref.loc)
        shapes = {a.tile.shape for a in self.accesses}
        is_tile = (
            all(a.is_at_start for a in self.accesses) and len(shapes) == 1 and declared in (None, *shapes)
        )
        found = self._passed_type()
        if is_tile:
            rows, cols = shapes.pop()
            own: TileType | ViewType = TileType(rows, cols, self.memref.dtype)
        elif declared is not None:
            own = ViewType(self.memref.dtype, declared)
        elif self.accesses:
            own = ViewType(self.memref.dtype, (None, self._width()))
        elif found is not None:
            own = found
        elif self.elements:
            own = ViewType(self.memref.dtype, (None, None))
        else:
            expected = "a load, a store or a shape that says how large it is"
            raise MemrefShape(name=self.name, expected=expected, found="none", loc=self.memref.loc)
        if found is not None and found != own:
            raise MemrefShape(name=self.name, expected=str(found), found=str(own), loc=self.memref.loc)
        return own

    def _passed_type(self) -> TileType | ViewType | None:
        types = list(dict.fromkeys(type for type, _ in self.passed))
        if len(types) > 1:
            expected, found = str(types[0]), f"{types[1]} in another call"
            raise MemrefShape(name=self.name, expected=expected, found=found, loc=self.memref.loc)
        return types[0] if types else None

    def _width(self) -> int:
        first = self.accesses[0]
        for access in self.accesses:
            if access.col != ZERO:
                expected = "a shape, which says where the next row begins"
                raise MemrefShape(name=self.name, expected=expected, found="none", loc=access.loc)
            if access.tile.cols != first.tile.cols:
                expected = f"tiles of {first.tile.cols} columns, or a shape"
                found = f"{access.tile.cols} columns"
                notes = [("the other tile is moved here", first.loc)]
                raise MemrefShape(name=self.name, expected=expected, found=found, loc=access.loc, notes=notes)
        return first.tile.cols


def require_integers(
    name: str, memref: Memref, indices: tuple[Expr, ...], op: str, loc: Location | None
) -> None:
    """Raise BadOperand unless a memref has elements that are scalars, and these are indices of one."""
    rank = 2 if memref.shape is None else len(memref.shape)
    if not (memref.dtype.is_integer or memref.dtype is b1):
        expected, found = "a memref of integers", f"`{name}` of {memref.dtype}"
    elif len(indices) != rank or any(index.dtype is not i64 for index in indices):
        expected, found = f"{rank} integers after `{name}`", ", ".join(str(i.dtype) for i in indices)
    else:
        return
    raise BadOperand(op=op, expected=expected, found=found, loc=loc)


def box(access: MemrefAccess) -> tuple[Range, Range]:
    """Return the rows and columns of a memref that a tile lies in."""
    rows, cols = Const(access.tile.rows), Const(access.tile.cols)
    return Range(ir.mul(access.row, rows), rows), Range(access.col, cols)


def settled(region: Region, type: TileType | ViewType, is_rows: bool) -> Region:
    """Return the region of a parameter whose type is known: whole dimensions are whole.

    Args:
        region: a box.
        type: of the parameter.
        is_rows: whether another tile names the rows: then they are all of the view's.
    """
    if isinstance(type, TileType) or type.dims is None:
        return replace(region, dims=(Full(), Full()))
    rows, cols = (_settled(*pair) for pair in zip(region.dims, type.dims, strict=True))
    return replace(region, dims=(Full() if is_rows else rows, cols))


def _settled(dim: DimSelect, size: int | None) -> DimSelect:
    return Full() if size is not None and dim == Range(ZERO, Const(size)) else dim
