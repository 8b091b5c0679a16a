"""The workload of planned attention, which a plan's arrays feed."""

# Annotations depend on the form, names on branches that it decides; elements of integer tensors are numbers.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from typing import Any

from pto_wsp.lang.axes import P
from pto_wsp.lang.scalar import Scalar
from pto_wsp.lang.tensor import Tensor
from pto_wsp.lang.workload import workload
from pto_wsp.ops.attention_decode import decode_kernel, merge_kernel
from pto_wsp.ops.attention_form import AttentionForm
from pto_wsp.ops.attention_prefill import prefill_kernel
from pto_wsp.planner.balanced import CANONICAL_BLOCK
from pto_wsp.types import DenseDyn, f32, i32, i64


def attention_workload(form: AttentionForm) -> Any:
    """Return the workload: the items of each worker in their order, then the rows that were split."""
    ROWS, DIM, PAGE, TOKENS, GROUP = form.tile_rows, form.dim, form.page_size, form.tokens, form.group
    q_type = Tensor[(form.q_dtype, "tokens", *form.q_dims, DIM)]
    cache = Tensor[form.kv_dtype, "rows", DIM]
    make = prefill_kernel if TOKENS else decode_kernel
    attend, attend_part, merge = make(form, True), make(form, False), merge_kernel(form)

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
