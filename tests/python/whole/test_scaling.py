"""Work of the compiler grows with the length of a program, not with its square.

The tests count calls of Python functions, which the load of a machine does not change.
"""

from __future__ import annotations

import cProfile
import importlib.util
import pstats
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_wsp.lang.workload.workload import Workload
from pto_wsp.targets import registry
from pto_wsp.text.modules import parse

HEAD = """
import pto_wsp as pto
from pto_wsp import *

@kernel
def k(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]], a: Scalar[i64]):
{body}
    pto.store(y, x * b)

{kernels}
@workload
def w(X: Tensor[f32, "n", 1, 8], Y: Tensor[f32, "n", 1000, 1, 8]):
{statements}
"""


def program(body: str = "    b = a", kernels: str = "", statements: str = "    pass") -> str:
    return HEAD.format(body=body, kernels=kernels, statements=statements)


def loops(n: int) -> str:
    lines = (f'    for i{i} in P("n"):\n        k[i{i}](x=X[i{i}], y=Y[i{i}, {i}], a={i})' for i in range(n))
    return program(statements="\n".join(lines))


def kernels(n: int) -> str:
    texts = (
        f"@kernel\ndef k{i}(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):\n    pto.store(y, x * {i}.0)\n"
        for i in range(n)
    )
    calls = (f"        k{i}[i](x=X[i], y=Y[i, {i}])" for i in range(n))
    return program(kernels="\n".join(texts), statements="\n".join(['    for i in P("n"):', *calls]))


CALL = '    for i in P("n"):\n        k[i](x=X[i], y=Y[i, 0], a=i)'


def instructions(n: int) -> str:
    lines = (f"    t = pto.exp(t * {i}.5) + t" for i in range(n))
    return program(
        "\n".join(["    t = x[:, :]", *lines, "    pto.store(y, t)", "    b = a"]), statements=CALL
    )


def assignments(n: int) -> str:
    lines = (f"    if b > {i}:\n        b = b * 3 + {i}" for i in range(n))
    return program("\n".join(["    b = a", *lines]), statements=CALL)


def emit(workload: Workload) -> None:
    registry.get("cpu").emit(workload.compile("interp").module)


def calls_of(work: Callable[[], object]) -> int:
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue]


def load(path: Path, text: str) -> Workload:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.w


@pytest.mark.parametrize("source", [loops, kernels, instructions, assignments])
def test_four_times_the_statements_take_four_times_the_calls(
    source: Callable[[int], str], tmp_path: Path
) -> None:
    emit(load(tmp_path / "warm.py", source(2)))
    counts = []
    for n in (20, 80):
        path = tmp_path / f"{source.__name__}_{n}.py"
        path.write_text(source(n))
        counts.append(calls_of(lambda path=path: emit(load(path, path.read_text()))))
    assert counts[1] <= 4.4 * counts[0], counts


def test_four_times_the_text_takes_four_times_the_calls(tmp_path: Path) -> None:
    counts = []
    for n in (20, 80):
        text = str(load(tmp_path / f"text_{n}.py", loops(n)).compile("interp").module)
        counts.append(calls_of(lambda text=text: parse(text)))
    assert counts[1] <= 4.4 * counts[0], counts
