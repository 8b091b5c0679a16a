"""Operators as functions of arrays: `from pto_wsp.ops import functional as F; F.gelu(x)`.

Arguments are arrays of f32, f16 or bf16 of any shape; `out=` is written in place. What is compiled is
compiled at the first call for an element type, and kept: no shape compiles again. `workload(name)` is the
workload of an operator, to be called in other workloads; `modules()` are the operators as IR, whose text is
`.pto`.
"""

from __future__ import annotations

from pto_wsp.errors import UnknownName, did_you_mean
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import caller_location
from pto_wsp.ops.functional.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    reglu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softshrink,
    softsign,
    swiglu,
    tanh,
    tanhshrink,
    threshold,
)
from pto_wsp.ops.functional.layers import bilinear, dropout, embedding, linear, one_hot, rope
from pto_wsp.ops.functional.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    cross_entropy,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    pairwise_distance,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from pto_wsp.ops.functional.operator import FAMILIES, OPERATORS
from pto_wsp.ops.functional.rows import (
    amax,
    amin,
    argmax,
    argmin,
    batch_norm,
    group_norm,
    layer_norm,
    log_softmax,
    logsumexp,
    mean,
    norm,
    normalize,
    rms_norm,
    softmax,
    softmin,
    sum,
    topk,
    var,
)
from pto_wsp.types import f32
from pto_wsp.types.dtype import DType

__all__ = [
    "OPERATORS",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "geglu",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "logsumexp",
    "mean",
    "mish",
    "modules",
    "mse_loss",
    "nll_loss",
    "norm",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "poisson_nll_loss",
    "prelu",
    "reglu",
    "relu",
    "relu6",
    "rms_norm",
    "rope",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "sum",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
    "topk",
    "var",
    "workload",
]


def modules(dtype: DType = f32) -> list[Module]:
    """Return the operators as IR, the workloads named as operators; a module is one library of kernels."""
    return [family.module(dtype) for family in FAMILIES]


def workload(name: str, dtype: DType = f32) -> Workload:
    """Return the workload of an operator.

    Raises:
        UnknownName: there is none of that name.
    """
    found = {key: made for family in FAMILIES for key, made in family.workloads(dtype).items()}
    if name not in found:
        advice = did_you_mean(name, found)
        raise UnknownName(name=name, where="the workloads of operators", advice=advice, loc=caller_location())
    return found[name]
