"""Quantised matrices: the formats, and how the bytes of a packed matrix lie in memory.

An element of a matrix [K, N] is `(q - zero) * scale + minimum`. Its number q has a few bits. Elements of a
column in a group share the scale and the minimum, or the scale and the zero.

A packed matrix is an array `[panels, blocks, cols * column_bytes]` of u8: `cols` columns of N are a panel,
and `block` rows of K are a block. A block holds, in this order, each for all columns of its panel:

1. Quads: 32 bits per column with the numbers of four rows. Of 8 bits, quad t has rows 4t to 4t + 3. Of fewer,
   it has the low 4 bits of rows 4t to 4t + 3 of 32 rows in its low nibbles, and those of the rows 16 below in
   its high ones.
2. Of 6 bits, two quads per 32 rows with the high 2 bits: bits 2f and 2f + 1 of quad h are of the rows from
   8f + 4h on.
3. Scales per group, then minima per group: f16; or in two levels integers of 8 bits per group, then f16 per
   block, and the same for minima, which are subtracted. Zeros per group are bytes after the scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pto_wsp.support.record import record

CHUNK = 32
"""Rows whose quads lie together."""

OWN_ZEROS = -1
"""`Format.zero` of formats in which every group has its own number of the value 0."""

Array = np.ndarray


@record
class Format:
    """How the elements of a quantised matrix are stored.

    Attributes:
        name: in programs and in `.pto` text; those of GGUF have GGUF's names.
        bits: of a number: 4, 6 or 8.
        zero: the number of the value 0, where there are no minima; `OWN_ZEROS`: groups have theirs.
        group: rows of a column that share a scale.
        has_minimum: groups have a minimum.
        level: element type of a group's scale where blocks have another, `u1` or `i1`; empty where the scale
            of a group is an f16.
    """

    name: str
    bits: int
    zero: int
    group: int
    has_minimum: bool = False
    level: str = ""

    @property
    def has_zeros(self) -> bool:
        """Groups have their own numbers of the value 0."""
        return self.zero == OWN_ZEROS

    @property
    def block(self) -> int:
        """Rows that lie together."""
        return 256 if self.level else max(CHUNK, self.group)

    @property
    def groups(self) -> int:
        """Groups of a block."""
        return self.block // self.group

    @property
    def quads(self) -> int:
        """Quads of a column of a block, those of high bits not counted."""
        return self.block // (4 if self.bits == 8 else 8)

    @property
    def column_bytes(self) -> int:
        """Bytes of a column of a block."""
        numbers = self.block * self.bits // 8
        scales = (self.groups + 2 if self.level else 2 * self.groups) * (1 + self.has_minimum)
        return numbers + scales + self.groups * self.has_zeros

    def __str__(self) -> str:
        return self.name


def _own(bits: int, group: int, *, has_minimum: bool = False) -> Format:
    zero = 0 if has_minimum else 1 << (bits - 1)
    return Format(f"i{bits}g{group}{'m' * has_minimum}", bits, zero, group, has_minimum)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("q8_0", 8, 128, 32),
        Format("q4_0", 4, 8, 32),
        Format("q4_1", 4, 0, 32, has_minimum=True),
        Format("q4_k", 4, 0, 32, has_minimum=True, level="u1"),
        Format("q6_k", 6, 32, 16, level="i1"),
        *(_own(8, group) for group in (16, 64, 128)),
        *(_own(4, group) for group in (16, 64, 128)),
        *(_own(4, group, has_minimum=True) for group in (16, 64, 128)),
        *(Format(f"i{bits}g{group}z", bits, OWN_ZEROS, group) for bits in (4, 8) for group in (32, 64, 128)),
    )
}
"""Every format by its name. Groups of 32 are GGUF's `q8_0`, `q4_0` and `q4_1`."""


