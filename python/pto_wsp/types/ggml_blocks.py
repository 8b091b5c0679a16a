"""Blocks of GGUF files as numbers of a quantised matrix, without loss.

A file holds a matrix [N, K] (its `ne` is K, N) row by row, each row as blocks of elements. Ours is [K, N], so
a block is a part of a column.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pto_wsp.types.quantised import FORMATS, Array, Format, Numbers

BLOCK_BYTES: dict[str, int] = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q4_k": 144, "q6_k": 210}
"""Bytes of a block of a file, by format."""


def from_ggml(blocks: Array, form: Format) -> Numbers:
    """Return the numbers of a matrix [K, N] whose blocks a file holds.

    Args:
        blocks: [N, K / block * bytes of a block] u8.
        form: a format of `BLOCK_BYTES`.
    """
    rows = blocks.shape[0]
    found = blocks.reshape(rows, -1, BLOCK_BYTES[form.name])
    return _READERS[form.name](found)


def _halves(part: Array) -> Array:
    """Return bytes [N, blocks, 2] as f16 [blocks, N]."""
    return np.ascontiguousarray(part).view(np.float16)[..., 0].T


ROWS_TURNED = 32
"""Rows that are transposed at a time: their lines stay in a first cache."""


def _columns(part: Array) -> Array:
    """Return elements [N, blocks, count] as rows [blocks * count, N]."""
    rows = part.reshape(len(part), -1)
    found = np.empty(rows.shape[::-1], rows.dtype)
    for first in range(0, len(rows), ROWS_TURNED):
        found[:, first : first + ROWS_TURNED] = rows[first : first + ROWS_TURNED].T
    return found


def _nibbles(part: Array) -> Array:
    """Return bytes [N, blocks, count] as numbers: all low nibbles of a block, then its high ones."""
    return np.concatenate([part & 15, part >> 4], axis=2)


def _q8_0(b: Array) -> Numbers:
    return Numbers(FORMATS["q8_0"], _columns(b[..., 2:] ^ 0x80), _halves(b[..., :2]))


def _q4_0(b: Array) -> Numbers:
    return Numbers(FORMATS["q4_0"], _columns(_nibbles(b[..., 2:])), _halves(b[..., :2]))


def _q4_1(b: Array) -> Numbers:
    scale, minimum = _halves(b[..., :2]), _halves(b[..., 2:4])
    return Numbers(FORMATS["q4_1"], _columns(_nibbles(b[..., 4:])), scale, minimum)


def _q4_k(b: Array) -> Numbers:
    low, mid, high = (b[..., 4 + i : 8 + i] for i in (0, 4, 8))
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=2)
    minimum = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=2)
    quarters = b[..., 16:].reshape(*b.shape[:2], 4, 1, 32)
    q = np.concatenate([quarters & 15, quarters >> 4], axis=3)
    return Numbers(
        FORMATS["q4_k"],
        _columns(q),
        _columns(scale),
        _columns(minimum),
        _halves(b[..., :2]),
        _halves(b[..., 2:4]),
    )


def _q6_k(b: Array) -> Numbers:
    low = b[..., :128].reshape(*b.shape[:2], 2, 2, 32)
    high = b[..., 128:192].reshape(*b.shape[:2], 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=3)
    fields = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=3)
    scale = _columns(b[..., 192:208]).view(np.int8)
    return Numbers(FORMATS["q6_k"], _columns(nibbles | fields << 4), scale, None, _halves(b[..., 208:]))


_READERS: dict[str, Callable[[Array], Numbers]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
}
