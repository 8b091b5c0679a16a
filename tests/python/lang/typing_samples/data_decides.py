"""Section 3 of the tour: the workloads as printed there, with kernels for them."""

from pto_wsp import (
    DYN,
    Dense,
    DenseDyn,
    In,
    Out,
    P,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    kernel,
    pto,
    tier,
    workload,
)


@kernel
def route_top2(
    x: In[Tile[64, 2048, f32]],
    w: In[Tile[2048, 64, f32]],
    experts: Out[Tile[64, 2, i32]],
    gates: Out[Tile[64, 2, f32]],
):
    best = pto.sort(pto.matmul(x, w))
    pto.store(experts, pto.extract_topk_indices(best, 2))
    pto.store(gates, pto.sigmoid(pto.extract_topk_values(best, 2)))


@kernel
def expert_ffn(
    x: In[Tensor[f32, DYN, 2048]],
    rows: In[Tile[64, 1, i32]],
    w1: In[Tile[2048, 32, f32]],
    w3: In[Tile[2048, 32, f32]],
    w2: In[Tile[32, 2048, f32]],
    part: Out[Tile[64, 2048, f32]],
):
    t = pto.gather(x, pto.div(rows, 2))
    gate = pto.matmul(t, w1)
    pto.store(part, pto.matmul(gate * pto.sigmoid(gate) * pto.matmul(t, w3), w2))


@kernel
def combine_top2(
    parts: In[Tensor[f32, DYN, 2, 2048]], gates: In[Tile[64, 2, f32]], y: Out[Tile[64, 2048, f32]]
):
    for r in pto.tiles(y.rows, 8):
        pto.store(y[r], parts[r, 0] * gates[r, 0:1] + parts[r, 1] * gates[r, 1:2])


@workload
def moe(
    tokens: DenseDyn,
    X,
    Router,
    W1,
    W2,
    W3,
    Y,
    Part: Tensor[f32, "tokens", 2, 2048],
    Experts: Tensor[i32, "tokens", 2],
    Gates: Tensor[f32, "tokens", 2],
):
    for t in P.tiles(tokens, 64):
        route_top2[t](x=X[t], w=Router, experts=Experts[t], gates=Gates[t])
    routing = group_by(Experts, num_groups=64)
    for e in P(Dense[64]):
        for pick in P.tiles(routing[e], 64):
            rows = routing.rows(pick)
            expert_ffn[e, pick](x=X, rows=rows, w1=W1[e], w3=W3[e], w2=W2[e], part=Part[rows])
    for t in P.tiles(tokens, 64):
        combine_top2[t](parts=Part[t], gates=Gates[t], y=Y[t])


@kernel
def index_2k(q: In[Tile[4, 64, f32]], k: In[Tile[2048, 64, f32]], out: Out[Tile[1, 16, i32]]):
    best = pto.sort(pto.colsum(pto.relu(pto.matmul(q, k.T))))
    pto.store(out, pto.extract_topk_indices(best, 16))


@kernel
def index_8k(q: In[Tile[4, 64, f32]], k: In[Tile[8192, 64, f32]], out: Out[Tile[1, 16, i32]]):
    best = pto.sort(pto.colsum(pto.relu(pto.matmul(q, k.T))))
    pto.store(out, pto.extract_topk_indices(best, 16))


@kernel
def index_64k(q: In[Tile[4, 64, f32]], k: In[Tensor[f32, DYN, 64]], out: Out[Tile[1, 16, i32]]):
    best = pto.sort(pto.full((1, 16), -1.0))
    for r in pto.tiles(k.rows, 8192):
        scores = pto.colsum(pto.relu(pto.matmul(q, k[r].T)))
        best = pto.merge(best, pto.sort(scores, pto.iota((1, scores.cols), r.start)), 16)
    pto.store(out, pto.extract_topk_indices(best, 16))


@workload
def indexer(batch: DenseDyn, lengths: Tensor[i32, "batch"], Q, K, TopK):
    for b in P(batch):
        with P.when(lengths[b] <= 2048):
            index_2k[b](q=Q[b], k=K[b], out=TopK[b])
        with P.otherwise(lengths[b] <= 8192):
            index_8k[b](q=Q[b], k=K[b], out=TopK[b])
        with P.otherwise():
            index_64k[b](q=Q[b], k=K[b], out=TopK[b])


index = tier("index", (index_2k, 2048), (index_8k, 8192), (index_64k, None))


@workload
def tiered_indexer(batch: DenseDyn, lengths: Tensor[i32, "batch"], Q, K, TopK):
    for b in P(batch):
        index.at(lengths[b])[b](q=Q[b], k=K[b], out=TopK[b])
