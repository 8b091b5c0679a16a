"""Workloads: what is recorded, what untyped parameters become, and what is refused where."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from pto_wsp.errors import CallArgument, PtoError
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.workload import run_workload
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.lang.workload.build_module import Traced
from pto_wsp.lang.workload.workload import Workload
from tests.golden import Golden
from tests.python.lang.programs import execute, marked

KERNELS = """
@kernel
def add1(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x + 1)

@kernel
def scale(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)

@kernel
def row(x: In[Tensor[f32, DYN, 8]], y: Out[Tensor[f32, DYN, 8]], n: Scalar[i64] = 0):
    for r in pto.tiles(x.rows, 4):
        pto.store(y[r], x[r] + n)

@kernel
def op(x: In[Tensor], y: Out[Tensor]):
    for r in pto.tiles(x.rows, 4):
        for c in pto.tiles(x.cols, 16):
            pto.store(y[r, c], x[r, c] * 2)
"""


def workload_of(text: str) -> Workload:
    found = execute(KERNELS + dedent(text))["w"]
    assert isinstance(found, Workload)
    return found


def traced(text: str) -> Traced:
    result = workload_of(text).trace()
    verify(result.module)
    return result


def body_of(module: Module) -> list[str]:
    """Return the lines of the workload's text, without the frame."""
    text = str(module).split("// Function Type: Orchestration (control flow only)\n")[1]
    return [line.strip() for line in text.splitlines()[1:-2]]


def head_of(module: Module) -> str:
    text = str(module).split("// Function Type: Orchestration (control flow only)\n")[1]
    return text.splitlines()[0]


def run(module: Module, sizes: dict[str, int | float], **arrays: np.ndarray) -> int:
    kernels = {k.name: k for k in module.kernels}
    return run_workload(module, arrays, sizes, lambda name, args, _: run_kernel(kernels[name], args))


def test_loops_and_regions(golden: Golden) -> None:
    module = traced(
        """
        @workload
        def w(batch: DenseDyn, X: Tensor[f32, "batch", "n", 8], Y: Tensor[f32, "batch", "n", 8], H: Dense[2]):
            for b, h in P(batch, H):
                for rows in P.tiles("n", 4):
                    add1[b, h, rows](x=X[b, rows], y=Y[b, rows])
            for b in P.seq(batch):
                for i in P.range(batch // 2 - 1):
                    row[i, 3](x=X[b][2:n_of(X)], y=Y[i + 1, 2:], n=b * 2)
            for i, j, k in P.grid(2, 3, batch):
                pass
            row(X[0], Y[1])
        def n_of(X):
            return X.shape[1]
        """
    ).module
    golden("loops.pto", str(module))


def test_python_unrolls_while_the_workload_is_built() -> None:
    module = traced(
        """
        @workload
        def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
            def part(rows, kernels):
                for name, k in kernels.items():
                    k[rows, len(name)](x=X[rows], y=Y[rows])
            for i in range(2):
                [part(rows, {"add1": add1}) for rows in P.tiles("n", 4)]
        """
    ).module
    call = "CALL @add1[%rows, 4](%X[%rows, :], %Y[%rows, :])"
    assert [line for line in body_of(module) if "CALL" in line] == [call, call.replace("rows", "rows_1")]


def test_tiles_of_a_larger_matrix() -> None:
    module = traced(
        """
        @workload
        def w(X: Tensor[f32, "m", "n"], Y: Tensor[f32, "m", "n"]):
            for i, in zip(P.tiles("m", 4)):
                for j in P.tiles("n", 8):
                    add1[i, j](x=X[i, j], y=Y[i, j])
        """
    ).module
    x, y = np.random.default_rng(0).random((11, 21), np.float32), np.zeros((11, 21), np.float32)
    assert run(module, {"m": 11, "n": 21}, X=x, Y=y) == 9
    np.testing.assert_array_equal(y, x + 1)


HELD_BY_THE_CALLER = """
import numpy as np

@kernel
def copy(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, pto.load(x))

held = {{}}

@workload
def w(Y: Tensor[f32, 8, 8]):
    copy(held["x"], Y)

def build():
    of_the_caller = held["x"] = Tensor(np.ones((8, 8), np.float32){name})
    return w.trace()
"""


