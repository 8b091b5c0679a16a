"""The numpy meaning of kernels."""

import numpy as np
import pytest

from pto_wsp.errors import KernelFailed, NoneKernelBody
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import Assign, For, If, Instr, KernelFunction, Load, Param, Store, While
from pto_wsp.ir.scalar import Binary, Const, Extent, Var, binary, ceildiv
from pto_wsp.location import Location
from pto_wsp.types import ScalarType, TileType, ViewType, b1, bf16, f32, i32, i64
from tests.python.lang.programs import result_of
from tests.python.samples import scale_kernel

RNG = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(64, 128), (40, 128), (1, 1), (0, 128), (64, 0)])
def test_scale_on_full_and_partial_tiles(shape: tuple[int, int]) -> None:
    x, y = normal(*shape), np.full(shape, np.nan, np.float32)
    run_kernel(scale_kernel(), [x, y, 2.5])
    assert np.array_equal(y, x * np.float32(2.5))


def test_a_tile_takes_no_more_than_it_holds() -> None:
    x = normal(65, 128)
    with pytest.raises(KernelFailed, match="cannot hold"):
        run_kernel(scale_kernel(), [x, x.copy(), 1.0])


def sum_rows(tile_rows: int = 64) -> KernelFunction:
    """o[0, :] = column sums of a view with any number of rows, in tiles."""
    tile, line = TileType(tile_rows, 8, f32), TileType(1, 8, f32)
    start = binary("mul", Var("r"), Const(tile_rows))
    extent = binary("min", Const(tile_rows), binary("sub", Extent("k", 0), start))
    body = (
        Instr("expands", "acc", (), (Const(0.0, f32),)),
        For(
            "r",
            Const(0),
            ceildiv(Extent("k", 0), tile_rows),
            1,
            (
                Load("part", Region("k", (Range(start, extent), Full()))),
                Instr("colsum", "line", ("part",)),
                Instr("add", "acc", ("acc", "line")),
            ),
        ),
        Store(Region("o", (Full(), Full())), "acc"),
    )
    params = (Param("k", "in", ViewType(f32, (None, 8))), Param("o", "out", line))
    return KernelFunction("sum_rows", params, (("acc", line), ("part", tile), ("line", line)), (), body)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200])
def test_loops_over_tiles_of_a_view(rows: int) -> None:
    k, o = normal(rows, 8), np.empty((1, 8), np.float32)
    run_kernel(sum_rows(), [k, o])
    np.testing.assert_allclose(o, k.sum(0, keepdims=True), atol=1e-4)


def test_regions_outside_their_view_fail_with_their_place() -> None:
    tile, place = TileType(4, 8, f32), Location("k.py", 3, 5, 9)
    kernel = KernelFunction(
        "f",
        (Param("x", "in", ViewType(f32, (None, None, 8))), Param("i", "in", ScalarType(i64))),
        (("t", tile),),
        (),
        (Load("t", Region("x", (Index(Var("i")), Range(Const(0), Const(4)), Full())), place),),
    )
    run_kernel(kernel, [normal(2, 4, 8), 1])
    for x, i in ((normal(2, 4, 8), 2), (normal(2, 4, 8), -1), (normal(2, 3, 8), 0)):
        with pytest.raises(KernelFailed, match="indexed outside") as caught:
            run_kernel(kernel, [x, i])
        assert caught.value.loc == place


def test_valid_shapes_must_agree() -> None:
    tile = TileType(4, 8, f32)
    kernel = KernelFunction(
        "f",
        (Param("x", "in", tile), Param("z", "in", tile), Param("y", "out", tile)),
        (("a", tile), ("b", tile)),
        (),
        (
            Load("a", Region("x", (Full(), Full()))),
            Load("b", Region("z", (Full(), Full()))),
            Instr("add", "a", ("a", "b")),
            Store(Region("y", (Full(), Full())), "a"),
        ),
    )
    run_kernel(kernel, [normal(3, 8), normal(3, 8), normal(3, 8)])
    with pytest.raises(KernelFailed, match="operands of `add`"):
        run_kernel(kernel, [normal(3, 8), normal(4, 8), normal(3, 8)])
    with pytest.raises(KernelFailed, match="the tile has 3 x 8, the part 4 x 8"):
        run_kernel(kernel, [normal(3, 8), normal(3, 8), normal(4, 8)])


