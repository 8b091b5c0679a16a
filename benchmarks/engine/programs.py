"""The graphs of the case, as a user would write them. A body stores one number.

`llama` is the skeleton of a LLaMA layer with 16 n + 3 n**2 tasks; `folding` is the same with
bodies whose results tell the order of tasks. The others are the usual shapes of task benchmarks: independent
tasks, fan-out and fan-in, a chain, a wavefront.
"""

from pto_wsp import DenseDyn, In, InOut, Out, P, Tensor, Tile, i32, kernel, pto, workload
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.support.record import record

WIDTH = 32  # numbers of a cell: neighbours do not share a line of the cache
Cell = Tile[1, WIDTH, i32]


@kernel(cpp_src="out(0, 0) = 1;")
def put(out: Out[Cell]): ...


@kernel(cpp_src="state(0, 0) = 1;")
def step(state: InOut[Cell]): ...


@kernel(cpp_src="out(0, 0) = 1;")
def map1(a: In[Cell], out: Out[Cell]): ...


@kernel(cpp_src="out(0, 0) = 1;")
def map2(a: In[Cell], b: In[Cell], out: Out[Cell]): ...


@kernel(cpp_src="out(0, 0) = 1;")
def map3(a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell]): ...


@kernel(cpp_src="out(0, 0) = 1;")
def init_state(
    a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell], row_sum: Out[Cell], row_max: Out[Cell]
): ...


@kernel(cpp_src="weights(0, 0) = 1;")
def softmax_update(
    scores: In[Cell], row_max: InOut[Cell], row_sum: InOut[Cell], weights: Out[Cell], scale: Out[Cell]
): ...


@kernel(cpp_src="out(0, 0) = 1;")
def output_update(out: InOut[Cell], weights: In[Cell], v: In[Cell], scale: In[Cell]): ...


@kernel(cpp_src="out(0, 0) = 1;")
def normalize(out: InOut[Cell], row_sum: In[Cell]): ...


Column = Tensor[i32, "n", 1, WIDTH]


@record
class LayerKernels:
    """The six kernels of the layer."""

    map2: Kernel
    map3: Kernel
    init_state: Kernel
    softmax_update: Kernel
    output_update: Kernel
    normalize: Kernel


def layer_of(kernels: LayerKernels) -> Workload:
    """Return the layer of these kernels over n tiles of tokens."""
    map2, map3 = kernels.map2, kernels.map3

    @workload
    def llama(
        n: DenseDyn, Weights: Tensor[i32, 12, 1, WIDTH], X: Column, Y: Column, Q: Column, K: Column,
        V: Column, QR: Column, KR: Column, Attn: Column, Max: Column, Sum: Column, Hidden: Column,
        Norm: Column, Scores: Column, Probs: Column, Scale: Column, Gate: Column, Up: Column,
        Swiglu: Column, Mlp: Column,
    ):  # fmt: skip
        for i in P(n):
            map2[i](a=X[i], b=Weights[0], out=Norm[i])
            map2[i](a=Norm[i], b=Weights[1], out=Q[i])
            map2[i](a=Norm[i], b=Weights[2], out=K[i])
            map2[i](a=Norm[i], b=Weights[3], out=V[i])
            map3[i](a=Q[i], b=Weights[4], c=Weights[5], out=QR[i])
            map3[i](a=K[i], b=Weights[4], c=Weights[5], out=KR[i])
        for q in P(n):
            kernels.init_state[q](
                a=Weights[6], b=Weights[7], c=Weights[8], out=Attn[q], row_sum=Sum[q], row_max=Max[q]
            )
            for k in P.range(n):
                map2[q, k](a=QR[q], b=KR[k], out=Scores[q])
                kernels.softmax_update[q, k](
                    scores=Scores[q], row_max=Max[q], row_sum=Sum[q], weights=Probs[q], scale=Scale[q]
                )
                kernels.output_update[q, k](out=Attn[q], weights=Probs[q], v=V[k], scale=Scale[q])
            kernels.normalize[q](out=Attn[q], row_sum=Sum[q])
        for i in P(n):
            map2[i](a=Attn[i], b=Weights[9], out=Norm[i])
            map2[i](a=Norm[i], b=X[i], out=Hidden[i])
            map2[i](a=Hidden[i], b=Weights[10], out=Norm[i])
            map2[i](a=Norm[i], b=Weights[11], out=Gate[i])
            map2[i](a=Norm[i], b=Weights[0], out=Up[i])
            map2[i](a=Gate[i], b=Up[i], out=Swiglu[i])
            map2[i](a=Swiglu[i], b=Weights[1], out=Mlp[i])
            map2[i](a=Mlp[i], b=Hidden[i], out=Y[i])

    return llama