def test_the_locals_of_a_caller_name_no_parameter() -> None:
    names = execute(HELD_BY_THE_CALLER.format(name=""))
    with pytest.raises(CallArgument, match="no variable around it holds"):
        names["build"]()
    names = execute(HELD_BY_THE_CALLER.format(name=', name="weights"'))
    params = names["build"]().module.entry_workload.params
    assert [param.name for param in params] == ["Y", "weights"]


def test_sample_of_the_design_document() -> None:
    """With X and Y as in a program of their own."""
    names = execute(
        """
        import numpy as np
        X = Tensor(data=np.arange(4 * 3 * 20, dtype=np.float32).reshape(4, 3, 20))
        Y = Tensor(shape=(4, "rows", 20), dtype=f32)

        @kernel
        def op(x: In[Tensor], y: Out[Tensor]):
            for r in pto.tiles(x.rows, 4):
                for c in pto.tiles(x.cols, 16):
                    pto.store(y[r, c], x[r, c] * 2)

        @workload
        def w(batch):
            for b in P(batch):
                op[b](x=X[b], y=Y[b])
        """
    )
    w = names["w"]
    assert isinstance(w, Workload)
    result = w.trace()
    verify(result.module)
    assert [p.name for p in result.module.entry_workload.params] == ["batch", "X", "Y", "rows"]
    assert list(result.defaults) == ["X"]
    assert [k.name for k in result.module.kernels] == ["op_f32x2_f32x2"]
    x, y = result.defaults["X"], np.zeros((4, 3, 20), np.float32)
    assert isinstance(x, np.ndarray)
    assert run(result.module, {"batch": 4, "rows": 3}, X=x, Y=y) == 4
    np.testing.assert_array_equal(y, x * 2)


def test_untyped_parameters() -> None:
    module = traced(
        """
        @workload
        def w(X, Y, batch, factor, n):
            for b in P(batch):
                scale[b](x=X[b, 0], y=Y[b, n - 1], factor=factor)
            for i in P("n"):
                pass
            op(x=X[0][1], y=Y[0, 1])
        """
    ).module
    assert head_of(module) == (
        'func @w(%X: !pto.memref<gm,"X_0"x"X_1"x"X_2"x"X_3",f32>, '
        '%Y: !pto.memref<gm,"Y_0"x"Y_1"x"Y_2"x"Y_3",f32>, '
        "%batch: index, %factor: f32, %n: index, %X_0: index, %X_1: index, %X_2: index, %X_3: index, "
        "%Y_0: index, %Y_1: index, %Y_2: index, %Y_3: index) {"
    )


def test_bound_values() -> None:
    w = workload_of(
        """
        @workload
        def w(batch: DenseDyn, X, Y, factor: Scalar[f32] = 2.0, k=3):
            for b in P(batch):
                for i in P(k):
                    scale[b](x=X[b], y=Y[b], factor=factor)
        """
    )
    from pto_wsp import DenseDyn, Tensor, f32

    x = np.zeros((5, 4, 8), np.float32)
    bound = w(DenseDyn(5), X=x, Y=Tensor(shape=("m", 4, 8), dtype=f32))(k=DenseDyn(7))
    result = bound.trace()
    assert result.defaults["X"] is x
    assert result.defaults["factor"] == 2.0
    assert {p.name: getattr(p, "default", None) for p in result.module.entry_workload.params} == {
        "batch": 5,
        "X": None,
        "Y": None,
        "factor": None,
        "k": 7,
        "X_0": None,
        "X_1": None,
        "X_2": None,
        "m": None,
    }
    assert bound.trace() is result
    assert w.trace() is not result


def test_axes_of_fixed_extent_are_sizes() -> None:
    module = traced(
        """
        @workload
        def w(X: Tensor[f32, "n", "H", 8], Y: Tensor[f32, "n", "H", 8], H: Dense[4]):
            for i in P("n"):
                for h in P("H"):
                    pass
                add1[i](x=X[i], y=Y[i])
        """
    ).module
    assert head_of(module) == (
        'func @w(%X: !pto.memref<gm,"n"x4x8,f32>, %Y: !pto.memref<gm,"n"x4x8,f32>, %n: index) {'
    )
    assert "FOR %h:idx, 0:idx, 4:idx, 1:idx {parallel}" in body_of(module)


