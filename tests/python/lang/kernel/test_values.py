"""A name in a kernel stands for a value: kernels against the same text executed with numpy."""

from __future__ import annotations

from textwrap import indent
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import Instr, walk_statements
from tests.generators.drawing import tries
from tests.python.lang.programs import execute, ir_of

TILE = "In[Tile[4, 8, f32]]"
SIGNATURE = f"x: {TILE}, y: {TILE}, n: Scalar[i64], out: Out[Tile[4, 8, f32]], count: Out[Tile[4, 8, f32]]"
X = np.arange(32, dtype=np.float32).reshape(4, 8)
Y = np.linspace(-3, 2, 32, dtype=np.float32).reshape(4, 8)


class Value(np.ndarray):
    """An array whose augmented assignments make new arrays, as those of tiles do."""

    def __iadd__(self, other: object) -> Value:  # type: ignore[misc]
        return self + other

    def __isub__(self, other: object) -> Value:  # type: ignore[misc]
        return self - other


def _store(view: np.ndarray, tile: object) -> None:
    view[...] = tile


numpy_pto = SimpleNamespace(maximum=np.maximum, minimum=np.minimum, store=_store)


def both_ways(body: str, n: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the outputs of `body` as a kernel and as a plain function of numpy arrays."""
    text = f"def k({SIGNATURE}):\n{indent(body, '    ')}\n"
    kernel = execute("@kernel\n" + text)["k"]
    plain = execute(text)
    plain["pto"] = numpy_pto
    results = []
    for run in (lambda a: run_kernel(ir_of(kernel), a), lambda a: plain["k"](*a)):
        out, count = np.full((4, 8), 99, np.float32), np.full((4, 8), 99, np.float32)
        run([X.view(Value), Y.view(Value), n, out, count])
        results.append((out, count))
    return results


def assert_same(body: str, n: int = 3) -> None:
    (out, count), (expected_out, expected_count) = both_ways(body, n)
    np.testing.assert_array_equal(out, expected_out, body)
    np.testing.assert_array_equal(count, expected_count, body)


END = "pto.store(out, a)\npto.store(count, b)"


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "body",
    [
        "a, b = x, y\nfor i in range(n):\n    a, b = b, a",
        "a, b, c = x, y, x + y\nfor i in range(n):\n    a, b, c = c, a, b",
        "a = b = x\nfor i in range(n):\n    a = a + y",
        "a, b = x, y\nfor i in range(n):\n    old = a\n    a = a + b\n    b = old",
        "a, b = x, y\nfor i in range(n):\n"
        "    for j in range(i):\n        a = a + b\n        b = a - y\n    b = b * 0.5",
        "a, b = x, y\nfor i in range(n):\n    if i > 1:\n        a = b\n    else:\n        b = a + 1",
        "a, b = x, y\nif n > 1:\n    a, b = b, a\nelif n == 1:\n    a = a * 2",
        "a, b = x, y\ni = 0\nwhile i < n:\n    j = i\n    i = i + 1\n    a = a + j\n    b = b + i",
        "a, b = x, y\ni = n\nwhile i > 0 and not i == 3:\n    i -= 1\n    a += b",
        "x = x + 1\na, b = x, y\nfor i in range(1, n, 2):\n    y = y + x\n    a = y",
        "a, b = x, y\nfor i in range(n):\n    i = i * 2\n    a = a + i",
        "a, b = x, y\nfor i in range(n):\n    t = a\n    for j in range(2):\n        t = t + b\n    a = t",
        "a, b = x, y\ns = 1.0\nfor i in range(n):\n    s = s * 0.5\n    a = a * s\nb = b * s",
        "a, b = x, y\ns = 0 if n > 2 else n\n"
        "b = b + s + max(n, 2) - min(n, 1, 0) + abs(1 - n) + float(n) / 2",
        "a, b = x, y\nif n % 2 == 0 or 1 < n < 4:\n    a = -a\nif 0:\n    a = undefined",
        "a, b = x, y\nif n > 0 and 6 // n > 1 or n == 0 or 9 // (n - 1) > 2:\n    a = a + 1",
        "a, b = x, y\nif 0 < n < 7 // max(n, 1):\n    a = a * 3",
        "a, b = x, y\nkeep = a\nfor i in range(n):\n    a = a + 1\nb = keep + a",
    ],
)
def test_names_are_values(body: str, n: int) -> None:
    assert_same(f"{body}\n{END}", n)


def test_a_copy_stays_only_where_lifetimes_cross() -> None:
    def copies(body: str) -> int:
        kernel = execute(f"@kernel\ndef k({SIGNATURE}):\n{indent(body + chr(10) + END, '    ')}\n")["k"]
        found = walk_statements(ir_of(kernel).body or ())
        return sum(isinstance(s, Instr) and s.op == "mov" for s in found)

    assert copies("a, b = x + 1, y\nfor i in range(n):\n    a = a + b") == 0
    assert copies("a, b = x + 1, y\nif n > 1:\n    a = a * 2") == 0
    assert copies("a, b = x + 1, y\nfor i in range(n):\n    for j in range(n):\n        a = a + b") == 0
    assert copies("a, b = x + 1, y + 1\nfor i in range(n):\n    a, b = b, a") > 0


NAMES = st.sampled_from("abc")
OPERANDS = st.one_of(NAMES, st.sampled_from(["x", "y", "0.5", "2", "i", "k"]))


@st.composite
def blocks(draw: st.DrawFn, depth: int = 3) -> str:
    lines = draw(st.lists(statements(depth), min_size=1, max_size=4))
    return "\n".join(lines)


@st.composite
def statements(draw: st.DrawFn, depth: int) -> str:
    kind = draw(
        st.sampled_from(
            ["assign", "swap", "scalar", "augment", "for", "if", "while"] if depth else ["assign", "swap"]
        )
    )
    a, b, c = draw(NAMES), draw(NAMES), draw(OPERANDS)
    match kind:
        case "assign":
            op = draw(
                st.sampled_from(["{0} + {1}", "{0} - {1}", "{1} * {0}", "pto.maximum({0}, {1})", "{0}"])
            )
            return f"{a} = {op.format(b, c)}"
        case "swap":
            return f"{a}, {b} = {b}, {a}" if a != b else f"{a} = {b}"
        case "scalar":
            return f"k = k {draw(st.sampled_from('+-'))} {draw(st.integers(1, 3))}"
        case "augment":
            return f"{a} {draw(st.sampled_from('+-'))}= {c}"
        case "for":
            count = draw(st.sampled_from(["n", "2", "i + 1"]))
            return f"for i in range({count}):\n{indent(draw(blocks(depth - 1)), '    ')}\ni = 1"
        case "while":
            body = indent(draw(blocks(depth - 1)), "    ")
            return f"w{depth} = 0\nwhile w{depth} < n:\n    w{depth} += 1\n{body}"
        case _:
            condition = draw(st.sampled_from(["k > 1", "i == 0", "n % 2 == k % 2"]))
            then, other = draw(blocks(depth - 1)), draw(blocks(depth - 1))
            return f"if {condition}:\n{indent(then, '    ')}\nelse:\n{indent(other, '    ')}"


@tries(150)
@given(blocks(), st.integers(0, 3))
def test_random_programs_mean_what_python_says(body: str, n: int) -> None:
    with np.errstate(all="ignore"):
        assert_same(f"a, b, c = x, y, x - y\ni, k = 0, 1\n{body}\n{END}", n)
