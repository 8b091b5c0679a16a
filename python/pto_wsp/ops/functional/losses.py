"""Losses and likenesses."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pto_wsp.errors import WrongValue
from pto_wsp.ops.functional.arrays import (
    as_array,
    flat,
    floats,
    like,
    output,
    require_rank,
    require_shape,
    rows,
)
from pto_wsp.ops.functional.operator import LOSSES, REDUCTIONS, ROW_LOSSES, operator
from pto_wsp.types.dtype import DType

Array = np.ndarray
Reduction = Literal["none", "mean", "sum"]


def _reduced(loss: Array, dtype: DType, reduction: Reduction, out: Array | None) -> Array:
    """Return the loss itself, or the sum or mean of its elements."""
    if reduction == "none":
        return loss
    y = output(out, (), dtype)
    scale = 1.0 if reduction == "sum" else 1.0 / max(loss.size, 1)
    elements = flat(loss)
    parts = np.empty((len(elements), 1), np.float32)
    REDUCTIONS.run(dtype, "total", X=elements, Parts=parts, Y=y.reshape(1, 1), a=scale)
    if reduction == "mean" and not loss.size:
        y.fill(np.nan)
    return y


def _require_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise WrongValue(name="reduction", expected='"none", "mean" or "sum"', found=repr(reduction))


def _loss(name: str, x: Any, target: Any, reduction: Reduction, out: Array | None, **numbers: float) -> Array:
    _require_reduction(reduction)
    array, dtype = floats("x", x)
    t = like("target", target, dtype, array.shape)
    loss = output(out if reduction == "none" else None, array.shape, dtype)
    LOSSES.run(dtype, name, X=flat(array), T=flat(t), Y=flat(loss), **numbers)
    return _reduced(loss, dtype, reduction, out)


@operator("(x - t)^2", 3)
def mse_loss(x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None) -> Array:
    """Return the squared error."""
    return _loss("mse_loss", x, target, reduction, out)


@operator("|x - t|", 1)
def l1_loss(x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None) -> Array:
    """Return the absolute error."""
    return _loss("l1_loss", x, target, reduction, out)


@operator("d^2 / (2 beta) if d < beta else d - beta / 2, d = |x - t|", 4)
def smooth_l1_loss(
    x: Any, target: Any, reduction: Reduction = "mean", beta: float = 1.0, *, out: Array | None = None
) -> Array:
    """Return the absolute error, squared below `beta`."""
    if not beta > 0:
        raise WrongValue(name="beta", expected="a number above 0 (else `l1_loss`)", found=str(beta))
    return _loss("smooth_l1_loss", x, target, reduction, out, a=beta)


@operator("d^2 / 2 if d <= delta else delta (d - delta / 2), d = |x - t|", 4)
def huber_loss(
    x: Any, target: Any, reduction: Reduction = "mean", delta: float = 1.0, *, out: Array | None = None
) -> Array:
    """Return the squared error up to `delta`, the absolute error beyond it."""
    return _loss("huber_loss", x, target, reduction, out, a=delta)


@operator("-(t ln x + (1 - t) ln(1 - x)), logarithms at least -100", 6)
def binary_cross_entropy(
    x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None
) -> Array:
    """Return the cross entropy of the probabilities x."""
    return _loss("binary_cross_entropy", x, target, reduction, out)


@operator("max(x, 0) - x t + ln(1 + e^-|x|)", 4)
def binary_cross_entropy_with_logits(
    x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None
) -> Array:
    """Return the cross entropy of the probabilities sigmoid(x)."""
    return _loss("binary_cross_entropy_with_logits", x, target, reduction, out)


@operator("t (ln t - x), 0 where t = 0", 6)
def kl_div(x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None) -> Array:
    """Return the Kullback-Leibler divergence of the target from e^x."""
    return _loss("kl_div", x, target, reduction, out)


@operator("ln(1 + e^(-t x))", 6)
def soft_margin_loss(
    x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None
) -> Array:
    """Return the logistic loss of the targets 1 and -1."""
    return _loss("soft_margin_loss", x, target, reduction, out)


@operator("e^x - t x", 4)
def poisson_nll_loss(
    x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None
) -> Array:
    """Return the negative log-likelihood of Poisson counts with mean e^x."""
    return _loss("poisson_nll_loss", x, target, reduction, out)


@operator("x if t = 1 else max(0, margin - x)", 1)
def hinge_embedding_loss(
    x: Any, target: Any, reduction: Reduction = "mean", margin: float = 1.0, *, out: Array | None = None
) -> Array:
    """Return x for matching pairs, and the part of `margin` that exceeds x for others."""
    return _loss("hinge_embedding_loss", x, target, reduction, out, a=margin)


# --- of rows ------------------------------------------------------------------------------------------------


def classes(name: str, value: Any, shape: tuple[int, ...], count: int) -> Array:
    """Return class numbers as a column of i32.

    Raises:
        WrongValue: they are not integers, or one is not in [0, count).
    """
    array = as_array(name, value)
    if array.dtype.kind not in "iu":
        raise WrongValue(name=name, expected="integers", found=str(array.dtype))
    require_shape(name, array, shape)
    if array.size and not (0 <= array.min() and array.max() < count):
        found = f"{array.min()} to {array.max()}"
        raise WrongValue(name=name, expected=f"0 to {count - 1}", found=found)
    return array.astype(np.int32).reshape(-1, 1)


def _of_classes(name: str, x: Any, target: Any, reduction: Reduction, out: Array | None) -> Array:
    _require_reduction(reduction)
    array, dtype = floats("x", x)
    require_rank("x", array, 2)
    t = classes("target", target, array.shape[:-1], array.shape[-1])
    loss = output(out if reduction == "none" else None, array.shape[:-1], dtype)
    ROW_LOSSES.run(dtype, name, X=rows(array), T=t, Y=loss.reshape(-1, 1))
    return _reduced(loss, dtype, reduction, out)


@operator(
    "ln sum_j e^x_j - x_t, over the last dimension",
    6,
    'x [..., classes], target [...] of integers -> [], or [...] with reduction="none"',
)
def cross_entropy(x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None) -> Array:
    """Return the cross entropy of class numbers; the last dimension of x holds logits."""
    return _of_classes("cross_entropy", x, target, reduction, out)


@operator(
    "-x_t, over the last dimension",
    1,
    'x [..., classes], target [...] of integers -> [], or [...] with reduction="none"',
)
def nll_loss(x: Any, target: Any, reduction: Reduction = "mean", *, out: Array | None = None) -> Array:
    """Return the negative log-likelihood of class numbers; the last dimension of x holds logarithms."""
    return _of_classes("nll_loss", x, target, reduction, out)


def _of_two(name: str, x1: Any, x2: Any, out: Array | None, eps: float) -> Array:
    array, dtype = floats("x1", x1)
    require_rank("x1", array, 1)
    other = like("x2", x2, dtype, array.shape)
    y = output(out, array.shape[:-1], dtype)
    ROW_LOSSES.run(dtype, name, X=rows(array), T=rows(other), Y=y.reshape(-1, 1), a=eps)
    return y


@operator(
    "x1 . x2 / (max(|x1|, eps) max(|x2|, eps)), over the last dimension", 12, "x1, x2 [..., n] -> [...]"
)
def cosine_similarity(x1: Any, x2: Any, eps: float = 1e-8, *, out: Array | None = None) -> Array:
    """Return the cosine of the angle between rows of the last dimension."""
    return _of_two("cosine_similarity", x1, x2, out, eps)


@operator("sqrt(sum_j (x1_j - x2_j + eps)^2), over the last dimension", 8, "x1, x2 [..., n] -> [...]")
def pairwise_distance(x1: Any, x2: Any, eps: float = 1e-6, *, out: Array | None = None) -> Array:
    """Return the Euclidean distance between rows of the last dimension."""
    return _of_two("pairwise_distance", x1, x2, out, eps)
