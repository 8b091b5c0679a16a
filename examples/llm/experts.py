"""A feed-forward network of experts: the run chooses some of them for each token.

The rows of an expert are packed, so that its matrices meet many tokens together. The parts of a token are
added in the order of its choice: the bits of a token do not depend on other tokens.
"""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Callable, Iterator
from typing import Any

from examples.llm.config import Config
from examples.llm.kernels import ROWS, Activations, gate_kernel, normalised_with, product_with
from examples.llm.storage import Storage
from examples.llm.weights import Plan, Weights, part, tasks
from pto_wsp import DYN, Dense, In, InOut, Out, P, Tensor, Tile, f32, group_by, i32, kernel, pto


def route_kernel(config: Config) -> Any:
    """Return the kernel that chooses experts: those with the largest scores, the lower one among equals."""
    HIDDEN, EXPERTS, CHOSEN = config.hidden, config.experts, config.chosen
    COLS, IS_UNIT, HAS_SHARED = EXPERTS + bool(config.shared), config.has_unit_gates, config.shared > 0
    normalised = normalised_with(config)

    @kernel
    def route(
        h: In[Tile[ROWS, HIDDEN, f32]],
        gain: In[Tile[1, HIDDEN, f32]],
        w: In[Tile[HIDDEN, COLS, f32]],
        experts: Out[Tile[ROWS, CHOSEN, i32]],
        factors: Out[Tile[ROWS, CHOSEN + HAS_SHARED, f32]],
    ):
        """Tokens are normalised again: products may round them, the choice does not."""
        scores = pto.matmul(normalised(h, gain), w)
        all_scores = pto.extract(scores, (h.rows, EXPERTS), 0, 0)
        best = pto.sort(all_scores)
        top = pto.extract_topk_values(best, CHOSEN)
        most = pto.rowmax(top)
        weights = pto.exp(top - most)
        total = pto.rowsum(weights if IS_UNIT else pto.exp(all_scores - most))
        pto.store(experts, pto.extract_topk_indices(best, CHOSEN))
        pto.store(factors[:, 0:CHOSEN], weights / total)
        if HAS_SHARED:
            opened = pto.extract(scores, (h.rows, 1), 0, EXPERTS)
            pto.store(factors[:, CHOSEN : CHOSEN + 1], 1 / (1 + pto.exp(-opened)))

    return route


def collect_kernel(config: Config, activations: Activations) -> Any:
    """Return the kernel that copies the tokens of (token, choice) pairs side by side."""
    COLS, CHOSEN = activations.cols(config.hidden), config.chosen

    @kernel
    def collect(
        x: In[Tensor[activations.dtype, DYN, COLS]],
        pairs: In[Tile[ROWS, 1, i32]],
        out: Out[activations.tile(config.hidden)],
    ):
        pto.store(out, pto.gather(x, pto.div(pairs, CHOSEN)))

    return collect


def leave_kernel(storage: Storage, activations: Activations) -> Any:
    """Return the kernel of an expert's second matrix."""
    COLS, product = storage.cols, product_with(storage)

    @kernel
    def leave(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(1)],
        out: Out[Tile[ROWS, COLS, f32]],
    ):
        pto.store(out, product(pto.zeros((x.rows, COLS)), x, w[0]))

    return leave


def leave_shared_kernel(storage: Storage, activations: Activations) -> Any:
    """Return the kernel of the shared expert's second matrix, with the factors of tokens."""
    COLS, product = storage.cols, product_with(storage)

    @kernel
    def leave_shared(
        x: In[activations.tile(storage.k)],
        w: In[storage.view(1)],
        factor: In[Tile[ROWS, 1, f32]],
        h: InOut[Tile[ROWS, COLS, f32]],
    ):
        pto.store(h, pto.load(h) + product(pto.zeros((x.rows, COLS)), x, w[0]) * factor)

    return leave_shared


def combine_kernel(config: Config) -> Any:
    """Return the kernel that adds the parts of tokens to them, in the order of their choice."""
    HIDDEN, CHOSEN = config.hidden, config.chosen

    @kernel
    def combine(
        parts: In[Tensor[f32, DYN, CHOSEN, HIDDEN]],
        factors: In[Tile[ROWS, CHOSEN, f32]],
        h: InOut[Tile[ROWS, HIDDEN, f32]],
    ):
        for r in pto.tiles(h.rows, 8):
            total = parts[r, 0] * factors[r, 0:1]
            for i in range(1, CHOSEN):
                total = total + parts[r, i] * factors[r, i : i + 1]
            pto.store(h[r], pto.load(h[r]) + total)

    return combine


