"""Compositions: instructions of the PTO ISA that are several rows of the table.

`.pto` text, function builders and `ptoisa` have a word for each. Kernels contain only the rows that it
becomes, in the order of `pto_wsp.lang.kernel.compositions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_wsp.isa.forms import FormError
from pto_wsp.isa.table import FLOATS, NUMBERS
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, f32, i8, i16, i32, u8, u16
from pto_wsp.types.tile import TileType

BLOCK = 32
"""Terms of a product that share a scale."""

_EXACT_IN_F32 = FLOATS | {i8, i16, u8, u16}


@record
class Composition:
    """One word for several rows.

    Attributes:
        name: the builder's method; in upper case after a `T`, the function of `ptoisa`.
        mnemonic: in `.pto` text.
        operands: the tile operands in order.
        rows: the rows that it becomes.
        rounds: whether it takes `rmode`, as `tcvt` does; then its destination says what it converts to.
        result: the type of the result, from those of the operands and the element type of the destination;
            raises FormError where they do not fit.
        doc: shapes, element types and meaning for the reference page.
    """

    name: str
    mnemonic: str
    operands: tuple[str, ...]
    rows: tuple[str, ...]
    rounds: bool
    result: Callable[[Sequence[TileType], DType], TileType]
    doc: str

    @property
    def stores(self) -> bool:
        """Whether it writes memory, not a tile."""
        return "store" in self.rows


def _require(name: str, tile: TileType, shape: tuple[int, int], dtypes: frozenset[DType]) -> None:
    if tile.shape != shape:
        expected, found = (f"[{rows}, {cols}]" for rows, cols in (shape, tile.shape))
        raise FormError("shape", f"`{name}` {expected}", found)
    if tile.dtype not in dtypes:
        expected = " or ".join(sorted(map(str, dtypes)))
        raise FormError("dtype", f"`{name}` of {expected}", str(tile.dtype))


def _scaled(tiles: Sequence[TileType], dtype: DType) -> TileType:
    source, fp = tiles
    _require("src", source, source.shape, NUMBERS)
    _require("fp", fp, (1, source.cols), frozenset({f32}))
    made = TileType(source.rows, source.cols, dtype)
    _require("dst", made, made.shape, NUMBERS)
    return made


def _multiplied(tiles: Sequence[TileType], dtype: DType) -> TileType:
    a, a_scale, b, b_scale = tiles
    if a.cols % BLOCK:
        expected = f"`a` with a multiple of {BLOCK} columns"
        raise FormError("shape", expected, f"[{a.rows}, {a.cols}]")
    blocks = a.cols // BLOCK
    _require("a", a, a.shape, _EXACT_IN_F32)
    _require("a_scale", a_scale, (a.rows, blocks), FLOATS)
    _require("b", b, (a.cols, b.cols), _EXACT_IN_F32)
    _require("b_scale", b_scale, (blocks, b.cols), FLOATS)
    return TileType(a.rows, b.cols, f32)


def _picked(tiles: Sequence[TileType], dtype: DType) -> TileType:
    source, offsets = tiles
    _require("src", source, source.shape, NUMBERS)
    _require("offsets", offsets, offsets.shape, frozenset({i32}))
    return TileType(offsets.rows, offsets.cols, source.dtype)


_SCALE = ("cvt", "colexpandmul")
_PRODUCT = ("cvt", "extract", "rowexpandmul", "colexpandmul", "matmul", "matmul_acc")
_PICK = ("bitwise_ands", "cmps", "shrs", "sels", "reshape", "take")

_MOV_FP = """\
dst[i, j] = src[i, j] * fp[0, j], converted to the destination's type. The product is in f32. Integers
saturate, NaN becomes 0, and without `rmode` it rounds to nearest even, as in `tcvt`."""
_STORE_FP = "view[i, j] = src[i, j] * fp[0, j], converted to the element type of the view."
_MATMUL_MX = f"""\
dst [M, N] of f32 = the sum over blocks of {BLOCK} terms of (a * a_scale) @ (b * b_scale), in f32. `a` [M, K]
and `b` [K, N] hold floats, or integers of 8 or 16 bits. `a_scale` [M, K / {BLOCK}] and `b_scale`
[K / {BLOCK}, N] hold floats. K is a multiple of {BLOCK}, and all of it is valid."""
_GATHERB = """\
dst[i, j] = the element at byte offsets[i, j] of `src` [R, C]. Row r begins at byte r * C * size. All C
columns must be valid. An offset outside the valid part, or inside an element, is a run-time error."""


def _entry(
    name: str,
    mnemonic: str,
    operands: str,
    rows: tuple[str, ...],
    result: Callable[[Sequence[TileType], DType], TileType],
    doc: str,
) -> Composition:
    rounds = result is _scaled
    text = " ".join(doc.split())
    return Composition(name, mnemonic, tuple(operands.split()), rows, rounds, result, text)


COMPOSITIONS: dict[str, Composition] = {
    c.name: c
    for c in (
        _entry("mov_fp", "tmov.fp", "src fp", _SCALE, _scaled, _MOV_FP),
        _entry("store_fp", "tstore.fp", "src fp", (*_SCALE, "store"), _scaled, _STORE_FP),
        _entry("matmul_mx", "tmatmul.mx", "a a_scale b b_scale", _PRODUCT, _multiplied, _MATMUL_MX),
        _entry("gatherb", "tgatherb", "src offsets", _PICK, _picked, _GATHERB),
    )
}
"""By name."""

BY_COMPOSED_MNEMONIC: dict[str, Composition] = {c.mnemonic: c for c in COMPOSITIONS.values()}
