"""Kernels of instructions: every row has its function, and tiles are places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import (
    DYN,
    In,
    InOut,
    Out,
    P,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    ptoisa,
    ptoisa_kernel,
    workload,
)
from pto_wsp.errors import OutsideWorkload, PtoError, UnknownInstruction
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Store, walk_statements
from pto_wsp.isa import TABLE, Instruction
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.isa.forms import Form
from pto_wsp.lang.workload.workload import Workload
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.lang.programs import error_of, execute, ir_of, marked

TARGETS = ("cpu", "interp")


def kernel_of(signature: str, *lines: str) -> KernelFunction:
    text = "\n    ".join(lines)
    return ir_of(execute(f"@ptoisa_kernel\ndef k({signature}):\n    {text}\n")["k"])


def refusal(*lines: str) -> PtoError:
    text = "\n    ".join(lines)
    signature = "x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]], n: Scalar[i64]"
    return error_of(f"@ptoisa_kernel\ndef k({signature}):\n    {text}\n")


# --- the functions --------------------------------------------------------------------------------------


def test_there_is_one_function_per_row_and_composition() -> None:
    assert [f.row for f in ptoisa.FUNCTIONS.values()] == [*TABLE.values(), *COMPOSITIONS.values()]
    assert all(name == name.upper() and name.isidentifier() for name in ptoisa.FUNCTIONS)


OPERANDS: dict[Form, tuple[str, str]] = {
    Form.UNARY: ("{s}", ""),
    Form.BINARY: ("{s}", "{s}"),
    Form.TILE_SCALAR: ("{s}", "2"),
    Form.FILL: ("2", ""),
    Form.ROW_REDUCE: ("{s}", ""),
    Form.COL_REDUCE: ("{s}", ""),
    Form.TERNARY: ("{s}", "{s}, {s}"),
    Form.BINARY_SCALAR: ("{s}", "{s}, 2"),
    Form.ROW_BROADCAST: ("{s}", "row"),
    Form.COL_BROADCAST: ("{s}", "col"),
    Form.ROW_EXPAND: ("row", ""),
    Form.COL_EXPAND: ("col", ""),
    Form.MATMUL: ("{s}", "square"),
    Form.MATMUL_ACC: ("acc", "{s}, square"),
    Form.MATMUL_BIAS: ("{s}", "square, col"),
    Form.MATMUL_QUANTISED: ("acc", "wide, blocks, format='q8_0'"),
    Form.QUANTISE: ("wide", ""),
    Form.TRANSPOSE: ("{s}", ""),
    Form.RESHAPE: ("{s}", ""),
    Form.EXTRACT: ("{s}", "row=1, col=2"),
    Form.INSERT: ("{s}", "row"),
    Form.SET: ("{s}", "2, row=1, col=2"),
    Form.COMPARE: ("{s}", "{s}, mode='lt'"),
    Form.COMPARE_SCALAR: ("{s}", "2, mode='ge'"),
    Form.SELECT: ("mask", "{s}, {s}"),
    Form.SELECT_SCALAR: ("mask", "{s}, 2"),
    Form.CONVERT: ("{s}", ""),
    Form.IOTA: ("3", ""),
    Form.SORT: ("{s}", "numbers"),
    Form.MERGE_RUNS: ("pairs", "run=4"),
    Form.MERGE: ("pairs", "pairs"),
    Form.TOPK_VALUES: ("pairs", ""),
    Form.TOPK_INDICES: ("pairs", ""),
    Form.TAKE: ("{s}", "numbers"),
    Form.PUT: ("{s}", "{s}, numbers"),
    Form.ROW_ARG: ("{s}", ""),
}
"""Operands of one call of every form, on the tiles that the test declares."""

MOVES = {"TLOAD", "TSTORE", "MGATHER", "MSCATTER"}

RESULTS: dict[Form, str] = {
    Form.ROW_REDUCE: "(8, 1, f32)",
    Form.COL_REDUCE: "(1, 16, f32)",
    Form.QUANTISE: "(8, 40, u8)",
    Form.TRANSPOSE: "(16, 8, f32)",
    Form.RESHAPE: "(4, 32, f32)",
    Form.EXTRACT: "(7, 14, f32)",
    Form.COMPARE: "(8, 16, b1)",
    Form.COMPARE_SCALAR: "(8, 16, b1)",
    Form.CONVERT: "(8, 16, i32)",
    Form.IOTA: "(8, 16, i32)",
    Form.SORT: "(8, 16, i64)",
    Form.MERGE_RUNS: "(8, 16, i64)",
    Form.MERGE: "(8, 32, i64)",
    Form.TOPK_VALUES: "(8, 4, f32)",
    Form.TOPK_INDICES: "(8, 4, i32)",
    Form.ROW_ARG: "(8, 1, i32)",
}
"""Types of the results of forms that do not make [8, 16] of f32."""


ROWS = {name: f.row for name, f in ptoisa.FUNCTIONS.items() if isinstance(f.row, Instruction)}


@pytest.mark.parametrize("name", sorted(ROWS.keys() - MOVES))
def test_every_row_can_be_called(name: str) -> None:
    row = ROWS[name]
    form = row.form
    is_whole = f32 not in row.dtypes and form in (Form.UNARY, Form.BINARY, Form.TILE_SCALAR)
    operands = ", ".join(o for o in OPERANDS[form] if o).format(s="numbers" if is_whole else "t")
    function = kernel_of(
        "x: In[Tile[8, 16, f32]], z: In[Tile[16, 16, f32]], y: Out[Tile[8, 16, f32]]",
        "t, square, acc = ptoisa.tile(8, 16, f32), ptoisa.tile(16, 16, f32), ptoisa.tile(8, 16, f32)",
        "row, col, mask = ptoisa.tile(8, 1, f32), ptoisa.tile(1, 16, f32), ptoisa.tile(8, 16, b1)",
        "numbers, pairs = ptoisa.tile(8, 16, i32), ptoisa.tile(8, 16, i64)",
        "wide, blocks = ptoisa.tile(8, 32, f32), ptoisa.tile(1, 16 * 34, u8)",
        "ptoisa.TEXPANDS(wide, 0.0)",
        "ptoisa.TEXPANDS(blocks, 0)",
        "ptoisa.TLOAD(t, x)",
        "ptoisa.TLOAD(square, z)",
        "ptoisa.TLOAD(acc, x)",
        "ptoisa.TROWSUM(row, t)",
        "ptoisa.TCOLSUM(col, t)",
        "ptoisa.TCMPS(mask, t, 0.5, mode='lt')",
        "ptoisa.TCI(numbers, 0)",
        "ptoisa.TSORT(pairs, t, numbers)",
        f"result = ptoisa.tile{RESULTS.get(form, '(8, 16, i32)' if is_whole else '(8, 16, f32)')}",
        f"ptoisa.{name}(result, {operands})",
        "ptoisa.TSTORE(y, t)",
    )
    last = [s for s in walk_statements(function.body or ()) if isinstance(s, Instr)][-1]
    assert (last.op, last.dst) == (row.name, "result")


def test_functions_have_no_meaning_outside_of_kernels() -> None:
    with pytest.raises(OutsideWorkload):
        ptoisa.TADD(1, 2, 3)
    with pytest.raises(OutsideWorkload):
        ptoisa.tile(1, 1, f32)
    with pytest.raises(UnknownInstruction, match=r"`ptoisa.TADDD`.*\n.*\n.*\n.*\n.*\n.*did you mean `TADD`"):
        ptoisa.TADDD(1, 2, 3)


# --- the same IR as a kernel of values ----------------------------------------------------------------


@ptoisa_kernel
def softmax(x: In[Tensor[f32, 40, 24]], y: Out[Tensor[f32, 40, 24]]):
    t, m = ptoisa.tile(16, 24, f32), ptoisa.tile(16, 1, f32)
    for r in pto.tiles(x.rows, 16):
        ptoisa.TLOAD(t, x[r])
        ptoisa.TROWMAX(m, t)
        ptoisa.TROWEXPANDSUB(t, t, m)
        ptoisa.TEXP(t, t)
        ptoisa.TROWSUM(m, t)
        ptoisa.TROWEXPANDDIV(t, t, m)
        ptoisa.TSTORE(y[r], t)


@kernel
def softmax_of_values(x: In[Tensor[f32, 40, 24]], y: Out[Tensor[f32, 40, 24]]):
    for r in pto.tiles(x.rows, 16):
        t = pto.load(x[r])
        e = pto.exp(t - pto.rowmax(t))
        pto.store(y[r], e / pto.rowsum(e))


@workload
def both(X: Tensor[f32, "n", 40, 24], Y: Tensor[f32, "n", 40, 24], Z: Tensor[f32, "n", 40, 24]):
    for i in P("n"):
        softmax[i](x=X[i], y=Y[i])
        softmax_of_values[i](x=X[i], y=Z[i])


@pytest.mark.parametrize("target", TARGETS)
def test_two_modes_give_the_same_bits(target: str) -> None:
    x = np.random.default_rng(1).random((5, 40, 24), np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    both.compile(target)(X=x, Y=y, Z=z)
    assert y.tobytes() == z.tobytes() and np.allclose(y.sum(axis=2), 1, atol=1e-5)


# --- tiles are places ---------------------------------------------------------------------------------

PLACES = {"a": (16, 16), "b": (16, 16), "c": (16, 16), "r": (16, 1), "s": (16, 1), "v": (1, 16), "w": (1, 16)}


def small(*tiles: str) -> list[str]:
    """Make tiles hold numbers below 7, so that the order of a product's additions does not matter."""
    return [f"ptoisa.TREMS({tile}, {tile}, 7.0)" for tile in tiles]


