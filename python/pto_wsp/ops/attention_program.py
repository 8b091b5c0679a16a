"""The workload of planned attention, which a plan's arrays feed."""

# Annotations depend on the form, names on branches that it decides; elements of integer tensors are numbers.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from typing import Any

from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import workload
from pto_wsp.ops.attention_form import STEP, AttentionForm
from pto_wsp.ops.attention_kernels import attend_kernel, merge_kernel, pack_kernel
from pto_wsp.planner.balanced import CANONICAL_BLOCK, PARTIAL_STATISTICS
from pto_wsp.types import DenseDyn, f32, i32, i64


def attention_workload(form: AttentionForm) -> Any:
    """Return the workload: the items of each worker in their order, then the rows that were split."""
    ROWS, DIM, PAGE, TOKENS, GROUP = form.tile_rows, form.dim, form.page_size, form.tokens, form.group
    q_type = Tensor[(form.q_dtype, "tokens", *form.q_dims, DIM)]
    cache = Tensor[form.kv_dtype, "rows", DIM]
    packed_keys, packed_values = (Tensor[f32, form.kv_heads, "blocks", *dims] for dims in form.packed_dims)
    merge, pack = merge_kernel(form), pack_kernel(form)
    kernels = [attend_kernel(form, is_whole) for is_whole in (True, False)]
    if TOKENS:
        packed_kernels = [attend_kernel(form, is_whole, is_packed=True) for is_whole in (True, False)]

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
        q: q_type,
        k: cache,
        v: cache,
        out: q_type,
        lse: Tensor[(f32, "tokens", *form.q_dims, 1)],
        page_step: Scalar[i64],
        slot_step: Scalar[i64],
        head_step: Scalar[i64],
        Blocks: Tensor[i32, "requests"],
        PackedK: packed_keys,
        PackedV: packed_values,
        Parts: Tensor[f32, "slots", ROWS, DIM],
        PartStats: Tensor[f32, "slots", ROWS, PARTIAL_STATISTICS],
        lse_scale: Scalar[f32],
    ):
        """Pack the requests that have a number in `Blocks`, attend to every item, merge what was cut."""

        def rows_of(b: Any, q_start: Any) -> tuple[Any, Any, Any]:
            """Return where a query tile lies, its rows, and the position of its first query."""
            begin, end = QIndptr[b], QIndptr[b + 1]
            position = KVLens[b] - (end - begin) + q_start
            if not TOKENS:
                return begin, ROWS, position
            count = (end - begin - q_start).min(TOKENS)
            return slice(begin + q_start, begin + q_start + count), count, position

        def gathered(b: Any, kv_head: Any) -> dict[str, Any]:
            """Return where the keys and values of a request lie in the cache."""
            first = head_step * kv_head + (0 if PAGE else slot_step * KVIndptr[b])
            pages = Pages[KVIndptr[b] : KVIndptr[b + 1], :] if PAGE else Pages
            steps = {"page_step": page_step, "slot_step": slot_step, "first_row": first}
            return {"k": k, "v": v, "table": pages, **steps}

        def blocks_of(b: Any) -> Any:
            return slice(Blocks[b], Blocks[b] + (KVLens[b] + (STEP - 1)) // STEP)

        def attend(n: Any, b: Any, kernels: Any, cache: dict[str, Any]) -> None:
            """Run the tasks of item `n`, of request `b`."""
            whole, part = kernels
            h, start, length, slot = (Items[n, word] for word in (3, 4, 5, 7))
            at, count, position = rows_of(b, Items[n, 6])
            kv_end = start + length
            views = {**cache, "q": q[at, h], "position": position, "lse_scale": lse_scale}
            with P.when(slot < 0):
                whole[b, h, start](**views, start=start, end=kv_end, o=out[at, h], stats=lse[at, h])
            if form.is_batch_invariant:
                with P.otherwise(Items[n, 1] // 256 % 2 == 0):  # FLAG_FIRST is not set
                    for j in P.seq((length + (CANONICAL_BLOCK - 1)) // CANONICAL_BLOCK):
                        begin = start + j * CANONICAL_BLOCK
                        part[b, h, begin](
                            **views, start=begin, end=(begin + CANONICAL_BLOCK).min(kv_end),
                            o=Parts[slot + j, :count], stats=PartStats[slot + j, :count],
                        )  # fmt: skip
            with P.otherwise():
                part[b, h, start](
                    **views, start=start, end=kv_end, o=Parts[slot, :count], stats=PartStats[slot, :count]
                )

        if TOKENS:
            for b in P("requests"):
                with P.when(Blocks[b] >= 0):
                    for h in P(form.kv_heads):
                        for t in P.tiles(KVLens[b], STEP):
                            i = Blocks[b] + t.start // STEP
                            pack[b, h, i](
                                **gathered(b, h), start=t.start, packed_k=PackedK[h, i, :, : t.extent],
                                packed_v=PackedV[h, i, : t.extent],
                            )  # fmt: skip
        for worker in P(num_workers):
            for i in P.seq(WorkerIndptr[worker + 1] - WorkerIndptr[worker]):
                n = WorkerIndptr[worker] + i
                b = Items[n, 2]
                kv_head = Items[n, 3] // GROUP if TOKENS else Items[n, 3]
                if TOKENS:
                    with P.when(Blocks[b] >= 0):
                        packed = {"k": PackedK[kv_head, blocks_of(b)], "v": PackedV[kv_head, blocks_of(b)]}
                        attend(n, b, packed_kernels, {**gathered(b, kv_head), **packed})
                    with P.otherwise():
                        attend(n, b, kernels, gathered(b, kv_head))
                else:
                    attend(n, b, kernels, gathered(b, kv_head))
        for j in P("merges"):
            b, h = MergeRows[j, 0], MergeRows[j, 1]
            at, count, _ = rows_of(b, MergeRows[j, 2])
            part = slice(MergeIndptr[j], MergeIndptr[j + 1])
            merge[b, h](
                parts=Parts[part, :count], part_stats=PartStats[part, :count], o=out[at, h], lse=lse[at, h],
                lse_scale=lse_scale,
            )  # fmt: skip

    return attention
