"""Layers: products, tables, positions, and dropout of inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.errors import NotYetSupported, WrongShape, WrongValue
from pto_wsp.ops.functional.arrays import (
    as_array,
    floats,
    like,
    output,
    require_apart,
    require_rank,
    require_shape,
    rows,
)
from pto_wsp.ops.functional.losses import classes
from pto_wsp.ops.functional.operator import GATES, PRODUCTS, TABLES, operator
from pto_wsp.types import f32, i64

Array = np.ndarray


@operator("x W^T + b", 16, "x [..., in], weight [out, in], bias [out] -> [..., out]")
def linear(x: Any, weight: Any, bias: Any = None, *, out: Array | None = None) -> Array:
    """Return x times the transposed weight, plus the bias."""
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    w = like("weight", weight, dtype)
    require_shape("weight", w, (w.shape[0] if w.ndim else 0, array.shape[-1]))
    count = w.shape[0]
    b = np.zeros(count, dtype.to_numpy()) if bias is None else like("bias", bias, dtype, (count,))
    require_apart(out, array, w, b)
    y = output(out, (*array.shape[:-1], count), dtype)
    PRODUCTS.run(dtype, "linear", X=rows(array), W=w, B=b.reshape(1, -1), Y=rows(y))
    return y


@operator(
    "x1 W_o x2 + b_o", 24, "x1 [..., in1], x2 [..., in2], weight [out, in1, in2], bias [out] -> [..., out]"
)
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None, *, out: Array | None = None) -> Array:
    """Return x1 W_o x2 + b_o for each output o."""
    a, dtype = floats("x1", x1)
    require_rank("x1", a, 1)
    t = like("x2", x2, dtype)
    require_shape("x2", t, (*a.shape[:-1], t.shape[-1] if t.ndim else 0))
    w = like("weight", weight, dtype)
    require_shape("weight", w, (w.shape[0] if w.ndim else 0, a.shape[-1], t.shape[-1]))
    count = w.shape[0]
    b = np.zeros(count, dtype.to_numpy()) if bias is None else like("bias", bias, dtype, (count,))
    y = output(out, (*a.shape[:-1], count), dtype)
    x, target = rows(a), rows(y)
    made = np.empty((count, len(x), 1), dtype.to_numpy())
    PRODUCTS.run(dtype, "bilinear", X=x, T=rows(t), W=w, B=b.reshape(-1, 1, 1), Y=made)
    target[...] = made[:, :, 0].T
    return y


@operator("W[i]", 0, "indices [...], weight [rows, dim] -> [..., dim]")
def embedding(indices: Any, weight: Any, *, out: Array | None = None) -> Array:
    """Return the rows of a table that the indices select."""
    w, dtype = floats("weight", weight)
    require_rank("weight", w, 2)
    chosen = as_array("indices", indices)
    numbers = classes("indices", chosen, chosen.shape, w.shape[0])
    require_apart(out, w)
    y = output(out, (*chosen.shape, w.shape[1]), dtype)
    TABLES.run(dtype, "embedding", W=w, I=numbers.reshape(1, -1), Y=y.reshape(numbers.size, w.shape[1]))
    return y


@operator("1 where j = i, else 0, as i64", 0, "indices [...] -> [..., num_classes] of i64")
def one_hot(indices: Any, num_classes: int, *, out: Array | None = None) -> Array:
    """Return 1 at each index and 0 elsewhere, in a new last dimension."""
    chosen = as_array("indices", indices)
    numbers = classes("indices", chosen, chosen.shape, num_classes)
    y = output(out, (*chosen.shape, num_classes), i64)
    TABLES.run(f32, "one_hot", I=numbers, Y=y.reshape(numbers.size, num_classes))
    return y


@operator(
    "(a cos - b sin, b cos + a sin), of the halves a, b of the last dimension",
    3,
    "x [..., 2 n], cos [..., n], sin [..., n] -> [..., 2 n]",
)
def rope(x: Any, cos: Any, sin: Any, *, out: Array | None = None) -> Array:
    """Return x with rotary position embedding, given the cosines and sines of each row."""
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    if array.shape[-1] % 2:
        raise WrongShape(dim=array.ndim - 1, name="x", expected="an even size", found=array.shape[-1])
    half = array.shape[-1] // 2
    shape = (*array.shape[:-1], half)
    c, s = like("cos", cos, dtype, shape), like("sin", sin, dtype, shape)
    y = output(out, array.shape, dtype)
    pairs = (len(rows(c)), 2, half)
    GATES.run(dtype, "rope", X=array.reshape(pairs), Cos=rows(c), Sin=rows(s), Y=y.reshape(pairs))
    return y


@operator("x: dropout of inference", 0)
def dropout(x: Any, p: float = 0.5, training: bool = False, *, out: Array | None = None) -> Array:
    """Return a copy of x: inference drops nothing.

    Raises:
        NotYetSupported: for training.
        WrongValue: p is not a probability.
    """
    if training:
        raise NotYetSupported(feature="dropout for training", detail="", advice="multiply by a mask")
    if not 0 <= p <= 1:
        raise WrongValue(name="p", expected="a number from 0 to 1", found=str(p))
    array, dtype = floats("x", x)
    y = output(out, array.shape, dtype)
    y[...] = array
    return y