def random_lines(draw: Draw, depth: int = 0) -> list[str]:
    """Random instructions on whole numbers, many of which read the tile that they write."""
    lines: list[str] = []
    for _ in range(draw.randrange(2, 7)):
        a, b, c, d = (draw.choice("abc") for _ in range(4))
        r, s = (draw.choice("rs") for _ in range(2))
        v = draw.choice("vw")
        lines += draw.choice(
            [
                [f"ptoisa.{draw.choice(['TADD', 'TSUB', 'TMAX', 'TMIN'])}({a}, {b}, {c})"],
                [f"ptoisa.TMINS({a}, {b}, 9.0)", f"ptoisa.TMAXS({a}, {a}, -9.0)"],
                [*small(b, c), f"ptoisa.TMATMUL({a}, {b}, {c})"],
                [*small(b, c, d), f"ptoisa.TMATMUL_ACC({a}, {d}, {b}, {c})"],
                [*small(b, c), f"ptoisa.TMATMUL({a}, {b}, {c}, trans_b=True)"],
                [f"ptoisa.TTRANS({a}, {b})"],
                [f"ptoisa.TROWMAX({r}, {a})"],
                [f"ptoisa.TCOLMIN({v}, {a})"],
                [f"ptoisa.TROWEXPAND({a}, {r})", f"ptoisa.TROWEXPANDSUB({b}, {b}, {s})"],
                [f"ptoisa.TCOLEXPAND({a}, {v})", f"ptoisa.TTRANS({r}, {v})"],
                [f"ptoisa.TLOAD({a}, x[i])"],
                [f"ptoisa.TSTORE(y[i], {a})", f"ptoisa.TNEG({a}, {b})"],
                [f"ptoisa.TROWEXPANDSUB({r}, {s}, {r})", f"ptoisa.TMINS({r}, {r}, 3.0)"],
            ]
        )
        if depth < 2 and draw.random() < 0.3:
            inner = ["    " + line for line in random_lines(draw, depth + 1)]
            opening = draw.choice(["for j in range(i + 1):", "if i % 2 == 0:", "for j in range(2):"])
            lines += [opening, *inner]
    return lines


