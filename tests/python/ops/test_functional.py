"""The operators against numpy in f64, on odd shapes; their modules as `.pto` text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pto_wsp import Tensor, parse, workload
from pto_wsp.errors import NotYetSupported, WrongDType, WrongShape, WrongValue
from pto_wsp.isa.meaning import gelu, sigmoid, silu
from pto_wsp.ops import functional as F
from pto_wsp.ops.functional.operator import ACTIVATIONS
from pto_wsp.types import bf16, f16, f32
from tests.slow import mostly_slow

Array = np.ndarray
EPS = float(np.finfo(np.float32).eps)

SHAPES = ((1, 1), (7, 33), (3, 5, 300), (1, 9001), (0, 5), (4, 0), (2, 4101), (64,))
"""Of elements, rows and tails; 9001 and 4101 are more than the columns of a tile."""


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) * 2).astype(np.float32)


def probabilities(rng: np.random.Generator, *shape: int) -> Array:
    return rng.random(shape, np.float32)


def log1pexp(x: Array) -> Array:
    return np.logaddexp(0, x)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def halves(x: Array) -> tuple[Array, Array]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def check(name: str, found: Array, exact: Array, scale: Array | float = 1.0) -> None:
    """Compare a result with its meaning, within the operator's bound."""
    bound = F.OPERATORS[name].bound
    assert found.shape == exact.shape
    with np.errstate(all="ignore"):
        same = (found == exact.astype(found.dtype)) | (np.isnan(found) & np.isnan(exact))
        near = np.abs(found - exact) <= bound * EPS * np.maximum(np.abs(exact), scale)
        error = np.abs(found - exact) / (EPS * np.maximum(np.abs(exact), scale))
    bad = ~(same | near)
    assert not bad.any(), (name, error[bad].max(), found[bad][:3], exact[bad][:3])


# --- element by element -------------------------------------------------------------------------------------

ELEMENTWISE: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "relu": ({}, lambda x: np.maximum(x, 0)),
    "relu6": ({}, relu6),
    "leaky_relu": ({"negative_slope": 0.3}, lambda x: np.where(x > 0, x, np.float32(0.3) * x)),
    "elu": ({"alpha": 0.7}, lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "selu": ({}, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "celu": ({"alpha": 1.3}, lambda x: np.where(x > 0, x, 1.3 * np.expm1(x / 1.3))),
    "gelu": ({}, gelu),
    "silu": ({}, silu),
    "mish": ({}, lambda x: x * np.tanh(log1pexp(x))),
    "softplus": ({"beta": 1.5}, lambda x: log1pexp(1.5 * x) / 1.5),
    "softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "hardtanh": ({"min_val": -0.5, "max_val": 2.0}, lambda x: np.clip(x, -0.5, 2)),
    "hardsigmoid": ({}, lambda x: relu6(x + 3) / 6),
    "hardswish": ({}, lambda x: x * relu6(x + 3) / 6),
    "tanh": ({}, np.tanh),
    "sigmoid": ({}, sigmoid),
    "logsigmoid": ({}, lambda x: -log1pexp(-x)),
    "threshold": ({"threshold": 0.25, "value": -4.0}, lambda x: np.where(x <= 0.25, -4.0, x)),
    "hardshrink": ({}, lambda x: np.where(np.abs(x) <= 0.5, 0, x)),
    "softshrink": ({}, lambda x: np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0 * x))),
    "tanhshrink": ({}, lambda x: x - np.tanh(x)),
    "dropout": ({}, lambda x: x),
}