def test_control_flow_and_scalars() -> None:
    tile = TileType(1, 1, i32)
    body = (
        Load("t", Region("x", (Full(), Full()))),
        Assign("n", Const(0)),
        While(
            Binary("lt", Var("n"), Var("limit")),
            (
                If(
                    Binary("eq", Binary("mod", Var("n"), Const(2)), Const(0)),
                    (Instr("adds", "t", ("t",), (Var("n"),)),),
                    (Instr("muls", "t", ("t",), (Const(3),)),),
                ),
                Assign("n", Binary("add", Var("n"), Const(1))),
            ),
        ),
        Store(Region("x", (Full(), Full())), "t"),
    )
    params = (Param("x", "inout", tile), Param("limit", "in", ScalarType(i64)))
    kernel = KernelFunction("f", params, (("t", tile),), (("n", ScalarType(i64)),), body)
    x = np.array([[5]], np.int32)
    run_kernel(kernel, [x, 5])
    expected = 5
    for n in range(5):
        expected = expected + n if n % 2 == 0 else expected * 3
    assert x[0, 0] == expected


def test_small_floats_round_after_every_instruction() -> None:
    tile = TileType(1, 4, bf16)
    kernel = KernelFunction(
        "f",
        (Param("x", "inout", tile),),
        (("t", tile),),
        (),
        (
            Load("t", Region("x", (Full(), Full()))),
            Instr("adds", "t", ("t",), (Const(1.0, f32),)),
            Instr("subs", "t", ("t",), (Const(1.0, f32),)),
            Store(Region("x", (Full(), Full())), "t"),
        ),
    )
    dtype = bf16.to_numpy()
    x = np.array([[0.001, 0.1, 1.5, 300.0]], np.float32).astype(dtype)
    expected = ((x.astype(np.float32) + 1).astype(dtype).astype(np.float32) - 1).astype(dtype)
    run_kernel(kernel, [x])
    assert np.array_equal(x.astype(np.float32), expected.astype(np.float32))
    assert x[0, 0] == 0


def test_compare_and_select() -> None:
    tile, mask = TileType(2, 4, f32), TileType(2, 4, b1)
    kernel = KernelFunction(
        "f",
        (Param("x", "inout", tile),),
        (("t", tile), ("m", mask)),
        (),
        (
            Load("t", Region("x", (Full(), Full()))),
            Instr("cmps", "m", ("t",), (Const(0.0, f32),), (("mode", "gt"),)),
            Instr("sels", "t", ("m", "t"), (Const(-1.0, f32),)),
            Store(Region("x", (Full(), Full())), "t"),
        ),
    )
    x = np.array([[1, -2, np.nan, 0], [3, 4, -0.0, np.inf]], np.float32)
    run_kernel(kernel, [x])
    assert x.tolist() == [[1, -1, -1, -1], [3, 4, -1, np.inf]]


def test_a_declaration_does_not_run() -> None:
    with pytest.raises(NoneKernelBody):
        run_kernel(KernelFunction("f", ()), [])


def test_scalars_beyond_a_small_type_become_infinite_without_a_warning() -> None:
    signature = "x: In[Tile[1, 2, f16]], s: Scalar[f32], y: Out[Tile[1, 2, f16]]"
    ones = np.ones((1, 2), np.float16)
    result = result_of(signature, "pto.store(y, x + s)", ones, 1e6, out=(1, 2), dtype=np.float16)
    assert np.isinf(result).all()
