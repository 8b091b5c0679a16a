"""Kernels with products on simulated cores of Ascend: phases, parts of operands, flags, refusals."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Dense,
    In,
    Out,
    P,
    Ragged,
    Sparse,
    Tensor,
    Tile,
    bf16,
    f16,
    f32,
    i8,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import KernelFailed, TilesTooLarge, UnsupportedByTarget
from pto_wsp.ir.effects import name_written
from pto_wsp.ir.kernel import KernelFunction, walk_statements
from pto_wsp.ir.module import Module
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.cube import CubeCode
from pto_wsp.targets.ascend.generation import A2A3, A5
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.split import CUBE, VECTOR, split_cores
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.build import StandIn, StandInTarget, build
from tests.golden import Golden
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.ctypes_abi import Library

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@kernel
def gemm(a: In[Tensor[f16, 40, DYN]], b: In[Tensor[f16, DYN, 72]], y: Out[Tile[40, 72, f32]]):
    """Terms in parts of 96, added on the cube core."""
    total = pto.zeros((40, 72))
    for k in pto.tiles(a.shape[1], 96):
        total = total + pto.matmul(a[:, k], b[k])
    pto.store(y, total)


@kernel
def attend(
    q: In[Tile[4, 64, f32]],
    k: In[Tensor[f32, DYN, 64]],
    v: In[Tensor[f32, DYN, 64]],
    o: Out[Tile[4, 64, f32]],
):
    """Flash attention: 32 positions per step."""
    m, total, acc = pto.full((4, 1), -inf), pto.zeros((4, 1)), pto.zeros((4, 64))
    for r in pto.tiles(k.rows, 32):
        s = pto.matmul(q, k[r].T) * 0.125
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        total, acc, m = total * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / total)


@workload
def decode(
    kv: Ragged["batch"],
    Q: Tensor[f32, "batch", 2, 4, 64],
    K: Tensor[f32, "tokens", 2, 64],
    V: Tensor[f32, "tokens", 2, 64],
    O: Tensor[f32, "batch", 2, 4, 64],  # noqa: E741
):
    for b, h in P("batch", Dense[2]):
        attend[b, h](q=Q[b, h], k=K[kv[b], h], v=V[kv[b], h], o=O[b, h])


@kernel
def expert(x: In[Tile[20, 48, f32]], w: In[Tile[48, 64, f32]], y: Out[Tile[20, 64, f32]]):
    """Rows that a list names, in and out."""
    pto.store(y, pto.matmul(pto.load(x), pto.load(w)))


# --- phases ---


def phases_of(source: Kernel) -> list[str]:
    return [phase.core for phase in split_cores(source.specialise({}, {})).phases]


def test_sums_stay_on_the_cube_core() -> None:
    assert phases_of(gemm) == [CUBE]


def test_a_mixed_kernel_is_split_where_tiles_cross() -> None:
    split = split_cores(attend.specialise({}, {}))
    assert [phase.core for phase in split.phases] == [VECTOR, CUBE, VECTOR, CUBE, VECTOR, VECTOR]
    assert [phase.inputs for phase in split.phases if phase.core == CUBE] == [("q_1",), ("p",)]
    assert split.caller is not None


def test_each_tile_that_a_phase_reads_was_stored_before() -> None:
    split = split_cores(attend.specialise({}, {}))
    stored: set[str] = set()
    for phase in split.phases:
        assert set(phase.inputs) <= stored, phase.kernel.name
        stored |= set(phase.outputs)
        kept = {name_written(stmt) for stmt in walk_statements(phase.kernel.body or ())}
        assert {name for name, _ in phase.kernel.tiles} >= kept - {None}


def test_names_of_phases_are_new() -> None:
    split = split_cores(attend.specialise({}, {}), {"attend_0"})
    assert "attend_0" not in {phase.kernel.name for phase in split.phases}


@pytest.mark.parametrize("name", ["ascend_a2a3", "ascend_a5"])
def test_the_folder_is_golden(name: str, golden: Golden) -> None:
    files = registry.get(name).emit(decode.trace().module).files
    for path in ("callers/k_attend.hpp", "kernels/k_attend_3.cpp", "manifest.json", "device.cmake"):
        golden(f"{name}_attention/{path}", files[path])


@kernel
def chained(
    x: In[Tile[20, 48, f32]], a: In[Tile[48, 8, f32]], b: In[Tile[8, 64, f32]], y: Out[Tile[20, 64, f32]]
):
    """A product of a product, which also is added up in a loop."""
    total = pto.matmul(pto.matmul(pto.load(x), pto.load(a)), pto.load(b))
    for k in pto.tiles(48, 16):
        part = pto.matmul(pto.load(x[:, k]), pto.load(a[k]))
        total = total + pto.matmul(part, pto.load(b))
    pto.store(y, total)


# --- on simulated cores ---


def results(
    module: Module, target: StandInTarget, arrays: Mapping[str, Any], loads_first: bool = True
) -> dict[str, Any]:
    found: dict[str, Any] = dict(arrays)
    program = compile_module(module, target.name)
    # A program that is run for the first time builds its library.
    program.run(**found)
    assert target.standin is not None
    target.standin.loads_first(loads_first)
    program.run(**found)
    assert target.standin.report() == ""
    return found


@needs_compiler
@pytest.mark.parametrize("loads_first", [True, False])
def test_attention_of_a_ragged_batch(standin: StandInTarget, loads_first: bool) -> None:
    """Lengths within, at and beyond the parts of a step."""
    lengths = [17, 32, 1, 70]
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, sum(lengths), 2, 64), np.float32)
    arrays = {"kv": Ragged.lengths(lengths), "Q": rng.standard_normal((4, 2, 4, 64), np.float32)}
    arrays |= {"K": k, "V": v, "O": np.zeros((4, 2, 4, 64), np.float32)}
    module = decode.trace().module
    found = results(module, standin, arrays, loads_first)["O"]
    scores = [np.einsum("hgd,lhd->hgl", q, k[start : start + n]) / 8 for q, start, n in zip(
        arrays["Q"], np.cumsum([0, *lengths]), lengths, strict=False)]  # fmt: skip
    for b, (score, start) in enumerate(zip(scores, np.cumsum([0, *lengths]), strict=False)):
        weights = np.exp(score - score.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expected = np.einsum("hgl,lhd->hgd", weights, v[start : start + lengths[b]])
        np.testing.assert_allclose(found[b], expected, rtol=1e-5, atol=1e-6)


def product(name: str, left: Any, shape: tuple[int, int, int], turned: bool = False) -> KernelFunction:
    """A product of m rows, k terms and n columns."""
    m, k, n = shape
    maker = KernelMaker(name)
    a, b = maker.input("a", m, k, left), maker.input("b", *((n, k) if turned else (k, n)), left)
    maker.store(maker.op("matmul", a, b, trans_b=True) if turned else maker.op("matmul", a, b), "y")
    return maker.done()


SHAPES = [(1, 1, 1), (5, 7, 3), (16, 16, 16), (17, 90, 33)]
LARGE = [(5, 400, 200), (128, 16, 256)]
"""The first has several parts, the last of them smaller; the sum of the second takes all of L0C."""


@needs_compiler
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_products_of_every_type_and_shape(turned: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    cases = [(dtype, shape) for dtype in (f32, f16, bf16, i8) for shape in SHAPES]
    cases += [(f32, shape) for shape in LARGE]
    kernels = [product(f"product_{i}", *case, turned) for i, case in enumerate(cases)]
    path = build(kernels, target_of("ascend_a2a3"), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    for number, (function, (dtype, (m, k, n))) in enumerate(zip(kernels, cases, strict=True)):
        core.loads_first(number % 2 == 0)
        a, b = (rng.integers(-8, 8, shape).astype(dtype.to_numpy()) for shape in ((m, k), (k, n)))
        y = np.zeros((m, n), np.int32 if dtype is i8 else np.float32)
        assert library.call(function, [a, b.T.copy() if turned else b, y]) == 0
        assert core.report() == "", function.name
        assert np.array_equal(y, a.astype(np.int64) @ b.astype(np.int64)), function.name


def target_of(name: str) -> AscendTarget:
    target = registry.get(name)
    assert isinstance(target, AscendTarget)
    return target


@needs_compiler
def test_products_of_products_leave_the_cube_core(tmp_path: Path) -> None:
    function = chained.specialise({}, {})
    for name in ("ascend_a2a3", "ascend_a5"):
        path = build([function], target_of(name), tmp_path / name)
        library, core = Library(path), StandIn(path)
        rng = np.random.default_rng(4)
        x, a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((20, 48), (48, 8), (8, 64)))
        y = np.zeros((20, 64), np.float32)
        assert library.call(function, [x, a, b, y]) == 0
        assert core.report() == "" and np.array_equal(y, 2 * (x @ a @ b))


@needs_compiler
def test_sums_of_parts_and_every_flag(tmp_path: Path) -> None:
    """The result is right, and each flag that is left out is reported."""
    function = gemm.specialise({}, {})
    long = product("long", f32, (17, 300, 256))
    path = build([function, long], target_of("ascend_a2a3"), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    rng = np.random.default_rng(2)
    for tested, (m, k, n), dtype in (
        (function, (40, 230, 72), np.float16),
        (long, (17, 300, 256), np.float32),
    ):
        a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in ((m, k), (k, n)))
        y = np.zeros((m, n), np.float32)
        core.skip(-1)
        assert library.call(tested, [a, b, y]) == 0
        assert core.report() == "" and np.array_equal(y, a.astype(np.float32) @ b.astype(np.float32))
        for number in range(core.skip(-1)):
            core.skip(number)
            library.call(tested, [a, b, y])
            assert core.report() != "", f"{tested.name}: {number}"


def test_parts_alternate_between_halves() -> None:
    """The moves of a part wait for the product before the last one, not for the last one."""
    code = write_kernel(product("long", f32, (17, 300, 256)), A2A3).parts[0].code
    assert isinstance(code, CubeCode) and code.memory.depth < 300 / 2
    text = str(code.out)
    assert "TASSIGN(l0a0" in text and "TASSIGN(l0a1" in text
    products = [at for at in range(len(text)) if text.startswith("multiply(", at)]
    assert len(products) > 2 and "wait_flag(PIPE_M, PIPE_MTE1" not in text[: products[1]]
    assert "wait_flag(PIPE_M, PIPE_MTE1" in text[products[1] : products[2]]


@workload
def routed(
    routing: Sparse["experts"],
    X: Tensor[f32, "tokens", 48],
    W: Tensor[f32, "experts", 48, 64],
    Y: Tensor[f32, "tokens", 64],
):
    for e in P("experts"):
        for pick in P.tiles(routing[e], 20):
            rows = routing.rows(pick)
            expert[e, pick](x=X[rows], w=W[e], y=Y[rows])


@needs_compiler
def test_experts_of_rows_that_lists_name(standin: StandInTarget) -> None:
    """Operands are gathered to L1, and sums are scattered from L0C."""
    rng = np.random.default_rng(3)
    lengths, x = [5, 0, 43], rng.standard_normal((48, 48), np.float32)
    w, rows = rng.standard_normal((3, 48, 64), np.float32), rng.permutation(48).astype(np.int32)
    routing = Sparse.csr(np.cumsum([0, *lengths]), rows)
    arrays = {"routing": routing, "X": x, "W": w, "Y": np.zeros((48, 64), np.float32)}
    found = results(routed.trace().module, standin, arrays)["Y"]
    chosen = np.repeat(np.arange(3), lengths)
    expected = np.einsum("td,tdn->tn", x[rows], w[chosen])
    np.testing.assert_allclose(found[rows], expected, rtol=1e-4, atol=1e-4)


# --- what is refused ---


@kernel
def turned_left(a: In[Tile[32, 16, f32]], b: In[Tile[32, 16, f32]], y: Out[Tile[16, 16, f32]]):
    pto.store(y, pto.matmul(pto.load(a).T, pto.load(b)))


@kernel
def mixed_types(a: In[Tile[16, 32, f32]], b: In[Tile[32, 16, f16]], y: Out[Tile[16, 16, f32]]):
    pto.store(y, pto.matmul(pto.load(a), pto.load(b)))


def test_a_refusal_names_instruction_and_line() -> None:
    with pytest.raises(UnsupportedByTarget, match="transposed left operand") as found:
        write_kernel(turned_left.specialise({}, {}), A2A3)
    assert "test_ascend_cube.py:" in str(found.value)


@needs_compiler
def test_operands_of_two_types_are_multiplied_in_f32(tmp_path: Path) -> None:
    """A vector core converts one of them, which the cube core reads from global memory."""
    function = mixed_types.specialise({}, {})
    path = build([function], target_of("ascend_a2a3"), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 32)).astype(np.float32), rng.standard_normal((32, 16)).astype(np.float16)
    y = np.zeros((9, 16), np.float32)
    assert library.call(function, [a, b, y]) == 0 and core.report() == ""
    np.testing.assert_allclose(y, a @ b.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_sums_that_do_not_fit_are_refused() -> None:
    large = product("large", f32, (256, 32, 240))
    write_kernel(large, A5)
    with pytest.raises(TilesTooLarge, match="131072"):
        write_kernel(large, A2A3)


@workload
def empty(A: Tensor[f16, 40, "terms"], B: Tensor[f16, "terms", 72], Y: Tensor[f32, 40, 72]):
    gemm[0](a=A, b=B, y=Y)


@needs_compiler
def test_a_sum_without_terms_is_an_error(standin: StandInTarget) -> None:
    """Cube cores do not make zeros: the check says so instead."""
    arrays: dict[str, Any] = {"A": np.zeros((40, 0), np.float16), "B": np.zeros((0, 72), np.float16)}
    program = compile_module(empty.trace().module, standin.name)
    with pytest.raises(KernelFailed, match="at least one term"):
        program.run(**arrays, Y=np.ones((40, 72), np.float32))
    assert standin.standin is not None and standin.standin.report() == ""
