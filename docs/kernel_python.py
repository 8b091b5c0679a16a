"""What Python a kernel may use: the tables of a page, each row of which the front end reads.

A row that the front end accepts must compile. A row that it refuses must raise, and its replacement must
compile.
"""

from __future__ import annotations

import linecache
import textwrap
from typing import NamedTuple

from pto_wsp.errors import PtoError, UnsupportedSyntax

INTRODUCTION = """\
# Python in kernels and workloads

The source text of a kernel is parsed. Its statements keep their Python meaning, and they run on the
target without Python. A construct outside these tables is an error with a source line. The front
end reads every row when `make docs` writes this page.

In the examples `x` and `y` are tiles of 16 x 64 elements, `v` is a view with any number of rows of
64 elements, `ids` is a vector of integers, `n` an integer, `s` a float, and `is_on` a `Constexpr`.
`WEIGHTS`, `TABLE` and `scaled` are a list, a dictionary and a function of the module."""

WORKLOADS = """\
## Workloads

The function of a workload runs once in Python, and records its loops and tasks. Any Python is
allowed that does not depend on a value of the run. Such values are sizes, loop variables, scalar
parameters and elements of integer tensors.

| Python | write instead |
|---|---|
| `for i in range(n)` with a size `n` | `for i in P(n)`, or `P.range(n)` for program order |
| `if lengths[b] > 4:` | `with P.when(lengths[b] > 4):`, then `with P.otherwise():` |
| `a and b`, `a or b`, `not a` of predicates | `a & b`, `a \\| b`, `~a` |
| `while` until a value is reached | `P.range(most)` with `P.when` and a [slot](tutorial.md#6-data-decides) |
| `total = total + 1` over the iterations of a loop | `slot_set_i64(0, slot_i64(0) + 1)` |
| `break`, `continue` or `return` inside a loop or a body | `P.when` around the rest |
| numpy on tensors, such as `X.sum()` | a kernel, called as a task |
| `K[start:stop]` with values of the run | an axis, or `K[slice(t.start + i, t.stop + i)]` of a range `t` |

A Python `for` over a list of the module is unrolled. A Python `if` on a constant selects what is
traced. A call of a Python function is traced, and a call of a workload is inlined."""


class Accepted(NamedTuple):
    """A construct that kernels have: what it is, a program that uses it, and what it means."""

    what: str
    code: str
    meaning: str


class Refused(NamedTuple):
    """A construct that kernels do not have: a program that uses it, and one that does the same."""

    code: str
    instead: str


ACCEPTED = (
    Accepted("assignment", "t = x * 2", "the name is this value from here on"),
    Accepted("augmented assignment", "t = x; t += 1", "the same as `t = t + 1`"),
    Accepted("several targets", "a, b = x, x * 2\nt = a + b", "from tuples and inlined functions"),
    Accepted(
        "`for` over `range`", "t = x\nfor i in range(n): t = t + i", "a loop of the run; the step is above 0"
    ),
    Accepted(
        "`for` over tiles",
        "t = pto.zeros((1, 64))\nfor r in pto.tiles(v.rows, 16): t = t + pto.colsum(v[r])",
        "ranges of 16; the last one is clipped",
    ),
    Accepted("`while`", "t, i = x, 0\nwhile i < n: t, i = t * 2, i + 1", "a loop of the run"),
    Accepted(
        "`break`, `continue`", "t = x\nfor i in range(n):\n  if i > 2: break\n  t = t + i", "as in Python"
    ),
    Accepted("`if`, `elif`, `else`", "t = x\nif n > 3: t = t + 1\nelse: t = t + 2", "the run decides"),
    Accepted("`if` of a constant", "t = x\nif is_on: t = t + 1", "the compiler decides"),
    Accepted(
        "conditional expression", "k = 1 if n > 3 else 2\nt = x * k", "of scalars; of tiles if constant"
    ),
    Accepted("`and`, `or`, `not`, chains", "t = x\nif 0 < n < 5 and not is_on: t = t + 1", "of scalars"),
    Accepted("tuple, list", "ts = [x, x * 2]\nt = ts[0] + ts[1]", "of fixed length, with constant indices"),
    Accepted(
        "captured constants", 't = x * WEIGHTS[1] * TABLE["gelu"]', "numbers, lists, dictionaries, arrays"
    ),
    Accepted("call of a Python function", "t = scaled(x, factor=2.0)", "inlined"),
    Accepted(
        "`+ - * /` and comparisons",
        "t = pto.where(x > 0, x / 2, -x)",
        "element by element; `x > 0` is a mask",
    ),
    Accepted("`& \\| ^ ~` of masks", "t = pto.where((x > 0) & (x < 1), x, 0.0)", "element by element"),
    Accepted("`+ - * / // %` of scalars", "t = x * (n // 2 % 3)", "as in Python"),
    Accepted("`abs`", "t = abs(x)", "of tiles and scalars"),
    Accepted("`min`, `max`, `int`, `float`", "t = x * max(float(n), s)", "of scalars"),
    Accepted("`math` of constants", "t = x * math.sqrt(2.0)", "computed by the compiler"),
    Accepted("extents", "t = x * (x.rows + v.shape[1])", "valid extents, known at run time"),
    Accepted(
        "element of an integer view", "t = x * v[ids[n] : ids[n] + 1]", "a scalar, checked when it is read"
    ),
    Accepted("`.T`", "t = pto.matmul(x, x.T)", "an operand of a product, read in place"),
    Accepted("`pass`, docstring", '"""Doubles."""\npass\nt = x * 2', "nothing"),
)

