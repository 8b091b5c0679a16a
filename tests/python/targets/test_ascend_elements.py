"""What scalar units of Ascend cores do with elements of tiles: rows that tiles name, parts, order, columns.

Kernels run on simulated cores and in the interpreter, and every flag is left out once.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, f32, i32, i64, kernel, pto, workload
from pto_wsp.errors import KernelFailed, UnsupportedByTarget
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.build import StandIn, StandInTarget, build
from tests.python.targets.ctypes_abi import Library

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

ROWS, COLS = 24, 40


@kernel
def moved(x: In[Tensor[f32, DYN, COLS]], rows: In[Tile[1, ROWS, i32]], y: InOut[Tensor[f32, DYN, COLS]]):
    """Rows that a tile names are loaded, changed and stored to rows that another tile names."""
    at = pto.load(rows)
    part = pto.gather(x, at) * 2.0
    pto.scatter(y, pto.div(at, 2), part)


@kernel
def steps(x: In[Tensor[f32, DYN, COLS]], rows: In[Tensor[i32, 1, DYN]], y: Out[Tile[ROWS, COLS, f32]]):
    """Iterations load rows while those before them are added."""
    total = pto.zeros((ROWS, COLS))
    for r in pto.tiles(rows.cols, ROWS):
        part = pto.gather(x, pto.load(rows[:, r]))
        total = pto.insert(total, pto.extract(total, (part.rows, COLS)) + part)
    pto.store(y, total)


@kernel
def parts(x: In[Tile[ROWS, COLS, f32]], at: Scalar[i64], y: Out[Tile[ROWS, COLS, f32]]):
    """Parts that begin at a block, at another column, and where a scalar says; a transpose; an element."""
    tile = pto.load(x)
    left, right = pto.extract(tile, (ROWS, 16), 0, 8), pto.extract(tile, (ROWS, 16), 0, 21)
    turned = pto.transpose(pto.extract(tile, (16, 16), 3, 2))
    tile = pto.insert(tile, right * 3.0, 0, 8)
    tile = pto.insert(pto.insert(tile, left, 0, at), turned, 5, 24)
    pto.store(y, pto.setval(tile, -7.0, at, 1))


@kernel
def ordered(x: In[Tile[4, COLS, f32]], keys: In[Tile[4, COLS, i32]], y: Out[Tile[4, COLS, f32]]):
    """Sorted values, in the order of the remainders of the keys, scattered again."""
    pairs = pto.sort(pto.load(x))
    values, places = pto.extract_topk_values(pairs, COLS), pto.extract_topk_indices(pairs, COLS)
    shift = pto.rem(pto.load(keys), COLS)
    taken = pto.take(values, shift)
    pto.store(y, pto.put(taken, taken, places))


@kernel
def columns(x: In[Tensor[f32, DYN, 3]], n: In[Tensor[i32, DYN, 2]], y: Out[Tensor[f32, DYN, 3]]):
    """One column of each tensor with more of them."""
    for r in pto.tiles(x.rows, 16):
        scaled = pto.load(x[r, 1:2]) * pto.cast(pto.load(n[r, 0:1]), f32)
        pto.store(y[r, 2:3], scaled)
        pto.store(y[r, 0:1], -scaled)
        pto.store(y[r, 1:2], pto.load(x[r, 0:1]))


@kernel
def picked(x: In[Tensor[f32, DYN, COLS]], names: In[Tensor[i32, DYN, 1]], w: In[Tile[COLS, 16, f32]],
           pages: In[Tile[ROWS, 1, i32]], y: Out[Tile[ROWS, 16, f32]]):  # fmt: skip
    """Both kinds of cores: rows are named twice over, and then multiplied."""
    found = pto.gather(names, pages)
    pto.store(y, pto.exp(pto.matmul(pto.gather(x, found), pto.load(w)) * 0.125))


@kernel
def soon(x: In[Tensor[f32, DYN, COLS]], rows: In[Tile[1, ROWS, i32]], y: Out[Tile[ROWS, COLS, f32]]):
    """A prefetch checks the rows that a tile names; its list is not that of the loads."""
    at = pto.load(rows)
    pto.prefetch(x, at)
    pto.store(y, pto.gather(x, pto.div(at, 2)) * 2.0)


@kernel
def soon_picked(x: In[Tensor[f32, DYN, COLS]], names: In[Tensor[i32, DYN, 1]], w: In[Tile[COLS, 16, f32]],
                pages: In[Tile[ROWS, 1, i32]], y: Out[Tile[ROWS, 16, f32]]):  # fmt: skip
    """The same beside a product: the cube core reads no elements."""
    pto.prefetch(names, pto.load(pages))
    pto.store(y, pto.matmul(pto.load(x[0:ROWS]), pto.load(w)))


def program(source: Any) -> Any:
    @workload
    def run(
        X: Tensor[f32, "n", COLS],
        Rows: Tensor[i32, 1, "count"],
        Names: Tensor[i32, "n", 1],
        Pages: Tensor[i32, ROWS, 1],
        W: Tensor[f32, COLS, 16],
        Y: Tensor[f32, ROWS, 16],
        Z: Tensor[f32, "n", COLS],
    ):
        if source in (picked, soon_picked):
            source[0](x=X, names=Names, w=W, pages=Pages, y=Y)
        else:
            source[0](x=X, rows=Rows, y=Z[0:ROWS] if source is soon else Z)

    return run


RNG = np.random.default_rng(3)


def calls() -> list[tuple[Kernel, list[Any]]]:
    """Kernels and arguments whose results are compared."""
    x = RNG.standard_normal((50, COLS)).astype(np.float32)
    rows = RNG.integers(0, 50, (1, ROWS)).astype(np.int32)
    many = RNG.integers(0, 50, (1, 3 * ROWS)).astype(np.int32)
    whole, keys = x[:ROWS].copy(), RNG.integers(0, 999, (4, COLS)).astype(np.int32)
    names, three = RNG.permutation(50).astype(np.int32)[:, None], x[:45, :3].copy()
    pages, w = RNG.integers(0, 50, (ROWS, 1)).astype(np.int32), x[:COLS, :16].copy()
    return [
        (moved, [x, rows, np.zeros_like(x)]),
        (steps, [x, many, np.zeros((ROWS, COLS), np.float32)]),
        (parts, [whole, 7, np.zeros_like(whole)]),
        (ordered, [whole[:4], keys, np.zeros_like(whole[:4])]),
        (columns, [three, names[:45].repeat(2, 1), np.zeros_like(three)]),
        (picked, [x, names, w, pages, np.zeros((ROWS, 16), np.float32)]),
        (soon, [x, rows, np.zeros((ROWS, COLS), np.float32)]),
        (soon_picked, [x, names, w, pages, np.zeros((ROWS, 16), np.float32)]),
    ]


@pytest.fixture(scope="module", params=[A2A3, A5], ids=lambda generation: generation.arch)
def generation(request: pytest.FixtureRequest) -> Generation:
    return request.param


@pytest.fixture(scope="module")
def cores(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, StandIn]:
    target = registry.get(generation.name)
    assert isinstance(target, AscendTarget)
    kernels = [source.specialise({}, {}) for source, _ in calls()]
    path = build(kernels, target, tmp_path_factory.mktemp(generation.arch) / "out")
    return Library(path), StandIn(path)


def expected(source: Kernel, arguments: list[Any]) -> np.ndarray:
    """Return what numpy makes of a call."""
    match source.name, arguments:
        case "moved", (x, rows, y):
            y = y.copy()
            y[rows[0] // 2] = 0
            for row in rows[0]:
                y[row // 2] = 2 * x[row]
            return y
        case "steps", (x, rows, _):
            return x[rows[0]].reshape(-1, ROWS, COLS).sum(axis=0)
        case "parts", (x, at, _):
            y = x.copy()
            y[:, 8:24] = 3 * x[:, 21:37]
            y[:, at : at + 16] = x[:, 8:24]
            y[5:21, 24:40] = x[3:19, 2:18].T
            y[at, 1] = -7
            return y
        case "ordered", (x, keys, _):
            places = np.argsort(-x, axis=1, kind="stable")
            values = np.take_along_axis(x, places, axis=1)
            values = np.take_along_axis(values, np.fmod(keys, COLS), axis=1)
            made = values.copy()
            np.put_along_axis(made, places, values, axis=1)
            return made
        case "columns", (x, n, _):
            scaled = x[:, 1] * n[:, 0]
            return np.stack([-scaled, x[:, 0], scaled], axis=1)
        case "soon", (x, rows, _):
            return 2 * x[rows[0] // 2]
        case "soon_picked", (x, _, w, _, _):
            return x[:ROWS] @ w
        case _, (x, names, w, pages, _):
            return np.exp(x[names[pages[:, 0], 0]] @ w * 0.125)


@needs_compiler
@pytest.mark.parametrize("number", range(8), ids=lambda n: calls()[n][0].name)
def test_elements_have_the_results_of_numpy(number: int, cores: tuple[Library, StandIn]) -> None:
    """Loads run ahead, or as late as the flags allow."""
    (library, core), (source, arguments) = cores, calls()[number]
    wanted = expected(source, arguments)
    for is_first in (True, False):
        core.loads_first(is_first)
        arguments[-1][...] = 0
        assert library.call(source.specialise({}, {}), arguments) == 0
        assert core.report() == ""
        np.testing.assert_allclose(arguments[-1], wanted, rtol=1e-5, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("number", range(8), ids=lambda n: calls()[n][0].name)
def test_each_flag_that_is_left_out_is_found(number: int, cores: tuple[Library, StandIn]) -> None:
    (library, core), (source, arguments) = cores, calls()[number]
    function = source.specialise({}, {})
    core.skip(-1)
    assert library.call(function, arguments) == 0 and core.report() == ""
    for flag in range(core.skip(-1)):
        core.skip(flag)
        library.call(function, arguments)
        assert core.report() != "", f"{source.name}: {flag}"
    core.skip(-1)


@needs_compiler
@pytest.mark.parametrize("source", [moved, picked, soon, soon_picked], ids=lambda source: source.name)
def test_a_row_outside_is_an_error(source: Kernel, standin: StandInTarget) -> None:
    """The phase that reads the list checks it; errors are those of the interpreter."""
    module = program(source).trace().module
    x, w = np.ones((50, COLS), np.float32), np.ones((COLS, 16), np.float32)
    rows, names = np.arange(ROWS, dtype=np.int32)[None], np.arange(50, dtype=np.int32)[:, None]
    rows[0, 7], names[11] = 50, -1
    pages = rows[:, ::-1].T % (50 if source is picked else 99)
    found: list[str] = []
    for name in ("interp", standin.name):
        arrays = {"X": x, "Rows": rows, "Names": names, "Pages": pages.copy(), "W": w}
        arrays |= {"Y": np.zeros((ROWS, 16), np.float32), "Z": np.zeros_like(x)}
        with pytest.raises(KernelFailed) as error:
            compile_module(module, name).run(
                **{p.name: arrays[p.name] for p in module.entry_workload.tensors}
            )
        found.append(str(error.value).splitlines()[0])
    assert found[0] == found[1] and "row" in found[0]


@kernel
def doubled(x: InOut[Tensor[i32, DYN, 1]], rows: In[Tile[ROWS, 1, i32]]):
    pto.store(x[0:ROWS], pto.gather(x, pto.load(rows)) * 2)


def test_elements_that_the_kernel_stores_to_are_refused() -> None:
    with pytest.raises(UnsupportedByTarget, match="single elements of `x`"):
        write_kernel(doubled.specialise({}, {}), A2A3)
