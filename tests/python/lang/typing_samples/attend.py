from math import inf, sqrt

from pto_wsp import DYN, In, Out, Tensor, Tile, bf16, f32, kernel, pto


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
