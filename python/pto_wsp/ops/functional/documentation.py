"""Docstrings of operators: what `help(F.layer_norm)` adds to the sentences of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable

ARGUMENTS: dict[str, str] = {
    "x": "array of f32, f16 or bf16.",
    "x1": "array of f32, f16 or bf16.",
    "x2": "array of the element type of `x1`.",
    "target": "array of the element type of `x`.",
    "weight": "array of the element type of `x`.",
    "bias": "array of the element type of `x`; None adds nothing.",
    "indices": "array of integers of any type, at least 0 and below the number of rows or classes.",
    "running_mean": "array of the element type of `x`.",
    "running_var": "array of the element type of `x`.",
    "cos": "array of the element type of `x`.",
    "sin": "array of the element type of `x`.",
    "dim": "the dimension; a negative number counts from the last one.",
    "keepdim": "whether the result keeps the dimension, with size 1.",
    "reduction": '"mean" and "sum" of all elements give a scalar; "none" gives every element.',
    "eps": "keeps the divisor away from 0.",
    "out": "row-major array that receives the result; None allocates one.",
    "leaky_relu.negative_slope": "factor of negative elements.",
    "elu.alpha": "absolute limit at minus infinity.",
    "celu.alpha": "absolute limit at minus infinity; not 0.",
    "gelu.approximate": '"none" uses erf, "tanh" the approximation.',
    "softplus.beta": "sharpness.",
    "softplus.threshold": "elements with beta x above it are returned unchanged.",
    "hardtanh.min_val": "least result.",
    "hardtanh.max_val": "greatest result.",
    "threshold.threshold": "elements above it are kept.",
    "threshold.value": "replaces the other elements.",
    "hardshrink.lambd": "elements of at most this absolute value become 0.",
    "softshrink.lambd": "distance by which elements move towards 0.",
    "smooth_l1_loss.beta": "errors below it are squared; above 0.",
    "huber_loss.delta": "errors up to it are squared.",
    "hinge_embedding_loss.target": "1 for matching pairs, -1 for others, of the element type of `x`.",
    "hinge_embedding_loss.margin": "least distance that costs nothing for other pairs.",
    "cross_entropy.target": "integers, at least 0 and below the number of classes.",
    "nll_loss.target": "integers, at least 0 and below the number of classes.",
    "linear.weight": "transposed in every call; pack a constant weight for `pto_wsp.ops.matmul`.",
    "one_hot.num_classes": "size of the new last dimension.",
    "embedding.weight": "table of rows: f32, f16 or bf16.",
    "dropout.p": "probability, 0 to 1; unused at inference.",
    "dropout.training": "must be False.",
    "group_norm.num_groups": "number of groups of equal size.",
    "group_norm.weight": "factor of each channel; None is 1.",
    "batch_norm.weight": "factor of each channel; None is 1.",
    "layer_norm.weight": "factor of each column; None is 1.",
    "rms_norm.weight": "factor of each column; None is 1.",
    "var.correction": "subtracted from n in the divisor; 1 gives the unbiased estimate.",
    "topk.k": "elements per row, 1 to min(n, 128).",
    "topk.out": "pair of arrays (values, indices); None allocates them.",
    "poisson_nll_loss.target": "counts, of the element type of `x`.",
    "soft_margin_loss.target": "1 or -1, of the element type of `x`.",
}
"""What a parameter is: in every operator that has it, or, with a dot, in one operator."""

RAISES = """    WrongDType: an element type is not f32, f16 or bf16, or arrays disagree.
    WrongRank, WrongShape: an array has another shape than stated here.
    WrongValue: `out` is not a row-major numpy array, or a number is out of its range."""


def described(function: Callable[..., object], formula: str, bound: float, shapes: str) -> str:
    """Return the docstring of an operator: its own text, then what the tables say.

    Args:
        function: the operator; its docstring may end in `Raises`.
        formula: what it computes.
        bound: of f32 results, as in `Operator`.
        shapes: shapes of the arrays and of the result.
    """
    text, _, own_raises = (inspect.getdoc(function) or "").partition("\n\nRaises:\n")
    arguments = [
        f"    {name}: {ARGUMENTS.get(f'{function.__name__}.{name}') or ARGUMENTS[name]}"
        for name in inspect.signature(function).parameters
    ]
    parts = [
        text,
        f"Formula: `{formula}`.",
        f"Shapes: {shapes}.",
        "Args:\n" + "\n".join(arguments),
        f"Error: {error_text(bound)}.",
        "Raises:\n" + (f"{own_raises.rstrip()}\n" if own_raises else "") + RAISES,
        f"Example: `F.{_call(function)}`",
    ]
    return "\n\n".join(parts)


def error_text(bound: float) -> str:
    """Return what a bound means, with `s` as in `Operator`."""
    if not bound:
        return "none, the result is exact"
    return f"at most {bound:g} eps max(|exact|, s) in f32; s is 1, or the sum of absolute terms"


def default_shapes(function: Callable[..., object]) -> str:
    """Return the shapes of an operator that does not state them: they follow from its parameters."""
    parameters = inspect.signature(function).parameters
    if "reduction" in parameters:
        return 'x, target [...] -> [], or [...] with reduction="none"'
    if "keepdim" in parameters:
        return "x [..., n, ...] -> [..., ...], or [..., 1, ...] with keepdim=True; n is dimension `dim`"
    return "x [...] -> [...]"


def _call(function: Callable[..., object]) -> str:
    """Return a call with the arrays of an operator and the numbers that have no default."""
    found = inspect.signature(function).parameters.values()
    given = [p.name for p in found if p.name != "out" and p.default in (p.empty, None)]
    return f"{function.__name__}({', '.join(given)})"