@tries(12, compiles=True)
@given(DRAWS)
def test_random_instructions_on_every_target(draw: Draw) -> None:
    declared = [f"{name} = ptoisa.tile({rows}, {cols}, f32)" for name, (rows, cols) in PLACES.items()]
    filled = [f"ptoisa.TEXPANDS({name}, {float(number)})" for number, name in enumerate(PLACES)]
    body = [f"    {line}" for line in [*random_lines(draw), "ptoisa.TSTORE(y[i], a)"]]
    stored = [f"ptoisa.TSTORE(z[{number}], {name})" for number, name in enumerate("abc")]
    text = "\n    ".join([*declared, *filled, "for i in range(4):", *body, *stored])
    note(text)
    w = execute(
        f"""
@ptoisa_kernel
def k(x: In[Tensor[f32, 4, 16, 16]], y: Out[Tensor[f32, 4, 16, 16]], z: Out[Tensor[f32, 3, 16, 16]]):
    {text}

@workload
def w(X: Tensor[f32, 4, 16, 16], Y: Tensor[f32, 4, 16, 16], Z: Tensor[f32, 3, 16, 16]):
    k(x=X, y=Y, z=Z)
"""
    )["w"]
    assert isinstance(w, Workload)
    x = np.random.default_rng(0).integers(-4, 5, (4, 16, 16)).astype(np.float32)
    found = []
    for target in TARGETS:
        y, z = np.zeros_like(x), np.zeros((3, 16, 16), np.float32)
        w.compile(target)(X=x, Y=y, Z=z)
        found.append((y, z))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_valid_extents_are_those_of_the_last_write() -> None:
    function = kernel_of(
        "x: In[Tile[8, 16, f32]], y: Out[Tensor[f32, 1, 2]], n: Scalar[i64]",
        "t, one = ptoisa.tile(8, 16, f32), ptoisa.tile(1, 2, f32)",
        "ptoisa.TLOAD(t, x)",
        "before = t.rows",
        "ptoisa.TEXPANDS(t, 1.0, rows=n, cols=3)",
        "ptoisa.TEXPANDS(one, 100 * before + 10 * t.rows + t.cols)",
        "ptoisa.TSTORE(y, one)",
    )
    y = np.zeros((1, 2), np.float32)
    run_kernel(function, [np.zeros((5, 16), np.float32), y, 4])
    assert y.tolist() == [[543, 543]]


