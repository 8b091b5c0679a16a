"""Workloads whose data decides: nothing here may be an error for a type checker."""

from pto_wsp import (
    ALL,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Tensor,
    Tile,
    combine,
    f32,
    i32,
    i64,
    kernel,
    pto,
    sequential,
    slot_bool,
    slot_i64,
    slot_load_bool,
    slot_load_i64,
    slot_load_u64,
    slot_set_bool,
    slot_set_i64,
    slot_set_u64,
    slot_u64,
    symbol_f32,
    symbol_i64,
    symbol_u64,
    tier,
    workload,
)


@kernel
def small(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]], n: Scalar[i64]):
    pto.store(y, x + n)


@kernel
def large(x: In[Tile[64, 64, f32]], y: Out[Tile[64, 64, f32]], n: Scalar[i64]):
    pto.store(y, x + n)


@kernel
def scale(x: InOut[Tile[16, 64, f32]], factor: Scalar[f32]):
    pto.store(x, x * factor)


step = tier("step", (small, 16), (large, None))


@workload
def rows(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], factor: Scalar[f32]):
    for r in P.tiles("n", 16):
        small[r](x=X[r], y=Y[r], n=r.extent)
        scale[r](x=Y[r], factor=factor)


@workload
def program(
    batch: DenseDyn,
    kv: Ragged["batch"],
    lengths: Tensor[i32, "batch"],
    table: Tensor[i64, "batch", 4],
    X: Tensor[f32, "batch", 8, 16, 64],
    Y: Tensor[f32, "batch", 8, 16, 64],
    K: Tensor[f32, "tokens", 64],
):
    slot_load_u64(0, lengths, row=1)
    slot_load_i64(1, table[2], 3)
    slot_load_bool(2, table, row=0, col=lengths[0])
    slot_set_u64(3, slot_u64(0) + 1)
    slot_set_i64(4, lengths[0] // 2)
    slot_set_bool(5, lengths[0] < 3)
    for b in P(batch):
        with P.when((lengths[b] <= 2048) & (b < 2)):
            first = small[b, 0](x=X[b, 0], y=Y[b, 0], n=lengths[b])
            step.at(lengths[b])[b](x=X[b, 1], y=Y[b, 1], n=b, after=[first])
        with P.otherwise(slot_bool(5) | ~(lengths[b] % 2 == 0)):
            small[b, ALL](x=X[b, ALL], y=Y[b, ALL], n=slot_i64(1) - lengths[b])
        with P.otherwise():
            for i in P(lengths[b]):
                small[b, i](x=X[table[b, i], 0], y=Y[b, 0], n=i.min(lengths[b]))
        for part in P.tiles(kv[b], 16):
            scale[b, part](x=K[kv[b]][part], factor=symbol_f32("factor"))
        for i in P(symbol_u64("count")):
            sequential(
                rows(X[b, 0], Y[b, 0], 2.0),
                combine(rows(X[b, 1], Y[b, 1], factor=1.0), small(X[b, i], Y[b, i], symbol_i64("n"))),
            )


@workload
def again(X: Tensor[f32, "n", 64], factor: Scalar[f32]):
    for r in P.tiles("n", 16):
        scale[r](x=X[r], factor=factor)


both = combine(rows, sequential(again, rows)).named("both of them")
compiled = both.compile("interp")
traced = program.trace()
bound = rows(factor=2.0).compile(target="interp")
