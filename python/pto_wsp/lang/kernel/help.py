"""What `help(pto.exp)` shows: shapes, meaning, element types, error bound and an example of each function."""

from __future__ import annotations

import inspect

from pto_wsp.isa import BY_FUNCTION, Form
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.isa.table import ErrorBound

SHAPES: dict[Form, tuple[str, str]] = {
    Form.LOAD: ("view [R, C] -> [R, C]", "t = pto.load(x[r])"),
    Form.STORE: ("view [R, C], tile [R, C]", "pto.store(y[r], t)"),
    Form.GATHER: ("view [N, C], rows [1, R] or [R, 1] of i32 -> [R, C]", "t = pto.gather(table, ids)"),
    Form.SCATTER: ("view [N, C], rows [1, R] or [R, 1] of i32, tile [R, C]", "pto.scatter(table, ids, t)"),
    Form.UNARY: ("[R, C] -> [R, C]", "y = pto.{name}(x)"),
    Form.BINARY: (
        "[R, C], [R, C] -> [R, C]; also [R, 1], [1, C] or a scalar for one",
        "y = pto.{name}(a, b)",
    ),
    Form.TERNARY: ("three of [R, C] -> [R, C]; `b` may be a scalar", "y = pto.{name}(a, b, c)"),
    Form.FILL: ("-> [rows, cols], f32 unless `dtype` is given", "t = pto.full((16, 128), 0.5)"),
    Form.ROW_REDUCE: ("[R, C] -> [R, 1]", "s = pto.{name}(x)"),
    Form.COL_REDUCE: ("[R, C] -> [1, C]", "s = pto.{name}(x)"),
    Form.ROW_EXPAND: ("[R, 1] -> [R, cols]", "t = pto.rowexpand(column, 128)"),
    Form.COL_EXPAND: ("[1, C] -> [rows, C]", "t = pto.colexpand(row, 16)"),
    Form.MATMUL: (
        "[M, K], [K, N] -> [M, N] of f32; `acc` [M, N] of f32. `a.T` and `b.T` are read in place. "
        "`b` may be of i8; of two i8, sums and `acc` are i32",
        "c = pto.matmul(a, b.T, acc=c)",
    ),
    Form.MATMUL_ACC: ("[M, N] of f32, [M, K], [K, N] -> [M, N] of f32", "c = pto.matmul_acc(c, a, b)"),
    Form.MATMUL_BIAS: (
        "[M, K], [K, N], bias [1, N] of f32 -> [M, N] of f32",
        "c = pto.matmul_bias(a, b, bias)",
    ),
    Form.MATMUL_QUANTISED: (
        "[M, N] of f32, [M, K], blocks [K / block, bytes] of u8 -> [M, N] of f32",
        'c = pto.matmul_quantised(c, x, w, "q4_0")',
    ),
    Form.QUANTISE: ("[R, C] -> [R, C / 32 * 40] of u8", "q = pto.quantise(x)"),
    Form.TRANSPOSE: ("[R, C] -> [C, R]", "t = pto.transpose(x)"),
    Form.RESHAPE: ("[R, C] -> shape with as many elements", "t = pto.reshape(x, (1, 128))"),
    Form.EXTRACT: ("[R, C] -> shape, from [row, col] on", "t = pto.extract(x, (4, 16), row=8)"),
    Form.INSERT: ("[R, C], part [r, c] -> [R, C]", "t = pto.insert(x, part, row=8)"),
    Form.SET: ("[R, C], scalar -> [R, C]", "t = pto.setval(x, 1.0, row, col)"),
    Form.COMPARE: ("[R, C], [R, C] or a scalar -> mask [R, C] of b1", 'mask = pto.compare(a, b, "lt")'),
    Form.SELECT: ("mask [R, C] of b1, two of [R, C] or scalars -> [R, C]", "y = pto.where(a < b, a, b)"),
    Form.CONVERT: ("[R, C] -> [R, C] of `dtype`", "t = pto.cast(x, bf16)"),
    Form.IOTA: ("-> [rows, cols], i32 unless `dtype` is given", "columns = pto.iota((1, 64))"),
    Form.SORT: ("[R, C], indices [R, C] of i32 -> pairs [R, C] of i64", "pairs = pto.{name}(x)"),
    Form.MERGE_RUNS: ("pairs [R, C] of i64 -> [R, C]", "pairs = pto.mrgsort(pairs, 32)"),
    Form.MERGE: ("pairs [R, C], [R, D] of i64 -> [R, k]", "pairs = pto.merge(a, b, 64)"),
    Form.TOPK_VALUES: ("pairs [R, C] of i64 -> [R, k] of f32", "values = pto.extract_topk_values(pairs, 8)"),
    Form.TOPK_INDICES: ("pairs [R, C] of i64 -> [R, k] of i32", "ids = pto.extract_topk_indices(pairs, 8)"),
    Form.TAKE: ("[R, C], indices [R, D] of i32 -> [R, D]", "t = pto.take(x, indices)"),
    Form.PUT: ("[R, C], values [R, D], indices [R, D] of i32 -> [R, C]", "t = pto.put(x, values, indices)"),
    Form.ROW_ARG: ("[R, C] -> [R, 1] of i32", "i = pto.{name}(x)"),
}
"""Shapes and an example of the functions of a form. R, C, ... are valid extents, known at run time."""