llama = layer_of(LayerKernels(map2, map3, init_state, softmax_update, output_update, normalize))


@kernel
def fold2(a: In[Cell], b: In[Cell], out: Out[Cell]):
    """Make a number that tells what was read."""
    pto.store(out, a * 31 + b * 17 + 1)


@kernel
def fold3(a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell]):
    """Make a number that tells what was read."""
    pto.store(out, a * 31 + b * 17 + c * 13 + 1)


@kernel
def fold_init(a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell], row_sum: Out[Cell], row_max: Out[Cell]):
    """Begin from what is read."""
    pto.store(out, a * 31 + 1)
    pto.store(row_sum, b * 17 + 2)
    pto.store(row_max, c * 13 + 3)


@kernel
def fold_softmax(
    scores: In[Cell], row_max: InOut[Cell], row_sum: InOut[Cell], weights: Out[Cell], scale: Out[Cell]
):
    """Fold what is read into everything that is written."""
    total = row_max * 31 + row_sum * 17 + scores * 13
    pto.store(row_max, total + 1)
    pto.store(row_sum, total * 3 + 2)
    pto.store(weights, total * 5 + 3)
    pto.store(scale, total * 7 + 4)


@kernel
def fold_output(out: InOut[Cell], weights: In[Cell], v: In[Cell], scale: In[Cell]):
    """Fold what is read into the output."""
    pto.store(out, out * 31 + weights * 17 + v * 13 + scale * 7)


@kernel
def fold_normalize(out: InOut[Cell], row_sum: In[Cell]):
    """Fold what is read into the output."""
    pto.store(out, out * 31 + row_sum * 17)


folding = layer_of(LayerKernels(fold2, fold3, fold_init, fold_softmax, fold_output, fold_normalize))

WAIT_2_US = """
const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
while (std::chrono::steady_clock::now() < end) {
}
"""


def slow_layer() -> Workload:
    """Return the layer with bodies that take 2 us and do nothing else."""
    slow = kernel(cpp_src=WAIT_2_US, cpp_includes=["<chrono>"])

    @slow
    def slow_map2(a: In[Cell], b: In[Cell], out: Out[Cell]): ...

    @slow
    def slow_map3(a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell]): ...

    @slow
    def slow_init(
        a: In[Cell], b: In[Cell], c: In[Cell], out: Out[Cell], row_sum: Out[Cell], row_max: Out[Cell]
    ): ...

    @slow
    def slow_softmax(
        scores: In[Cell], row_max: InOut[Cell], row_sum: InOut[Cell], weights: Out[Cell], scale: Out[Cell]
    ): ...

    @slow
    def slow_output(out: InOut[Cell], weights: In[Cell], v: In[Cell], scale: In[Cell]): ...

    @slow
    def slow_normalize(out: InOut[Cell], row_sum: In[Cell]): ...

    return layer_of(LayerKernels(slow_map2, slow_map3, slow_init, slow_softmax, slow_output, slow_normalize))


@kernel
def mark(state: InOut[Cell]):
    """Change a cell."""
    pto.store(state, state + 1)


@workload
def single(S: Tensor[i32, 1, WIDTH]):
    """One task."""
    mark(state=S)


@workload
def independent(n: DenseDyn, Y: Column):
    """N tasks that nothing orders."""
    for i in P(n):
        put[i](out=Y[i])


@workload
def fan(n: DenseDyn, rounds: DenseDyn, S: Tensor[i32, 1, WIDTH], Y: Column):
    """One task, n that read what it wrote, one that overwrites it, and so on."""
    step(state=S)
    for r in P.range(rounds):
        for i in P(n):
            map1[r, i](a=S, out=Y[i])
        step[r](state=S)


@workload
def chain(n: DenseDyn, S: Tensor[i32, 1, WIDTH]):
    """N tasks, each after the other."""
    for i in P.range(n):
        step[i](state=S)


@kernel(cpp_src="state(0, 0) = 1;")
def cell(up: In[Cell], left: In[Cell], state: InOut[Cell]): ...


@workload
def wavefront(n: DenseDyn, A: Tensor[i32, "rows", "rows", 1, WIDTH]):
    """Every cell of an n x n matrix after the one above it and the one to its left; A has a border."""
    for i in P.range(n):
        for j in P.range(n):
            cell[i, j](up=A[i, j + 1], left=A[i + 1, j], state=A[i + 1, j + 1])