def test_captured_axes_and_sizes() -> None:
    module = traced(
        """
        batch = DenseDyn(6)
        X, Y = Tensor(shape=("m", 4, 8), dtype=f32), Tensor(shape=("m", 4, 8), dtype=f32)
        @workload
        def w():
            for i in P("m"):
                for b in P(batch):
                    add1[i](x=X[i], y=Y[i])
        """
    ).module
    assert head_of(module) == (
        'func @w(%batch: index = 6, %X: !pto.memref<gm,"m"x4x8,f32>, '
        '%Y: !pto.memref<gm,"m"x4x8,f32>, %m: index) {'
    )


def test_specialised_kernels() -> None:
    module = traced(
        """
        @kernel
        def block(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]], ROWS: Constexpr[int]):
            pto.store(y, x * ROWS)
        @workload
        def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
            for r in P.tiles("n", 4):
                block[r](x=X[r], y=Y[r], ROWS=2)
                block[r](x=X[r], y=Y[r], ROWS=3)
                block[r](x=X[r], y=Y[r], ROWS=2)
        """
    ).module
    assert [k.name for k in module.kernels] == ["block_2", "block_3"]


def test_locations() -> None:
    module = traced(
        """
        @workload
        def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
            for rows in P.tiles("n", 4):
                add1[rows](x=X[rows],
                           y=Y[rows])
        """
    ).module
    (loop,) = module.entry_workload.body
    assert loop.loc is not None and loop.loc.source_line() == '    for rows in P.tiles("n", 4):'
    assert (loop.loc.col, loop.loc.end_col) == (17, 32)
    task = loop.body[0]  # type: ignore[union-attr]
    assert task.loc is not None and task.loc.line == loop.loc.line + 1
    assert task.args[1].loc.source_line().strip() == "y=Y[rows])"


BODY = """
@workload
def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[i32, 4, 8], V: Tensor[f32, 3, "n", 8],
      s: Scalar[f32], m: DenseDyn, U, G):
    {}
"""


