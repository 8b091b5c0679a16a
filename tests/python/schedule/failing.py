"""A program with tasks that fail, and what it leaves where the order of tasks is not inferred in the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import In, Out, P, Program, Tensor, Tile, f32, kernel, workload
from pto_wsp.errors import KernelFailed


@kernel(cpp_src='if (x(0, 0) < 0) PTO_FAIL("a negative number"); y(0, 0) = x(0, 0);')
def positive(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]): ...


@workload
def copies(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    for i in P("n"):
        positive[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P("n"):
        positive[i](x=Y[i : i + 1], y=Z[i : i + 1])


def expect_first_failure(program: Program, values: dict[str, Any], **options: Any) -> np.ndarray:
    """Run `copies` with two rows that fail; return which rows of Z have changed.

    The first failure is that of the earlier row, and the rows before it are copied to Y.
    """
    values["X"][20] = values["X"][25] = -1
    values["Y"][:] = 0
    before = values["Z"].copy()
    with pytest.raises(KernelFailed, match="a negative number") as caught:
        program.run(**values, **options)
    assert "i = 20" in str(caught.value)
    assert (values["Y"][:20, 0] == values["X"][:20, 0]).all()
    return (values["Z"] != before).any(axis=1)