@pytest.mark.parametrize("name", mostly_slow(ELEMENTWISE, quick=8))
def test_elementwise(name: str) -> None:
    options, meaning = ELEMENTWISE[name]
    rng = np.random.default_rng(1)
    for shape in (*SHAPES, ()):
        x = floats(rng, *shape)
        out = np.full(x.shape, np.nan, np.float32)
        assert getattr(F, name)(x, **options, out=out) is out
        with np.errstate(all="ignore"):
            check(name, out, np.asarray(meaning(x.astype(np.float64))))
    extreme = np.array([0.0, -0.0, 1e-40, 90, -90, 1e30, -1e30, np.nan], np.float32)
    with np.errstate(all="ignore"):
        exact = np.asarray(meaning(extreme.astype(np.float64)))
    check(name, getattr(F, name)(extreme, **options), np.where(np.abs(exact) > 3.4e38, np.nan, exact))


def test_gelu_by_tanh() -> None:
    x = floats(np.random.default_rng(2), 9, 77)
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    check("gelu", F.gelu(x, "tanh"), wide / 2 * (1 + np.tanh(inner)))
    with pytest.raises(WrongValue):
        F.gelu(x, "exact")  # pyright: ignore


def test_prelu() -> None:
    rng = np.random.default_rng(3)
    for shape in ((6,), (5, 6), (2, 6, 3, 4), (0, 6)):
        x, w = floats(rng, *shape), floats(rng, 6)
        slopes = w if len(shape) < 3 else w.reshape(6, 1, 1)
        check("prelu", F.prelu(x, w), np.where(x > 0, x, x.astype(np.float64) * slopes))
        check("prelu", F.prelu(x, w[:1]), np.where(x > 0, x, x.astype(np.float64) * w[0]))
    with pytest.raises(WrongShape):
        F.prelu(floats(rng, 2, 5), w)


GATES: dict[str, Callable[[Array, Array], Array]] = {
    "glu": lambda a, b: a * sigmoid(b),
    "swiglu": lambda a, b: silu(a) * b,
    "geglu": lambda a, b: gelu(a) * b,
    "reglu": lambda a, b: np.maximum(a, 0) * b,
}


@pytest.mark.parametrize("name", GATES)
def test_gates(name: str) -> None:
    rng = np.random.default_rng(4)
    for shape in ((1, 2), (3, 5, 66), (2, 20002), (0, 4), (6,)):
        x = floats(rng, *shape)
        check(name, getattr(F, name)(x), GATES[name](*halves(x.astype(np.float64))))
    with pytest.raises(WrongShape):
        getattr(F, name)(floats(rng, 2, 3))


# --- along a dimension --------------------------------------------------------------------------------------


def log_sum(x: Array, axis: int) -> Array:
    return np.logaddexp.reduce(x, axis=axis, keepdims=True)


ALONG: dict[str, Callable[[Array, int], Array]] = {
    "softmax": lambda x, d: np.exp(x - log_sum(x, d)),
    "softmin": lambda x, d: np.exp(-x - log_sum(-x, d)),
    "log_softmax": lambda x, d: x - log_sum(x, d),
    "normalize": lambda x, d: x / np.maximum(np.sqrt((x * x).sum(d, keepdims=True)), 1e-12),
}
REDUCE: dict[str, tuple[Callable[[Array, int], Array], Callable[[Array, int], Array] | None]] = {
    "logsumexp": (lambda x, d: np.logaddexp.reduce(x, axis=d), None),
    "sum": (lambda x, d: x.sum(d), lambda x, d: np.abs(x).sum(d)),
    "mean": (lambda x, d: x.mean(d), lambda x, d: np.abs(x).mean(d)),
    "amax": (lambda x, d: x.max(d, initial=-np.inf), None),
    "amin": (lambda x, d: x.min(d, initial=np.inf), None),
    "var": (lambda x, d: x.var(d, ddof=1) if x.shape[d] > 1 else np.full_like(x.sum(d), np.nan), None),
    "norm": (lambda x, d: np.sqrt((x * x).sum(d)), None),
    "argmax": (lambda x, d: x.argmax(d) if x.shape[d] else np.full(x.sum(d).shape, -1), None),
    "argmin": (lambda x, d: x.argmin(d) if x.shape[d] else np.full(x.sum(d).shape, -1), None),
}