@ptoisa_kernel
def move_rows(
    x: In[Tensor[f32, DYN, 24]],
    ids: In[Tile[1, 8, i32]],
    y: Out[Tile[8, 24, f32]],
    z: InOut[Tensor[f32, DYN, 24]],
):
    rows, t = ptoisa.tile(1, 8, i32), ptoisa.tile(8, 24, f32)
    ptoisa.TLOAD(rows, ids)
    ptoisa.MGATHER(t, x, rows)
    ptoisa.TSTORE(y, t)
    ptoisa.TADDS(t, t, 1.0)
    ptoisa.MSCATTER(z, t, rows)


@workload
def move_all(
    X: Tensor[f32, "n", 24], Ids: Tensor[i32, 1, "m"], Y: Tensor[f32, "m", 24], Z: Tensor[f32, "n", 24]
):
    move_rows(x=X, ids=Ids, y=Y, z=Z)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_gathered_and_scattered(target: str) -> None:
    x = np.random.default_rng(3).random((20, 24), np.float32)
    ids = np.array([[3, 19, 0, 7, 8]], np.int32)
    y, z = np.zeros((5, 24), np.float32), np.zeros_like(x)
    move_all.compile(target)(X=x, Ids=ids, Y=y, Z=z)
    expected = np.zeros_like(x)
    expected[ids[0]] = x[ids[0]] + 1
    assert np.array_equal(y, x[ids[0]]) and np.array_equal(z, expected)


# --- refusals -----------------------------------------------------------------------------------------

