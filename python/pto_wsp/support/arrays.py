"""Questions about arrays that every layer asks."""

from __future__ import annotations

import numpy as np


def is_masked(value: object) -> bool:
    """Whether a value is an array of numpy with a mask, which nothing here would see."""
    is_plain = type(value) is np.ndarray or not isinstance(value, np.ndarray)
    return not is_plain and isinstance(value, np.ma.MaskedArray)  # `np.ma` takes 15 ms to load