@pytest.mark.parametrize("name", mostly_slow([*ALONG, *REDUCE], quick=4))
def test_along_a_dimension(name: str) -> None:
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        x = floats(rng, *shape)
        wide = x.astype(np.float64)
        for dim in {-1, 0, len(shape) // 2}:
            if name == "mean" and not x.shape[dim]:
                assert np.isnan(F.mean(x, dim)).all()
                continue
            with np.errstate(all="ignore"):
                if name in ALONG:
                    check(name, getattr(F, name)(x, dim), ALONG[name](wide, dim))
                    continue
                meaning, scale = REDUCE[name]
                exact = np.asarray(meaning(wide, dim))
            if name == "sum" and not x.size:
                assert not F.sum(x, dim).any()
                continue
            check(name, getattr(F, name)(x, dim), exact, 1.0 if scale is None else scale(wide, dim))
            assert getattr(F, name)(x, dim, keepdim=True).ndim == x.ndim


def test_rows_of_infinities_and_nan() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [-np.inf, 2]], np.float32)
    assert np.array_equal(F.logsumexp(x), [-np.inf, np.inf, np.nan, 2], equal_nan=True)
    assert F.argmax(x).tolist() == [0, 0, 0, 1] and F.argmin(x).tolist() == [0, 1, 0, 0]
    assert np.array_equal(F.softmax(x)[3], [0, 1]) and np.isnan(F.amax(x)[2])
    late = np.zeros((1, 5000), np.float32)
    late[0, 4500] = np.nan
    assert F.argmax(late).tolist() == [4500] and F.argmin(late).tolist() == [4500]


@pytest.mark.parametrize("cols", [1, 33, 300, 4101])
def test_norms(cols: int) -> None:
    rng = np.random.default_rng(6)
    x, w, b = floats(rng, 3, 2, cols), floats(rng, cols), floats(rng, cols)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    size = np.abs(w * normal) + np.abs(w) + np.abs(b)
    check("layer_norm", F.layer_norm(x, w, b), normal * w + b, size)
    check("layer_norm", F.layer_norm(x), normal, np.abs(normal) + 1)
    root = np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    check("rms_norm", F.rms_norm(x, w), wide / root * w)
    assert F.layer_norm(np.empty((0, cols), np.float32)).shape == (0, cols)


