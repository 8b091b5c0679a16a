"""The kernels of planned attention: of an item, of blocks that are packed first, of what was split."""

# Annotations depend on the form, names on branches that it decides; elements of integer tensors are numbers.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from math import inf
from typing import Any

from pto_wsp.lang import pto
from pto_wsp.lang.kernel import kernel
from pto_wsp.lang.scalar import Scalar
from pto_wsp.lang.surface import Constexpr, In, Out, Tile
from pto_wsp.lang.tensor import Tensor
from pto_wsp.ops.attention_form import LOWEST, STEP, AttentionForm
from pto_wsp.planner.balanced import CANONICAL_BLOCK, PARTIAL_STATISTICS
from pto_wsp.types import DYN, f32, i32, i64


def attend_kernel(form: AttentionForm, is_whole: bool, is_packed: bool = False) -> Any:
    """Return the kernel of one item: a tile of query rows, and some of the positions they attend to.

    Its state per row is a maximum m, a sum of weights l and a weighted sum of values acc, all f32. Each
    canonical block is computed from a fresh state and folded in ascending order: sums of many positions stay
    exact, and in the batch-invariant mode they are the same wherever a row is cut.

    Args:
        form: what it is made for.
        is_whole: the item is a whole row: write output and log-sum-exp; otherwise write the state.
        is_packed: `k` and `v` are blocks that `pack` made; otherwise they are the cache, and `table` and
            the steps say where its rows are.
    """
    ROWS, DIM, PAGE, Q_DTYPE = form.tile_rows, form.dim, form.page_size, form.q_dtype
    SCALE, CAP, WINDOW, IS_CAUSAL = form.scale, form.soft_cap, form.window_left, form.is_causal
    HAS_CAP, HAS_WINDOW, HAS_TOKENS = CAP > 0, WINDOW >= 0, form.tokens > 0
    BLOCK = CANONICAL_BLOCK
    PAGE_BITS, HAS_PAGE_BITS = PAGE.bit_length() - 1, PAGE & (PAGE - 1) == 0
    output = Out[Tile[ROWS, DIM, Q_DTYPE if is_whole else f32]]
    cache = Tensor[form.kv_dtype, DYN, DIM]
    keys, values = (Tensor[f32, DYN, *dims] if is_packed else cache for dims in form.packed_dims)
    statistics = Out[Tile[ROWS, 1, f32]] if is_whole else Out[Tensor[f32, DYN, PARTIAL_STATISTICS]]

    @kernel
    def attend(
        q: In[Tile[ROWS, DIM, Q_DTYPE]],
        table: In[Tensor[i32, DYN, 1]],
        k: In[keys],
        v: In[values],
        page_step: Scalar[i64],
        slot_step: Scalar[i64],
        first_row: Scalar[i64],
        start: Scalar[i64],
        end: Scalar[i64],
        position: Scalar[i64],
        lse_scale: Scalar[f32],
        o: output,
        stats: statistics,
        IS_WHOLE: Constexpr[bool] = is_whole,
        IS_PACKED: Constexpr[bool] = is_packed,
    ):
        """Attend to positions `start` to `end`; `position` is that of the first query."""
        scaled = pto.cast(q, f32) * SCALE
        m, l, acc = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1)), pto.zeros((q.rows, DIM))  # noqa: E741
        m_all, l_all, acc_all = m, l, acc
        last = q.rows - 1 if HAS_TOKENS else 0  # the last query's position, from the first one's
        begin = start // STEP * STEP
        for r in pto.tiles(end - begin, STEP):
            first = begin + r.start
            if first % BLOCK == 0:
                m_new = pto.maximum(m_all, m)
                before, now = pto.exp(m_all - m_new), pto.exp(m - m_new)
                l_all, acc_all, m_all = l_all * before + l * now, acc_all * before + acc * now, m_new
                m, l = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1))  # noqa: E741
                acc = pto.zeros((q.rows, DIM))
            for block in pto.tiles(r.extent, STEP):  # one, from 0 on: places in a packed block
                if IS_PACKED:
                    s = pto.matmul(scaled, k[first // STEP, :, block])
                else:
                    at = pto.transpose(pto.iota((1, block.extent), first))
                    if PAGE:
                        page = pto.shr(at, PAGE_BITS) if HAS_PAGE_BITS else pto.div(at, PAGE)
                        rows = (
                            pto.gather(table, page) * page_step + (at - page * PAGE) * slot_step + first_row
                        )
                    else:
                        rows = at * slot_step + first_row
                    pto.prefetch(v, rows)
                    s = pto.matmul(scaled, pto.gather(k, rows).T)
                if HAS_CAP:
                    s = pto.tanh(s * (1 / CAP)) * CAP
                if IS_CAUSAL or HAS_WINDOW:
                    if (IS_CAUSAL and first + s.cols > position + 1) or (
                        HAS_WINDOW and first < position + last - WINDOW
                    ):
                        ahead = pto.iota((s.rows, s.cols), first - position)
                        if HAS_TOKENS:
                            ahead = ahead - pto.transpose(pto.iota((1, s.rows), 0))
                        if IS_CAUSAL:
                            s = pto.where(ahead <= 0, s, -inf)
                        if HAS_WINDOW:
                            s = pto.where(ahead >= -WINDOW, s, -inf)
                m_new = pto.maximum(m, pto.rowmax(s))
                p = pto.exp(s - m_new)
                total, alpha = pto.rowsum(p), pto.exp(m - m_new)
                l = l * alpha + total  # noqa: E741
                if IS_PACKED:
                    acc = pto.matmul(p, v[first // STEP, block], acc=acc * alpha)
                else:
                    ahead_of = min(first + STEP, end - 1)
                    soon = pto.minimum(pto.transpose(pto.iota((1, STEP))), end - 1 - ahead_of) + ahead_of
                    if PAGE:
                        page = pto.shr(soon, PAGE_BITS) if HAS_PAGE_BITS else pto.div(soon, PAGE)
                        soon = (
                            pto.gather(table, page) * page_step + (soon - page * PAGE) * slot_step + first_row
                        )
                    else:
                        soon = soon * slot_step + first_row
                    pto.prefetch(k, soon)
                    acc = pto.matmul(p, pto.gather(v, rows), acc=acc * alpha)
                m = m_new
        m_new = pto.maximum(m_all, m)
        before, now = pto.exp(m_all - m_new), pto.exp(m - m_new)
        l, acc, m = l_all * before + l * now, acc_all * before + acc * now, m_new  # noqa: E741
        if IS_WHOLE:
            pto.store(o, pto.cast(pto.where(l == 0, 0.0, acc / l), Q_DTYPE))
            pto.store(stats, pto.where(l == 0, -inf, (m + pto.log(l)) * lse_scale))
        else:
            pto.store(o, acc)
            pto.store(stats[:, 0:1], m)
            pto.store(stats[:, 1:2], l)

    return attend


def pack_kernel(form: AttentionForm) -> Any:
    """Return the kernel that puts a block of keys, turned, and of values where products read them."""
    DIM, PAGE = form.dim, form.page_size
    PAGE_BITS, HAS_PAGE_BITS = PAGE.bit_length() - 1, PAGE & (PAGE - 1) == 0
    keys, values = (Out[Tile[*dims, f32]] for dims in form.packed_dims)

    @kernel
    def pack(
        table: In[Tensor[i32, DYN, 1]],
        k: In[Tensor[form.kv_dtype, DYN, DIM]],
        v: In[Tensor[form.kv_dtype, DYN, DIM]],
        page_step: Scalar[i64],
        slot_step: Scalar[i64],
        first_row: Scalar[i64],
        start: Scalar[i64],
        packed_k: keys,
        packed_v: values,
    ):
        """The positions from `start` on, as many as `packed_v` has rows."""
        at = pto.transpose(pto.iota((1, packed_v.rows), start))
        if PAGE:
            page = pto.shr(at, PAGE_BITS) if HAS_PAGE_BITS else pto.div(at, PAGE)
            rows = pto.gather(table, page) * page_step + (at - page * PAGE) * slot_step + first_row
        else:
            rows = at * slot_step + first_row
        pto.store(packed_k, pto.cast(pto.transpose(pto.gather(k, rows)), f32))
        pto.store(packed_v, pto.cast(pto.gather(v, rows), f32))

    return pack


def merge_kernel(form: AttentionForm) -> Any:
    """Return the kernel that folds the partial results of a row in ascending order."""
    ROWS, DIM, Q_DTYPE = form.tile_rows, form.dim, form.q_dtype

    @kernel
    def merge(
        parts: In[Tensor[f32, DYN, DYN, DIM]],
        part_stats: In[Tensor[f32, DYN, DYN, PARTIAL_STATISTICS]],
        o: Out[Tile[ROWS, DIM, Q_DTYPE]],
        lse: Out[Tile[ROWS, 1, f32]],
        lse_scale: Scalar[f32],
    ):
        """Fold, divide and write output and log-sum-exp."""
        m, l, acc = pto.full((o.rows, 1), LOWEST), pto.zeros((o.rows, 1)), pto.zeros((o.rows, DIM))  # noqa: E741
        for c in range(parts.rows):
            for r in pto.tiles(o.rows, ROWS):  # one tile, as large as a row of work can be
                m_c = part_stats[c, r, 0:1]
                m_new = pto.maximum(m, m_c)
                before, now = pto.exp(m - m_new), pto.exp(m_c - m_new)
                l = l * before + part_stats[c, r, 1:2] * now  # noqa: E741
                acc = acc * before + parts[c, r] * now
                m = m_new
        pto.store(o, pto.cast(pto.where(l == 0, 0.0, acc / l), Q_DTYPE))
        pto.store(lse, pto.where(l == 0, -inf, (m + pto.log(l)) * lse_scale))

    return merge
