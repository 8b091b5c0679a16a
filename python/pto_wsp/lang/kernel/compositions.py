"""From a composition to the rows of the instruction table."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.errors import DTypeMismatch, ShapeMismatch
from pto_wsp.ir import kernel as k
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.scalar import Const
from pto_wsp.isa import FormError
from pto_wsp.isa.compositions import BLOCK, Composition
from pto_wsp.lang.kernel.builder import Builder, Site, mismatch
from pto_wsp.lang.kernel.values import TileValue, Valid
from pto_wsp.types.dtype import DType, f32
from pto_wsp.types.tile import TileType


def compose(
    builder: Builder,
    composition: Composition,
    dst: TileValue,
    tiles: Sequence[TileValue],
    site: Site,
    rmode: str,
) -> None:
    """Append the rows of a composition; `dst` may be one of its operands.

    Args:
        builder: of the kernel.
        composition: of `store_fp` the rows before its store.
        dst: the tile to write.
        tiles: its operands.
        site: where it is written.
        rmode: how `mov_fp` rounds; empty where that is not said.

    Raises:
        ShapeMismatch, DTypeMismatch: the operands do not fit.
    """
    made = made_type(composition, tiles, dst.type.dtype, site)
    if made != dst.type:
        kind = ShapeMismatch if made.shape != dst.type.shape else DTypeMismatch
        raise kind(op=site.label, expected=str(made), found=str(dst.type), loc=site.loc)
    rows = _Rows(builder, site)
    match composition.name:
        case "mov_fp" | "store_fp":
            rows.scale(dst, *tiles, rmode=rmode)
        case "matmul_mx":
            rows.multiply(dst, *tiles)
        case "gatherb":
            rows.pick(dst, *tiles)
        case name:
            raise AssertionError(name)


def composed(
    builder: Builder,
    composition: Composition,
    tiles: Sequence[TileValue],
    dtype: DType,
    site: Site,
    rmode: str,
) -> TileValue:
    """Append the rows of a composition into a new tile, of `dtype` where that is chosen; as `compose`."""
    made = builder.tile(site.hint, made_type(composition, tiles, dtype, site))
    compose(builder, composition, made, tiles, site, rmode)
    return made


def made_type(composition: Composition, tiles: Sequence[TileValue], dtype: DType, site: Site) -> TileType:
    """Return the type of the result of a composition, with `dtype` if it is given.

    Raises:
        ShapeMismatch, DTypeMismatch: the operands do not fit.
    """
    try:
        return composition.result([t.type for t in tiles], dtype)
    except FormError as error:
        raise mismatch(error, site) from None


class _Rows:
    """Appends rows; a result other than the destination is a new tile."""

    def __init__(self, builder: Builder, site: Site) -> None:
        self.builder = builder
        self.site = site.inner

    def row(
        self, op: str, *tiles: TileValue, by: int | None = None, into: TileValue | None = None
    ) -> TileValue:
        """Append a row without attributes; `by` is its scalar, an integer."""
        scalars = () if by is None else (Const(by),)
        return self.builder.instruction(op, tiles, scalars, self.site, into=into)

    def wide(self, tile: TileValue) -> TileValue:
        """Return a tile in f32."""
        if tile.type.dtype is f32:
            return tile
        return self.builder.instruction("cvt", [tile], (), self.site, dtype=f32)

    def shaped(
        self, op: str, tile: TileValue, shape: tuple[int, int], valid: Valid, into: TileValue | None = None
    ) -> TileValue:
        """Append a row whose result has a shape of its own."""
        return self.builder.instruction(op, [tile], (), self.site, shape=shape, valid=valid, into=into)

    # --- the compositions ---

    def scale(self, dst: TileValue, source: TileValue, fp: TileValue, rmode: str) -> None:
        """Append `mov_fp`."""
        dtype: DType = dst.type.dtype
        if dtype is f32 and not rmode:
            self.row("colexpandmul", self.wide(source), fp, into=dst)
            return
        scaled = self.row("colexpandmul", self.wide(source), fp)
        mode = rmode or ("" if dtype.is_float else "rint")
        flags = [("rmode", mode)] if mode else []
        self.builder.instruction("cvt", [scaled], (), self.site, flags=flags, dtype=dtype, into=dst)

    def multiply(
        self, dst: TileValue, a: TileValue, a_scale: TileValue, b: TileValue, b_scale: TileValue
    ) -> None:
        """Append `matmul_mx`, which reads its operands before it writes the destination."""
        is_read = dst in (a, a_scale, b, b_scale)
        total = self.builder.tile(dst.name, dst.type) if is_read else dst
        self.builder.slot(total.name)
        wides = [self.wide(tile) for tile in (a, a_scale, b, b_scale)]
        for block in range(a.type.cols // BLOCK):
            left, right = self.block(block, *wides)
            if block:
                self.row("matmul_acc", total, left, right, into=total)
            else:
                self.row("matmul", left, right, into=total)
        if is_read:
            self.row("mov", total, into=dst)

    def block(
        self, number: int, a: TileValue, a_scale: TileValue, b: TileValue, b_scale: TileValue
    ) -> tuple[TileValue, TileValue]:
        """Return the scaled operands of one block of terms."""
        first = number * BLOCK
        left = self.part(a, 0, first, (a.type.rows, BLOCK), (a.valid[0], Const(BLOCK)))
        left_scale = self.part(a_scale, 0, number, (a.type.rows, 1), (a_scale.valid[0], Const(1)))
        right = self.part(b, first, 0, (BLOCK, b.type.cols), (Const(BLOCK), b.valid[1]))
        right_scale = self.part(b_scale, number, 0, (1, b.type.cols), (Const(1), b_scale.valid[1]))
        return self.row("rowexpandmul", left, left_scale), self.row("colexpandmul", right, right_scale)

    def part(self, tile: TileValue, row: int, col: int, shape: tuple[int, int], valid: Valid) -> TileValue:
        """Append `extract`."""
        flags: list[tuple[str, k.AttrValue]] = []
        flags += [(name, Const(at)) for name, at in (("row", row), ("col", col)) if at]
        return self.builder.instruction(
            "extract", [tile], (), self.site, flags=flags, shape=shape, valid=valid
        )

    def pick(self, dst: TileValue, source: TileValue, offsets: TileValue) -> None:
        """Append `gatherb`: an offset inside of an element becomes the index -1, outside of the row."""
        (rows, cols), size = source.type.shape, source.type.dtype.itemsize
        line = self.shaped(
            "reshape", source, (1, rows * cols), (Const(1), ir.mul(source.valid[0], Const(cols)))
        )
        index = offsets
        if size > 1:
            rest = self.row("bitwise_ands", offsets, by=size - 1)
            flags = [("mode", "eq")]
            starts = self.builder.instruction("cmps", [rest], (Const(0),), self.site, flags=flags)
            index = self.row("sels", starts, self.row("shrs", offsets, by=size.bit_length() - 1), by=-1)
        rows, cols = offsets.type.shape
        count = ir.mul(offsets.valid[0], offsets.valid[1])
        flat = self.shaped("reshape", index, (1, rows * cols), (Const(1), count))
        self.shaped("reshape", self.row("take", line, flat), (rows, cols), offsets.valid, into=dst)
