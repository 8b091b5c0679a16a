"""What attention of a prompt is compared to: torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np


def torch_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, threads: int
) -> Callable[[], object]:
    """Return torch's scaled dot product attention of `[positions, heads, dim]`.

    Raises:
        ImportError: torch is not installed.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    heads = [torch.from_numpy(a).transpose(0, 1)[None].contiguous() for a in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*heads, is_causal=causal)[0].transpose(0, 1).numpy()
