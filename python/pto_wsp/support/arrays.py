"""Questions about arrays that every layer asks."""

from __future__ import annotations

import numpy as np

MAX_SHOWN = 60
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """Return a value as messages show it: an array by its shape, anything else shortened."""
    if isinstance(value, np.ndarray):
        return f"array {'x'.join(map(str, value.shape)) or 'of rank 0'} of {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def is_masked(value: object) -> bool:
    """Whether a value is an array of numpy with a mask, which nothing here would see."""
    is_plain = type(value) is np.ndarray or not isinstance(value, np.ndarray)
    return not is_plain and isinstance(value, np.ma.MaskedArray)  # `np.ma` takes 15 ms to load
