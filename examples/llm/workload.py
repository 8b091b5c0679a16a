"""A whole decoder as one workload: prefill chunks and decode steps of any requests, nothing padded."""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Callable
from typing import Any

from examples.llm import kernels
from examples.llm.experts import mixture
from examples.llm.kernels import PAGE, QUERIES, ROWS, Activations, CacheForm
from examples.llm.low_rank import LowRank
from examples.llm.sampling import choosing_kernels
from examples.llm.weights import Plan, Weights, part, tasks
from pto_wsp import Dense, DenseDyn, P, Ragged, Tensor, f32, i8, i32, workload


def decoder(plan: Plan) -> Any:
    """Return the workload from tokens to scores and the tokens chosen by them.

    Request b has the tokens `request[b]`, after `Past[b]` others. The pages of its cache are `Pages[b]`.
    Token t writes its keys and values at `Place[t]`, a page and a row of it. Rows of `Wanted` get scores,
    and a token that is drawn as `How` says where `IsDrawn` is not 0. Where `MaskOf` is not negative, tokens
    that this row of `Allowed` excludes have the score -infinity.
    """
    config, activations = plan.config, Activations(plan.activations)
    HIDDEN, DIM, HEADS, KV_HEADS, LAYERS = (
        config.hidden,
        config.dim,
        config.heads,
        config.kv_heads,
        config.layers,
    )
    TAKEN, cols = activations.dtype, activations.cols
    weights = Weights(plan)
    norm, norm_named = kernels.norm_kernels(config, activations)
    table = plan.embedding
    embed = kernels.embed_kernel(config, table.dtype, table.group, table.zero, table.has_minima)
    score = kernels.logits_kernel(plan.head, activations)
    exclude, choose, sample = choosing_kernels(config)
    scales, low_rank = CacheScales(plan), LowRank(plan)
    project = projection(plan, activations, weights, scales, low_rank)
    attend = attention(plan, activations, scales)
    finish = feed_forward(plan, activations, weights, low_rank)

    @workload
    def model(
        tokens: DenseDyn,
        request: Ragged["batch"],
        Ids: Tensor[i32, "tokens", 1],
        Cos: Tensor[f32, "tokens", DIM // 2],
        Sin: Tensor[f32, "tokens", DIM // 2],
        Place: Tensor[i32, "tokens", 2],
        Past: Tensor[i32, "batch"],
        Pages: Tensor[i32, "batch", "most_pages"],
        Wanted: Tensor[i32, "wanted", 1],
        IsDrawn: Tensor[i32, "wanted"],
        How: Tensor[f32, "wanted", 5],
        MaskOf: Tensor[i32, "wanted"],
        Allowed: Tensor[i8, "masks", config.vocab],
        K: Tensor[plan.cache, LAYERS, KV_HEADS, "pages", DIM, PAGE],
        V: Tensor[plan.cache, LAYERS, KV_HEADS, "pages", PAGE, DIM],
        Table: Tensor[table.dtype, config.vocab, HIDDEN],
        Scales: Tensor[f32, "rows_of_scales", "groups"],
        Minima: Tensor[f32, "rows_of_minima", "groups_of_minima"],
        FirstGain: Tensor[f32, LAYERS, 1, HIDDEN],
        LastGain: Tensor[f32, 1, HIDDEN],
        Head: Tensor[plan.head.dtype, plan.head.dims[0], plan.head.dims[1], plan.head.dims[2]],
        Hidden: Tensor[f32, "tokens", HIDDEN],
        Normed: Tensor[TAKEN, "tokens", cols(HIDDEN)],
        Q: Tensor[f32, HEADS, "tokens", DIM],
        Attended: Tensor[TAKEN, "tokens", cols(HEADS * DIM)],
        Last: Tensor[TAKEN, "wanted", cols(HIDDEN)],
        Scores: Tensor[f32, "wanted", config.vocab],
        Token: Tensor[i32, "wanted", 1],
    ):
        for r in P.tiles(tokens, ROWS):
            embed[r](ids=Ids[r], table=Table, scales=Scales, minima=Minima, out=Hidden[r])
        for layer in P.range(LAYERS):
            for r in P.tiles(tokens, ROWS):
                norm[r](h=Hidden[r], gain=FirstGain[layer], out=Normed[r])
            project(layer, tokens, request, Normed, Cos, Sin, Place, Q, K, V)
            attend(layer, request, Past, Pages, Q, K, V, Attended)
            finish(layer, tokens, request, norm, Attended, Hidden, Normed)
        for r in P.tiles("wanted", ROWS):
            norm_named[r](h=Hidden, rows=Wanted[r], gain=LastGain, out=Last[r])
        width = plan.head.cols
        for r, c in tasks("wanted", plan.head.dims[0]):
            columns = slice(width * c, (width * c + width).min(config.vocab))
            score[r, c](x=Last[r], w=Head[c : c + 1], out=Scores[r, columns])
        for i in P("wanted"):
            with P.when(MaskOf[i] >= 0):
                exclude[i](allowed=Allowed[MaskOf[i] : MaskOf[i] + 1], scores=Scores[i : i + 1])
            with P.when(IsDrawn[i] == 0):
                choose[i](scores=Scores[i : i + 1], token=Token[i : i + 1])
            with P.otherwise():
                sample[i](scores=Scores[i : i + 1], how=How[i : i + 1], token=Token[i : i + 1])

    return model


class CacheScales:
    """The tensors of the scales of keys and values; they have one page where the cache has no scales."""

    def __init__(self, plan: Plan) -> None:
        config, self._has = plan.config, plan.cache is i8
        dims = (config.layers, config.kv_heads, "pages") if self._has else (1, 1, 1)
        names = {"Key": "KScales", "Value": "VScales"}
        self._tensors = {
            role: Tensor(shape=(*dims, PAGE), dtype=f32, name=name) for role, name in names.items()
        }

    def of(self, role: str, layer: Any, head: Any) -> Any:
        """Return the scales of a layer and head."""
        return self._tensors[role][layer, head] if self._has else self._tensors[role][0, 0]


def projection(
    plan: Plan, activations: Activations, weights: Weights, scales: CacheScales, low_rank: LowRank
) -> Callable[..., None]:
    """Return what traces queries, and keys and values on their way into the cache."""
    config, form = plan.config, CacheForm(plan.cache)
    queries, keys = (
        [
            kernels.turned_kernel(s, activations, config, form, is_key, low_rank.has(role))
            for s in plan.layers[role]
        ]
        for role, is_key in (("Query", False), ("Key", True))
    )
    has_rows = low_rank.has("Value")
    values = [kernels.value_kernel(s, activations, config, form, has_rows) for s in plan.layers["Value"]]
    heads = {"Query": config.heads, "Key": config.kv_heads, "Value": config.kv_heads}
    biases = {
        role: Tensor(
            shape=(config.layers, count if config.has_bias else 1, 1, config.dim),
            dtype=f32,
            name=f"{role}Bias",
        )
        for role, count in heads.items()
    }
    gains = {
        role: Tensor(shape=(config.layers, 1, config.dim), dtype=f32, name=f"{role}Gain")
        for role in ("Query", "Key")
    }

    def project(
        layer: Any, tokens: Any, request: Any, x: Any, cos: Any, sin: Any, place: Any, q: Any, k: Any, v: Any
    ) -> None:
        bias = low_rank.biases(biases, layer, request, x)

        def query(i: int, w: Any) -> None:
            for r, h in tasks(tokens, config.heads):
                queries[i][r, h](
                    x=x[r], w=w[2 * h : 2 * h + 2], bias=bias("Query", r, h), gain=gains["Query"][layer],
                    cos=cos[r], sin=sin[r], out=q[h, r],
                )  # fmt: skip

        def key(i: int, w: Any) -> None:
            for h in P(Dense[config.kv_heads]):
                for r in P.tiles(tokens, ROWS, order="range"):
                    keys[i][h, r](
                        x=x[r], w=w[2 * h : 2 * h + 2], bias=bias("Key", r, h), gain=gains["Key"][layer],
                        cos=cos[r], sin=sin[r], place=place[r], out=k[layer, h],
                        scales=scales.of("Key", layer, h),
                    )  # fmt: skip

        def value(i: int, w: Any) -> None:
            for h in P(Dense[config.kv_heads]):
                for r in P.tiles(tokens, ROWS, order="range"):
                    values[i][h, r](
                        x=x[r], w=w[h : h + 1], bias=bias("Value", r, h), place=place[r], out=v[layer, h],
                        scales=scales.of("Value", layer, h),
                    )  # fmt: skip

        weights.each("Query", layer, query)
        weights.each("Key", layer, key)
        weights.each("Value", layer, value)

    return project


def attention(plan: Plan, activations: Activations, scales: CacheScales) -> Callable[..., None]:
    """Return what traces attention: a request with one token by groups of heads, others by heads."""
    config, form = plan.config, CacheForm(plan.cache)
    GROUP, DIM, cols = config.group, config.dim, activations.cols
    one, many = (kernels.attend_kernel(config, activations, form, is_one) for is_one in (True, False))

    def attend(layer: Any, request: Any, past: Any, pages: Any, q: Any, k: Any, v: Any, out: Any) -> None:
        for b, h in P("batch", Dense[config.kv_heads]):
            with P.when(request[b].extent == 1):
                t = request[b].start
                heads = slice(GROUP * h, GROUP * h + GROUP)
                one[b, h](
                    q=q[heads, t], k=k[layer, h], v=v[layer, h], pages=pages[b], position=past[b],
                    k_scales=scales.of("Key", layer, h), v_scales=scales.of("Value", layer, h),
                    out=out[t : t + 1, part(cols(GROUP * DIM), h)],
                )  # fmt: skip
            with P.otherwise():
                for g in P(Dense[GROUP]):
                    head = GROUP * h + g
                    for t in P.tiles(request[b], QUERIES):
                        many[b, h, g, t](
                            q=q[head, request[b][t]], k=k[layer, h], v=v[layer, h], pages=pages[b],
                            k_scales=scales.of("Key", layer, h), v_scales=scales.of("Value", layer, h),
                            position=past[b] + t.start, out=out[request[b][t], part(cols(DIM), head)],
                        )  # fmt: skip

    return attend


def feed_forward(
    plan: Plan, activations: Activations, weights: Weights, low_rank: LowRank
) -> Callable[..., None]:
    """Return what traces the rest of a layer: the output of attention, and the feed-forward network."""
    config = plan.config
    gain = Tensor(shape=(config.layers, 1, config.hidden), dtype=f32, name="SecondGain")
    if config.experts:
        network: Callable[..., None] = mixture(plan, activations, weights)
    else:
        network = dense(plan, activations, weights, low_rank)

    def finish(
        layer: Any, tokens: Any, request: Any, norm: Any, attended: Any, hidden: Any, normed: Any
    ) -> None:
        if low_rank.has("Output"):
            low_rank.add("Output", layer, request, attended, hidden)
        add(plan, activations, weights, "Output", layer, tokens, attended, hidden)
        for r in P.tiles(tokens, ROWS):
            norm[r](h=hidden[r], gain=gain[layer], out=normed[r])
        network(layer, tokens, request, hidden, normed, gain[layer])

    return finish


def add(
    plan: Plan, activations: Activations, weights: Weights, role: str,
    layer: Any, tokens: Any, x: Any, hidden: Any,
) -> None:  # fmt: skip
    """Trace hidden + x @ the matrix of a role."""

    def body(i: int, w: Any) -> None:
        storage = plan.layers[role][i]
        kernel = kernels.add_kernel(storage, activations)
        for r, c in tasks(tokens, plan.config.hidden // storage.cols):
            kernel[r, c](x=x[r], w=w[c : c + 1], h=hidden[r, part(storage.cols, c)])

    weights.each(role, layer, body)


def dense(plan: Plan, activations: Activations, weights: Weights, low_rank: LowRank) -> Callable[..., None]:
    """Return what traces a network that all tokens pass."""
    config, cols = plan.config, activations.cols
    inner = Tensor(shape=("tokens", cols(config.inner)), dtype=activations.dtype, name="Inner")
    has_rows = low_rank.has("Gate")

    def network(layer: Any, tokens: Any, request: Any, hidden: Any, normed: Any, _: Any) -> None:
        rows = [low_rank.rows(role, layer, request, normed, None) for role in ("Gate", "Up") if has_rows]

        def gate(i: int, j: int, w: Any, u: Any) -> None:
            gates = plan.layers["Gate"][i]
            kernel = kernels.gate_kernel(gates, plan.layers["Up"][j], activations, has_rows)
            for r, c in tasks(tokens, config.inner // gates.cols):
                columns = part(gates.cols, c)
                added = dict(zip(("gate_row", "up_row"), (of[r, columns] for of in rows), strict=False))
                out = inner[r, part(cols(gates.cols), c)]
                kernel[r, c](x=normed[r], gate=w[c : c + 1], up=u[c : c + 1], out=out, **added)

        weights.pairs("Gate", "Up", layer, gate)
        if low_rank.has("Down"):
            low_rank.add("Down", layer, request, inner, hidden)
        add(plan, activations, weights, "Down", layer, tokens, inner, hidden)

    return network
