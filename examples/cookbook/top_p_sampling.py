"""Top-p sampling: draw from the most likely tokens whose probabilities reach p, one random number per row.

Tokens are sorted by probability. A product with a triangle of ones adds the probabilities up.
"""

import numpy as np

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, i32, kernel, pto, workload

VOCAB = 256


@kernel
def sample(logits: In[Tile[4, VOCAB, f32]], triangle: In[Tile[VOCAB, VOCAB, f32]], u: In[Tile[4, 1, f32]],
           token: Out[Tile[4, 1, i32]], p: Scalar[f32]):
    pairs = pto.sort(pto.load(logits))                             # (value, index), larger values first
    values = pto.extract_topk_values(pairs, VOCAB)
    indices = pto.extract_topk_indices(pairs, VOCAB)
    e = pto.exp(values - pto.rowmax(values))
    e = e / pto.rowsum(e)
    before = pto.matmul(e, triangle)                               # sum of the more likely ones
    kept = pto.where(before < p, e, 0.0)                           # the first one always stays
    drawn = u * pto.rowsum(kept)
    place = pto.rowsum(pto.where((before + kept) <= drawn, 1.0, 0.0))    # where the sum passes it
    pto.store(token, pto.take(indices, pto.cast(place, i32)))


@workload
def sample_batch(Logits: Tensor[f32, "batch", VOCAB], Triangle: Tensor[f32, VOCAB, VOCAB],
                 U: Tensor[f32, "batch", 1], Token: Tensor[i32, "batch", 1], p: Scalar[f32]):
    for rows in P.tiles("batch", 4):
        sample[rows](logits=Logits[rows], triangle=Triangle, u=U[rows], token=Token[rows], p=p)


rng = np.random.default_rng(0)
logits, u = 3 * rng.standard_normal((10, VOCAB), np.float32), rng.random((10, 1), np.float32)
token, triangle = np.empty((10, 1), np.int32), np.triu(np.ones((VOCAB, VOCAB), np.float32), 1)
program = sample_batch.compile()
program(Logits=logits, Triangle=triangle, U=u, Token=token, p=0.8)

for row, draw, drawn in zip(logits.astype(np.float64), u, token, strict=True):
    order = np.argsort(-row, kind="stable")
    e = np.exp(row[order] - row.max())
    e /= e.sum()
    kept = e * (np.cumsum(e) - e < 0.8)
    assert drawn == order[np.searchsorted(np.cumsum(kept), draw * kept.sum(), side="right")]
