"""Element types: what numpy calls them, and that an installation can make arrays of each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from pto_wsp.types import bf16
from pto_wsp.types.dtype import DTYPES, DType, dtype_of_numpy

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=repr)
def test_numpy_has_every_element_type(dtype: DType) -> None:
    of_numpy = dtype.to_numpy()
    assert of_numpy.itemsize == dtype.itemsize and dtype_of_numpy(of_numpy) is dtype


def test_arrays_of_bf16_print_and_compare_as_numbers() -> None:
    x = np.array([0.5, 1.5, 3.0], bf16.to_numpy())
    assert str(x) == "[0.5 1.5 3]" and str(x[0]) == "0.5"
    assert list(x > 1) == [False, True, True] and float(x.sum()) == 5 and x.max() == 3


def test_packages_with_element_types_are_installed_with_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = {re.split("[<>=]", name)[0] for name in project["dependencies"]}
    assert {t.to_numpy().type.__module__ for t in DTYPES.values()} <= installed
