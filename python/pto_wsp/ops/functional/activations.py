"""Activations: arrays of any shape, element by element."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pto_wsp.errors import WrongShape, WrongValue
from pto_wsp.ops.functional.arrays import flat, floats, like, output, require_rank, rows
from pto_wsp.ops.functional.family import Family
from pto_wsp.ops.functional.operator import ACTIVATIONS, GATES, NUMBERED, operator

Array = np.ndarray


def _apply(family: Family, name: str, x: Any, out: Array | None, **numbers: float) -> Array:
    array, dtype = floats("x", x)
    y = output(out, array.shape, dtype)
    family.run(dtype, name, X=flat(array), Y=flat(y), **numbers)
    return y


@operator("max(x, 0)", 0)
def relu(x: Any, *, out: Array | None = None) -> Array:
    """Return max(x, 0)."""
    return _apply(ACTIVATIONS, "relu", x, out)


@operator("min(max(x, 0), 6)", 0)
def relu6(x: Any, *, out: Array | None = None) -> Array:
    """Return max(x, 0), at most 6."""
    return _apply(ACTIVATIONS, "relu6", x, out)


@operator("x if x > 0 else negative_slope x", 1)
def leaky_relu(x: Any, negative_slope: float = 0.01, *, out: Array | None = None) -> Array:
    """Return x where it is above 0, else negative_slope times x."""
    return _apply(NUMBERED, "leaky_relu", x, out, a=negative_slope)


@operator(
    "x if x > 0 else w x, a w for each index of dimension 1",
    1,
    "x [N, C, ...], weight [C] or [1] -> [N, C, ...]",
)
def prelu(x: Any, weight: Any, *, out: Array | None = None) -> Array:
    """Return x where it is above 0, else x times the weight of its channel (dimension 1)."""
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    channels = array.shape[min(1, array.ndim - 1)]
    weights = like("weight", weight, dtype)
    if weights.shape not in ((channels,), (1,)):
        raise WrongShape(dim=0, name="weight", expected=f"{channels} or 1", found=weights.shape)
    y = output(out, array.shape, dtype)
    last_x = array if array.ndim < 3 else np.ascontiguousarray(np.moveaxis(array, 1, -1))
    last_y = y if array.ndim < 3 else np.empty_like(last_x)
    w = np.ascontiguousarray(np.broadcast_to(weights, (1, channels)))
    GATES.run(dtype, "prelu", X=rows(last_x), W=w, Y=rows(last_y))
    if last_y is not y:
        y[...] = np.moveaxis(last_y, -1, 1)
    return y


@operator("x if x > 0 else alpha (e^x - 1)", 4)
def elu(x: Any, alpha: float = 1.0, *, out: Array | None = None) -> Array:
    """Return x where it is above 0, else alpha (e^x - 1)."""
    return _apply(NUMBERED, "elu", x, out, a=alpha)


@operator("s (x if x > 0 else alpha (e^x - 1)), s = 1.0507, alpha = 1.6733", 4)
def selu(x: Any, *, out: Array | None = None) -> Array:
    """Return the scaled exponential linear unit of x."""
    return _apply(ACTIVATIONS, "selu", x, out)


@operator("max(x, 0) + min(0, alpha (e^(x / alpha) - 1))", 4)
def celu(x: Any, alpha: float = 1.0, *, out: Array | None = None) -> Array:
    """Return x where it is above 0, else alpha (e^(x / alpha) - 1)."""
    return _apply(NUMBERED, "celu", x, out, a=alpha)


@operator("x Phi(x); tanh: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))", 4)
def gelu(x: Any, approximate: Literal["none", "tanh"] = "none", *, out: Array | None = None) -> Array:
    """Return x times the normal distribution function of x."""
    if approximate not in ("none", "tanh"):
        raise WrongValue(name="approximate", expected='"none" or "tanh"', found=repr(approximate))
    return _apply(ACTIVATIONS, "gelu" if approximate == "none" else "gelu_tanh", x, out)


@operator("x / (1 + e^-x)", 3)
def silu(x: Any, *, out: Array | None = None) -> Array:
    """Return x times its sigmoid."""
    return _apply(ACTIVATIONS, "silu", x, out)


@operator("x tanh(softplus(x))", 6)
def mish(x: Any, *, out: Array | None = None) -> Array:
    """Return x times the hyperbolic tangent of softplus(x)."""
    return _apply(ACTIVATIONS, "mish", x, out)


@operator("ln(1 + e^(beta x)) / beta; x where beta x > threshold", 4)
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0, *, out: Array | None = None) -> Array:
    """Return ln(1 + e^(beta x)) / beta, or x itself where beta x is above the threshold."""
    return _apply(NUMBERED, "softplus", x, out, a=beta, b=threshold)


@operator("x / (1 + |x|)", 2)
def softsign(x: Any, *, out: Array | None = None) -> Array:
    """Return x / (1 + |x|)."""
    return _apply(ACTIVATIONS, "softsign", x, out)


@operator("min(max(x, min_val), max_val)", 1)
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, *, out: Array | None = None) -> Array:
    """Return x clipped to `min_val` and `max_val`."""
    return _apply(NUMBERED, "hardtanh", x, out, a=min_val, b=max_val)


@operator("min(max(x + 3, 0), 6) / 6", 2)
def hardsigmoid(x: Any, *, out: Array | None = None) -> Array:
    """Return the piecewise linear sigmoid of x."""
    return _apply(ACTIVATIONS, "hardsigmoid", x, out)


@operator("x min(max(x + 3, 0), 6) / 6", 3)
def hardswish(x: Any, *, out: Array | None = None) -> Array:
    """Return x times its hard sigmoid."""
    return _apply(ACTIVATIONS, "hardswish", x, out)


@operator("tanh x", 2)
def tanh(x: Any, *, out: Array | None = None) -> Array:
    """Return the hyperbolic tangent of x."""
    return _apply(ACTIVATIONS, "tanh", x, out)


@operator("1 / (1 + e^-x)", 3)
def sigmoid(x: Any, *, out: Array | None = None) -> Array:
    """Return 1 / (1 + e^-x)."""
    return _apply(ACTIVATIONS, "sigmoid", x, out)


@operator("-ln(1 + e^-x)", 4)
def logsigmoid(x: Any, *, out: Array | None = None) -> Array:
    """Return the logarithm of the sigmoid of x."""
    return _apply(ACTIVATIONS, "logsigmoid", x, out)


@operator("x if x > threshold else value", 1)
def threshold(x: Any, threshold: float, value: float, *, out: Array | None = None) -> Array:
    """Return x where it is above the threshold, else the value."""
    return _apply(NUMBERED, "threshold", x, out, a=threshold, b=value)


@operator("0 if |x| <= lambd else x", 1)
def hardshrink(x: Any, lambd: float = 0.5, *, out: Array | None = None) -> Array:
    """Return x, or 0 where |x| is at most `lambd`."""
    return _apply(NUMBERED, "hardshrink", x, out, a=lambd)


@operator("x - lambd, x + lambd or 0, as x is above, below or between", 1)
def softshrink(x: Any, lambd: float = 0.5, *, out: Array | None = None) -> Array:
    """Return x moved towards 0 by `lambd`."""
    return _apply(NUMBERED, "softshrink", x, out, a=lambd)


@operator("x - tanh x", 2)
def tanhshrink(x: Any, *, out: Array | None = None) -> Array:
    """Return x - tanh x."""
    return _apply(ACTIVATIONS, "tanhshrink", x, out)


# --- gates: of the first half of the last dimension with the second -----------------------------------------


def _gate(name: str, x: Any, out: Array | None) -> Array:
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    if array.shape[-1] % 2:
        raise WrongShape(dim=array.ndim - 1, name="x", expected="an even size", found=array.shape[-1])
    half = array.shape[-1] // 2
    y = output(out, (*array.shape[:-1], half), dtype)
    target = rows(y)
    GATES.run(dtype, name, X=array.reshape(target.shape[0], 2, half), Y=target)
    return y


@operator("a sigmoid(b), of the halves a, b of the last dimension", 4, "x [..., 2 n] -> [..., n]")
def glu(x: Any, *, out: Array | None = None) -> Array:
    """Return the first half of the last dimension times the sigmoid of the second half."""
    return _gate("glu", x, out)


@operator("silu(a) b", 4, "x [..., 2 n] -> [..., n]")
def swiglu(x: Any, *, out: Array | None = None) -> Array:
    """Return silu of the first half of the last dimension times the second half."""
    return _gate("swiglu", x, out)


@operator("gelu(a) b", 5, "x [..., 2 n] -> [..., n]")
def geglu(x: Any, *, out: Array | None = None) -> Array:
    """Return gelu of the first half of the last dimension times the second half."""
    return _gate("geglu", x, out)


@operator("max(a, 0) b", 1, "x [..., 2 n] -> [..., n]")
def reglu(x: Any, *, out: Array | None = None) -> Array:
    """Return relu of the first half of the last dimension times the second half."""
    return _gate("reglu", x, out)
