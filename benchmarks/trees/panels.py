"""A product that keeps a panel of its left operand in L1."""

from __future__ import annotations

from typing import Any

from pto_wsp import DYN, In, Out, Tensor, Tile, f16, f32, kernel, pto


def added(parts: Any, b: Any, first: Any) -> Any:
    """Return the product of 12 parts of 128 terms with 96 columns."""
    total = pto.matmul(parts[0], b[0:128, first : first + 96])
    total = total + pto.matmul(parts[1], b[128:256, first : first + 96])
    total = total + pto.matmul(parts[2], b[256:384, first : first + 96])
    total = total + pto.matmul(parts[3], b[384:512, first : first + 96])
    total = total + pto.matmul(parts[4], b[512:640, first : first + 96])
    total = total + pto.matmul(parts[5], b[640:768, first : first + 96])
    total = total + pto.matmul(parts[6], b[768:896, first : first + 96])
    total = total + pto.matmul(parts[7], b[896:1024, first : first + 96])
    total = total + pto.matmul(parts[8], b[1024:1152, first : first + 96])
    total = total + pto.matmul(parts[9], b[1152:1280, first : first + 96])
    total = total + pto.matmul(parts[10], b[1280:1408, first : first + 96])
    total = total + pto.matmul(parts[11], b[1408:1536, first : first + 96])
    return total


@kernel
def multiply_panel(a: In[Tile[128, 1536, f16]], b: In[Tensor[f16, 1536, DYN]], y: Out[Tensor[f32, 128, DYN]]):
    """128 rows of `a`, and 192 columns of `b` per step, in two sums."""
    parts = [
        pto.load(a[:, 0:128]),
        pto.load(a[:, 128:256]),
        pto.load(a[:, 256:384]),
        pto.load(a[:, 384:512]),
        pto.load(a[:, 512:640]),
        pto.load(a[:, 640:768]),
        pto.load(a[:, 768:896]),
        pto.load(a[:, 896:1024]),
        pto.load(a[:, 1024:1152]),
        pto.load(a[:, 1152:1280]),
        pto.load(a[:, 1280:1408]),
        pto.load(a[:, 1408:1536]),
    ]
    for step in range(y.shape[1] // 192):
        first = 192 * step
        pto.store(y[:, first : first + 96], added(parts, b, first))
        pto.store(y[:, first + 96 : first + 192], added(parts, b, first + 96))
