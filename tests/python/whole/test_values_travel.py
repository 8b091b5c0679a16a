"""What users send to other processes, or copy, is what it was; what cannot be sent says so."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from pto_wsp import Ragged, Schedule, Sparse, Tensor, f32, workload
from pto_wsp.errors import BadSparse, PtoError, WrongShape
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.types.dtype import DTYPES
from tests.python.whole.test_users_troubles import add_one


@workload
def once(X: Tensor[f32, 8, 8]):
    add_one(x=X)


def travelled(value: Any) -> list[Any]:
    return [pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_there_is_one_object_of_an_element_type(dtype: Any) -> None:
    assert all(found is dtype for found in travelled(dtype))


def test_modules_and_schedules() -> None:
    schedule = Schedule().streams(2)
    assert all(found.policies == schedule.policies for found in travelled(schedule))
    for module in travelled(once.trace().module):
        x = np.zeros((8, 8), np.float32)
        compile_module(module)(X=x)
        assert (x == 1).all()


def test_rows_stay_what_was_checked() -> None:
    ragged, sparse = Ragged.indptr([2, 2, 5]), Sparse.csr([1, 2, 2], [9, 4])
    for found in (*travelled(ragged), *travelled(sparse)):
        assert not found.offsets.flags.writeable
    assert all((found.offsets == ragged.offsets).all() for found in travelled(ragged))
    assert all((found.indices == sparse.indices).all() for found in travelled(sparse))


def _fail(_: int) -> None:
    once.compile("cpu").run(X=np.zeros((4, 8), np.float32))


def test_errors() -> None:
    with pytest.raises(WrongShape) as caught:
        _fail(0)
    error = caught.value
    for found in travelled(error):
        assert type(found) is WrongShape and str(found) == str(error)
        assert found.fields == error.fields and found.loc == error.loc and found.message == error.message
    with pytest.raises(BadSparse) as bad:
        Sparse.lists([["a"]])
    assert all(str(found) == str(bad.value) for found in travelled(bad.value))


def test_an_error_of_another_process_is_raised_here() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        with pytest.raises(PtoError, match="expected 8"):
            list(pool.map(_fail, [0]))
