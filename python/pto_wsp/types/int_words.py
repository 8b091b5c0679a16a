"""Matrices of AWQ and GPTQ checkpoints as numbers of a quantised matrix, without loss.

Both keep a matrix [K, N] with groups of rows that share a scale (f16) and a zero. Words of 32 bits hold the
numbers of 4 or 8 bits. GPTQ puts rows 8w to 8w + 7 of a column into word w, from the low bits on.
AWQ puts eight columns of a row into a word, in the order of `AWQ_ORDER`. Zeros are words of columns in both.
"""

from __future__ import annotations

import numpy as np

from pto_wsp.types.quantised import FORMATS, Array, Format, Numbers

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Columns of the eight numbers of a word, from the low bits on."""


class UnknownWords(Exception):
    """A matrix that has no numbers without loss; the message names the reason."""


def from_gptq(
    qweight: Array, qzeros: Array, scales: Array, g_idx: Array | None, bits: int, *, adds_one: bool = True
) -> Numbers:
    """Return the numbers of a matrix of GPTQ: its elements are (q - zero) * scale.

    Args:
        qweight: [K * bits / 32, N] i32.
        qzeros: [groups, N * bits / 32] i32.
        scales: [groups, N] f16.
        g_idx: [K] i32, the group of each row; None: groups are in order.
        bits: of a number, 4 or 8.
        adds_one: a zero is its number in the file plus 1, as the format "gptq" has it, not "gptq_v2".

    Raises:
        UnknownWords: the activation order (`desc_act`), sizes, or zeros that have no numbers.
    """
    _require_bits(bits)
    k = qweight.shape[0] * 32 // bits
    q = _fields(qweight, bits).transpose(0, 2, 1).reshape(k, -1)
    zeros = _fields(qzeros, bits).reshape(len(qzeros), -1)
    size = _group(k, scales)
    if g_idx is not None and not np.array_equal(g_idx, np.arange(k) // size):
        raise UnknownWords("rows in the order of activations (`desc_act`, `g_idx`) are not supported")
    if adds_one:
        if (zeros == (1 << bits) - 1).any():
            raise UnknownWords(f"a zero of {1 << bits} is not a number of {bits} bits; expected `gptq_v2`")
        zeros = zeros + 1
    return _numbers(q, zeros, scales, bits)


def from_awq(qweight: Array, qzeros: Array, scales: Array, bits: int = 4) -> Numbers:
    """Return the numbers of a matrix of AWQ (version "gemm"): its elements are (q - zero) * scale.

    Args:
        qweight: [K, N / 8] i32.
        qzeros: [groups, N / 8] i32.
        scales: [groups, N] f16.
        bits: of a number: 4.

    Raises:
        UnknownWords: other bits or sizes.
    """
    if bits != 4:
        raise UnknownWords(f"AWQ: expected numbers of 4 bits, found {bits}")
    places = np.argsort(AWQ_ORDER)
    q, zeros = (_fields(words, bits)[..., places].reshape(len(words), -1) for words in (qweight, qzeros))
    return _numbers(q, zeros, scales, bits)


def _require_bits(bits: int) -> None:
    if bits not in (4, 8):
        raise UnknownWords(f"GPTQ: expected numbers of 4 or 8 bits, found {bits}")


def _fields(words: Array, bits: int) -> Array:
    """Return the numbers of words [rows, cols] from the low bits on, [rows, cols, numbers] u8."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (words.view(np.uint32)[..., None] >> shifts & ((1 << bits) - 1)).astype(np.uint8)


def _group(k: int, scales: Array) -> int:
    """Return the rows of a group."""
    groups = scales.shape[0]
    if scales.ndim != 2 or groups == 0 or k % groups:
        raise UnknownWords(f"expected groups of equal sizes, found {groups} groups of {k} rows")
    return k // groups


def _numbers(q: Array, zeros: Array, scales: Array, bits: int) -> Numbers:
    """Return numbers in the largest group of a format; scales of larger groups, as of columns, repeat."""
    k, n = q.shape
    if zeros.shape[0] != scales.shape[0] or scales.shape[1] != n or zeros.shape[1] < n:
        raise UnknownWords(f"scales {scales.shape} and zeros {zeros.shape} do not fit a matrix {q.shape}")
    halves = scales.astype(np.float16)
    if not np.array_equal(halves.astype(np.float32), scales.astype(np.float32)):
        raise UnknownWords("expected scales that are numbers of f16, found others")
    size, zeros = _group(k, scales), zeros[:, :n]
    group = next((g for g in (128, 64, 32) if size % g == 0), 0)
    if not group:
        raise UnknownWords(f"expected groups of a multiple of 32 rows, or whole columns, found {size} rows")
    form, own = _form(zeros, bits, group)
    return Numbers(
        form,
        np.ascontiguousarray(q),
        halves.repeat(size // group, axis=0),
        zeros=zeros.repeat(size // group, axis=0) if own else None,
    )


def _form(zeros: Array, bits: int, group: int) -> tuple[Format, bool]:
    """Return the format, and whether its groups have their own zeros: not if all are in the middle."""
    if (zeros == 1 << (bits - 1)).all():
        return FORMATS[f"q{bits}_0" if group == 32 else f"i{bits}g{group}"], False
    return FORMATS[f"i{bits}g{group}z"], True