@pytest.mark.parametrize(
    ("line", "code", "mark", "found"),
    [
        ("add1(x=X)", "unknown-argument", "add1(x=X)", "kernel `add1` needs an argument `y`"),
        ("add1(x=X, y=Y, z=Y)", "unknown-argument", None, "has no parameter `z`"),
        ("scale(x=X, y=Y, facto=s)", "unknown-argument", None, "did you mean `factor`?"),
        ("add1(X, X, X)", "unknown-argument", None, "takes 2 arguments"),
        ("add1(X, x=X)", "unknown-argument", None, "gets `x` twice"),
        ("add1(x=s, y=Y)", "unknown-argument", "x=s", "takes a tensor or a view of one for `x`"),
        ("add1(x=1, y=Y)", "unknown-argument", None, "found 1"),
        ("scale(x=X, y=Y, factor=X)", "unknown-argument", None, "takes a scalar for `factor`"),
        (
            "for t in P.tiles(4, 2): scale(x=X, y=Y, factor=t)",
            "unknown-argument",
            None,
            "`.start`, `.stop` or",
        ),
        ("scale(x=X, y=Y, factor=X[0, 1])", "bad-operand", "X[0, 1]", "a tensor of integers or truth values"),
        ("row(x=X, y=Y, n=s)", "argument-dtype", "n=s", "expected i64, found f32"),
        ("row(x=X, y=Y, n=1.5)", "argument-dtype", None, "expected i64, found f32"),
        ("add1(x=Z, y=Y)", "argument-dtype", "x=Z", "expected f32, found i32"),
        (
            "add1(x=X[0], y=Y)",
            "rank-mismatch",
            "x=X[0]",
            "expected 2 dimensions, found a view with 1",
        ),
        ("add1(x=V, y=Y)", "rank-mismatch", None, "found a view with 3"),
        (
            "add1(x=X[0:5], y=Y)",
            "argument-shape",
            "X[0:5]",
            "expected at most 4, found 5 elements in dimension 0",
        ),
        ("for r in P.tiles('n', 5): add1(x=X[r], y=Y[r])", "argument-shape", "X[r]", "found 5 elements"),
        (
            "row(x=X[:, 0:4], y=Y)",
            "argument-shape",
            "X[:, 0:4]",
            "expected 8, found 4 elements in dimension 1",
        ),
        ("X[0, 1, 2]", "bad-index", "X[0, 1, 2]", "`X` cannot be indexed like this"),
        ("X[::2]", "bad-index", "X[::2]", "expected a slice of integers without a step, found a step"),
        ("X[s]", "bad-index", "X[s]", "found f32"),
        ("X['n']", "bad-index", "X['n']", "found str"),
        ("X[0:s]", "bad-index", "X[0:s]", "expected a slice of integers"),
        ("U[3:]", "bad-index", "U[3:]", "expected a slice with an end"),
        ("add1(x=V[3], y=Y)", "index-outside", "V[3]", "expected an index in [0, 3), found 3"),
        ("add1(x=X[-1:1], y=Y)", "index-outside", "X[-1:1]", "found -1"),
        ("X[0:4][2:5]", "index-outside", "X[0:4][2:5]", "expected an index in [0, 4), found 4"),
        ("if m > 3: pass", "run-time-condition", "m > 3", "`m > 3` is known only when the program runs"),
        ("0 < m < 3", "run-time-condition", None, "`m > 0` is known"),
        ("m in [1, 2]", "run-time-condition", None, "is known only when"),
        ("not m", "run-time-condition", None, "`m` is known"),
        ("range(m)", "run-time-number", "range(m)", "`P.range(n)`"),
        ("for i in m: pass", "run-time-number", None, "`P.range(n)`"),
        ("float(s)", "run-time-number", "float(s)", "`s` is known only"),
        ("[1, 2][m]", "run-time-number", "[1, 2][m]", "`m` is known only"),
        ("m // s", "dtype-mismatch", "m // s", "expected integers, found f32"),
        ("m & (m > 1)", "dtype-mismatch", "m & (m > 1)", "expected numbers, found b1"),
        ("m + 2**70", "dtype-mismatch", "m + 2**70", "64 bits"),
        ("P('k')", None, None, None),
        ("for i in P('k'): pass", "unknown-axis", "P('k')", "known: `G`, `U`, `m`, `n`"),
        ("for i in P('nn'): pass", "unknown-axis", "P('nn')", "did you mean `n`?"),
        ("for i in P(-1): pass", "bad-operand", "P(-1)", "found -1"),
        ("for i in P(s): pass", "bad-operand", "P(s)", "expected an extent"),
        ("for i in P([1]): pass", "bad-operand", "P([1])", "found list"),
        ("P()", "bad-index", "P()", "expected at least one axis"),
        ("P.tiles('n', 0)", "bad-operand", "P.tiles('n', 0)", "expected a positive number"),
        ("P.tiles('n', m)", "bad-operand", "P.tiles('n', m)", "expected a positive number"),
        ("P.when(m > 3)", "unsupported-syntax", "P.when(m > 3)", "write `with P.when(...):`"),
        ("P.tile('n', 3)", "unknown-name", "P.tile", "did you mean `tiles`?"),
        ("add1[X](x=X, y=Y)", "bad-operand", "add1[X](x=X, y=Y)", "expected coordinates"),
        ("for i in P(3): break", "unsupported-syntax", "P(3)", "leaving a loop with `break`"),
        ("for i in P(3): return", "unsupported-syntax", "P(3)", "leaving a loop with `break` or `return`"),
        ("return 3", "unsupported-syntax", "w", "returning a value"),
        (
            "X + 1",
            "outside-workload",
            "X + 1",
            "arithmetic on tiles and tensors has a meaning only inside a kernel",
        ),
        ("X < 1", "outside-workload", "X < 1", "only inside a kernel"),
        ("m < 'n'", "bad-operand", "m < 'n'", "a size in arithmetic is a parameter, `n: DenseDyn`"),
        ("'n' - m", "bad-operand", "'n' - m", "found 'n'"),
        ("pto.exp(X)", "outside-workload", "pto.exp(X)", "`pto.exp` has a meaning only inside a kernel"),
        ("for i in P(U): U[0]", "bad-annotation", "U", "expected one kind of use, found"),
        (
            "op(x=U, y=Y)",
            "bad-annotation",
            "U",
            "expected an element type and rank, found kernels that take any",
        ),
        ("pass", "bad-annotation", "U", "expected a use that says what it is, found none"),
        ("for i in P(3): X[i] * 2", "outside-workload", None, "only inside a kernel"),
        (
            "Tensor(shape=(3,))",
            "wrong-tensor",
            "Tensor(shape=(3,))",
            "expected `data`, or `shape` and `dtype`",
        ),
    ],
)
def test_refusals(line: str, code: str | None, mark: str | None, found: str | None) -> None:
    w = workload_of(BODY.format(line))
    if code is None:
        return
    with pytest.raises(PtoError) as caught:
        w.trace()
    text = str(caught.value)
    assert caught.value.code == code, text
    assert mark is None or marked(caught.value) == mark, text
    assert found is not None and found in text, text


