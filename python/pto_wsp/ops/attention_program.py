"""The kernels of planned attention, and the workload that a plan's arrays feed."""

# Annotations depend on the form, names on branches that it decides; elements of integer tensors are numbers.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from math import inf
from typing import Any, Final

from pto_wsp.lang import pto
from pto_wsp.lang.axes import P
from pto_wsp.lang.kernel import kernel
from pto_wsp.lang.scalar import Scalar
from pto_wsp.lang.surface import Constexpr, In, Out, Tile
from pto_wsp.lang.tensor import Tensor
from pto_wsp.lang.workload import workload
from pto_wsp.planner.balanced import CANONICAL_BLOCK
from pto_wsp.support.record import record
from pto_wsp.types import DYN, DenseDyn, f32, i32, i64
from pto_wsp.types.dtype import DType

LOWEST: Final = -1e30
"""Running maximum before any score: finite, so that positions that are masked have a weight of exactly 0."""

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


def attention_workload(form: AttentionForm) -> Any:
    """Return the workload: the items of each worker in their order, then the rows that were split."""
    ROWS, DIM, PAGE, TOKENS, GROUP = form.tile_rows, form.dim, form.page_size, form.tokens, form.group
    q_type = Tensor[(form.q_dtype, "tokens", *form.q_dims, DIM)]
    cache = Tensor[form.kv_dtype, "rows", DIM]
    attend, attend_part, merge = attend_kernel(form, True), attend_kernel(form, False), merge_kernel(form)

    @workload
    def attention(
        num_workers: DenseDyn,
        WorkerIndptr: Tensor[i32, "workers_1"],
        Items: Tensor[i32, "items", 8],
        MergeIndptr: Tensor[i32, "merges_1"],
        MergeRows: Tensor[i32, "merges", 4],
        QIndptr: Tensor[i32, "requests_1"],
        KVLens: Tensor[i32, "requests"],
        KVIndptr: Tensor[i32, "requests_1"],
        Pages: Tensor[i32, "entries", 1],
        Q: q_type,
        K: cache,
        V: cache,
        O: q_type,  # noqa: E741
        LSE: Tensor[(f32, "tokens", *form.q_dims, 1)],
        page_step: Scalar[i64],
        slot_step: Scalar[i64],
        head_step: Scalar[i64],
        Parts: Tensor[f32, "slots", ROWS, DIM],
        PartStats: Tensor[f32, "slots", ROWS, 2],
        lse_scale: Scalar[f32],
    ):
        """Attend to every item; merge the rows that were cut."""

        def rows_of(b: Any, q_start: Any) -> tuple[Any, Any, Any]:
            """Return where a query tile lies, its rows, and the position of its first query."""
            begin, end = QIndptr[b], QIndptr[b + 1]
            position = KVLens[b] - (end - begin) + q_start
            if not TOKENS:
                return begin, ROWS, position
            count = (end - begin - q_start).min(TOKENS)
            return slice(begin + q_start, begin + q_start + count), count, position

        for worker in P(num_workers):
            for i in P.seq(WorkerIndptr[worker + 1] - WorkerIndptr[worker]):
                n = WorkerIndptr[worker] + i
                b, h, start, length, slot = (Items[n, word] for word in (2, 3, 4, 5, 7))
                at, count, position = rows_of(b, Items[n, 6])
                kv_head = h // GROUP if TOKENS else h
                kv_end = start + length

                first = head_step * kv_head if PAGE else head_step * kv_head + slot_step * KVIndptr[b]
                pages = Pages[KVIndptr[b] : KVIndptr[b + 1], :] if PAGE else Pages

                def views(begin: Any, end: Any) -> dict[str, Any]:
                    """Return the arguments of a kernel that attends to positions `begin` to `end`."""
                    cache = {"k": K, "v": V, "table": pages, "first_row": first}  # noqa: B023
                    cache |= {"page_step": page_step, "slot_step": slot_step}
                    return cache | {"q": Q[at, h], "start": begin, "end": end, "position": position}  # noqa: B023

                with P.when(slot < 0):
                    attend[b, h, start](
                        **views(start, kv_end), o=O[at, h], stats=LSE[at, h], lse_scale=lse_scale
                    )
                if form.is_batch_invariant:
                    with P.otherwise(Items[n, 1] // 256 % 2 == 0):  # FLAG_FIRST is not set
                        for j in P.seq((length + (CANONICAL_BLOCK - 1)) // CANONICAL_BLOCK):
                            begin = start + j * CANONICAL_BLOCK
                            end = (begin + CANONICAL_BLOCK).min(kv_end)
                            attend_part[b, h, begin](
                                **views(begin, end),
                                o=Parts[slot + j, :count],
                                stats=PartStats[slot + j, :count],
                                lse_scale=lse_scale,
                            )
                with P.otherwise():
                    attend_part[b, h, start](
                        **views(start, kv_end), o=Parts[slot, :count], stats=PartStats[slot, :count],
                        lse_scale=lse_scale,
                    )  # fmt: skip
        for j in P("merges"):
            b, h = MergeRows[j, 0], MergeRows[j, 1]
            at, count, _ = rows_of(b, MergeRows[j, 2])
            part = slice(MergeIndptr[j], MergeIndptr[j + 1])
            merge[b, h](
                parts=Parts[part, :count], part_stats=PartStats[part, :count], o=O[at, h], lse=LSE[at, h],
                lse_scale=lse_scale,
            )  # fmt: skip

    return attention


def attend_kernel(form: AttentionForm, is_whole: bool) -> Any:
    """Return the kernel of one item.

    Its state per row is a maximum m, a sum of weights l and a weighted sum of values acc, all f32. Each
    canonical block is computed from a fresh state and folded in ascending order: sums of many positions stay
    exact, and in the batch-invariant mode they are the same wherever a row is cut.

    Args:
        form: what it is made for.
        is_whole: the item is a whole row: write output and log-sum-exp; otherwise write the state.
    """
    ROWS, DIM, PAGE, Q_DTYPE = form.tile_rows, form.dim, form.page_size, form.q_dtype
    SCALE, CAP, WINDOW, IS_CAUSAL = form.scale, form.soft_cap, form.window_left, form.is_causal
    HAS_CAP, HAS_WINDOW = CAP > 0, WINDOW >= 0
    HAS_TOKENS, BLOCK = form.tokens > 0, CANONICAL_BLOCK
    PAGE_BITS, HAS_PAGE_BITS = PAGE.bit_length() - 1, PAGE & (PAGE - 1) == 0
    output = Out[Tile[ROWS, DIM, Q_DTYPE if is_whole else f32]]
    statistics = Out[Tile[ROWS, 1, f32]] if is_whole else Out[Tensor[f32, DYN, 2]]

    @kernel
    def attend(
        q: In[Tile[ROWS, DIM, Q_DTYPE]],
        table: In[Tensor[i32, DYN, 1]],
        k: In[Tensor[form.kv_dtype, DYN, DIM]],
        v: In[Tensor[form.kv_dtype, DYN, DIM]],
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
    ):
        """Attend to positions `start` to `end`; `position` is that of the first query."""
        scaled = pto.cast(q, f32) * SCALE
        m, l, acc = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1)), pto.zeros((q.rows, DIM))  # noqa: E741
        m_all, l_all, acc_all = m, l, acc
        begin = start // STEP * STEP
        for r in pto.tiles(end - begin, STEP):
            first = begin + r.start
            if first % BLOCK == 0:
                m_new = pto.maximum(m_all, m)
                before, now = pto.exp(m_all - m_new), pto.exp(m - m_new)
                l_all, acc_all, m_all = l_all * before + l * now, acc_all * before + acc * now, m_new
                m, l = pto.full((q.rows, 1), LOWEST), pto.zeros((q.rows, 1))  # noqa: E741
                acc = pto.zeros((q.rows, DIM))
            at = pto.transpose(pto.iota((1, r.extent), first))
            if PAGE:
                page = pto.shr(at, PAGE_BITS) if HAS_PAGE_BITS else pto.div(at, PAGE)
                rows = pto.gather(table, page) * page_step + (at - page * PAGE) * slot_step + first_row
            else:
                rows = at * slot_step + first_row
            pto.prefetch(v, rows)
            s = pto.matmul(scaled, pto.gather(k, rows).T)
            if HAS_CAP:
                s = pto.tanh(s * (1 / CAP)) * CAP
            if IS_CAUSAL or HAS_WINDOW:
                ahead = pto.iota((s.rows, s.cols), first - position)
                if HAS_TOKENS:
                    ahead = ahead - pto.transpose(pto.iota((1, s.rows), 0))
                if IS_CAUSAL:
                    s = pto.where(ahead <= 0, s, -inf)
                if HAS_WINDOW:
                    s = pto.where(ahead >= -WINDOW, s, -inf)
            m_new = pto.maximum(m, pto.rowmax(s))
            p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
            l = l * alpha + pto.rowsum(p)  # noqa: E741
            soon = pto.minimum(pto.transpose(pto.iota((1, STEP), first + STEP)), end - 1)
            if PAGE:
                page = pto.shr(soon, PAGE_BITS) if HAS_PAGE_BITS else pto.div(soon, PAGE)
                next_rows = pto.gather(table, page) * page_step + (soon - page * PAGE) * slot_step + first_row
            else:
                next_rows = soon * slot_step + first_row
            pto.prefetch(k, next_rows)
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


def merge_kernel(form: AttentionForm) -> Any:
    """Return the kernel that folds the partial results of a row in ascending order."""
    ROWS, DIM, Q_DTYPE = form.tile_rows, form.dim, form.q_dtype

    @kernel
    def merge(
        parts: In[Tensor[f32, DYN, DYN, DIM]],
        part_stats: In[Tensor[f32, DYN, DYN, 2]],
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
