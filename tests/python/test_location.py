"""Errors of a call point at the argument that they are about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import PtoError, UnknownParameter, WrongValue


@kernel
def scale(x: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)


@workload
def scale_rows(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], factor: Scalar[f32]):
    for r in P.tiles("n", 8):
        scale[r](x=X[r], y=Y[r], factor=factor)


def marked(error: PtoError) -> str:
    """The text that an error points at."""
    loc = error.loc
    assert loc is not None
    return str(loc.source_line())[loc.col - 1 : loc.end_col - 1]


def test_the_argument_is_marked() -> None:
    program: Any = scale_rows.compile("interp")
    x = np.zeros((8, 64), np.float32)
    with pytest.raises(UnknownParameter) as unknown:
        program(X=x, y=x, factor=1.0)
    assert marked(unknown.value) == "y=x"
    with pytest.raises(WrongValue) as listed:
        max(1, 2) if program(X=[[1.0]], Y=x, factor=1.0) else min(1, 2)
    assert marked(listed.value) == "X=[[1.0]]"
    with pytest.raises(WrongValue) as word:
        program(
            X=x,
            Y=x,
            factor="two",
        )
    assert marked(word.value) == 'factor="two"'
    with pytest.raises(WrongValue) as several:
        program(X=x, Y=x, factor=dict(
            a=1))  # fmt: skip
    assert marked(several.value) == "factor"


def test_the_call_is_marked_where_the_argument_has_no_name() -> None:
    program: Any = scale_rows.compile("interp")
    values: dict[str, Any] = {"X": 1, "Y": 2, "factor": 3.0}
    with pytest.raises(WrongValue) as error:
        program(**values)
    assert marked(error.value) == "program(**values)"
