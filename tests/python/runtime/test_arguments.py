"""Values that look like arguments and are none: each is named, and nothing runs."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pto_wsp import P, Program, Scalar, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import PtoError, UnusableArray, WrongDType, WrongRank, WrongValue
from pto_wsp.lang.surface import InOut

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
    "options", [{"trace": "full"}, {"trace": 1}, {"workers": True}, {"n": 10**5000}], ids=list
)
def test_options_and_sizes_are_checked(program: Program, options: dict[str, object]) -> None:
    assert isinstance(error_of(program, **options), WrongValue)


def test_values_have_names(program: Program) -> None:
    with pytest.raises(WrongValue, match=r"by name: X=\.\.\., factor=\.\.\."):
        program(ones(), 2.0)
