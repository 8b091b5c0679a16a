"""Kernels that add products of 16 bits in loops, for tests of their sums in registers."""

from __future__ import annotations

from math import inf

from pto_wsp import DYN, In, Out, Tensor, bf16, f16, f32, kernel, pto, workload
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.types.dtype import DType

A, B, Y = In[Tensor[bf16, DYN, DYN]], In[Tensor[bf16, DYN, DYN]], Out[Tensor[f32, DYN, DYN]]
DIM = 23


def product_of(
    name: str, sizes: tuple[int, int, int], left: DType, right: DType, first: float = 0.0
) -> Kernel:
    """Return a kernel that adds a product to `first`, by tiles of some rows, columns and terms."""
    rows, cols, terms = sizes

    @kernel(name=name)
    def product(a: In[Tensor[left, DYN, DYN]], b: In[Tensor[right, DYN, DYN]], y: Y):
        for r in pto.tiles(y.rows, rows):
            for n in pto.tiles(y.cols, cols):
                acc = pto.full((r.extent, n.extent), first)
                for k in pto.tiles(b.rows, terms):
                    acc = pto.matmul(a[r, k], b[k, n], acc=acc)
                pto.store(y[r, n], acc)

    return product


plain = product_of("plain", (48, 40, 32), bf16, bf16, 0.5)
of_f16 = product_of("of_f16", (16, 32, 8), f16, f16)  # steps of 8 terms are parts of blocks of terms
large = product_of("large", (128, 128, 64), bf16, bf16)
of_f32 = product_of("of_f32", (32, 32, 16), f32, f32)
mixed = product_of("mixed", (32, 32, 16), bf16, f16)


@kernel
def turned(a: A, b: B, y: Y):
    for r in pto.tiles(y.rows, 48):
        for n in pto.tiles(y.cols, 40):
            acc = pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.cols, 32):
                acc = pto.matmul(a[k, r].T, b[n, k].T, acc=acc)
            pto.store(y[r, n], acc)


@kernel
def gated(a: A, b: B, y: Y):
    """Two sums share an operand, and one of them gets two products per iteration."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            gate, up = pto.zeros((r.extent, n.extent)), pto.full((r.extent, n.extent), 1.0)
            for k in pto.tiles(b.rows, 16):
                gate = pto.matmul(a[r, k], b[k, n], acc=gate)
                up = pto.matmul(a[r, k], b[k, n], acc=up)
                gate = pto.matmul(a[r, k], b[k, n], acc=gate)
            pto.store(y[r, n], gate * up)


@kernel
def in_turn(a: A, b: B, y: Y):
    """Two loops add to one tile, which is changed in between; an outer loop needs it at its head."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc = pto.zeros((r.extent, n.extent))
            for _ in range(2):
                for k in pto.tiles(b.rows, 32):
                    acc = pto.matmul(a[r, k], b[k, n], acc=acc)
                acc = pto.relu(acc)
                for k in pto.tiles(b.rows, 16):
                    acc = pto.matmul(a[r, k], b[k, n], acc=acc)
                acc = acc * 0.5
            pto.store(y[r, n], acc)


@kernel
def nested(a: A, b: B, y: Y):
    """Sums stay in registers while the outer loop runs; some iterations of the inner one add nothing."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc = pto.zeros((r.extent, n.extent))
            for i in range(3):
                for k in pto.tiles(b.rows, 16):
                    if k.start != 16 * i:
                        acc = pto.matmul(a[r, k], b[k, n], acc=acc)
            pto.store(y[r, n], acc)


@kernel
def read_inside(a: A, b: B, y: Y):
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc, most = pto.zeros((r.extent, n.extent)), pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.rows, 16):
                acc = pto.matmul(a[r, k], b[k, n], acc=acc)
                most = pto.maximum(most, acc)
            pto.store(y[r, n], most)


@kernel
def kept(a: A, b: B, y: Y):
    """The sums of the iteration before are read after the first product of two, so they stay as they are."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc, most = pto.zeros((r.extent, n.extent)), pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.rows, 16):
                first = pto.matmul(a[r, k], b[k, n], acc=acc)
                most = pto.maximum(most, acc)
                acc = pto.matmul(a[r, k], b[k, n], acc=first)
            pto.store(y[r, n], most)


