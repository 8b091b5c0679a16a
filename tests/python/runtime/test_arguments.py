"""Values that look like arguments and are none: each is named, and nothing runs."""

from typing import Any, cast

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pto_wsp import (
    DenseDyn,
    P,
    Program,
    Scalar,
    Tensor,
    Tile,
    b1,
    f32,
    i64,
    kernel,
    pto,
    symbol_f32,
    symbol_i64,
    symbol_u64,
    workload,
)
from pto_wsp.errors import (
    PtoError,
    UnboundTensor,
    UnknownParameter,
    UnusableArray,
    WrongDType,
    WrongRank,
    WrongShape,
    WrongValue,
)
from pto_wsp.lang.annotations import InOut

ROWS = 16


@kernel
def grow(x: InOut[Tile[8, 8, f32]], factor: Scalar[f32]):
    pto.store(x, x * factor)


@workload
def grown(X: Tensor[f32, "n", 8], factor: Scalar[f32]):
    for rows in P.tiles("n", 8):
        grow[rows](x=X[rows], factor=factor)


@pytest.fixture(scope="module", params=["cpu", "interp"])
def program(request: pytest.FixtureRequest) -> Program:
    return grown.compile(request.param)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape or (ROWS, 8), np.float32)


def error_of(program: Program, **values: object) -> PtoError:
    with pytest.raises(PtoError) as caught:
        program.run(**{"X": ones(), "factor": 2.0, **values})
    return caught.value


@pytest.mark.parametrize(
    "array",
    [
        ones().astype(object),
        np.zeros((ROWS, 8), [("a", "f4")]),
        np.zeros((ROWS, 8), "U3"),
        np.zeros((ROWS, 8), "M8[s]"),
        np.zeros((ROWS, 8), np.complex64),
        np.zeros((ROWS, 8), np.longdouble),
        np.zeros((0, 8), object),
    ],
    ids=lambda a: str(a.dtype),
)
def test_element_types_that_tensors_do_not_have(program: Program, array: np.ndarray) -> None:
    error = error_of(program, X=array)
    assert isinstance(error, WrongDType)
    assert f"expected f32, found {array.dtype}" in str(error)


@pytest.mark.parametrize("rank", [0, 1, 3, 5, 9])
def test_ranks(program: Program, rank: int) -> None:
    error = error_of(program, X=ones(*(1,) * rank) if rank else np.array(1, np.float32))
    assert isinstance(error, WrongRank) and f"expected 2, found {rank}" in str(error)


def test_a_mask_is_not_ignored(program: Program) -> None:
    error = error_of(program, X=np.ma.masked_array(ones(), mask=ones() > 0))
    assert isinstance(error, UnusableArray) and "masked" in str(error)


@pytest.mark.parametrize("strides", [(4, 4), (16, 4), (28, 4)])
def test_a_written_array_whose_elements_share_memory(program: Program, strides: tuple[int, int]) -> None:
    error = error_of(program, X=as_strided(ones(999), (ROWS, 8), strides))
    assert isinstance(error, UnusableArray) and "share memory" in str(error)


def test_arrays_that_are_laid_out_apart_run(program: Program) -> None:
    spread = ones(5, ROWS, 24)
    odd_row = as_strided(ones(8), (1, 8), (7, 4))
    for array in (spread[2, :, 8:16], spread[::2, 3, :8], odd_row):
        before = np.array(array)
        program.run(X=array, factor=3.0)
        assert np.array_equal(array, before * 3)


@pytest.mark.parametrize(
    "factor", [1e39, -1e300, 2.0**128, 10**40, 10**400, -(10**5000)], ids=lambda f: f"{f > 0}"
)
def test_numbers_beyond_f32_do_not_become_infinite(program: Program, factor: float) -> None:
    error = error_of(program, factor=factor)
    assert isinstance(error, WrongValue) and "a number that f32 can hold" in str(error)


@pytest.mark.parametrize("factor", [np.inf, -np.inf, np.finfo(np.float32).max, 3.4028235e38, 2**127])
def test_numbers_that_f32_holds(program: Program, factor: float) -> None:
    x = ones()
    program.run(X=x, factor=factor)
    assert (x == np.float32(factor)).all()


