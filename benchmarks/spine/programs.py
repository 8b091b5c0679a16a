"""The programs that the case measures, as a user would write them.

Annotations are evaluated here, not deferred: those of nested functions use the factory's arguments.
"""

from typing import Any

from pto_wsp import Dense, In, InOut, Out, P, Scalar, Tensor, Tile, f32, i32, kernel, pto, workload

COLS = 8
WIDE = 128


@kernel
def bump(x: In[Tile[1, COLS, f32]], y: Out[Tile[1, COLS, f32]], step: Scalar[f32]):
    """Do almost nothing: what remains is the task."""
    pto.store(y, x + step)


@workload
def bump_rows(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "n", COLS], step: Scalar[f32]):
    """One independent task per row."""
    for row in P.tiles("n", 1):
        bump[row](x=X[row], y=Y[row], step=step)


@kernel
def stamp(counter: InOut[Tile[1, COLS, i32]], token: In[Tile[1, COLS, i32]]):
    """Fold a token into a counter so that the result tells the order: wraps modulo 2**32."""
    pto.store(counter, counter * 31 + token)


@workload
def stamp_counters(Tokens: Tensor[i32, "rounds", "slots", COLS], Counters: Tensor[i32, "slots", COLS]):
    """Every round writes every counter; rounds are ordered by data alone."""
    for step in P.range("rounds"):
        for slot in P.tiles("slots", 1):
            stamp[step, slot](counter=Counters[slot], token=Tokens[step, slot])


def one_kernel(constant: float) -> Any:
    """Return a workload with one kernel; another constant is another kernel."""

    @kernel
    def scale_shift(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]], factor: Scalar[f32]):
        pto.store(y, x * factor + constant)

    @workload
    def scale_rows(X: Tensor[f32, "n", WIDE], Y: Tensor[f32, "n", WIDE], factor: Scalar[f32]):
        for rows in P.tiles("n", 64):
            scale_shift[rows](x=X[rows], y=Y[rows], factor=factor)

    return scale_rows


BATCH = 8


def many_kernels(constant: float) -> Any:  # noqa: C901  (nested kernels are not branches)
    """Return a workload with `BATCH` different kernels; another constant is another eight."""

    @kernel
    def scale(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, x * constant)

    @kernel
    def softmax(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        e = pto.exp(x * constant - pto.rowmax(x))
        pto.store(y, e / pto.rowsum(e))

    @kernel
    def rms_norm(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, x * pto.rsqrt(pto.rowsum(x * x) * (1.0 / 128) + constant))

    @kernel
    def gelu(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, x * (pto.erf(x * 0.70710678) + constant) * 0.5)

    @kernel
    def silu(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, x * pto.sigmoid(x * constant))

    @kernel
    def clamp(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, pto.minimum(pto.maximum(x, -constant), constant))

    @kernel
    def gram(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, pto.matmul(pto.matmul(x, x.T), x) * constant)

    @kernel
    def squash(x: In[Tile[64, WIDE, f32]], y: Out[Tile[64, WIDE, f32]]):
        pto.store(y, pto.tanh(x * constant))

    @workload
    def stages(X: Tensor[f32, "n", WIDE], Y: Tensor[f32, BATCH, "n", WIDE]):
        for rows in P.tiles("n", 64):
            for number, stage in enumerate((scale, softmax, rms_norm, gelu, silu, clamp, gram, squash)):
                stage[rows](x=X[rows], y=Y[number, rows])

    return stages


def counted(count: int) -> Any:
    """Return a workload whose number of tasks is part of the program."""

    @workload
    def bump_all(X: Tensor[f32, count, 1, COLS], Y: Tensor[f32, count, 1, COLS], step: Scalar[f32]):
        for i in P(Dense[count]):
            bump[i](x=X[i], y=Y[i], step=step)

    return bump_all
