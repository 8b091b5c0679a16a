"""What to write for a `pto` function that does not exist: another name, or the lines that compute it."""

from __future__ import annotations

from pto_wsp.errors import did_you_mean
from pto_wsp.lang.kernel.functions import FUNCTIONS

WRITTEN_OUT: dict[str, tuple[str, ...]] = {
    "softmax": ("m = pto.rowmax(x)", "e = pto.exp(x - m)", "y = e / pto.rowsum(e)"),
    "log_softmax": ("t = x - pto.rowmax(x)", "y = t - pto.log(pto.rowsum(pto.exp(t)))"),
    "logsumexp": ("m = pto.rowmax(x)", "y = m + pto.log(pto.rowsum(pto.exp(x - m)))"),
    "mean": ("y = pto.rowsum(x) * (1 / x.cols)",),
    "rms_norm": ("y = x * pto.rsqrt(pto.rowsum(x * x) * (1 / x.cols) + 1e-6)",),
    "layer_norm": (
        "t = x - pto.rowsum(x) * (1 / x.cols)",
        "y = t * pto.rsqrt(pto.rowsum(t * t) * (1 / x.cols) + 1e-5)",
    ),
    "square": ("y = x * x",),
}
"""Operators of a tile `x` that kernels write with several functions; the last line makes `y`."""

OTHER_NAMES = {
    "sum": "rowsum` or `pto.colsum",
    "max": "rowmax`, `pto.colmax` or, of two tiles, `pto.maximum",
    "min": "rowmin`, `pto.colmin` or, of two tiles, `pto.minimum",
    "dot": "matmul",
    "mm": "matmul",
    "ones": "full",
    "arange": "iota",
    "convert": "cast",
    "astype": "cast",
    "to": "cast",
    "pow": "exp` of a product with `pto.log",
    "empty": "zeros",
    "cat": "insert",
    "concatenate": "insert",
    "clip": "minimum` and `pto.maximum",
    "clamp": "minimum` and `pto.maximum",
    "permute": "transpose",
    "argmax": "rowargmax",
    "argmin": "rowargmin",
    "topk": "sort",
}
"""Functions that other libraries call otherwise."""


def suggestion(name: str) -> str:
    """Return a hint for `pto.name`, which does not exist."""
    plain = name.lower()
    if plain in FUNCTIONS:
        return f"did you mean `{plain}`?"
    plain = {"layernorm": "layer_norm", "rmsnorm": "rms_norm", "logsoftmax": "log_softmax"}.get(plain, plain)
    if plain in OTHER_NAMES:
        return f"use `pto.{OTHER_NAMES[plain]}`"
    if plain in WRITTEN_OUT:
        lines = (f"    {line}" for line in WRITTEN_OUT[plain])
        return "\n".join(["write it with the functions that exist:", *lines])
    return did_you_mean(name, FUNCTIONS)
