"""Activations and losses, element by element: the kernels. They compute in f32 and round once."""

# Annotations depend on the element type, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import pi, sqrt
from typing import Final

from pto_wsp.lang.annotations import In, Out
from pto_wsp.lang.kernel import pto
from pto_wsp.lang.kernel.kernel import kernel
from pto_wsp.lang.operands import Scalar, Tile
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.ops.functional.tiles import COLS, ROWS, over_pairs, over_tiles
from pto_wsp.types import f32
from pto_wsp.types.dtype import DType

SELU_ALPHA: Final = 1.6732632423543772
SELU_SCALE: Final = 1.0507009873554805
GELU_SLOPE: Final = sqrt(2 / pi)
LOWEST_LOG: Final = -100.0
"""Logarithms of binary cross entropy are not taken to be less."""


def activations(DT: DType) -> list[Workload]:
    """Return the activations without numbers."""

    @kernel
    def tile_relu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.relu(x))

    @kernel
    def tile_relu6(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.minimum(pto.relu(x), 6.0))

    @kernel
    def tile_selu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        low = pto.expm1(v) * SELU_ALPHA
        pto.store(y, pto.cast(pto.where(v > 0.0, v, low) * SELU_SCALE, DT))

    @kernel
    def tile_gelu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.gelu(x))

    @kernel
    def tile_gelu_tanh(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        inner = (v * v * v * 0.044715 + v) * GELU_SLOPE
        pto.store(y, pto.cast(v * 0.5 * (pto.tanh(inner) + 1.0), DT))

    @kernel
    def tile_silu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.silu(x))

    @kernel
    def tile_mish(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        soft = pto.relu(v) + pto.log1p(pto.exp(-pto.abs(v)))
        pto.store(y, pto.cast(v * pto.tanh(soft), DT))

    @kernel
    def tile_softsign(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(v / (pto.abs(v) + 1.0), DT))

    @kernel
    def tile_hardsigmoid(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.minimum(pto.maximum(v + 3.0, 0.0), 6.0) / 6.0, DT))

    @kernel
    def tile_hardswish(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(v * pto.minimum(pto.maximum(v + 3.0, 0.0), 6.0) / 6.0, DT))

    @kernel
    def tile_tanh(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.tanh(x))

    @kernel
    def tile_sigmoid(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.sigmoid(x))

    @kernel
    def tile_logsigmoid(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.minimum(v, 0.0) - pto.log1p(pto.exp(-pto.abs(v))), DT))

    @kernel
    def tile_tanhshrink(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(v - pto.tanh(v), DT))

    kernels = (
        *(tile_relu, tile_relu6, tile_selu, tile_gelu, tile_gelu_tanh, tile_silu, tile_mish, tile_softsign),
        *(tile_hardsigmoid, tile_hardswish, tile_tanh, tile_sigmoid, tile_logsigmoid, tile_tanhshrink),
    )
    return [over_tiles(found, DT) for found in kernels]


def activations_with_numbers(DT: DType) -> list[Workload]:
    """Return the activations with one or two numbers, a and b."""

    @kernel
    def tile_leaky_relu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]):
        pto.store(y, pto.cast(pto.prelu(pto.cast(x, f32), a), DT))

    @kernel
    def tile_elu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.where(v > 0.0, v, pto.expm1(v) * a), DT))

    @kernel
    def tile_celu(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.where(v > 0.0, v, pto.expm1(v / a) * a), DT))

    @kernel
    def tile_hardshrink(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.where((v <= a) & (v >= -a), 0.0, v), DT))

    @kernel
    def tile_softshrink(x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.where(v > a, v - a, pto.where(v < -a, v + a, v * 0.0)), DT))

    @kernel
    def tile_softplus(
        x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32], b: Scalar[f32]
    ):
        v = pto.cast(x, f32)
        z = v * a
        soft = (pto.relu(z) + pto.log1p(pto.exp(-pto.abs(z)))) / a
        pto.store(y, pto.cast(pto.where(z > b, v, soft), DT))

    @kernel
    def tile_hardtanh(
        x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32], b: Scalar[f32]
    ):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.minimum(pto.maximum(v, a), b), DT))

    @kernel
    def tile_threshold(
        x: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32], b: Scalar[f32]
    ):
        v = pto.cast(x, f32)
        pto.store(y, pto.cast(pto.where(v <= a, b, v), DT))

    one = (tile_leaky_relu, tile_elu, tile_celu, tile_hardshrink, tile_softshrink)
    two = (tile_softplus, tile_hardtanh, tile_threshold)
    return [*(over_tiles(k, DT, 1) for k in one), *(over_tiles(k, DT, 2) for k in two)]


def losses(DT: DType) -> list[Workload]:
    """Return the losses of predictions and targets, element by element."""

    @kernel
    def tile_mse_loss(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        d = pto.cast(x, f32) - pto.cast(t, f32)
        pto.store(y, pto.cast(d * d, DT))

    @kernel
    def tile_l1_loss(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        pto.store(y, pto.cast(pto.abs(pto.cast(x, f32) - pto.cast(t, f32)), DT))

    @kernel
    def tile_binary_cross_entropy(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]
    ):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        yes = pto.maximum(pto.log(v), LOWEST_LOG)
        no = pto.maximum(pto.log1p(-v), LOWEST_LOG)
        pto.store(y, pto.cast((w - 1.0) * no - w * yes, DT))

    @kernel
    def tile_binary_cross_entropy_with_logits(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]
    ):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        pto.store(y, pto.cast(pto.relu(v) - v * w + pto.log1p(pto.exp(-pto.abs(v))), DT))

    @kernel
    def tile_kl_div(x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        pto.store(y, pto.cast(pto.where(w == 0.0, 0.0, w * (pto.log(w) - v)), DT))

    @kernel
    def tile_soft_margin_loss(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]
    ):
        z = -(pto.cast(x, f32) * pto.cast(t, f32))
        pto.store(y, pto.cast(pto.relu(z) + pto.log1p(pto.exp(-pto.abs(z))), DT))

    @kernel
    def tile_poisson_nll_loss(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]]
    ):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        pto.store(y, pto.cast(pto.exp(v) - w * v, DT))

    @kernel
    def tile_smooth_l1_loss(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]
    ):
        d = pto.abs(pto.cast(x, f32) - pto.cast(t, f32))
        pto.store(y, pto.cast(pto.where(d < a, d * d * 0.5 / a, d - a * 0.5), DT))

    @kernel
    def tile_huber_loss(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]
    ):
        d = pto.abs(pto.cast(x, f32) - pto.cast(t, f32))
        pto.store(y, pto.cast(pto.where(d <= a, d * d * 0.5, (d - a * 0.5) * a), DT))

    @kernel
    def tile_hinge_embedding_loss(
        x: In[Tile[ROWS, COLS, DT]], t: In[Tile[ROWS, COLS, DT]], y: Out[Tile[ROWS, COLS, DT]], a: Scalar[f32]
    ):
        v, w = pto.cast(x, f32), pto.cast(t, f32)
        pto.store(y, pto.cast(pto.where(w == 1.0, v, pto.maximum(a - v, 0.0)), DT))

    plain = (
        *(tile_mse_loss, tile_l1_loss, tile_binary_cross_entropy, tile_binary_cross_entropy_with_logits),
        *(tile_kl_div, tile_soft_margin_loss, tile_poisson_nll_loss),
    )
    one = (tile_smooth_l1_loss, tile_huber_loss, tile_hinge_embedding_loss)
    return [*(over_pairs(k, DT) for k in plain), *(over_pairs(k, DT, 1) for k in one)]