def test_an_inner_break_is_found_at_its_loop() -> None:
    w = workload_of(
        """
        @workload
        def w(n: DenseDyn):
            for i in P(n):
                for j in P.seq(n):
                    break
        """
    )
    with pytest.raises(PtoError) as caught:
        w.trace()
    assert marked(caught.value) == "P.seq(n)"


def test_name_clashes() -> None:
    def trace_of(text: str) -> str:
        with pytest.raises(PtoError) as caught:
            workload_of(text).trace()
        assert caught.value.code == "name-clash"
        return str(caught.value)

    assert "two different kernels are called `k`" in trace_of(
        """
        @kernel
        def k(y: Out[Tile[4, 8, f32]]):
            pto.store(y, 1.0)
        one = k
        @kernel
        def k(y: Out[Tile[4, 8, f32]]):
            pto.store(y, 2.0)
        two = k
        @workload
        def w(Y: Tensor[f32, 4, 8]):
            one(Y)
            two(Y)
        """
    )
    assert "two different functions are called `add1`" in trace_of(
        """
        first = add1
        @workload
        def add1(X: Tensor[f32, 4, 8]):
            first(X, X)
        w = add1
        """
    )
    assert "two different parameters and sizes are called `X`" in trace_of(
        """
        @workload
        def w(X: Tensor[f32, "X", 8]):
            pass
        """
    )


def test_equal_kernels_of_one_name_are_one() -> None:
    module = traced(
        """
        def make(c):
            @kernel
            def k(y: Out[Tile[4, 8, f32]]):
                pto.store(y, c)
            return k
        one, two = make(1.0), make(1.0)
        @workload
        def w(Y: Tensor[f32, 4, 8]):
            one(Y)
            two(Y)
        """
    ).module
    assert len(module.kernels) == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("P(3)", "outside-workload"),
        ("P.tiles('n', 4)", "outside-workload"),
        ("add1[0]", "outside-workload"),
        ("add1(x=1)", "outside-workload"),
        ("Tensor(shape=(3,), dtype=f32)[0]", "outside-workload"),
        ("Tile()", "outside-workload"),
        ("Tensor(data=[1])", "wrong-tensor"),
        ("import numpy\nTensor(data=numpy.zeros(3, complex))", "wrong-tensor"),
        ("import numpy\nTensor(data=numpy.zeros(3), shape=(4,))", "wrong-tensor"),
        ("Tensor(shape=(-1,), dtype=f32)", "wrong-tensor"),
        ("Tensor(shape=('a b',), dtype=f32)", "wrong-tensor"),
        ("kernel(3)", "unsupported-syntax"),
        ("workload(print)", "unsupported-syntax"),
        ("@workload\ndef w(x: int): pass\nw.trace()", "bad-annotation"),
        ("@workload\ndef w(x: Tensor[f32]): pass\nw.trace()", "bad-annotation"),
        ("@workload\ndef w(x: Tensor[f32, 'a b']): pass\nw.trace()", "bad-annotation"),
        ("@workload\ndef w(x: Scalar[bf16]): pass\nw.trace()", "bad-annotation"),
        ("@workload\ndef w(*x): pass\nw.trace()", "unsupported-syntax"),
        ("@workload\ndef w(x):\n    yield", "unsupported-syntax"),
        ("@workload\ndef w(n: DenseDyn): pass\nw(-1).trace()", "wrong-value"),
        ("@workload\ndef w(X: Tensor[f32, 'Y'], Y: Tensor[f32, 4]): pass\nw.trace()", "name-clash"),
        ("@kernel\ndef k(x: Constexpr[list]): ...", "bad-annotation"),
        ("@workload\ndef w(n: DenseDyn): pass\nw(m=1)", "unknown-parameter"),
        ("@workload\ndef w(n: DenseDyn): pass\nw(1, 2)", "call-argument"),
        ("@workload\ndef w(n: DenseDyn): pass\nw.dispatch(1)", "wrong-value"),
        ("@workload\ndef w(n: DenseDyn): pass\nw(1, n=2)", "call-argument"),
    ],
)
def test_refusals_of_declarations(text: str, code: str) -> None:
    with pytest.raises(PtoError) as caught:
        execute(KERNELS + text)
    assert caught.value.code == code, str(caught.value)
