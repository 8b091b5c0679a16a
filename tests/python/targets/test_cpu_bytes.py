"""Products with i8 on the target `cpu`: exact in i32, and widened in registers where the other is a float."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.scalar import Const, Extent
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.targets.cpu.features import VARIABLE, resolve_features
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.targets.cpu.widening import without_conversions
from pto_wsp.types.dtype import DType, bf16, f16, f32, i8, i32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

M, N, K = 40, 150, 300
SIZES = (
    (40, 150, 300),
    (1, 150, 300),
    (7, 33, 5),
    (5, 64, 257),
    (2, 1, 4),
    (3, 17, 0),
    (0, 5, 5),
    (9, 130, 3),
)
LEFT = (f32, f16, bf16)


def integers(**attrs: bool) -> k.KernelFunction:
    """y = a @ b, z = c + a @ b, w = a @ b + d."""
    maker = KernelMaker("integers" + "".join(f"_{key}" for key in attrs))
    a = maker.input("a", *((K, M) if attrs.get("trans_a") else (M, K)), i8)
    b = maker.input("b", *((N, K) if attrs.get("trans_b") else (K, N)), i8)
    c, d = maker.input("c", M, N, i32), maker.input("d", 1, N, i32)
    maker.store(maker.op("matmul", a, b, **attrs), "y")
    maker.store(maker.op("matmul_acc", c, a, b, **attrs), "z")
    maker.store(maker.op("matmul_bias", a, b, d, **attrs), "w")
    return maker.done()


def mixed(left: DType, rows: int, *, is_converted: bool, trans_b: bool = False) -> k.KernelFunction:
    """y = a @ b, with b of i8 as it is or converted to f32 before."""
    maker = KernelMaker(f"mixed_{left}_{rows}_{is_converted}_{trans_b}".lower())
    a, b = maker.input("a", rows, K, left), maker.input("b", *((N, K) if trans_b else (K, N)), i8)
    factor = maker.op("cvt", b, dtype=f32) if is_converted else b
    maker.store(maker.op("matmul", a, factor, trans_b=trans_b), "y")
    return maker.done()


def kept(kernel: k.KernelFunction) -> k.KernelFunction:
    """Return the kernel with another use of what it converts, so that the conversion stays."""
    (converted,) = (s for s in kernel.body or () if isinstance(s, k.Instr) and s.op == "cvt")
    params = (*kernel.params, k.Param("f", k.OUT, dict(kernel.tiles)[converted.dst]))
    store = k.Store(Region("f", (Full(), Full())), converted.dst)
    name = kernel.name + "_kept"
    return replace(kernel, name=name, params=params, body=(*(kernel.body or ()), store))


INTEGERS = [integers(), *(integers(**{key: True}) for key in ("trans_a", "trans_b"))]
INTEGERS.append(integers(trans_a=True, trans_b=True))
MIXED = [
    mixed(left, rows, is_converted=False, trans_b=turned)
    for left in LEFT
    for rows in (1, 8, M)
    for turned in (False, True)
]
WIDENED = [kept(mixed(f32, rows, is_converted=True)) for rows in (8, M)]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        return ctypes_abi.load(CpuTarget().build([*INTEGERS, *MIXED, *WIDENED], cache))


def some(seed: int, *shape: int) -> np.ndarray:
    """Return elements of i8, the smallest and the largest often among them."""
    rng = np.random.default_rng(seed)
    plain, ends = rng.integers(-128, 128, shape), rng.choice([-128, 127], shape)
    return np.where(rng.random(shape) < 0.3, ends, plain).astype(np.int8)


def assert_exact(library: ctypes_abi.Library) -> None:
    for m, n, depth in SIZES:
        a, b = some(1, m, depth), some(2, depth, n)
        c, d = (np.random.default_rng(3).integers(-(2**31), 2**31, s, np.int64) for s in ((m, n), (1, n)))
        product = a.astype(np.int64) @ b.astype(np.int64)
        expected = [product, product + c, product + d]
        for kernel in INTEGERS:
            left = a.T.copy() if "trans_a" in kernel.name else a
            right = b.T.copy() if "trans_b" in kernel.name else b
            found = [np.full((m, n), -1, np.int32) for _ in expected]
            given = [left, right, c.astype(np.int32), d.astype(np.int32)]
            assert library.call(kernel, [*given[:4], *found]) == 0
            for one, other in zip(found, expected, strict=True):
                assert np.array_equal(one, other.astype(np.int32)), (kernel.name, m, n, depth)


def test_products_of_integers_are_exact_and_wrap(library: ctypes_abi.Library) -> None:
    assert_exact(library)


@pytest.mark.parametrize("names", ["", "avx2,fma", "avx2,fma,avx_vnni", "no vnni"])
def test_every_way_of_adding_bytes_gives_the_same(
    names: str, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = resolve_features().names
    chosen = [n for n in own if "vnni" not in n] if names == "no vnni" else names.split(",") if names else []
    if not set(chosen) <= set(own):
        pytest.skip(f"this processor does not have {names}")
    monkeypatch.setenv(VARIABLE, ",".join(chosen))
    assert_exact(ctypes_abi.load(CpuTarget().build(INTEGERS, cache)))


def test_small_integers_are_widened_with_the_bits_of_a_conversion(library: ctypes_abi.Library) -> None:
    for kernel in MIXED:
        left, rows = kernel.params[0].type.dtype, kernel.params[0].type.rows
        for m, n, depth in ((rows, 150, 300), (1, 64, 300), (min(rows, 5), 37, 9), (1, 1, 1), (1, 20, 0)):
            a = np.random.default_rng(4).standard_normal((m, depth)).astype(left.to_numpy())
            b, turned = some(5, depth, n), kernel.params[1].type.shape == (N, K)
            found = np.full((m, n), np.nan, np.float32)
            assert library.call(kernel, [a, b.T.copy() if turned else b, found]) == 0
            exact = a.astype(np.float64) @ b
            bound = (depth / 8 + 4) * 2.0**-23 * (abs(a.astype(np.float64)) @ abs(b.astype(np.float64)))
            assert (abs(found - exact) <= bound).all(), (kernel.name, m, n, depth)


def test_a_conversion_before_a_product_changes_no_bit(library: ctypes_abi.Library) -> None:
    for kernel in WIDENED:
        m = kernel.params[0].type.rows
        plain = next(x for x in MIXED if x.name == f"mixed_f32_{m}_false_false")
        a, b = np.random.default_rng(6).standard_normal((m, K)).astype(np.float32), some(7, K, N)
        widened, found = np.empty((K, N), np.float32), [np.empty((m, N), np.float32) for _ in range(2)]
        assert library.call(kernel, [a, b, found[0], widened]) == 0
        assert library.call(plain, [a, b, found[1]]) == 0
        assert np.array_equal(widened, b) and found[0].tobytes() == found[1].tobytes()


# --- which conversions are left out ---


def conversions(kernel: k.KernelFunction) -> int:
    return sum(isinstance(s, k.Instr) and s.op == "cvt" for s in k.walk_statements(kernel.body or ()))


def test_conversions_for_products_alone_are_left_out() -> None:
    kernel = mixed(f32, 8, is_converted=True)
    changed = without_conversions(kernel)
    assert conversions(kernel) == 1 and conversions(changed) == 0
    assert len(changed.tiles) == len(kernel.tiles) - 1


def test_conversions_inside_loops_are_left_out() -> None:
    kernel = mixed(f32, 8, is_converted=True)
    *first, store = kernel.body or ()
    loop = k.For("n", Const(0), Const(3), 1, tuple(first))
    changed = without_conversions(replace(kernel, body=(*first, loop, store)))
    assert conversions(changed) == 2  # two loads write the tile
    assert conversions(without_conversions(replace(kernel, body=(loop,)))) == 0


def _maker() -> tuple[KernelMaker, str, str]:
    maker = KernelMaker("converting")
    return maker, maker.input("a", 8, 16, f32), maker.input("b", 16, 32, i8)


def _two_uses() -> k.KernelFunction:
    return kept(mixed(f32, 8, is_converted=True))


def _left_operand() -> k.KernelFunction:
    maker, _, b = _maker()
    c = maker.input("c", 32, 8, f32)
    maker.store(maker.op("matmul", maker.op("cvt", b, dtype=f32), c), "y")
    return maker.done()


def _pairs() -> k.KernelFunction:
    maker = KernelMaker("pairs")
    a, b = maker.input("a", 8, 16, bf16), maker.input("b", 16, 32, bf16)
    maker.store(maker.op("matmul", a, maker.op("cvt", b, dtype=f32)), "y")
    return maker.done()


def _other_type() -> k.KernelFunction:
    maker, a, b = _maker()
    maker.store(maker.op("matmul", a, maker.op("cvt", b, dtype=f16)), "y")
    return maker.done()


def _written_twice() -> k.KernelFunction:
    maker, a, b = _maker()
    converted = maker.op("cvt", b, dtype=f32)
    maker.op("neg", b, dst=b)
    maker.store(maker.op("matmul", a, converted), "y")
    return maker.done()


def _extent() -> k.KernelFunction:
    maker, a, b = _maker()
    converted = maker.op("cvt", b, dtype=f32)
    product = maker.op("matmul", a, converted)
    made = maker.op("expands", scalars=[1.0], shape=(8, 32), dtype=f32, cols=Extent(converted, 1))
    maker.store(maker.op("add", product, made), "y")
    return maker.done()


def _gathered() -> k.KernelFunction:
    maker, a, b = _maker()
    rows = maker.input("r", 1, 16, i32)
    body = tuple(replace(s, rows=rows) if isinstance(s, k.Load) and s.tile == b else s for s in maker.body)
    first = next(n for n, s in enumerate(body) if isinstance(s, k.Load) and s.tile == rows)
    maker.body = [body[first], *body[:first], *body[first + 1 :]]
    maker.store(maker.op("matmul", a, maker.op("cvt", b, dtype=f32)), "y")
    return maker.done()


KEPT = [_two_uses, _left_operand, _pairs, _other_type, _written_twice, _extent, _gathered]


@pytest.mark.parametrize("make", KEPT, ids=[make.__name__[1:] for make in KEPT])
def test_other_conversions_stay(make: object) -> None:
    assert callable(make)
    kernel = make()
    assert conversions(without_conversions(kernel)) == conversions(kernel) == 1
