"""Run-time checks of the target `cpu`: they fail where the interpreter does, before anything is written."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.errors import KernelFailed
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Full, Index, Range, Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Extent, Select, Unary, Var
from pto_wsp.location import Location
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import b1, f32, i32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import whole

N, M, F = Var("n"), Var("m"), Var("f", f32)
LOC = Location("k.py", 12)
TILE, VIEW = TileType(4, 8, f32), ViewType(f32, (None, None))
SCALARS = (("u", ScalarType(i64)), ("v", ScalarType(f32)), ("w", ScalarType(b1)))


def kernel(name: str, *body: k.Stmt) -> KernelFunction:
    params = (
        k.Param("x", k.IN, VIEW),
        k.Param("y", k.OUT, VIEW),
        k.Param("n", k.IN, ScalarType(i64)),
        k.Param("m", k.IN, ScalarType(i64)),
        k.Param("f", k.IN, ScalarType(f32)),
        k.Param("e", k.IN, ViewType(i32, (None,))),
    )
    tiles = (("t", TILE), ("o", TILE), ("c", TileType(4, 1, f32)))
    return KernelFunction(name, params, tiles, SCALARS, body)


def load(*dims: DimSelect) -> k.Load:
    return k.Load("t", Region("x", dims or (Full(), Full())), LOC)


def store(*dims: DimSelect) -> k.Store:
    return k.Store(Region("y", dims or (Full(), Full())), "t", LOC)


def shown(value: Expr) -> tuple[k.Stmt, ...]:
    """Store a scalar, as i64 split in two exact halves or as f32, to y[0, 0] and y[0, 1]."""
    target = Region("y", (Range(Const(0), Const(1)), Range(Const(0), Const(8))))
    fill = (("rows", Const(1)), ("cols", Const(8)))
    if value.dtype is b1:
        value = Unary("i64", value)
    if value.dtype is i64:
        low = Unary("f32", Binary("mod", Var("u"), Const(2**20)))
        high = Unary("f32", Binary("floordiv", Var("u"), Const(2**20)))
        assign: k.Stmt = k.Assign("u", value, LOC)
    else:
        low, high = Var("v", f32), Const(0.0, f32)
        assign = k.Assign("v", value, LOC)
    return (
        assign,
        k.Instr("expands", "t", (), (low,), fill),
        k.Instr("expands", "o", (), (high,), fill),
        k.Store(target, "t"),
        k.Store(Region("y", (Range(Const(1), Const(1)), Range(Const(0), Const(8)))), "o"),
    )


def op(name: str, a: Expr = N, b: Expr = M) -> Binary:
    return Binary(name, a, b)


EXPRESSIONS = {
    **{name: op(name) for name in ("add", "sub", "mul", "floordiv", "mod", "min", "max")},
    **{name: op(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{
        f"f_{name}": op(name, F, Const(1.5, f32))
        for name in ("add", "sub", "mul", "div", "floordiv", "mod", "min")
    },
    "neg": Unary("neg", N),
    "f_neg": Unary("neg", F),
    "to_int": Unary("i64", F),
    "to_float": Unary("f32", N),
    "lazy": Select(op("eq", M, Const(0)), N, op("floordiv")),
    "both": op("and", op("ne", M, Const(0)), op("gt", op("floordiv"), Const(0))),
    "either": op("or", op("lt"), Unary("not", op("le"))),
    "element": Element("e", (N,)),
    "nested": op("add", op("mul", N, N), op("mod", M, Const(7))),
}
NUMBERS = [0, 1, -1, 2, -7, 40, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 3.25, -7.5, 1e18, 1e19, -1e19, 5e-39]

STATEMENTS = {
    "whole": (load(), store()),
    "range": (load(Range(N, Const(2)), Full()), store(Range(Const(0), Const(2)), Full())),
    "columns": (load(Full(), Range(Const(0), N)), store(Full(), Range(Const(0), Extent("t", 1)))),
    "row by row": (
        k.For(
            "i",
            Const(0),
            N,
            1,
            (load(Range(Var("i"), Const(1)), Full()), store(Range(Var("i"), Const(1)), Full())),
        ),
    ),
    "mismatch": (load(), k.Instr("expands", "o", (), (F,)), k.Instr("add", "t", ("t", "o")), store()),
    "asked": (k.Instr("expands", "t", (), (F,), (("rows", N), ("cols", Const(8))), LOC), store()),
    "expand": (
        load(),
        k.Instr("rowmax", "c", ("t",)),
        k.Instr("rowexpand", "t", ("c",), (), (("cols", N),), LOC),
        store(),
    ),
    "store before a failing check": (load(), store(), k.Assign("u", op("floordiv")), store()),
    "while": (
        k.Assign("u", Const(0)),
        load(),
        k.While(
            op("lt", Var("u"), N),
            (
                k.Instr("adds", "t", ("t",), (Const(1.0, f32),)),
                k.Assign("u", op("add", Var("u"), Const(1))),
                k.If(
                    op("eq", Var("u"), M), (k.Instr("muls", "t", ("t",), (F,)),), (k.Assign("w", op("lt")),)
                ),
            ),
        ),
        store(),
    ),
    "steps": (
        load(),
        k.For("i", N, Const(2**63 - 1), 2**62, (k.Instr("adds", "t", ("t",), (Unary("f32", Const(1)),)),)),
        store(),
    ),
}
ALL = [kernel(f"e_{name}", *shown(value)) for name, value in EXPRESSIONS.items()]
ALL += [kernel("s_" + name.replace(" ", "_"), *body) for name, body in STATEMENTS.items()]


@pytest.fixture(scope="module")
def library(cache: ArtifactCache) -> ctypes_abi.Library:
    artifact = CpuTarget().build(ALL, cache)
    loaded = ctypes_abi.load(artifact)
    loaded.checks = artifact.checks
    return loaded


def compare(
    library: ctypes_abi.Library, one: KernelFunction, shape: tuple[int, int], *scalars: object
) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    e = np.arange(100, 103, dtype=np.int32)
    found, wanted = (np.full(shape, 7, np.float32) for _ in range(2))
    status = library.call(one, [x, found, *scalars, e])
    failed = ""
    try:
        run_kernel(one, [x, wanted, *scalars, e])
    except (KernelFailed, OverflowError, ValueError) as error:
        failed = str(error)
    assert (status != 0) == bool(failed), (status, failed, scalars)
    assert np.array_equal(found, wanted, equal_nan=True), (scalars, found[:2], wanted[:2])
    if status:
        check = library.checks[one.name][status - 1]
        assert check.text.message and (check.loc is None or check.loc.line == 12)


@pytest.mark.parametrize("one", ALL[: len(EXPRESSIONS)], ids=lambda one: one.name)
def test_scalars(library: ctypes_abi.Library, one: KernelFunction) -> None:
    for n in NUMBERS:
        for m in NUMBERS:
            compare(library, one, (2, 8), n, m, 2.5)
    for f in FLOATS:
        compare(library, one, (2, 8), 1, 1, f)


@pytest.mark.parametrize("one", ALL[len(EXPRESSIONS) :], ids=lambda one: one.name)
def test_statements(library: ctypes_abi.Library, one: KernelFunction) -> None:
    for shape in ((4, 8), (3, 8), (3, 5), (5, 8), (4, 9), (0, 8), (4, 0), (1, 1)):
        for n in (0, 1, 3, 4, 8, 9, -1):
            for m in (0, 2):
                compare(library, one, shape, n, m, 0.5)


def test_indices_of_row_dimension(cache: ArtifactCache) -> None:
    view, tile = ViewType(f32, (None, None, None)), TileType(4, 8, f32)
    body = (
        k.Load("t", Region("x", (Index(N), Full(), Full())), LOC),
        k.Store(whole("y"), "t", LOC),
    )
    params = (k.Param("x", k.IN, view), k.Param("y", k.OUT, VIEW), k.Param("n", k.IN, ScalarType(i64)))
    one = KernelFunction("pick", params, (("t", tile),), (), body)
    library = ctypes_abi.load(CpuTarget().build([one], cache))
    x, y = np.ones((3, 4, 8), np.float32), np.zeros((4, 8), np.float32)
    assert [library.call(one, [x, y, n]) for n in (-1, 0, 2, 3)] == [1, 0, 0, 1]
