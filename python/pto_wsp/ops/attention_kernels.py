"""The kernels of planned attention: of an item, of blocks that are packed first, of what was split."""

# Annotations depend on the form, names on branches that it decides; elements of integer tensors are numbers.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from math import inf
from typing import Any

from pto_wsp.lang.annotations import Constexpr, In, Out
from pto_wsp.lang.kernel import pto
from pto_wsp.lang.kernel.kernel import kernel
from pto_wsp.lang.operands import Scalar, Tile
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.ops.attention_form import LOWEST, STEP, AttentionForm
from pto_wsp.planner.balanced import CANONICAL_BLOCK, PARTIAL_STATISTICS
from pto_wsp.types import DYN, f32, i32, i64


def merged(m: Any, l: Any, acc: Any, m_b: Any, l_b: Any, acc_b: Any) -> Any:  # noqa: E741
    """Return the state of two sets of positions together.

    A state is, per query row, the maximum m of the scores, the sum l of the weights exp(score - m), and the
    weighted sum acc of the values; all are f32.
    """
    top = pto.maximum(m, m_b)
    before, now = pto.exp(m - top), pto.exp(m_b - top)
    return top, l * before + l_b * now, acc * before + acc_b * now


def write_result(o: Any, lse: Any, lse_scale: Any, m: Any, l: Any, acc: Any, dtype: Any) -> None:  # noqa: E741
    """Store what a state of all positions means; nothing attended gives 0, and a log-sum-exp of -inf."""
    pto.store(o, pto.cast(pto.where(l == 0, 0.0, acc / l), dtype))
    pto.store(lse, pto.where(l == 0, -inf, (m + pto.log(l)) * lse_scale))


def rows_function(form: AttentionForm) -> Any:
    """Return the function that says in which rows of the cache positions lie."""
    PAGE = form.page_size
    PAGE_BITS, HAS_PAGE_BITS = PAGE.bit_length() - 1, PAGE & (PAGE - 1) == 0

    def rows_of(at: Any, table: Any, page_step: Any, slot_step: Any, first_row: Any) -> Any:
        """Return the rows of positions `at`, a column: `table` has the pages, the steps are in rows."""
        if PAGE:
            page = pto.shr(at, PAGE_BITS) if HAS_PAGE_BITS else pto.div(at, PAGE)
            rows = pto.gather(table, page) * page_step + (at - page * PAGE) * slot_step + first_row
        else:
            rows = at * slot_step + first_row
        return rows

    return rows_of


def tile_rows_function(form: AttentionForm) -> Any:
    """Return the function that says in which rows of the cache a whole tile of positions lies."""
    rows_of = rows_function(form)

    def tile_rows(first: Any, end: Any, table: Any, page_step: Any, slot_step: Any, first_row: Any) -> Any:
        """Return the rows of the positions from `first` on; from `end` on those of the last one."""
        at = pto.minimum(pto.transpose(pto.iota((1, STEP))), end - 1 - first) + first
        return rows_of(at, table, page_step, slot_step, first_row)

    return tile_rows


def scores_function(form: AttentionForm) -> Any:
    """Return the function that makes scores of products: capped, and -inf where a query does not attend."""
    CAP, WINDOW, IS_CAUSAL = form.soft_cap, form.window_left, form.is_causal
    HAS_CAP, HAS_WINDOW, HAS_TOKENS = CAP > 0, WINDOW >= 0, form.tokens > 0

    def scores(s: Any, first: Any, position: Any, last: Any) -> Any:
        """Return scores of the positions from `first` on; the queries are at `position` to `last`."""
        if HAS_CAP:
            s = pto.tanh(s * (1 / CAP)) * CAP
        if IS_CAUSAL or HAS_WINDOW:
            if (IS_CAUSAL and first + s.cols > position + 1) or (HAS_WINDOW and first < last - WINDOW):
                ahead = pto.iota((s.rows, s.cols), first - position)
                if HAS_TOKENS:
                    ahead = ahead - pto.transpose(pto.iota((1, s.rows), 0))
                if IS_CAUSAL:
                    s = pto.where(ahead <= 0, s, -inf)
                if HAS_WINDOW:
                    s = pto.where(ahead >= -WINDOW, s, -inf)
        return s

    return scores