@kernel
def of_elements(a: A, b: B, y: Y):
    """A condition in the loop reads an element of the sums."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc = pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.rows, 16):
                if acc[0, 0] < 3.0:
                    acc = pto.matmul(a[r, k], b[k, n], acc=acc)
            pto.store(y[r, n], acc)


@kernel
def while_loop(a: A, b: B, y: Y):
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc, i = pto.zeros((r.extent, n.extent)), 0
            while i + 16 <= b.rows:
                acc = pto.matmul(a[r, i : i + 16], b[i : i + 16, n], acc=acc)
                i = i + 16
            pto.store(y[r, n], acc)


@kernel
def attention(a: A, b: B, y: Y):
    """Rows of `a` attend to rows of `b`: the sums are scaled in each iteration."""
    for r in pto.tiles(y.rows, 32):
        q = pto.load(a[r, 0:DIM])
        m, l, acc = pto.full((r.extent, 1), -inf), pto.zeros((r.extent, 1)), pto.zeros((r.extent, DIM))  # noqa: E741
        for t in pto.tiles(b.rows, 48):
            k = pto.load(b[t, 0:DIM])
            s = pto.matmul(q, k.T)
            new_m = pto.maximum(m, pto.rowmax(s))
            p, scale = pto.exp(s - new_m), pto.exp(m - new_m)
            l = l * scale + pto.rowsum(p)  # noqa: E741
            acc = pto.matmul(pto.cast(p, bf16), k, acc=acc * scale)
            m = new_m
        pto.store(y[r, 0:DIM], acc / l)


@kernel
def changed(a: A, b: B, y: Y):
    """Sums change before and after products, by values that the same instructions make and replace."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc, w = pto.zeros((r.extent, n.extent)), pto.full((r.extent, n.extent), 0.75)
            rows, cols = pto.full((r.extent, 1), 0.5), pto.full((1, n.extent), 2.0)
            for k in pto.tiles(b.rows, 16):
                half = w * 0.5
                scaled = acc * rows + half
                w = half + 0.25
                added = pto.matmul(a[r, k], b[k, n], acc=scaled)
                acc = pto.minimum(pto.relu(added), w)
                if k.start != 16:
                    acc = acc * cols
            pto.store(y[r, n], acc)


@kernel
def by_each_other(a: A, b: B, y: Y):
    """Sums that change others lie in memory; those that they change stay in registers."""
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            one, two = pto.zeros((r.extent, n.extent)), pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.rows, 16):
                one = pto.matmul(a[r, k], b[k, n], acc=one)
                two = pto.matmul(a[r, k], b[k, n], acc=two)
                one = one - two
            pto.store(y[r, n], one)


@kernel
def by_own_element(a: A, b: B, y: Y):
    for r in pto.tiles(y.rows, 32):
        for n in pto.tiles(y.cols, 32):
            acc = pto.full((r.extent, n.extent), 0.5)
            for k in pto.tiles(b.rows, 16):
                acc = pto.matmul(a[r, k], b[k, n], acc=acc * acc[0, 0])
            pto.store(y[r, n], acc)


@kernel
def too_many(a: A, b: B, y: Y):
    """Two sums of 128 x 128 do not fit the registers, and neither does one with another product."""
    for r in pto.tiles(y.rows, 128):
        for n in pto.tiles(y.cols, 128):
            one, two = pto.zeros((r.extent, n.extent)), pto.zeros((r.extent, n.extent))
            for k in pto.tiles(b.rows, 32):
                one = pto.matmul(a[r, k], b[k, n], acc=one)
                two = pto.matmul(a[r, k], b[k, n], acc=two)
            pto.store(y[r, n], one + two)


SUMS = {
    plain: 1,
    of_f16: 1,
    turned: 1,
    gated: 2,
    in_turn: 2,
    nested: 1,
    read_inside: 0,
    kept: 0,
    of_elements: 0,
    while_loop: 1,
    attention: 1,
    changed: 1,
    by_each_other: 1,
    by_own_element: 0,
    too_many: 0,
    large: 1,
    of_f32: 0,
    mixed: 0,
}
"""Kernels, and how many of their sums stay in registers while a loop runs."""


def workload_of(of: Kernel) -> Workload:
    """Return a workload of one task of a kernel."""
    left, right, _ = (view.type.dtype for view in of.specialise({}, {}).views)

    @workload
    def once(
        A: Tensor[left, "ar", "ac"],
        B: Tensor[right, "br", "bc"],
        Y: Tensor[f32, "yr", "yc"],
    ):
        of(a=A, b=B, y=Y)

    return once


def kernel_of(of: Kernel) -> KernelFunction:
    """Return a kernel as targets get it."""
    (found,) = workload_of(of).compile("interp").module.kernels
    return found