def mixture(plan: Plan, activations: Activations, weights: Weights) -> Callable[..., None]:
    """Return what traces the network of a layer: tokens choose experts, whose parts are added to them."""
    config = plan.config
    CHOSEN, HAS_SHARED = config.chosen, config.shared > 0
    route, combine = route_kernel(config), combine_kernel(config)
    routed, shared = routed_experts(plan, activations, weights), shared_expert(plan, activations, weights)
    parts = Tensor(shape=("tokens", CHOSEN, config.hidden), dtype=f32, name="Parts")
    factors = Tensor(shape=("tokens", CHOSEN + HAS_SHARED), dtype=f32, name="Factors")
    experts = Tensor(shape=("tokens", CHOSEN), dtype=i32, name="Experts")
    router = Tensor(
        shape=(config.layers, config.hidden, config.experts + HAS_SHARED), dtype=f32, name="Router"
    )

    def network(layer: Any, tokens: Any, _: Any, hidden: Any, normed: Any, gain: Any) -> None:
        for r in P.tiles(tokens, ROWS):
            route[r](h=hidden[r], gain=gain, w=router[layer], experts=experts[r], factors=factors[r])
        routed(layer, experts, normed, parts)
        for r in P.tiles(tokens, ROWS):
            combine[r](parts=parts[r], factors=factors[r, 0:CHOSEN], h=hidden[r])
        if HAS_SHARED:
            shared(layer, tokens, normed, factors, hidden)

    return network


def routed_experts(plan: Plan, activations: Activations, weights: Weights) -> Callable[..., None]:  # noqa: C901
    """Return what traces the chosen experts of all tokens, expert after expert."""
    config, cols = plan.config, activations.cols
    collect = collect_kernel(config, activations)
    inner = Tensor(shape=("pairs", cols(config.inner)), dtype=activations.dtype, name="Inner")
    packed = Tensor(shape=("pairs", cols(config.hidden)), dtype=activations.dtype, name="Collected")

    def routed(layer: Any, experts: Any, normed: Any, parts: Any) -> None:
        def each(panels: int) -> Iterator[tuple[Any, Any, Any, Any]]:
            """Yield experts, tiles of their rows, numbers of panels in an expert, and in its matrix."""
            for e in P(Dense[config.experts]):
                for pick, c in tasks(groups[e], panels):
                    yield e, pick, c, panels * e + c

        def gate(i: int, j: int, w: Any, u: Any) -> None:
            gates = plan.layers["Gate"][i]
            enter = gate_kernel(gates, plan.layers["Up"][j], activations)
            for e, pick, c, p in each(config.inner // gates.cols):
                places = groups[e][pick]
                out = inner[places, part(cols(gates.cols), c)]
                enter[e, pick, c](x=packed[places], gate=w[p : p + 1], up=u[p : p + 1], out=out)

        def down(i: int, w: Any) -> None:
            storage = plan.layers["Down"][i]
            leave = leave_kernel(storage, activations)
            for e, pick, c, p in each(config.hidden // storage.cols):
                # Row sets are disjoint between picks: experts do not wait for each other.
                out = parts[groups.rows(pick)][:, part(storage.cols, c)]
                leave[e, pick, c](x=inner[groups[e][pick]], w=w[p : p + 1], out=out)

        groups = group_by(experts, num_groups=config.experts)
        for e in P(Dense[config.experts]):
            for pick in P.tiles(groups[e], ROWS):
                collect[e, pick](x=normed, pairs=groups.rows(pick), out=packed[groups[e][pick]])
        weights.pairs("Gate", "Up", layer, gate)
        weights.each("Down", layer, down)

    return routed


def shared_expert(plan: Plan, activations: Activations, weights: Weights) -> Callable[..., None]:
    """Return what traces the expert that all tokens pass."""
    config, cols = plan.config, activations.cols
    inner = Tensor(shape=("tokens", cols(config.shared)), dtype=activations.dtype, name="SharedInner")

    def shared(layer: Any, tokens: Any, normed: Any, factors: Any, hidden: Any) -> None:
        def gate(i: int, j: int, w: Any, u: Any) -> None:
            gates = plan.layers["SharedGate"][i]
            enter = gate_kernel(gates, plan.layers["SharedUp"][j], activations)
            for r, c in tasks(tokens, config.shared // gates.cols):
                out = inner[r, part(cols(gates.cols), c)]
                enter[r, c](x=normed[r], gate=w[c : c + 1], up=u[c : c + 1], out=out)

        def down(i: int, w: Any) -> None:
            storage = plan.layers["SharedDown"][i]
            leave, opened = leave_shared_kernel(storage, activations), config.chosen
            for r, c in tasks(tokens, config.hidden // storage.cols):
                leave[r, c](
                    x=inner[r], w=w[c : c + 1], factor=factors[r, opened : opened + 1],
                    h=hidden[r, part(storage.cols, c)],
                )  # fmt: skip

        weights.pairs("SharedGate", "SharedUp", layer, gate)
        weights.each("SharedDown", layer, down)

    return shared