OTHERS: dict[str, tuple[str, str, str]] = {
    "zeros": (
        "A tile of zeros.",
        "-> [rows, cols], f32 unless `dtype` is given",
        "acc = pto.zeros((16, 128))",
    ),
    "tiles": (
        "Loop over ranges of `tile` elements. The last range is clipped to the extent.",
        "an extent such as `x.rows`",
        "for r in pto.tiles(x.rows, 16):",
    ),
    "prefetch": (
        "Bring the operand of a later load or gather into the cache. Results do not change.",
        "view [R, C], rows of i32 for a gather",
        "pto.prefetch(k[r])",
    ),
    "print": (
        "Print text, scalars and the valid parts of tiles; each line names the task.",
        "any number of strings, scalars and tiles [R, C]",
        'pto.print("block", r, "scores", s)',
    ),
    "check": (
        "End the run with an error and this message if the condition is false.",
        "a condition on scalars, a string",
        'pto.check(x.rows > 0, "a request has no tokens")',
    ),
    "block_idx": (
        "The number of this call within its task, from 0 to `block_num() - 1`.",
        "-> scalar",
        "i = pto.block_idx()",
    ),
    "block_num": (
        "The number of calls that make up the task: n of `@kernel(block_dim=n)`.",
        "-> number",
        "n = pto.block_num()",
    ),
    "mov_fp": ("", "src [R, C], fp [1, C] of f32 -> [R, C] of `dtype`", "t = pto.mov_fp(src, fp, i8)"),
    "store_fp": ("", "view [R, C], src [R, C], fp [1, C] of f32", "pto.store_fp(y, src, fp)"),
    "matmul_mx": (
        "",
        "[M, K], [M, K / 32], [K, N], [K / 32, N] -> [M, N] of f32",
        "c = pto.matmul_mx(a, a_scale, b, b_scale)",
    ),
    "gatherb": ("", "src [R, C], offsets [r, c] of i32, in bytes -> [r, c]", "t = pto.gatherb(src, offsets)"),
}
"""Meaning, shapes and example of functions that are not a row. Compositions have a meaning of their own."""

VALID_PARTS = "Tiles have fixed shapes; only their valid parts are read and written."


def help_text(name: str) -> str:
    """Return what `help` shows of the function called `name`."""
    if name in OTHERS:
        meaning, shapes, example = OTHERS[name]
        about = [meaning or COMPOSITIONS[name].doc, "", f"Shapes: {shapes}."]
    else:
        row = BY_FUNCTION[name]
        shapes, example = SHAPES[row.form]
        dtypes = " ".join(sorted(map(str, row.dtypes)))
        about = [
            row.doc,
            "",
            f"Shapes: {shapes}.",
            f"Element types: {dtypes}.",
            f"Error: {bound_text(row.bound)}.",
        ]
    return "\n".join([*about, VALID_PARTS, "", f"Example: `{example.format(name=name)}`"])


def bound_text(bound: ErrorBound) -> str:
    """Return an error bound in words, against the meaning computed in f64."""
    match bound.kind:
        case "ulp":
            return f"at most {bound.amount:g} ulp"
        case "sum":
            return "(n / 8 + 4) eps sum |terms| over the n terms added"
        case _:
            return "exact"


def signature(
    parameters: tuple[str, ...], required: tuple[str, ...], *, takes_any: bool = False
) -> inspect.Signature:
    """Return the signature that `help` and editors show; with `takes_any`, of any number of arguments."""
    if takes_any:
        return inspect.Signature([inspect.Parameter(p, inspect.Parameter.VAR_POSITIONAL) for p in parameters])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(p, kind, default=empty if p in required else None) for p in parameters]
    )
