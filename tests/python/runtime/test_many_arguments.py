"""A kernel has as many arguments as its author gives it."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from pto_wsp import Program, Schedule, StartPolicy, TaskWindow
from pto_wsp.errors import NotYetSupported
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.lower import bytecode


def sum_of(n: int) -> Workload:
    """A kernel that adds n arrays and n scalars, called in two tasks that share none of their outputs."""
    arrays = ", ".join(f"a{i}: In[Tile[1, 8, i32]], k{i}: Scalar[i64]" for i in range(n))
    given = ", ".join(f"a{i}=X[{i} : {i + 1}], k{i}={i}" for i in range(n))
    total = "".join(f"    total = total + a{i} * k{i}\n" for i in range(n))
    text = f"""
from pto_wsp import In, Out, P, Scalar, Tensor, Tile, i32, i64, kernel, pto, workload

@kernel
def add({arrays}, y: Out[Tile[1, 8, i32]]):
    total = pto.zeros((1, 8), dtype=i32)
{total}    pto.store(y, total)

@workload
def sums(X: Tensor[i32, {n}, 8], Y: Tensor[i32, "m", 8]):
    for j in P("m"):
        add[j]({given}, y=Y[j : j + 1])
"""
    name = f"<sum of {n}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), space)
    return space["sums"]


def test_arguments_reach_their_kernel(n: int = 70) -> None:
    program: Program = sum_of(n).compile("cpu")
    x = np.arange(n * 8, dtype=np.int32).reshape(n, 8)
    expected = (x * np.arange(n, dtype=np.int32)[:, None]).sum(axis=0)
    for schedule in (
        Schedule(),
        Schedule().task_graph(window=TaskWindow(1)),
        Schedule().task_graph(start=StartPolicy.after_build()),
    ):
        program.reschedule(schedule)
        for workers in (1, 3):
            y = np.zeros((50, 8), np.int32)
            program.run(X=x, Y=y, workers=workers, check="hazards", trace=True)
            assert (y == expected).all()


def test_more_than_can_be_numbered_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "MAX_ARGUMENTS", 7)
    with pytest.raises(NotYetSupported, match="more than 7 arguments") as caught:
        sum_of(8).compile("cpu")
    loc = caught.value.loc
    assert loc is not None and "add[j]" in (loc.source_line() or "")