REFUSED = (
    Refused("t: Tile = x", "t = x"),
    Refused("t = (u := x) + 1", "u = x\nt = u + 1"),
    Refused("t = x\nfor w in WEIGHTS: t = t * w", "t = x * WEIGHTS[0] * WEIGHTS[1]"),
    Refused(
        "t = x\nfor i in range(n, 0, -1): t = t * i",
        "t = x\nfor j in range(n): t = t * (n - j)",
    ),
    Refused(
        "t = x\nfor i in range(4): t = t + i\nelse: t = t * 2",
        "t = x\nfor i in range(4): t = t + i\nt = t * 2",
    ),
    Refused("for i in range(4): t = x + i", "t = x\nfor i in range(4): t = x + i"),
    Refused("if n > 3: t = x", "t = pto.zeros((16, 64))\nif n > 3: t = pto.load(x)"),
    Refused("t = x\nif x > 0: t = t * 2", "t = pto.where(x > 0, x * 2, x)"),
    Refused("t = x if n > 3 else x * 2", "t = x\nif n <= 3: t = x * 2"),
    Refused("t = pto.where(0 < x < 1, x, 0.0)", "t = pto.where((0 < x) & (x < 1), x, 0.0)"),
    Refused(
        "t = x\nwhile pto.colmax(pto.rowmax(t))[0, 0] > 1: t = t / 2",
        "t = x\nmost = pto.colmax(pto.rowmax(t))[0, 0]\nwhile most > 1:\n"
        "  t = t / 2\n  most = pto.colmax(pto.rowmax(t))[0, 0]",
    ),
    Refused("return x", "t = x"),
    Refused("t = x\nif n > 3: return\nt = x * 2", "t = x\nif n <= 3: t = x * 2"),
    Refused("def twice(a): return a * 2\nt = twice(x)", "t = scaled(x, factor=2.0)"),
    Refused("twice = lambda a: a * 2\nt = twice(x)", "t = scaled(x, factor=2.0)"),
    Refused("ts = [x * w for w in WEIGHTS]\nt = ts[0]", "ts = [x * WEIGHTS[0], x * WEIGHTS[1]]\nt = ts[0]"),
    Refused('ts = {"a": x}\nt = ts["a"]', "a = x\nt = a"),
    Refused("t = x * WEIGHTS[n]", "t = x * (WEIGHTS[0] if n == 0 else WEIGHTS[1])"),
    Refused("t = max(x, 0.0)", "t = pto.maximum(x, 0.0)"),
    Refused("t = np.exp(x)", "t = pto.exp(x)"),
    Refused("t = x - x.max()", "t = x - pto.colmax(pto.rowmax(x))"),
    Refused("t = x ** 2", "t = x * x"),
    Refused("t = x % 2.0", "t = pto.rem(x, 2.0)"),
    Refused("t = x\nt[0, 3] = 1.0", "t = pto.setval(x, 1.0, 0, 3)"),
    Refused("k = n in (1, 2)\nt = x", "k = n == 1 or n == 2\nt = x"),
)

