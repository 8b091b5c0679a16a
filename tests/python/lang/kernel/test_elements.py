"""Elements of integer views as scalars in kernels, and slices of constant length at run-time offsets."""

import numpy as np
import pytest

from pto_wsp import DYN, In, Out, P, Tensor, Tile, errors, f32, i32, i64, kernel, pto, workload

TARGETS = ("cpu", "interp")


@kernel
def gather(ids: In[Tensor[i32, DYN]], table: In[Tensor[f32, DYN, 24]], y: Out[Tensor[f32, DYN, 24]]):
    for i in range(ids.rows):
        w = ids[i]
        pto.store(y[i : i + 1], table[w : w + 1] + 0.5)


@kernel
def pick(at: In[Tensor[i64, 2, 2]], table: In[Tensor[f32, DYN, 24]], y: Out[Tile[2, 24, f32]]):
    first = at[0, 1]
    if at[1, 0] > 0:
        first = first + at[1, 0]
    pto.store(y, table[first - 2 : first])


@workload
def gathered(Ids: Tensor[i32, "n"], Table: Tensor[f32, "words", 24], Y: Tensor[f32, "n", 24]):
    for rows in P.tiles("n", 4):
        gather[rows](ids=Ids[rows], table=Table, y=Y[rows])


@workload
def picked(At: Tensor[i64, 2, 2], Table: Tensor[f32, "words", 24], Y: Tensor[f32, 2, 24]):
    pick(at=At, table=Table, y=Y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [0, 1, 4, 11])
def test_rows_are_gathered(target, n):
    rng = np.random.default_rng(n)
    table = rng.standard_normal((50, 24)).astype(np.float32)
    ids = rng.integers(0, 50, n).astype(np.int32)
    y = np.zeros((n, 24), np.float32)
    gathered.compile(target)(Ids=ids, Table=table, Y=y)
    assert np.array_equal(y, table[ids] + np.float32(0.5))


@pytest.mark.parametrize("target", TARGETS)
def test_elements_take_part_in_scalar_arithmetic(target):
    table = np.arange(50 * 24, dtype=np.float32).reshape(50, 24)
    y = np.zeros((2, 24), np.float32)
    program = picked.compile(target)
    for row in ([0, 7, 0, 0], [0, 7, 5, 0]):
        program(At=np.array(row, np.int64).reshape(2, 2), Table=table, Y=y)
        first = row[1] + max(row[2], 0)
        assert np.array_equal(y, table[first - 2 : first])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bad", [-1, 50])
def test_a_row_outside_the_table_is_an_error_at_its_line(target, bad):
    table, y = np.zeros((50, 24), np.float32), np.zeros((3, 24), np.float32)
    with pytest.raises(errors.KernelFailed, match="kernel `gather`") as caught:
        gathered.compile(target)(Ids=np.array([1, bad, 2], np.int32), Table=table, Y=y)
    assert caught.value.loc is not None
    assert "table[w : w + 1]" in (caught.value.loc.source_line() or "")


def refuse(body):
    with pytest.raises(errors.PtoError) as caught:
        body()
    return caught.value


def test_what_is_no_integer_element_is_refused():
    def of_floats():
        @kernel
        def wrong(x: In[Tensor[f32, DYN]], y: Out[Tile[1, 24, f32]]):
            pto.store(y, pto.full((1, 24), x[0]))

    def of_an_output():
        @kernel
        def wrong(x: Out[Tensor[i32, 4]], y: Out[Tile[1, 24, i32]]):
            pto.store(y, pto.full((1, 24), x[0], i32))

    def of_unknown_length():
        @kernel
        def wrong(n: In[Tensor[i32, 1]], x: In[Tensor[f32, DYN, 24]], y: Out[Tile[4, 24, f32]]):
            pto.store(y, x[n[0] : 2 * n[0]])

    assert isinstance(refuse(of_floats), errors.BadIndex)
    assert isinstance(refuse(of_an_output), errors.BadIndex)
    error = refuse(of_unknown_length)
    assert isinstance(error, errors.BadIndex) and "constant length" in str(error)
