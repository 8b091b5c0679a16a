"""What kernels refuse: each with its code, the marked source text, and what was found."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from tests.python.lang.programs import error_of, execute, marked

SIGNATURE = (
    "a: In[Tile[4, 8, f32]], i: In[Tile[4, 8, i32]], row: In[Tile[4, 1, f32]], k: In[Tensor[f32, DYN, 8]], "
    "v: In[Tensor[f32, 3, DYN, 8]], n: Scalar[i64], s: Scalar[f32], y: Out[Tile[4, 8, f32]]"
)


def refused(body: str, signature: str = SIGNATURE) -> tuple[str, str, str]:
    error = error_of(f"@kernel\ndef f({signature}):\n{indent(dedent(body), '    ')}\n    pto.store(y, a)\n")
    return error.code, marked(error), str(error)


@pytest.mark.parametrize(
    ("body", "mark"),
    [
        ("return a", "return a"),
        ("return", "return"),
        ("try:\n    pass\nfinally:\n    pass", "try:"),
        ("with a:\n    pass", "with a:"),
        ("for r in pto.tiles(n, 4):\n    break\n    b = a", "break"),
        ("for r in range(n):\n    continue\n    b = a", "continue"),
        ("def g(): pass", "def g(): pass"),
        ("import os", "import os"),
        ("global g", "global g"),
        ("del a", "del a"),
        ("assert n > 0", "assert n > 0"),
        ("raise ValueError", "raise ValueError"),
        ("b: int = 3", "b: int = 3"),
        ("b = lambda: 1", "lambda: 1"),
        ("b = [j for j in range(3)]", "[j for j in range(3)]"),
        ("b = f'{n}'", "f'{n}'"),
        ("while True:\n    pass", "True"),
        ("while 1:\n    pass", "1"),
        ("b = (c := a)", "c := a"),
        ("b = {1: 2}", "{1: 2}"),
        ("y[0] = a", "y[0]"),
        ("a.x = 3", "a.x"),
        ("n + 1", "n + 1"),
        ("pto.exp(a)", "pto.exp(a)"),
        ("b, c = a", "b, c"),
        ("b, c = 1, 2, 3", "b, c"),
        ("b = print(a)", "print(a)"),
        ("b = math.exp(a)", "math.exp(a)"),
        ("b = sqrt(s)", "sqrt(s)"),
        ("b = sqrt(-1)", "sqrt(-1)"),
        ("b = 1 / 0", "1 / 0"),
        ("b = min(a, a)", "min(a, a)"),
        ("b = pto.maximum(*[a, a])", "*[a, a]"),
        ("b = pto.maximum(**{})", "{}"),
        ("b = a % 2", "a % 2"),
        ("b = a // row", "a // row"),
        ("b = a ** 2", "a ** 2"),
        ("b = i / 2", "i / 2"),
        ("b = not a", "not a"),
        ("b = a > 0 and n > 0", "a > 0"),
        ("b = n > 0 and n", "n"),
        ("b = 0 < a < 1", "0 < a < 1"),
        ("b = n in (1, 2)", "n in (1, 2)"),
        ("b = a if n > 0 else row", "a if n > 0 else row"),
        ("if a > 0:\n    pass", "a > 0"),
        ("if row:\n    pass", "row"),
        ("while a:\n    pass", "a"),
        ("while n > 0:\n    pass\nelse:\n    pass", "pass"),
        ("for j in range(3):\n    pass\nelse:\n    b = 2", "b = 2"),
        ("for j in (1, 2, 3):\n    pass", "(1, 2, 3)"),
        ("for j in k:\n    pass", "k"),
        ("for j, l in range(3):\n    pass", "j, l"),
        ("for r in pto.tiles(n):\n    pass", "pto.tiles(n)"),
        ("r = pto.tiles(n, 4)", "pto.tiles(n, 4)"),
        ("b = a.data", "a.data"),
        ("b = (1, 2)[5]", "(1, 2)[5]"),
        ("b = (1, 2)[n]", "(1, 2)[n]"),
    ],
)
def test_unsupported_syntax(body: str, mark: str) -> None:
    code, found, text = refused(body)
    assert (code, found) == ("unsupported-syntax", mark), text


@pytest.mark.parametrize(
    ("body", "code", "mark", "found"),
    [
        ("b = unknown + 1", "unknown-name", "unknown", "not defined in kernel `f`"),
        ("b = rows", "unknown-name", "rows", "did you mean `row`?"),
        ("b = math.sqroot(2)", "unknown-name", "math.sqroot", "did you mean `sqrt`?"),
        ("b = c\nc = 1", "unknown-name", "c", "not defined"),
        ("b = pto.expp(a)", "unknown-instruction", "pto.expp", "did you mean `exp`?"),
        ("b = pto.exp()", "bad-operand", "pto.exp()", "expected an argument `x`, found none"),
        ("b = pto.exp(a, a)", "bad-operand", "pto.exp(a, a)", "expected at most 1 arguments, found 2"),
        ("b = pto.exp(x=a, y=a)", "bad-operand", "y=a", "found `y`"),
        ("b = pto.maximum(a, a=a)", "bad-operand", "a=a", "found `a` twice"),
        ("b = pto.exp(n)", "bad-operand", "n", "expected a tile, found a scalar i64"),
        ("b = pto.exp(3.0)", "bad-operand", "3.0", "expected a tile, found `3.0`"),
        ("b = a + 'x'", "bad-operand", "a + 'x'", "expected a tile, found `'x'`"),
        (
            "b = pto.load(a + 1)",
            "bad-operand",
            "a + 1",
            "expected a parameter or a view of one, found a tile",
        ),
        ("pto.store(a, a)", "bad-operand", "a", "expected an Out or InOut parameter, found `a`, an input"),
        ("b = pto.zeros(4)", "bad-operand", "4", "expected a shape (rows, cols)"),
        ("b = pto.zeros((4, n))", "bad-operand", "(4, n)", "expected positive constants, and extents"),
        ("b = pto.zeros((k.rows, 8))", "bad-operand", "(k.rows, 8)", "extents of static shapes such as"),
        ("b = pto.full((4, 8), a)", "bad-operand", "a", "expected a number or a scalar"),
        ("b = pto.full((4, 8), 1, 'f32')", "bad-operand", "'f32'", "expected an element type"),
        ("b = pto.compare(a, a, 'less')", "bad-operand", "'less'", "expected one of eq, ne, lt"),
        ("for r in pto.tiles(n, n):\n    pass", "bad-operand", "n", "expected a positive constant integer"),
        (
            "for r in pto.tiles(s, 4):\n    pass",
            "bad-operand",
            "s",
            "expected an integer, found a scalar f32",
        ),
        ("for r in range(0, n, -1):\n    pass", "bad-operand", "-1", "expected a positive constant integer"),
        ("b = a + pto.zeros((4, 7))", "shape-mismatch", "a + pto.zeros((4, 7))", "found [4, 8] and [4, 7]"),
        (
            "b = pto.matmul(a, a)",
            "shape-mismatch",
            "pto.matmul(a, a)",
            "expected a right operand with 8 rows, found 4",
        ),
        (
            "b = pto.where(row > 0, a, pto.zeros((8, 8)))",
            "shape-mismatch",
            None,
            "[4, 1] and [4, 8] and [8, 8]",
        ),
        ("pto.store(y, row)", "shape-mismatch", "pto.store(y, row)", "expected [4, 8], found [4, 1]"),
        ("b = a + i", "dtype-mismatch", "a + i", "expected f32, found i32"),
        ("b = i + 0.5", "dtype-mismatch", "i + 0.5", "expected a number that i32 can hold, found 0.5"),
        ("b = i + 3000000000", "dtype-mismatch", "i + 3000000000", "a number that i32 can hold"),
        ("b = i * s", "dtype-mismatch", "i * s", "expected i32, found f32"),
        ("b = a * 1e39", "dtype-mismatch", None, "that f32 can hold"),
        ("b = a * True", "dtype-mismatch", "a * True", "expected f32, found b1"),
        ("b = pto.exp(i)", "dtype-mismatch", "pto.exp(i)", "expected one of bf16, f16, f32, found i32"),
        ("b = pto.full((4, 8), 70000, f16)", "dtype-mismatch", None, "that f16 can hold"),
        ("b = pto.where(a, a, a)", "dtype-mismatch", "pto.where(a, a, a)", "expected b1, found f32"),
        ("b = s // 2", "dtype-mismatch", "s // 2", "expected integers, found f32"),
        ("b = n + (n > 2)", "dtype-mismatch", "n + (n > 2)", "expected numbers, found b1"),
        ("pto.store(y, i)", "dtype-mismatch", "pto.store(y, i)", "expected f32, found i32"),
        ("b = k + 1", "bad-index", "k + 1", "expected a range of `pto.tiles` in dimension 0"),
        ("b = v[0] + 1", "bad-index", "v[0] + 1", "expected a range of `pto.tiles` in dimension 1"),
        ("b = v + 1", "bad-index", "v + 1", "expected two dimensions that make a tile, found 3"),
        ("b = k[0, 0] + 1", "bad-index", "k[0, 0]", "read an element from a tile"),
        ("t = 0\nfor j in range(n):\n    t = t + a\nb = t", "carried-value", "t", "begins with a tile"),
        ("b = k[0, 0, 0]", "bad-index", "k[0, 0, 0]", "expected at most 2 indices, found 3"),
        ("b = k[n:]", "bad-index", "n", "expected constant bounds, or a range of `pto.tiles`"),
        ("b = k[2:]", "bad-index", "2:", "expected a slice with an end"),
        ("b = k[0:4:2]", "bad-index", "0:4:2", "expected a slice without a step"),
        ("b = k[4:4]", "bad-index", "4:4", "expected a slice with elements"),
        ("b = k[s]", "bad-index", "s", "found a scalar f32"),
        ("b = k['x']", "bad-index", "'x'", "found `'x'`"),
        ("b = k[0:4][n]", "bad-index", "n", "expected a constant index into a range"),
        ("for r in pto.tiles(n, 4):\n    b = k[0:8][r]", "bad-index", "r", "into a range"),
        ("b = (a + 1)[0]", "bad-index", "(a + 1)[0]", "expected a parameter or a view of one, found a tile"),
        ("b = k[-1]", "index-outside", "-1", "expected an index in [0, n), found -1"),
        ("b = v[3]", "index-outside", "3", "expected an index in [0, 3), found 3"),
        ("b = k[0:4, 0:9]", "index-outside", "0:9", "expected an index in [0, 8), found 8"),
        ("b = k[2:6][3:5]", "index-outside", "3:5", "expected an index in [0, 4), found 4"),
        ("b = y + 1", "out-read", "y + 1", "reads its output `y` before it is stored"),
        ("if n > 0:\n    pto.store(y, a)\nb = pto.load(y)", "out-read", "pto.load(y)", "before it is stored"),
        ("for j in range(n):\n    b = j\nb = b + 1", "carried-value", "b", "assigned inside a loop"),
        ("if n > 0:\n    b = 1\nb = b + 1", "carried-value", "b", "assigned inside a branch"),
        ("if n > 0:\n    b = a\nelse:\n    b = row\nb = b + 1", "carried-value", "b", "no single value"),
        ("if n > 0:\n    b = a\nelse:\n    b = 1\nb = b + 1", "carried-value", "b", "no single value"),
        (
            "b = a\nfor j in range(n):\n    b = pto.rowsum(b)",
            "carried-value",
            "b",
            "found a tile [4, 1] of f32",
        ),
        (
            "b = 0\nwhile b < n:\n    b = b + 0.5",
            "carried-value",
            "b",
            "expected a scalar i64, found a scalar f32",
        ),
        (
            "b = None\nfor j in range(n):\n    b = b + a",
            "carried-value",
            "b",
            "no value that a loop can change",
        ),
        ("for j in range(n):\n    pass\nb = j", "carried-value", "j", "variable of a loop that has ended"),
    ],
)
def test_refusals(body: str, code: str, mark: str | None, found: str) -> None:
    actual, underlined, text = refused(body)
    assert actual == code, text
    assert mark is None or underlined == mark, text
    assert found in text, text


@pytest.mark.parametrize(
    "body",
    [
        "if n > 0:\n    pto.store(y, a)",
        "for j in range(n):\n    pto.store(y, a)",
        "while n > 3:\n    pto.store(y, a)\n    n = n - 1",
        "if n > 0:\n    pto.store(y, a)\nelse:\n    for j in range(n):\n        pto.store(y, a)",
        "pass",
    ],
)
def test_outputs_are_stored_on_every_path(body: str) -> None:
    text = f"@kernel\ndef f({SIGNATURE}):\n{indent(body, '    ')}\n"
    error = error_of(text)
    assert (error.code, marked(error)) == ("out-not-stored", "y")


@pytest.mark.parametrize(
    "body",
    [
        "if n > 0:\n    pto.store(y, a)\nelse:\n    pto.store(y, -a)",
        "for j in range(2):\n    pto.store(y, a)",
        "for r in pto.tiles(y.rows, 4):\n    pto.store(y[r, 0:8], a)",
        "pto.store(y, a)\nb = pto.load(y) + y",
    ],
)
def test_stored_outputs(body: str) -> None:
    execute(f"@kernel\ndef f({SIGNATURE}):\n{indent(body, '    ')}\n")


@pytest.mark.parametrize(
    ("parameter", "mark", "found"),
    [
        ("x", "x", "expected an annotation, found none"),
        ("x: int", "int", "found int"),
        ("x: Tile[4, 4, f32]", "Tile[4, 4, f32]", "found a type without a role"),
        ("x: In", "In", "found In"),
        ("x: In[f32]", "In[f32]", "expected In, Out"),
        ("x: In[Tile[4, f32]]", "In[Tile[4, f32]]", "found Tile[4, f32]"),
        ("x: In[Tile[0, 4, f32]]", "In[Tile[0, 4, f32]]", "found Tile[0, 4, f32]"),
        ("x: In[Tile[9999, 9999, f32]]", "In[Tile[9999, 9999, f32]]", "expected a tile of at most"),
        ("x: In[Tensor[f32]]", "In[Tensor[f32]]", "found Tensor[f32]"),
        ("x: In[Tensor[f32, 'n', 4]]", "In[Tensor[f32, 'n', 4]]", "found Tensor[f32, 'n', 4]"),
        ("x: Scalar[bf16]", "Scalar[bf16]", "expected one of f32, i64, b1"),
        ("x: In[Tile[4, 4, f32]] = None", "In[Tile[4, 4, f32]]", "expected no default value"),
    ],
)
def test_bad_annotations(parameter: str, mark: str, found: str) -> None:
    error = error_of(f"@kernel\ndef f({parameter}):\n    ...\n")
    assert (error.code, marked(error)) == ("bad-annotation", mark)
    assert found in str(error)


@pytest.mark.parametrize("parameter", ["*x", "**x", "x, /"])
def test_parameters_have_names(parameter: str) -> None:
    assert error_of(f"@kernel\ndef f({parameter}):\n    ...\n").code == "unsupported-syntax"


def test_annotations_name_what_is_missing() -> None:
    error = error_of(
        "from __future__ import annotations\n@kernel\ndef f(x: In[Tile[R, 4, f32]]):\n    ...\n".strip()
    )
    assert (error.code, marked(error)) == ("unknown-name", "R")
