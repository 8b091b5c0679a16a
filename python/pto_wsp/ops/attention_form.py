"""What a program of planned attention is made for."""

from typing import Final

import numpy as np

from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, bf16, f32

LOWEST: Final = float(np.finfo(np.float32).min)
"""Running maximum before any score: the least finite number, so that masked positions have a weight of 0."""

STEP: Final = 128
"""Most positions whose scores are in one tile; divides a canonical block."""


@record
class AttentionForm:
    """What one compiled program is made for; everything else may change from run to run.

    Attributes:
        kv_heads: heads of the cache.
        group: query heads that share a head of the cache.
        dim: elements of a head.
        tokens: query positions of a tile; 0: a tile holds the query heads that share a head of the cache, for
            requests of one query position.
        page_size: positions of a page; 0: keys and values are ragged.
        is_causal: a query attends no position after its own.
        window_left: most positions before its own that a query attends; -1: all.
        scale: factor of the scores.
        soft_cap: c of c * tanh(score / c); 0: none.
        is_batch_invariant: plans cut between canonical blocks, and what follows a cut is kept block by block.
        q_dtype: element type of queries and outputs.
        kv_dtype: element type of keys and values.
    """

    kv_heads: int
    group: int
    dim: int
    tokens: int
    page_size: int
    is_causal: bool
    window_left: int
    scale: float
    soft_cap: float
    is_batch_invariant: bool
    q_dtype: DType
    kv_dtype: DType

    @property
    def tile_rows(self) -> int:
        """Most query rows of a tile."""
        return self.tokens or self.group

    @property
    def q_dims(self) -> tuple[int, ...]:
        """What follows the tokens in the shape of queries, up to the elements of a head."""
        return (self.kv_heads, self.group) if not self.tokens else (self.kv_heads * self.group,)

    @property
    def is_rounded(self) -> bool:
        """Whether products take queries and weights as bf16, as keys and values are, and widen none.

        Weights are rounded, and their sums are those of rounded ones. The scores' factor follows the product.
        """
        return not self.tokens and self.q_dtype is bf16 and self.kv_dtype is bf16

    @property
    def left_dtype(self) -> DType:
        """Element type of the left operands of products."""
        return bf16 if self.is_rounded else f32

    @property
    def packed_dims(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of a packed block of keys, which are turned, and of values."""
        return (self.dim, STEP), (STEP, self.dim)