@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (1, 6), (3, 12, 2500), (0, 6, 2)])
def test_norms_of_channels(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    x, channels = floats(rng, *shape), shape[1]
    w, b, mean, var = (floats(rng, channels) for _ in range(4))
    var = np.abs(var)
    wide, each = x.astype(np.float64), (channels, *(1 for _ in shape[2:]))
    groups = wide.reshape(shape[0], 3, int(np.prod(shape[1:])) // 3)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = (centred / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)).reshape(shape)
    scale = np.abs(normal * w.reshape(each)) + np.abs(w.reshape(each)) + np.abs(b.reshape(each))
    check("group_norm", F.group_norm(x, 3, w, b), normal * w.reshape(each) + b.reshape(each), scale)
    wanted = (wide - mean.reshape(each)) / np.sqrt(var.reshape(each) + 1e-5) * w.reshape(each) + b.reshape(
        each
    )
    size = np.abs(wanted - b.reshape(each)) + np.abs(b.reshape(each))
    check("batch_norm", F.batch_norm(x, mean, var, w, b), wanted, size)
    with pytest.raises(WrongShape):
        F.group_norm(x, 5)


def test_topk() -> None:
    rng = np.random.default_rng(8)
    for shape, k in (((9, 700), 5), ((3, 4, 40), 40), ((1, 1), 1), ((0, 8), 3), ((5, 300), 128)):
        x = np.round(floats(rng, *shape), 1)
        values, indices = F.topk(x, k)
        order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        assert np.array_equal(indices, order) and np.array_equal(values, np.take_along_axis(x, order, -1))
    for k in (0, 129):
        with pytest.raises(WrongValue, match="k"):
            F.topk(floats(rng, 2, 500), k)


# --- losses -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """How a loss is tested: its options, its meaning, and what predictions and targets are."""

    meaning: Callable[[Array, Array], Array]
    options: tuple[tuple[str, float], ...] = ()
    predictions: Callable[..., Array] = floats
    targets: Callable[..., Array] = floats


def signs(rng: np.random.Generator, *shape: int) -> Array:
    return rng.choice(np.array([-1, 1], np.float32), shape)


LOSSES = {
    "mse_loss": Loss(lambda x, t: (x - t) ** 2),
    "l1_loss": Loss(lambda x, t: np.abs(x - t)),
    "smooth_l1_loss": Loss(
        lambda x, t: np.where(np.abs(x - t) < 0.5, (x - t) ** 2, np.abs(x - t) - 0.25), (("beta", 0.5),)
    ),
    "huber_loss": Loss(
        lambda x, t: np.where(np.abs(x - t) <= 2, (x - t) ** 2 / 2, 2 * (np.abs(x - t) - 1)),
        (("delta", 2.0),),
    ),
    "binary_cross_entropy": Loss(
        lambda x, t: -(t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log1p(-x), -100)),
        predictions=probabilities,
        targets=probabilities,
    ),
    "binary_cross_entropy_with_logits": Loss(lambda x, t: log1pexp(x) - x * t, targets=probabilities),
    "kl_div": Loss(
        lambda x, t: np.where(t == 0, 0, t * (np.log(np.where(t == 0, 1, t)) - x)), targets=probabilities
    ),
    "soft_margin_loss": Loss(lambda x, t: log1pexp(-x * t), targets=signs),
    "poisson_nll_loss": Loss(lambda x, t: np.exp(x) - t * x, targets=probabilities),
    "hinge_embedding_loss": Loss(lambda x, t: np.where(t == 1, x, np.maximum(0, 1 - x)), targets=signs),
}


@pytest.mark.parametrize("name", mostly_slow(LOSSES, quick=4))
def test_losses(name: str) -> None:
    loss, rng = LOSSES[name], np.random.default_rng(9)
    for shape in ((1, 1), (7, 33), (2, 9001), (5,)):
        x, t = loss.predictions(rng, *shape), loss.targets(rng, *shape)
        with np.errstate(all="ignore"):
            exact = loss.meaning(x.astype(np.float64), t.astype(np.float64))
        size = np.maximum(1, np.abs(x * t) + np.abs(x) + np.abs(t))
        function, options = getattr(F, name), dict(loss.options)
        check(name, function(x, t, "none", **options), exact, size)
        for reduction, wanted in (("sum", exact.sum()), ("mean", exact.mean())):
            found = function(x, t, reduction, **options)
            assert found.shape == () and abs(found - wanted) <= 4 * EPS * (abs(wanted) + np.abs(exact).sum())
    empty = np.empty((0, 3), np.float32)
    assert np.isnan(getattr(F, name)(empty, empty)) and getattr(F, name)(empty, empty, "sum") == 0
    with pytest.raises(WrongValue):
        getattr(F, name)(x, t, "median")


def test_losses_of_rows() -> None:
    rng = np.random.default_rng(10)
    for shape in ((1, 1), (7, 33), (2, 3, 4101), (0, 4)):
        x, other = floats(rng, *shape), floats(rng, *shape)
        t = rng.integers(0, shape[-1], shape[:-1])
        wide, second = x.astype(np.float64), other.astype(np.float64)
        picked = np.take_along_axis(wide, t[..., None], -1)[..., 0]
        check("nll_loss", F.nll_loss(x, t, "none"), -picked)
        check("cross_entropy", F.cross_entropy(x, t, "none"), np.logaddexp.reduce(wide, -1) - picked, 8.0)
        sizes = np.linalg.norm(wide, axis=-1) * np.linalg.norm(second, axis=-1)
        check("cosine_similarity", F.cosine_similarity(x, other), (wide * second).sum(-1) / sizes)
        distance = np.linalg.norm(wide - second + 1e-6, axis=-1)
        check("pairwise_distance", F.pairwise_distance(x, other), distance)
    for wrong in (np.array([0, 4]), np.array([-1, 0]), np.array([0.0, 1.0])):
        with pytest.raises(WrongValue, match="target"):
            F.cross_entropy(floats(rng, 2, 4), wrong)


# --- layers -------------------------------------------------------------------------------------------------


def test_products() -> None:
    rng = np.random.default_rng(11)
    for rows, depth, cols in ((1, 1, 1), (67, 300, 70), (2, 513, 5), (0, 4, 3), (3, 0, 2)):
        x, w, b = floats(rng, rows, depth), floats(rng, cols, depth), floats(rng, cols)
        wide = x.astype(np.float64)
        check(
            "linear",
            F.linear(x, w, b),
            wide @ w.T.astype(np.float64) + b,
            np.abs(x) @ np.abs(w).T + np.abs(b),
        )
        check("linear", F.linear(x[None], w)[0], wide @ w.T.astype(np.float64), np.abs(x) @ np.abs(w).T)
    for rows, one, two, cols in ((1, 1, 1, 1), (66, 37, 70, 3), (0, 3, 4, 2)):
        x, t, w = floats(rng, rows, one), floats(rng, rows, two), floats(rng, cols, one, two)
        b = floats(rng, cols)
        wide = [a.astype(np.float64) for a in (x, w, t)]
        exact = np.einsum("ni,oij,nj->no", *wide) + b
        size = np.einsum("ni,oij,nj->no", *map(np.abs, wide)) + np.abs(b)
        check("bilinear", F.bilinear(x, t, w, b), exact, size)


def test_tables() -> None:
    rng = np.random.default_rng(12)
    w = floats(rng, 50, 70)
    for shape in ((3, 100), (1,), (0,)):
        i = rng.integers(0, 50, shape)
        assert np.array_equal(F.embedding(i, w), w[i])
        assert np.array_equal(F.one_hot(i, 50), np.eye(50, dtype=np.int64)[i])
    for wrong in (np.array([50]), np.array([-1])):
        with pytest.raises(WrongValue, match="indices"):
            F.embedding(wrong, w)
        with pytest.raises(WrongValue, match="indices"):
            F.one_hot(wrong, 50)


def test_rope() -> None:
    rng = np.random.default_rng(13)
    for shape in ((2, 7, 64), (1, 2), (0, 4)):
        x, angle = floats(rng, *shape), floats(rng, *shape[:-1], shape[-1] // 2)
        cos, sin = np.cos(angle), np.sin(angle)
        a, b = halves(x.astype(np.float64))
        check("rope", F.rope(x, cos, sin), np.concatenate([a * cos - b * sin, b * cos + a * sin], -1), 8.0)


# --- all of them --------------------------------------------------------------------------------------------


def test_every_operator_is_tested_and_listed() -> None:
    rest = {
        "prelu",
        "layer_norm",
        "rms_norm",
        "group_norm",
        "batch_norm",
        "topk",
        "linear",
        "bilinear",
        "rope",
    }
    rest |= {"embedding", "one_hot", "cross_entropy", "nll_loss", "cosine_similarity", "pairwise_distance"}
    assert F.OPERATORS.keys() == {*ELEMENTWISE, *GATES, *ALONG, *REDUCE, *LOSSES, *rest}
    assert F.OPERATORS.keys() <= set(F.__all__) and len(F.OPERATORS) >= 40


@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
def test_modules_are_text(dtype: Any) -> None:
    for module in F.modules(dtype):
        assert parse(str(module)) == module


@pytest.mark.parametrize("dtype", mostly_slow([bf16, f16]), ids=str)
def test_small_floats(dtype: Any) -> None:
    rng = np.random.default_rng(14)
    x = floats(rng, 5, 33).astype(dtype.to_numpy())
    wide = x.astype(np.float64)
    normal = np.exp(wide - log_sum(wide, -1))
    pairs = [(F.softmax(x), normal), (F.log_softmax(x), wide - log_sum(wide, -1))]
    plain = [name for name, (options, _) in ELEMENTWISE.items() if not options]
    plain = [name for name in plain if name in ACTIVATIONS.workloads(dtype) and name != "tanhshrink"]
    pairs += [(getattr(F, name)(x), ELEMENTWISE[name][1](wide)) for name in plain]
    assert len(pairs) > 12
    for found, exact in pairs:
        assert found.dtype == x.dtype
        size = np.maximum(np.abs(exact), 2.0**-14)
        assert (np.abs(found.astype(np.float64) - exact) <= dtype.eps * size).all()


def test_nothing_compiles_again() -> None:
    x = np.ones((3, 300), np.float32)
    F.relu(x)
    program = ACTIVATIONS.program(f32, "relu")
    F.relu(np.ones((77, 2), np.float32))
    assert program.stats is not None and program.stats.compiles == 0


def test_workloads_compose() -> None:
    gelu_of, softmax_of = F.workload("gelu"), F.workload("softmax")

    @workload
    def both(X: Tensor[f32, "n", "m"], H: Tensor[f32, "n", "m"], Y: Tensor[f32, "n", "m"]):
        gelu_of(X=X, Y=H)
        softmax_of(X=H, Y=Y, a=1.0)

    x = floats(np.random.default_rng(15), 40, 50)
    h, y = np.empty_like(x), np.empty_like(x)
    both.compile("cpu")(X=x, H=h, Y=y)
    assert np.array_equal(h, F.gelu(x)) and np.array_equal(y, F.softmax(h))


def test_results_may_overwrite_arguments() -> None:
    x = floats(np.random.default_rng(16), 6, 6)
    for name in ("gelu", "softmax", "layer_norm", "log_softmax", "normalize", "rms_norm"):
        target = x.copy()
        assert np.array_equal(getattr(F, name)(target, out=target), getattr(F, name)(x))
    target = x[None].copy()
    assert np.array_equal(F.group_norm(target, 2, out=target), F.group_norm(x[None], 2))
    for inputs in ((x, x.copy()), (x.copy(), x)):
        with pytest.raises(WrongValue, match="memory of its own"):
            F.linear(*inputs, out=x)
    with pytest.raises(WrongValue, match="memory of its own"):
        F.embedding(np.arange(6), x, out=x)


def test_what_does_not_fit_is_named() -> None:
    x = np.ones((4, 6), np.float32)
    for wrong in (x.astype(np.float64), np.ones(3, np.int32)):
        with pytest.raises(WrongDType, match="x"):
            F.relu(wrong)
    with pytest.raises(WrongDType, match="out"):
        F.relu(x, out=np.empty((4, 6), np.float16))
    with pytest.raises(WrongShape, match="out"):
        F.relu(x, out=np.empty((4, 7), np.float32))
    with pytest.raises(WrongValue, match="row-major"):
        F.relu(x, out=np.empty((6, 4), np.float32).T)
    with pytest.raises(WrongValue, match="dim"):
        F.softmax(x, 2)
    with pytest.raises(WrongShape, match="weight"):
        F.layer_norm(x, np.ones(5, np.float32))
    with pytest.raises(NotYetSupported):
        F.dropout(x, training=True)
    assert np.array_equal(F.relu(x.T), x.T) and np.array_equal(F.softmax(x[:, ::2], 0), np.full((4, 3), 0.25))
