from math import inf, sqrt

from pto_wsp import DYN, Dense, DenseDyn, In, Out, P, Ragged, Tensor, Tile, bf16, f32, kernel, pto, workload


@kernel
def attend(
    q: In[Tile[4, 128, f32]],  # the four query heads that share one KV head
    k: In[Tensor[bf16, DYN, 128]],
    v: In[Tensor[bf16, DYN, 128]],
    o: Out[Tile[4, 128, f32]],
    lse: Out[Tile[4, 1, f32]],
):
    m, l, acc = pto.full((4, 1), -inf), pto.zeros((4, 1)), pto.zeros((4, 128))  # noqa: E741
    for r in pto.tiles(k.rows, 64):  # dynamic trip count; the last tile may be partial
        s = pto.matmul(q, k[r].T) * (1 / sqrt(128))
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l = l * alpha + pto.rowsum(p)  # noqa: E741
        acc = acc * alpha + pto.matmul(p, v[r])
        m = m_new
    pto.store(o, pto.where(l > 0, acc / l, 0.0))  # an empty row gives 0 and -inf, not NaN
    pto.store(lse, m + pto.log(l))


@workload
def decode(
    batch: DenseDyn,
    kv: Ragged["batch"],
    Q: Tensor[f32, "batch", 8, 4, 128],
    K: Tensor[bf16, "tokens", 8, 128],
    V: Tensor[bf16, "tokens", 8, 128],
    O: Tensor[f32, "batch", 8, 4, 128],  # noqa: E741
    LSE: Tensor[f32, "batch", 8, 4, 1],
):
    for b, h in P(batch, Dense[8]):
        attend[b, h](q=Q[b, h], k=K[kv[b], h], v=V[kv[b], h], o=O[b, h], lse=LSE[b, h])