TILES = "t, u = ptoisa.tile(8, 16, f32), ptoisa.tile(8, 16, f32)"
LOADED = (TILES, "ptoisa.TLOAD(t, x)")


@pytest.mark.parametrize(
    ("lines", "code", "said", "where"),
    [
        (
            (TILES, "ptoisa.TADD(t, t)"),
            "bad-operand",
            "3 operands, the destination first",
            "ptoisa.TADD(t, t)",
        ),
        ((*LOADED, "ptoisa.TADD(u, t, x)"), "bad-operand", "a tile made by `ptoisa.tile`", "x"),
        ((*LOADED, "ptoisa.TADD(y, t, t)"), "bad-operand", "a tile made by `ptoisa.tile`", "y"),
        ((*LOADED, "ptoisa.TADD(u, t + t, t)"), "bad-operand", "a tile made by `ptoisa.tile`", "t + t"),
        ((*LOADED, "ptoisa.TSTORE(x, t)"), "bad-operand", "an Out or InOut parameter", "x"),
        ((*LOADED, "ptoisa.TADD(u, t, t, mode='lt')"), "bad-operand", "no keywords", "'lt'"),
        ((TILES, "ptoisa.TADD(u, t, t)"), "carried-value", "`t` is read before", "ptoisa.TADD(u, t, t)"),
        ((TILES, "if n > 0:", "    ptoisa.TLOAD(t, x)", "ptoisa.TSTORE(y, t)"), "carried-value", "`t`", ""),
        (
            (TILES, "for i in range(n):", "    ptoisa.TLOAD(t, x)", "ptoisa.TSTORE(y, t)"),
            "carried-value",
            "`t`",
            "",
        ),
        ((*LOADED, "u = t"), "bad-operand", "once per name", "u"),
        ((*LOADED, "v = t"), "bad-operand", "once per name", "v"),
        ((*LOADED, "v = t + 1"), "bad-operand", "once per name", "v"),
        ((*LOADED, "pto.store(y, t)"), "unsupported-syntax", "`pto.store` among instructions", ""),
        ((*LOADED, "ptoisa.TADDD(t, t, t)"), "unknown-instruction", "did you mean `TADD`", "ptoisa.TADDD"),
        (("t = ptoisa.tile(8, f32)",), "bad-operand", "rows, cols and dtype", "ptoisa.tile(8, f32)"),
        (("t = ptoisa.tile(n, 8, f32)",), "bad-operand", "a positive constant integer", "n"),
        (("t = ptoisa.tile(4, 8, f32)", "ptoisa.TLOAD(t, x)"), "shape-mismatch", "at most", ""),
        (("t = ptoisa.tile(8, 16, i32)", "ptoisa.TLOAD(t, x)"), "dtype-mismatch", "i32", ""),
        ((*LOADED, "m = ptoisa.tile(8, 2, f32)", "ptoisa.TROWMAX(m, t)"), "shape-mismatch", "", ""),
        ((*LOADED, "m = ptoisa.tile(8, 1, i32)", "ptoisa.TROWMAX(m, t)"), "dtype-mismatch", "", ""),
        ((*LOADED, "m = ptoisa.tile(8, 16, b1)", "ptoisa.TCMPS(m, t, 1.0)"), "bad-operand", "`mode`", ""),
    ],
)
def test_what_instructions_cannot_take(lines: tuple[str, ...], code: str, said: str, where: str) -> None:
    error = refusal(*lines)
    assert error.code == code and said in str(error)
    assert not where or marked(error) == where


def test_instructions_are_refused_in_a_kernel_of_values() -> None:
    error = error_of("@kernel\ndef k(x: In[Tile[1, 1, f32]]):\n    t = ptoisa.tile(1, 1, f32)\n")
    assert error.code == "unsupported-syntax" and "@ptoisa_kernel" in error.help


def test_loads_and_stores_are_statements_of_the_ir() -> None:
    function = kernel_of("x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]]", *LOADED, "ptoisa.TSTORE(y, t)")
    assert [type(s) for s in function.body or ()] == [Load, Store]