@pytest.mark.parametrize(
    "options", [{"trace": "all"}, {"trace": 1}, {"workers": True}, {"n": 10**5000}], ids=list
)
def test_options_and_sizes_are_checked(program: Program, options: dict[str, object]) -> None:
    assert isinstance(error_of(program, **options), WrongValue)


def test_values_have_names(program: Program) -> None:
    with pytest.raises(WrongValue, match=r"by name: X=\.\.\., factor=\.\.\."):
        program(ones(), 2.0)


@workload
def repeated(times: DenseDyn, X: Tensor[f32, "n", 8], first: Scalar[i64]):
    for _ in P.range(times):
        for rows in P.tiles(symbol_i64("shown") - first, 8):
            grow[rows](x=X[rows], factor=symbol_f32("factor"))
    for rows in P.tiles(symbol_u64("more"), 8):
        grow[rows](x=X[rows], factor=100.0)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_symbols_and_axis_sizes_stay_set(target: str) -> None:
    program = repeated.compile(target)
    x = ones()
    with pytest.raises(UnboundTensor):
        program(X=x, first=0)
    program.set_symbol_i64("shown", 9)
    program.set_symbol_f32("factor", 3)
    program.set_symbol_u64("more", 0)
    program.set_symbol_i64("first", 1)
    program.set_axis_sizes({"times": 2})
    program(X=x)
    assert (x[:8] == 9).all() and (x[8:] == 1).all()
    program(X=x, times=1, factor=0.5, first=9 - 16)
    assert (x[:8] == 4.5).all() and (x[8:] == 0.5).all()
    program(X=x)
    assert (x[:8] == 40.5).all() and (x[8:] == 0.5).all()
    program.set_axis_sizes({"times": 0})
    program.set_symbol_u64("more", 16)
    program(X=x)
    assert (x[:8] == 4050).all() and (x[8:] == 50).all()


def test_symbols_and_axis_sizes_are_checked() -> None:
    program = repeated.compile("interp")
    unknown = [
        lambda: program.set_symbol_i64("showm", 1),
        lambda: program.set_symbol_i64("times", 1),
        lambda: program.set_axis_sizes({"shown": 1}),
        lambda: program.set_axis_sizes({"times": 1, "X": 1}),
    ]
    wrong = [
        lambda: program.set_symbol_u64("shown", 1),
        lambda: program.set_symbol_f32("shown", 1),
        lambda: program.set_symbol_i64("shown", 2**63),
        lambda: program.set_symbol_i64("shown", cast(Any, 1.5)),
        lambda: program.set_symbol_i64("shown", True),
        lambda: program.set_symbol_u64("more", -1),
        lambda: program.set_symbol_f32("factor", 1e39),
        lambda: program.set_axis_sizes({"times": -1}),
        lambda: program.set_axis_sizes({"times": cast(Any, 2.0)}),
    ]
    for make in unknown:
        with pytest.raises(UnknownParameter):
            make()
    for make in wrong:
        with pytest.raises(WrongValue):
            make()
    program.set_axis_sizes({"n": 15})
    program.set_symbol_i64("shown", 0)
    program.set_symbol_f32("factor", 1)
    program.set_symbol_u64("more", 0)
    with pytest.raises(WrongShape):
        program(X=ones(), first=0, times=0)
    program(X=ones(15, 8), first=0, times=0)
    with pytest.raises(UnboundTensor):
        program(X=ones(15, 8), first=0)


@workload
def chosen(X: Tensor[f32, "n", 8], on: Scalar[b1]):
    with P.when(on):
        for rows in P.tiles("n", cast(int, np.int64(8))):
            grow[rows](x=X[rows], factor=2.0)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_truth_values(target: str) -> None:
    program = chosen.compile(target)
    for on in (True, False, 1, 0, np.True_, np.uint8(0)):
        x = ones()
        program(X=x, on=on)
        assert (x == (2 if on else 1)).all()
    for text in ("False", "", [0], np.zeros(2), 2, -1, 0.0, np.nan, np.array(True), {}):
        x = ones()
        with pytest.raises(WrongValue, match="expected True or False"):
            program(X=x, on=text)
        assert (x == 1).all()