@record
class Numbers:
    """A quantised matrix [K, N] before packing.

    Attributes:
        format: the format; K is a multiple of its block.
        q: [K, N] u8.
        scale: [K / group, N], f16 or the integers of the first level.
        minimum: the same for minima, or None.
        block_scale: [K / block, N] f16 where there are two levels, else None.
        block_minimum: the same for minima.
        zeros: [K / group, N] u8, numbers of the value 0 where groups have their own, else None.
    """

    format: Format
    q: Array
    scale: Array
    minimum: Array | None = None
    block_scale: Array | None = None
    block_minimum: Array | None = None
    zeros: Array | None = None

    @cached_property
    def scales(self) -> Array:
        """[K / group, N] f32: what numbers are multiplied by."""
        return _whole(self.scale, self.block_scale)

    @cached_property
    def minima(self) -> Array | None:
        """[K / group, N] f32: what is added, or None."""
        if self.minimum is None:
            return None
        found = _whole(self.minimum, self.block_minimum)
        return found if self.block_minimum is None else -found

    @property
    def parts(self) -> tuple[Array | None, ...]:
        """The arrays, each with a column per column of the matrix."""
        return self.q, self.scale, self.minimum, self.block_scale, self.block_minimum, self.zeros

    def columns(self, order: Array) -> Numbers:
        """Return the matrix with some of its columns, in an order."""
        return _of_parts(self.format, [None if part is None else part[:, order] for part in self.parts])

    def values(self) -> Array:
        """Return the elements, [K, N] f32: products and sums are rounded to f32 one after the other."""
        group = self.format.group
        zero = np.float32(self.format.zero)
        if self.zeros is not None:
            zero = self.zeros.astype(np.float32).repeat(group, axis=0)
        found = (self.q.astype(np.float32) - zero) * self.scales.repeat(group, axis=0)
        return found if self.minima is None else found + self.minima.repeat(group, axis=0)


