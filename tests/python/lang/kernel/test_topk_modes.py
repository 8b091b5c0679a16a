"""Top-k written in each of the three modes of kernels, mixed in one workload: the same bits from all."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, f32, i32, i64, kernel, pto, ptoisa, ptoisa_kernel, workload

ROWS, COLS, K = 8, 512, 16


@kernel
def topk_of_values(
    x: In[Tile[ROWS, COLS, f32]], values: Out[Tile[ROWS, K, f32]], indices: Out[Tile[ROWS, K, i32]]
):
    runs = pto.mrgsort(pto.sort32(x), 32)
    pairs = pto.mrgsort(runs, 128)
    pto.store(values, pto.extract_topk_values(pairs, K))
    pto.store(indices, pto.extract_topk_indices(pairs, K))


@ptoisa_kernel
def topk_of_instructions(
    x: In[Tile[ROWS, COLS, f32]], values: Out[Tile[ROWS, K, f32]], indices: Out[Tile[ROWS, K, i32]]
):
    scores, columns = ptoisa.tile(ROWS, COLS, f32), ptoisa.tile(ROWS, COLS, i32)
    pairs = ptoisa.tile(ROWS, COLS, i64)
    top, which = ptoisa.tile(ROWS, K, f32), ptoisa.tile(ROWS, K, i32)
    ptoisa.TLOAD(scores, x)
    ptoisa.TCI(columns, 0, rows=scores.rows, cols=scores.cols)
    ptoisa.TSORT32(pairs, scores, columns)
    ptoisa.TMRGSORT(pairs, pairs, run=32)
    ptoisa.TMRGSORT(pairs, pairs, run=128)
    ptoisa.TEXTRACT_TOPK_VALUES(top, pairs)
    ptoisa.TEXTRACT_TOPK_INDICES(which, pairs)
    ptoisa.TSTORE(values, top)
    ptoisa.TSTORE(indices, which)


def topk_in_numpy(x: np.ndarray, values: np.ndarray, indices: np.ndarray) -> None:
    """Larger values first, of equal ones the lower index; -inf and -1 where a row has fewer than K."""
    order = np.argsort(-x, axis=1, kind="stable")[:, :K]
    values[...], indices[...] = -np.inf, -1
    values[:, : order.shape[1]] = np.take_along_axis(x, order, axis=1)
    indices[:, : order.shape[1]] = order


@kernel(
    workspace=lambda p: p.x.rows * COLS * (4 + 4 + 8) + COLS * 8 + p.x.rows * 32 * (4 + 4) + 8 * 64,
    reference=topk_in_numpy,
    cpp_src="""
    Arena arena(context);
    const int64_t n = x.rows();
    const auto scores = arena.tile<float>(n, x.cols());
    const auto columns = arena.tile<int32_t>(n, x.cols());
    const auto pairs = arena.tile<int64_t>(n, x.cols());
    const auto top = arena.tile<float>(n, values.cols());
    const auto which = arena.tile<int32_t>(n, values.cols());
    load(scores, x);
    iota(columns, 0);
    sort32(pairs, scores, columns);
    mrgsort(pairs, pairs, 32, arena);
    mrgsort(pairs, pairs, 128, arena);
    extract_topk_values(top, pairs);
    extract_topk_indices(which, pairs);
    store(values, top);
    store(indices, which);
    """,
)
def topk_of_cpp(
    x: In[Tile[ROWS, COLS, f32]], values: Out[Tile[ROWS, K, f32]], indices: Out[Tile[ROWS, K, i32]]
): ...


MODES = (topk_of_values, topk_of_instructions, topk_of_cpp)


@workload
def topk_in_three_modes(
    X: Tensor[f32, "n", "m"], Values: Tensor[f32, 3, "n", K], Indices: Tensor[i32, 3, "n", K]
):
    for mode, topk in enumerate(MODES):
        for r in P.tiles("n", ROWS):
            topk[mode, r](x=X[r], values=Values[mode, r], indices=Indices[mode, r])


def random_scores(draw: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    """Scores with many ties, infinities and zeros of both signs."""
    x = draw.integers(-20, 20, (rows, cols)).astype(np.float32) / 4
    x[draw.random(x.shape) < 0.05] = -0.0
    x[draw.random(x.shape) < 0.02] = np.inf
    x[draw.random(x.shape) < 0.05] = -np.inf
    return x


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize(
    ("rows", "cols"), [(0, 5), (1, 1), (8, 512), (13, 500), (16, 33), (9, 15), (7, 16), (5, 129), (20, 384)]
)
def test_all_modes_give_the_same(target: str, rows: int, cols: int) -> None:
    x = random_scores(np.random.default_rng([rows, cols]), rows, cols)
    expected_values, expected_indices = np.empty((rows, K), np.float32), np.empty((rows, K), np.int32)
    topk_in_numpy(x, expected_values, expected_indices)
    for workers in (1, 2):
        values, indices = np.zeros((3, rows, K), np.float32), np.zeros((3, rows, K), np.int32)
        program = topk_in_three_modes.compile(target)
        program.run(X=x, Values=values, Indices=indices, workers=workers)
        for mode in range(len(MODES)):
            assert np.array_equal(indices[mode], expected_indices), MODES[mode].name
            assert np.array_equal(values[mode], expected_values), MODES[mode].name
        if target == "cpu":
            assert values[0].tobytes() == values[1].tobytes() == values[2].tobytes()


def test_one_library_holds_all_three() -> None:
    program = topk_in_three_modes.compile("cpu")
    text = program.dump()
    assert text.count("func @topk_of_") == 3 and "tmrgsort" in text and "CPP body" in text