def attend_kernel(form: AttentionForm, is_whole: bool, is_packed: bool = False) -> Any:
    """Return the kernel of one item: a tile of query rows, and some of the positions they attend to.

    Each canonical block is computed from a fresh state and folded in ascending order: sums of many positions
    stay exact, and in the batch-invariant mode they are the same wherever a row is cut.

    Args:
        form: what it is made for.
        is_whole: the item is a whole row: write output and log-sum-exp; otherwise write the state.
        is_packed: `k` and `v` are blocks that `pack` made; otherwise they are the cache, and `table` and
            the steps say where its rows are.
    """
    ROWS, DIM, Q_DTYPE, SCALE = form.tile_rows, form.dim, form.q_dtype, form.scale
    BLOCK, HAS_TOKENS, LEFT, IS_ROUNDED = CANONICAL_BLOCK, form.tokens > 0, form.left_dtype, form.is_rounded
    tile_rows, scores = tile_rows_function(form), scores_function(form)
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
        queries = pto.load(q) if IS_ROUNDED else pto.cast(q, f32) * SCALE
        m, l, acc = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1)), pto.zeros((q.rows, DIM))  # noqa: E741
        m_all, l_all, acc_all = m, l, acc
        last = position + (q.rows - 1 if HAS_TOKENS else 0)
        begin = start // STEP * STEP
        rows_ahead = pto.zeros((STEP, 1), i32)
        for r in pto.tiles(end - begin, STEP):
            first = begin + r.start
            if first % BLOCK == 0:
                m_all, l_all, acc_all = merged(m_all, l_all, acc_all, m, l, acc)
                m, l = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1))  # noqa: E741
                acc = pto.zeros((q.rows, DIM))
            for block in pto.tiles(r.extent, STEP):  # one, from 0 on: places in a packed block
                if IS_PACKED:
                    s = pto.matmul(queries, k[first // STEP, :, block])
                else:
                    if first == begin:
                        rows_ahead = tile_rows(first, end, table, page_step, slot_step, first_row)
                    rows = pto.extract(rows_ahead, (block.extent, 1))
                    pto.prefetch(v, rows)
                    s = pto.matmul(queries, pto.gather(k, rows).T)
                if IS_ROUNDED:
                    s = s * SCALE
                s = scores(s, first, position, last)
                m_new = pto.maximum(m, pto.rowmax(s))
                p = pto.cast(pto.exp(s - m_new), LEFT)
                total, alpha = pto.rowsum(pto.cast(p, f32)), pto.exp(m - m_new)
                l = l * alpha + total  # noqa: E741
                if IS_PACKED:
                    acc = pto.matmul(p, v[first // STEP, block], acc=acc * alpha)
                else:
                    soon = min(first + STEP, end - 1)
                    rows_ahead = tile_rows(soon, end, table, page_step, slot_step, first_row)
                    pto.prefetch(k, rows_ahead)
                    acc = pto.matmul(p, pto.gather(v, rows), acc=acc * alpha)
                m = m_new
        m, l, acc = merged(m_all, l_all, acc_all, m, l, acc)  # noqa: E741
        if IS_WHOLE:
            write_result(o, stats, lse_scale, m, l, acc, Q_DTYPE)
        else:
            pto.store(o, acc)
            pto.store(stats[:, 0:1], m)
            pto.store(stats[:, 1:2], l)

    return attend


def pack_kernel(form: AttentionForm) -> Any:
    """Return the kernel that puts a block of keys, turned, and of values where products read them."""
    DIM, rows_of = form.dim, rows_function(form)
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
        rows = rows_of(at, table, page_step, slot_step, first_row)
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
                m, l, acc = merged(m, l, acc, part_stats[c, r, 0:1], part_stats[c, r, 1:2], parts[c, r])  # noqa: E741
        write_result(o, lse, lse_scale, m, l, acc, Q_DTYPE)

    return merge