def _whole(of_groups: Array, of_blocks: Array | None) -> Array:
    found = of_groups.astype(np.float32)
    if of_blocks is None:
        return found
    return found * of_blocks.astype(np.float32).repeat(len(of_groups) // len(of_blocks), axis=0)


def _of_parts(form: Format, parts: Sequence[Array | None]) -> Numbers:
    q, scale, *rest = parts
    assert q is not None and scale is not None
    return Numbers(form, q, scale, *rest)


def joined_numbers(matrices: Sequence[Numbers]) -> Numbers:
    """Return the columns of matrices one after the other. Their formats differ at most in zeros of groups."""
    form = next((m.format for m in matrices if m.format.has_zeros), matrices[0].format)
    parts = zip(*(_as_format(m, form).parts for m in matrices), strict=True)
    return _of_parts(form, [None if each[0] is None else np.concatenate(each, axis=1) for each in parts])


def _as_format(numbers: Numbers, form: Format) -> Numbers:
    """Return the matrix in a format that may have zeros of groups where its own has one for all."""
    own = numbers.format
    if own == form:
        return numbers
    assert form.has_zeros and (own.bits, own.group) == (form.bits, form.group) and not own.has_minimum
    zeros = np.full(numbers.scale.shape, own.zero, np.uint8)
    return Numbers(form, numbers.q, numbers.scale, zeros=zeros)


def quantise(matrix: Array, form: Format, by_column: bool = False) -> Numbers:
    """Return the numbers nearest to a matrix [K, N] of f32.

    Args:
        matrix: [K, N] f32; K is a multiple of the block.
        form: a format of one level.
        by_column: all groups of a column have one scale, and one minimum or zero.
    """
    k, n = matrix.shape
    rows = k if by_column and k else form.group
    grouped = matrix.astype(np.float32).reshape(k // rows, rows, n)
    top = np.float32((1 << form.bits) - 1)
    zero: Array = np.array(form.zero, np.float32)
    start, low = np.zeros(1, np.float32), None
    if form.has_minimum:
        low = grouped.min(axis=1).astype(np.float16)
        scale = ((grouped.max(axis=1) - low.astype(np.float32)) / top).astype(np.float16)
        start, zero = low.astype(np.float32)[:, None], np.zeros(1, np.float32)
    elif form.has_zeros:
        least, most = (np.asarray(f(grouped, axis=1, initial=0)) for f in (np.min, np.max))
        scale = ((most - least) / top).astype(np.float16)
        zero = np.clip(np.rint(_divided(-least, scale.astype(np.float32))), 0, top)[:, None]
    else:
        scale = (np.abs(grouped).max(axis=1) / (zero - 1)).astype(np.float16)
    steps = _divided(grouped - start, scale.astype(np.float32)[:, None])
    q = np.clip(np.rint(steps) + zero, 0, top).astype(np.uint8)

    def each(found: Array | None) -> Array | None:
        """Return a row per group of rows that have one per `rows`."""
        return None if found is None else found.repeat(rows // form.group, axis=0)

    zeros = zero[:, 0].astype(np.uint8) if form.has_zeros else None
    return Numbers(
        form, q.reshape(k, n), scale.repeat(rows // form.group, axis=0), each(low), zeros=each(zeros)
    )


def _divided(a: Array, b: Array) -> Array:
    """Return a / b, and 0 where b is not above 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape), np.float32), where=b > 0)


# --- bytes ---


def pack(numbers: Numbers, cols: int) -> Array:
    """Return the packed matrix, [ceil(N / cols), K / block, cols * column_bytes] u8; absent columns are 0."""
    form, (k, n) = numbers.format, numbers.q.shape
    panels = -(-n // cols)
    absent = ((0, 0), (0, panels * cols - n))

    def planes(rows: Array, per_block: int) -> Array:
        """Return rows of bytes per column [rows, N, width] as [panels, blocks, bytes of a plane]."""
        found = np.pad(rows, (*absent, (0, 0))).reshape(k // form.block, per_block, panels, cols, -1)
        return found.transpose(2, 0, 1, 3, 4).reshape(panels, k // form.block, -1)

    parts = [planes(_quads(numbers.q, form), form.quads)]
    if form.bits == 6:
        parts.append(planes(_high_quads(numbers.q), form.block // 16))
    for of_groups, of_blocks in (
        (numbers.scale, numbers.block_scale),
        (numbers.minimum, numbers.block_minimum),
    ):
        parts += [planes(_bytes(of_groups), form.groups)] if of_groups is not None else []
        parts += [planes(_bytes(of_blocks), 1)] if of_blocks is not None else []
    if numbers.zeros is not None:
        parts.append(planes(_bytes(numbers.zeros), form.groups))
    return np.concatenate(parts, axis=2)


def _bytes(rows: Array) -> Array:
    """Return elements [rows, N] as their bytes [rows, N, size]."""
    return np.ascontiguousarray(rows)[..., None].view(np.uint8)


def _quads(q: Array, form: Format) -> Array:
    """Return numbers [K, N] as the first quads, [quads, N, 4]."""
    k, n = q.shape
    if form.bits == 8:
        return q.reshape(k // 4, 4, n).transpose(0, 2, 1)
    halves = (q & 15).reshape(k // CHUNK, 2, 4, 4, n)
    return (halves[:, 0] | halves[:, 1] << 4).reshape(k // 8, 4, n).transpose(0, 2, 1)


def _high_quads(q: Array) -> Array:
    """Return the high 2 bits of numbers [K, N] as quads, [quads, N, 4]."""
    k, n = q.shape
    fields = (q >> 4).reshape(k // CHUNK, 4, 2, 4, n)
    both = fields[:, 0] | fields[:, 1] << 2 | fields[:, 2] << 4 | fields[:, 3] << 6
    return both.reshape(k // 16, 4, n).transpose(0, 2, 1)


def unpack(blocks: Array, form: Format) -> Numbers:
    """Return the numbers of blocks of one panel, [blocks, cols * column_bytes] u8."""
    count, cols = blocks.shape[0], blocks.shape[1] // form.column_bytes
    place = 0

    def plane(rows: int, kind: str) -> Array:
        """Return the next `rows` rows of each block, [blocks * rows, cols] of a type."""
        nonlocal place
        size = rows * cols * np.dtype(kind).itemsize
        found = np.ascontiguousarray(blocks[:, place : place + size])
        place += size
        return found.view(kind).reshape(count * rows, cols)

    def quads(per_block: int) -> Array:
        """Return the bytes of the next quads of each block, [blocks * quads, 4, cols]."""
        found = plane(per_block, "u4").view(np.uint8)
        return found.reshape(count * per_block, cols, 4).transpose(0, 2, 1)

    shape = (count * form.block, cols)
    q = _numbers(quads(form.quads), form).reshape(shape)
    if form.bits == 6:
        high = quads(form.block // 16).reshape(shape[0] // CHUNK, 2, 4, cols)
        q = q | np.stack([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(shape) << 4
    found: list[Array | None] = []
    for is_present in (True, form.has_minimum):
        found += [plane(form.groups, form.level or "f2") if is_present else None]
        found += [plane(1, "f2") if is_present and form.level else None]
    scale, block_scale, minimum, block_minimum = found
    assert scale is not None
    zeros = plane(form.groups, "u1") if form.has_zeros else None
    return Numbers(form, q, scale, minimum, block_scale, block_minimum, zeros)


def _numbers(bytes_of_rows: Array, form: Format) -> Array:
    """Return the numbers of quads whose bytes are [quads, 4, cols], in their order."""
    count, _, cols = bytes_of_rows.shape
    if form.bits == 8:
        return bytes_of_rows
    low = bytes_of_rows.reshape(count // 4, 4, 4, cols)
    return np.stack([low & 15, low >> 4], axis=1)


# --- rows that are multiplied with a quantised matrix, rounded to i8 ---

ROUNDED = np.dtype([("q", "i1", CHUNK), ("step", "<f4"), ("sums", "<i2", 2)])
"""A group of CHUNK columns of a row: numbers, what they are multiplied by, and their sums by halves."""

SMALLEST = 2.0**-100
"""Groups with no element of at least this size are 0."""


def rounded_cols(cols: int) -> int:
    """Return the bytes of a row of that many columns that is rounded."""
    return cols // CHUNK * ROUNDED.itemsize


def round_rows(x: Array) -> Array:
    """Return rows [M, K] as groups of integers from -127 to 127, [M, bytes] u8.

    The step of a group is its largest size over 127, and its numbers are the elements times 127 over the
    largest size, in f32 and rounded to nearest even. A group with an infinity or a NaN has the step NaN.
    """
    groups = x.astype(np.float32).reshape(x.shape[0], x.shape[1] // CHUNK, CHUNK)
    largest = np.abs(groups).max(axis=2, initial=0)
    is_plain = np.isfinite(largest) & (largest >= SMALLEST)
    usual = np.where(is_plain, largest, np.float32(1))
    found = np.zeros(groups.shape[:2], ROUNDED)
    inverse = np.float32(127) / usual
    found["q"] = np.rint(np.where(is_plain[..., None], groups * inverse[..., None], 0))
    step = np.where(is_plain, usual / np.float32(127), np.float32(0))
    found["step"] = np.where(np.isfinite(largest), step, np.float32(np.nan))
    found["sums"] = found["q"].reshape(*groups.shape[:2], 2, CHUNK // 2).sum(axis=3)
    return found.view(np.uint8).reshape(x.shape[0], rounded_cols(x.shape[1]))


def rounded_values(rows: Array) -> Array:
    """Return the elements of rounded rows, [M, K] f64."""
    groups = np.ascontiguousarray(rows).view(ROUNDED)
    found = groups["q"] * groups["step"].astype(np.float64)[..., None]
    return found.reshape(rows.shape[0], groups.shape[1] * CHUNK)
