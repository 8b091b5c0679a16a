"""`check="hazards"`: what P states, on the regions of a run."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    Dense,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    _native,
    errors,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.types import DYN

ROWS, COLS = 4, 8


@kernel
def twice(x: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, x * 2.0)


@kernel
def add(x: In[Tile[ROWS, COLS, f32]], y: InOut[Tile[ROWS, COLS, f32]]):
    pto.store(y, x + y)


@kernel
def next_step(step: InOut[Tile[1, 1, i32]]):
    pto.store(step, step + 1)


@workload
def windows(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "m", COLS], step: Tensor[i32, 1]):
    """Windows that overlap unless the step is large enough."""
    for i in P(Dense[3]):
        add(x=X[:ROWS], y=Y[i * step[0] : i * step[0] + ROWS])


@workload
def late_windows(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "m", COLS], step: Tensor[i32, 1, 1]):
    """The step is what a task makes of it."""
    next_step(step=step)
    for i in P(Dense[3]):
        add(x=X[:ROWS], y=Y[i * step[0, 0] : i * step[0, 0] + ROWS])


@workload
def nested(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "m", COLS]):
    """Iterations of `P.range` may depend on each other, also inside those of P, which may not."""
    for i in P.tiles("n", ROWS):
        twice(x=X[i], y=Y[i])
        for _ in P.range(3):
            add(x=X[i], y=Y[i])
    for _ in P.range(2):
        for j in P.tiles("n", ROWS):
            add(x=X[j], y=Y[j])


def arrays(rows: int = 12) -> dict[str, np.ndarray]:
    return {"X": np.ones((rows, COLS), np.float32), "Y": np.zeros((rows, COLS), np.float32)}


def test_a_program_that_keeps_to_its_word_runs() -> None:
    values = arrays()
    nested.compile("cpu")(**values, check="hazards")
    assert (values["Y"] == 7).all()


def test_real_regions_decide() -> None:
    program = windows.compile("cpu")
    values = arrays()
    program(**values, step=np.array([ROWS], np.int32), check="hazards")
    assert (values["Y"] == 1).all()
    with pytest.raises(errors.IterationsConflict) as caught:
        program(**values, step=np.array([ROWS - 1], np.int32), check="hazards")
    error = caught.value
    assert (values["Y"] == 1).all() and error.tasks_before is None
    assert error.fields["region"] == "Y[3:4, 0:8]"
    assert error.fields["first_where"] == " in iteration i = 0"
    assert error.fields["second_where"] == " in iteration i = 1"
    assert error.loc is not None and "Y[i * step[0]" in (error.loc.source_line() or "")
    assert ["add(x=" in (loc.source_line() or "") for _, loc in error.notes] == [True, False]
    assert "in P(Dense[3])" in (error.notes[1][1].source_line() or "")


def test_what_only_the_run_decides_is_checked_at_its_end() -> None:
    program = late_windows.compile("cpu")
    values = arrays()
    program(**values, step=np.array([[ROWS - 1]], np.int32), check="hazards")
    assert (values["Y"] == 1).all()
    with pytest.raises(errors.IterationsConflict) as caught:
        program(**values, step=np.array([[ROWS - 2]], np.int32), check="hazards")
    assert caught.value.tasks_before == 4
    assert values["Y"].sum() == 2 * 12 * COLS


BLOCKS = 3


@kernel(block_dim=BLOCKS)
def grow(x: In[Tensor[f32, DYN, COLS]], y: Out[Tensor[f32, DYN, COLS]], z: InOut[Tensor[f32, DYN, COLS]]):
    for r in pto.tiles(x.rows, ROWS):
        if r.start // ROWS % pto.block_num() == pto.block_idx():
            pto.store(y[r], x[r] * 2.0)
            pto.store(z[r], z[r] + x[r])


@kernel(block_dim=4, cpp_src="y(context.block_idx % n, 0) += 1;")
def count_up(y: InOut[Tile[8, 1, i32]], n: Scalar[i64]): ...


@workload
def grow_all(X: Tensor[f32, "n", COLS], Y: Tensor[f32, "n", COLS], Z: Tensor[f32, "n", COLS]):
    for r in P.tiles("n", 20):
        grow(x=X[r], y=Y[r], z=Z[r])


@workload
def count_all(Y: Tensor[i32, "n", 8, 1], rows: Tensor[i32, "n"]):
    for i in P("n"):
        count_up(y=Y[i], n=rows[i])


def test_instances_that_write_disjoint_elements_are_no_violation() -> None:
    x = np.random.default_rng(1).random((47, COLS), np.float32)
    y, z = np.full_like(x, 7), x.copy()
    grow_all.compile("cpu")(X=x, Y=y, Z=z, check="hazards")
    assert np.array_equal(y, x * 2) and np.array_equal(z, x + x)


def test_instances_that_write_one_element_are_named() -> None:
    program = count_all.compile("cpu")
    y = np.zeros((3, 8, 1), np.int32)
    program(Y=y, rows=np.array([4, 8, 5], np.int32), check="hazards")
    assert (y[:, :4] == 1).all() and (y[:, 4:] == 0).all()
    with pytest.raises(errors.InstancesConflict) as caught:
        program.run(Y=y, rows=np.array([4, 8, 3], np.int32), check="hazards", workers=1)
    error = caught.value
    assert (error.fields["first"], error.fields["second"], error.fields["index"]) == (0, 3, "0, 0")
    assert error.fields["where"] == " in iteration i = 2" and error.tasks_before == 2
    assert (y[:2, :4] == 2).all() and (y[2, :4] == 1).all()


def test_check_has_one_value_and_one_target() -> None:
    program = nested.compile("cpu")
    with pytest.raises(errors.WrongValue, match="check"):
        program(**arrays(), check="deadlocks")
    with pytest.raises(errors.UnsupportedByTarget, match="check"):
        nested.compile("interp")(**arrays(), check="hazards")


def test_a_run_can_verify_its_own_order() -> None:
    program = nested.compile("cpu")
    options = _native.RunOptions()
    options.verifies = True
    values = tuple(arrays(40).values())
    executable = program._runner.loaded.executable
    result = executable.run(values, (None, None), workers=4, jitter=7, options=options)
    assert result.counters["order_violations"] == 0
