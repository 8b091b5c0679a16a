"""Regions whose place a table names, read and written: against plain loops over numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, InOut, Out, P, Program, Tensor, Tile, errors, i32, kernel, pto, workload
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest

PAGES, ROWS, COLS = 7, 4, 8


@kernel
def fold(page: InOut[Tile[ROWS, COLS, i32]], x: In[Tile[ROWS, COLS, i32]]):
    pto.store(page, page * 31 + x)


@kernel
def redirect(entry: InOut[Tile[1, 2, i32]], by: In[Tile[1, 2, i32]]):
    """|entry - by|: other pages."""
    pto.store(entry, pto.maximum(entry, by) - pto.minimum(entry, by))


@kernel
def copy(x: In[Tile[ROWS, COLS, i32]], y: Out[Tile[ROWS, COLS, i32]]):
    pto.store(y, x)


@workload
def bound_table(Table: Tensor[i32, "steps", 2], KV: Tensor[i32, PAGES, ROWS, COLS]):
    """Pages fold others in; which ones, an array says."""
    for step in P.range("steps"):
        fold[step](page=KV[Table[step, 0]], x=KV[Table[step, 1]])


@workload
def written_table(
    Table: Tensor[i32, "steps", 2],
    By: Tensor[i32, "steps", 2],
    KV: Tensor[i32, PAGES, ROWS, COLS],
    Seen: Tensor[i32, "steps", ROWS, COLS],
):
    """Each step rewrites its entry of the table between two uses of it."""
    for step in P.range("steps"):
        copy[step](x=KV[Table[step, 0]], y=Seen[step])
        redirect[step](entry=Table[step : step + 1], by=By[step : step + 1])
        fold[step](page=KV[Table[step, 0]], x=Seen[step])
        fold[step](page=KV[Table[step, 1]], x=KV[PAGES - 1])


@workload
def part_of_page(Table: Tensor[i32, "steps", 2], KV: Tensor[i32, PAGES, ROWS, COLS]):
    """One row of a page, both named by a table: tasks meet only where page and row are the same."""
    for step in P.range("steps"):
        row = Table[step, 1]
        fold[step](page=KV[Table[step, 0], row : row + 1], x=KV[PAGES - 1, :1])


def plain(name: str, arrays: dict[str, np.ndarray]) -> None:
    """What a workload means."""
    kv = arrays["KV"]
    for step, (first, second) in enumerate(arrays["Table"]):
        if name == "bound_table":
            kv[first] = kv[first] * 31 + kv[second]
        elif name == "part_of_page":
            kv[first, second] = kv[first, second] * 31 + kv[PAGES - 1, 0]
        else:
            arrays["Seen"][step] = kv[first]
            entry = arrays["Table"][step]
            entry[:] = np.abs(entry - arrays["By"][step])
            kv[entry[0]] = kv[entry[0]] * 31 + arrays["Seen"][step]
            kv[entry[1]] = kv[entry[1]] * 31 + kv[PAGES - 1]


def random_arrays(name: str, steps: int, seed: int) -> dict[str, np.ndarray]:
    """Random pages; a page is never folded into itself."""
    random = np.random.default_rng(seed)
    kv = random.integers(0, 1000, (PAGES, ROWS, COLS), np.int32)
    if name == "written_table":
        table, by = (random.integers(0, PAGES - 1, (steps, 2), np.int32) for _ in range(2))
        return {"Table": table, "By": by, "KV": kv, "Seen": np.zeros((steps, ROWS, COLS), np.int32)}
    first = random.integers(0, PAGES - 1, steps, np.int32)
    second = random.integers(1, PAGES, steps, np.int32)
    other = random.integers(0, ROWS, steps, np.int32) if name == "part_of_page" else (first + second) % PAGES
    return {"Table": np.stack([first, other], axis=1).astype(np.int32), "KV": kv}


def run(program: Program, arrays: dict[str, np.ndarray], workers: int, seed: int) -> None:
    if isinstance(program._runner, EngineRunner):
        bound = program._binder.bind(arrays)
        program._runner.run(RunRequest(bound.arrays, bound.scalars, workers, jitter=seed))
    else:
        program.run(**arrays)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("form", [bound_table, written_table, part_of_page], ids=lambda form: form.name)
def test_every_order_is_that_of_the_program(form, target: str) -> None:
    program = form.compile(target)
    for seed, steps in enumerate((0, 1, 2, 30, 150)):
        expected = random_arrays(form.name, steps, seed)
        plain(form.name, expected)
        for workers in (1, 2, 5):
            found = random_arrays(form.name, steps, seed)
            run(program, found, workers, seed + workers)
            for array_name, array in expected.items():
                assert np.array_equal(found[array_name], array), (array_name, steps, workers)


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("page", [-1, PAGES, 2**31 - 1])
def test_a_page_outside_is_an_error_before_anything_runs(target: str, page: int) -> None:
    arrays = random_arrays("bound_table", 9, 3)
    arrays["Table"][8, 0] = page
    before = arrays["KV"].copy()
    with pytest.raises(errors.RegionOutside, match="KV") as caught:
        bound_table.compile(target).run(**arrays)
    assert "step = 8" in str(caught.value) and np.array_equal(arrays["KV"], before)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_page_outside_that_a_task_wrote_is_an_error_at_its_task(target: str) -> None:
    arrays = random_arrays("written_table", 9, 3)
    arrays["By"][5] = 100
    with pytest.raises(errors.RegionOutside, match="earlier tasks") as caught:
        written_table.compile(target).run(**arrays)
    assert "step = 5" in str(caught.value)
