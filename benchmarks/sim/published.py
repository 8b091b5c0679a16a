"""Published cycles of single instructions on a core of A2/A3, and how far the cost tables are from them."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.device.model import Device
from pto_wsp.support.record import record
from pto_wsp.types.space import Space

SHAPES = ((16, 64), (64, 128), (32, 256))
"""Rows and columns of the f32 tiles of `VECTOR`."""

VECTOR: dict[str, tuple[tuple[int | None, ...], tuple[int | None, ...]]] = {
    "add": ((42, 266, 266), (None, None, None)),
    "sub": ((42, 266, 266), (57, 283, None)),
    "mul": ((42, 266, 266), (58, 284, None)),
    "div": ((75, 523, 523), (None, None, None)),
    "max": ((42, 266, 266), (None, None, None)),
    "adds": ((29, 141, 141), (41, 155, None)),
    "muls": ((27, 139, 139), (42, 156, None)),
    "exp": ((45, 269, 269), (62, 287, None)),
    "sqrt": ((46, 270, 270), (63, 288, None)),
    "rsqrt": ((26, 138, 138), (None, None, None)),
    "rowsum": ((51, 255, 284), (156, 574, None)),
    "rowmax": ((None, 241, 270), (None, 560, None)),  # the published cell of 64 columns is not reliable
    "colsum": ((380, 1580, 781), (327, 1424, None)),
    "rowexpand": ((261, 998, 258), (261, 998, None)),
    "cvt": ((48, 272, 272), (None, None, None)),
    "mov": ((6, 55, 55), (None, None, None)),
}
"""Cycles by instruction: of the cost tables `mock` and `fit`, at `SHAPES`."""

PRODUCTS = (
    ((64, 128, 64, 2), 134),
    ((64, 128, 128, 2), 262),
    ((128, 128, 128, 2), 518),
    ((64, 128, 64, 4), 518),
)
"""Cycles of [rows, inner] x [inner, cols] by the bytes of an element."""

TRANSFERS = (
    (Space.GM, Space.UB, 16 * 64 * 4, 69),
    (Space.GM, Space.UB, 64 * 128 * 4, 559),
    (Space.UB, Space.GM, 16 * 64 * 4, 37),
    (Space.UB, Space.GM, 64 * 128 * 4, 299),
    (Space.GM, Space.L1, 64 * 128 * 2, 209),
    (Space.GM, Space.L1, 128 * 128 * 2, 418),
    (Space.L1, Space.L0A, 64 * 128 * 2, 65),
    (Space.L1, Space.L0A, 128 * 128 * 2, 129),
    (Space.L1, Space.L0B, 64 * 128 * 2, 129),
    (Space.L1, Space.L0B, 128 * 128 * 2, 257),
)
"""Bytes and cycles of transfers. L0C to GM is left out: the published model counts 2 bytes per f32."""


@record
class Cell:
    """A published figure, and ours."""

    name: str
    published: int
    ours: int

    @property
    def off_pct(self) -> float:
        """How far ours is from the published figure, in percent."""
        return 100 * abs(self.ours / self.published - 1)


def cells(device: Device, table: int) -> Iterator[Cell]:
    """Yield every published figure: of `mock` (0) with transfers and products, or of `fit` (1)."""
    for row, columns in VECTOR.items():
        for (rows, cols), published in zip(SHAPES, columns[table], strict=True):
            if published is not None:
                ours = device.costs[row].of_vector(rows, cols, 4, device.widths)
                yield Cell(f"{row} {rows}x{cols}", published, ours)
    if table == 0:
        for shape, published in PRODUCTS:
            yield Cell(f"matmul {shape}", published, device.costs["matmul"].of_product(*shape, device.widths))
        for source, target, num_bytes, published in TRANSFERS:
            ours = device.ways[source, target].cycles(num_bytes)
            yield Cell(f"{source.value} to {target.value}", published, ours)