_HEAD = """
import math
import numpy as np
from pto_wsp import *

WEIGHTS = [0.25, 0.5]
TABLE = {"gelu": 1.7}

def scaled(a, factor):
    return a * factor

@kernel
def example(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]], v: In[Tensor[f32, DYN, 64]],
            ids: In[Tensor[i32, DYN]], n: Scalar[i64], s: Scalar[f32], is_on: Constexpr[bool]):
"""

_TAIL = """
@workload
def example_rows(X: Tensor[f32, "n", 16, 64], V: Tensor[f32, "m", 64], I: Tensor[i32, "k"],
                 Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        example[i](x=X[i], y=Y[i], v=V, ids=I, n=i, s=1.0, is_on=True)
"""


def read(code: str) -> None:
    """Compile a kernel that has these statements and stores `t`.

    Raises:
        PtoError: the front end refuses it.
    """
    is_product = "t = pto.matmul" in code
    stored = "pto.rowsum(t) + x" if is_product else "x * 0 + t"
    body = textwrap.indent(f"{code}\npto.store(y, {stored})", "    ")
    text = f"{_HEAD}{body}\n{_TAIL}"
    file = f"<row {abs(hash(code))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, object] = {}
    exec(compile(text, file, "exec"), names)
    compiled = names["example_rows"]
    compiled.compile("interp")  # pyright: ignore[reportAttributeAccessIssue]


def refusal(code: str) -> PtoError:
    """Return the error with which the front end refuses a program.

    Raises:
        ValueError: it accepts the program.
    """
    try:
        read(code)
    except PtoError as error:
        return error
    raise ValueError(f"a kernel may use this: {code}")


def kernel_python_page() -> str:
    """Return the page, after reading every row."""
    accepted = ["| Python | example | meaning |", "|---|---|---|"]
    for row in ACCEPTED:
        read(row.code.replace("\\|", "|"))
        accepted.append(f"| {row.what} | {_cell(row.code)} | {row.meaning} |")
    refused = ["| Python | write instead |", "|---|---|"]
    for row in REFUSED:
        refusal(row.code)
        read(row.instead)
        refused.append(f"| {_cell(row.code)} | {_cell(row.instead)} |")
    others = ", ".join(f"`{name}`" for name in refused_statements())
    parts = [
        INTRODUCTION,
        "## Kernels: what you may write",
        "\n".join(accepted),
        "## Kernels: what to write instead",
        "\n".join(refused),
        textwrap.fill(f"These statements have no replacement in a kernel: {others}.", 100),
        WORKLOADS,
    ]
    return "\n\n".join(parts) + "\n"


def refused_statements() -> list[str]:
    """Return the statements that the front end refuses whatever they contain."""
    samples = {
        "assert": "assert n > 3",
        "class": "class A: pass",
        "del": "del n",
        "global": "global WEIGHTS",
        "import": "import math",
        "match": "match n:\n  case 1: pass",
        "raise": "raise ValueError",
        "try": "try: pass\nfinally: pass",
        "with": "with s: pass",
        "yield": "yield x",
    }
    for name, code in samples.items():
        if not isinstance(refusal(f"t = x\n{code}"), UnsupportedSyntax):
            raise ValueError(f"`{name}` is refused for another reason")
    return list(samples)


def _cell(code: str) -> str:
    """Return a program as the cell of a table, one line below the other."""
    lines = [(len(line) - len(line.lstrip()), line.lstrip()) for line in code.split("\n")]
    return "<br>".join(f"{'&nbsp; ' * indent}`{line}`" for indent, line in lines)
