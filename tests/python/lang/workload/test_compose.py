"""Workloads inside workloads, `combine`, `sequential`, views of views and `ALL`, against numpy."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from pto_wsp import Ragged
from pto_wsp.errors import PtoError
from pto_wsp.ir import workload as ir
from pto_wsp.lang.workload.workload import Workload
from tests.python.lang.programs import execute, marked

TARGETS = pytest.mark.parametrize("target", ["interp", "cpu"])

KERNELS = """
@kernel
def add(x: InOut[Tile[4, 8, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)

@kernel
def copy(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x)

@workload
def rows(n: DenseDyn, X: Tensor[f32, "n", 8], v: Scalar[i64]):
    for r in P.tiles(n, 4):
        add[r](x=X[r], v=v)

@workload
def named(X: Tensor[f32, "n", 8]):
    for r in P.tiles("n", 4):
        add[r](x=X[r], v=1)
    with P.when(X.shape[0] > 4):
        add(x=X[0:4], v=2)

@workload
def sequences(kv: Ragged["batch"], K: Tensor[f32, "tokens", 8]):
    for b in P("batch"):
        for r in P.tiles(kv[b], 4):
            add[b, r](x=K[kv[b]][r], v=b)
"""


def workload_of(text: str) -> Workload:
    found = execute(KERNELS + text)["w"]
    assert isinstance(found, Workload)
    return found


def add(x: np.ndarray, v: float) -> None:
    x[...] = x * np.float32(0.5) + np.float32(v)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 64, shape).astype(np.float32)


@TARGETS
def test_sizes_of_a_callee_are_those_of_what_it_is_given(target: str) -> None:
    program = workload_of(
        """
@workload
def w(X: Tensor[f32, "batch", "m", 8], Y: Tensor[f32, 6, 8], v: Scalar[i64]):
    for b in P("batch"):
        rows("m", X[b], v=v * b)
        named(X[b])
    named(Y)
    for part in P.tiles(6, 3):
        rows(n=part.extent, X=Y[part], v=1)
"""
    ).compile(target)
    for batch, m in ((3, 5), (0, 5), (2, 3), (2, 0)):
        x, y = random(batch, m, 8), random(6, 8)
        expected, expected_y = x.copy(), y.copy()
        for b in range(batch):
            add(expected[b], 5 * b)
            add(expected[b], 1)
            if m > 4:
                add(expected[b, :4], 2)
        add(expected_y, 1)
        add(expected_y[:4], 2)
        add(expected_y, 1)
        program(X=x, Y=y, v=5)
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(y, expected_y)


@TARGETS
def test_ragged_axes_are_arguments(target: str) -> None:
    program = workload_of(
        """
@workload
def w(batch: DenseDyn, rows_of: Ragged["batch"], X: Tensor[f32, "layers", "total", 8]):
    for i in P.seq("layers"):
        sequences(kv=rows_of, K=X[i])
"""
    ).compile(target)
    lengths = [5, 0, 9, 1]
    x = random(2, 15, 8)
    expected = x.copy()
    starts = np.cumsum([0, *lengths])
    for layer in range(2):
        for b in range(4):
            add(expected[layer, starts[b] : starts[b + 1]], b)
    program(rows_of=Ragged.lengths(lengths), X=x)
    np.testing.assert_array_equal(x, expected)


@TARGETS
def test_sequential_and_combine_inside_a_workload(target: str) -> None:
    program = workload_of(
        """
@workload
def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    sequential(named(X), combine(named(Y), add(X[0:4], 3)), named(X))
"""
    ).compile(target)
    x, y = random(9, 8), random(9, 8)
    wanted_x, wanted_y = x.copy(), y.copy()
    for steps in (wanted_x, wanted_y), (wanted_x,):
        for array in steps:
            add(array, 1)
            add(array[:4], 2)
        if len(steps) == 2:
            add(wanted_x[:4], 3)
    program(X=x, Y=y)
    np.testing.assert_array_equal(x, wanted_x)
    np.testing.assert_array_equal(y, wanted_y)


def test_sequential_is_a_sequential_loop_over_its_steps() -> None:
    traced = workload_of(
        """
@workload
def w(X: Tensor[f32, 4, 8]):
    sequential(add(X, 1), combine(add(X, 2), add(X, 3)))
"""
    ).trace()
    (loop,) = traced.module.entry_workload.body
    assert isinstance(loop, ir.Loop) and loop.kind == ir.SEQUENTIAL
    conds = [node for node in loop.body if isinstance(node, ir.Cond)]
    assert [len(cond.then) for cond in conds] == [1, 2]


@TARGETS
def test_composition_outside_a_workload(target: str) -> None:
    names = execute(
        KERNELS
        + """
@workload
def other(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for r in P.tiles("n", 4):
        copy[r](x=X[r], y=Y[r])
one = sequential(named, other)
two = combine(one, rows(v=7))
three = two.named("a name of its own")
"""
    )
    one, two, three = (names[n] for n in ("one", "two", "three"))
    assert isinstance(one, Workload) and isinstance(two, Workload) and isinstance(three, Workload)
    assert one.name == "named_then_other" and two.name == "named_then_other_and_rows"
    assert three.trace().module.entry == "a_name_of_its_own"
    x, y = random(7, 8), random(7, 8)
    wanted = x.copy()
    add(wanted, 1)
    add(wanted[:4], 2)
    copied = wanted.copy()
    add(wanted, 7)
    three.compile(target)(X=x, Y=y)
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(y, copied)


@TARGETS
def test_a_composition_is_called_like_any_workload(target: str) -> None:
    program = workload_of(
        """
both = sequential(named, rows(v=7))
@workload
def w(X: Tensor[f32, "batch", "m", 8]):
    for b in P("batch"):
        both(X=X[b], n="m")
"""
    ).compile(target)
    x = random(3, 6, 8)
    wanted = x.copy()
    for b in range(3):
        add(wanted[b], 1)
        add(wanted[b, :4], 2)
        add(wanted[b], 7)
    program(X=x)
    np.testing.assert_array_equal(x, wanted)


@TARGETS
def test_captured_tensors_of_a_callee(target: str) -> None:
    program = workload_of(
        """
import numpy as np
Bias = Tensor(np.full((4, 8), 2, np.float32))
def make():
    Inner = Tensor(shape=("k", 8), dtype=f32)
    @workload
    def callee(Y: Tensor[f32, "n", 8]):
        for r in P.tiles("k", 4):
            copy[r](x=Bias, y=Y[0:4])
            add(x=Inner[r], v=1)
    return callee
callee = make()
@workload
def w(X: Tensor[f32, "m", 8]):
    callee(X)
"""
    ).compile(target)
    x, inner = random(6, 8), random(4, 8)
    wanted = inner.copy()
    add(wanted, 1)
    program(X=x, Inner=inner)
    np.testing.assert_array_equal(x[:4], 2)
    np.testing.assert_array_equal(inner, wanted)


@TARGETS
def test_parameters_without_annotation_are_what_they_are_given(target: str) -> None:
    program = workload_of(
        """
@workload
def inner(n, T, v, rows):
    for i in P("n"):
        for j in P(rows[i]):
            add[i, j](x=T[rows[i][j]], v=v)

@workload
def w(batch, kv: Ragged["batch"], U, c: Tensor[i64, 2]):
    inner(batch, U, c[1], kv)
"""
    ).compile(target)
    x = random(3, 4, 8)
    wanted = x.copy()
    add(wanted, 5)
    program(kv=Ragged.lengths([2, 0, 1]), U=x, c=np.array([3, 5]))
    np.testing.assert_array_equal(x, wanted)


@TARGETS
def test_numbers_have_the_value_of_the_call(target: str) -> None:
    """As in Python, a callee does not see that what a number came from has changed since."""
    program = workload_of(
        """
@kernel
def bump(n: InOut[Tile[1, 1, i32]]):
    pto.store(n, n + 1)

@workload
def inner(N: Tensor[i32, 1, 1], X: Tensor[f32, 4, 8], typed: Scalar[i64], untyped, axis: DenseDyn):
    bump(N)
    add(X, typed)
    add(X, untyped)
    for _ in P.range(axis):
        add(X, 1)

@workload
def w(N: Tensor[i32, 1, 1], X: Tensor[f32, 4, 8]):
    slot_set_i64(0, 5)
    inner(N, X, N[0, 0], untyped=slot_i64(0), axis=N[0, 0])
    slot_set_i64(0, 6)
"""
    ).compile(target)
    x, n = random(4, 8), np.array([[3]], np.int32)
    wanted = x.copy()
    for v in (3, 5, 1, 1, 1):
        add(wanted, v)
    program(N=n, X=x)
    np.testing.assert_array_equal(x, wanted)
    assert n[0, 0] == 4


@TARGETS
def test_all_is_a_task_for_every_index(target: str) -> None:
    program = workload_of(
        """
@workload
def w(Q: Tensor[f32, "batch", 3, 4, 8], O: Tensor[f32, 3, "batch", 4, 8], S: Tensor[i64, 3]):
    for b in P("batch"):
        copy[b, ALL](x=Q[b, ALL], y=O[ALL, b])
        add[b, ALL](O[ALL, b], v=S[ALL])
"""
    ).compile(target)
    q, o = random(2, 3, 4, 8), random(3, 2, 4, 8)
    program(Q=q, O=o, S=np.array([1, 2, 3]))
    expected = q.transpose(1, 0, 2, 3) * np.float32(0.5)
    expected += np.array([1, 2, 3], np.float32)[:, None, None, None]
    np.testing.assert_array_equal(o, expected)


@TARGETS
def test_parts_of_ranges(target: str) -> None:
    program = workload_of(
        """
@workload
def w(m: DenseDyn, X: Tensor[f32, "n", 8]):
    for big in P.tiles("n", 10):
        for small in P.tiles(big, 4):
            add[big, small](x=X[big][small], v=1)
        for i in P(big.extent):
            add[big, i](x=X[big][0:1], v=2)
    middle = X[3:9]
    for part in P.tiles(6, 4):
        add(x=middle[part], v=3)
    add(x=middle[1:][2:4], v=4)
    for i in P(20):
        pair = X[i + 1 : i + 1 + 2]
        add(x=pair[1:], v=5)
        add(x=pair[1:2], v=6)
"""
    ).compile(target)
    x = random(23, 8)
    wanted = x.copy()
    for start in range(0, 23, 10):
        add(wanted[start : start + 10], 1)
        for _ in range(min(10, 23 - start)):
            add(wanted[start : start + 1], 2)
    add(wanted[3:9], 3)
    add(wanted[6:8], 4)
    for i in range(20):
        add(wanted[i + 2 : i + 3], 5)
        add(wanted[i + 2 : i + 3], 6)
    program(X=x, m=3)
    np.testing.assert_array_equal(x, wanted)


HEAD = """
@workload
def w(m: DenseDyn, X: Tensor[f32, "n", 8], Z: Tensor[f32, "b", "n", 8], L: Tensor[i64, "n"], U):
"""


@pytest.mark.parametrize(
    ("body", "code", "mark", "found"),
    [
        ("named()", "call-argument", "named()", "without its argument `X`"),
        ("named(3)", "call-argument", "named(3)", "expected a tensor or a view of one, found 3"),
        ("named(Z)", "call-argument", "named(Z)", "expected 2 dimensions, found 3"),
        ("named(L)", "call-argument", "named(L)", "expected f32, found i64"),
        ("named(U)", "call-argument", "named(U)", "`U`, which has no annotation"),
        ("named(Z[:, 0])", None, None, None),
        ("named(Z[0, :, 0:4])", "call-argument", None, "expected 8 elements in dimension 1, found `4`"),
        ("named(Z[ALL, 0:4])", "call-argument", None, "ALL, which stands for many"),
        ("rows(m, X, 1)", "call-argument", "rows(m, X, 1)", "`m` elements, as size `n` has, found `n`"),
        ("rows('n', X, 1)", None, None, None),
        ("rows(n='n', X=X, v=X)", "call-argument", None, "expected a scalar, found Tensor"),
        ("rows(n='nn', X=X, v=1)", "call-argument", None, "expected an axis or extent, found 'nn'"),
        ("rows(n='n', X=X, w=1)", "unknown-parameter", None, "known: `X`, `n`, `v`"),
        ("rows(m, X, 1, 2)", "call-argument", None, "gets too many arguments"),
        ("sequences(kv=m, K=X)", "call-argument", None, "expected a ragged axis"),
        ("combine(named, X)", "bad-handle", "combine(named, X)", "a workload that is not called"),
        ("sequential()", "bad-handle", None, "expected calls"),
        ("a = named(X)\nadd(X[0:4], 1)\nsequential(a, a)", "bad-handle", None, "not the last ones"),
        ("a = named(X)\nb = named(X)\nsequential(b, a)", "bad-handle", None, "in this order"),
        ("named(X)\nwith P.otherwise(): pass", "detached-otherwise", None, "no `P.when` before it"),
        ("add[ALL](X[0:4], 1)", "bad-index", None, "expected ALL as an index of an argument"),
        ("copy(Z[ALL, 0:4], Z[0, ALL, 0:4])", "bad-index", None, "of the same size as that of Z"),
        ("add(Z[ALL, ALL], 1)", "bad-index", "Z[ALL, ALL]", "one ALL at most"),
        ("add(U[ALL], 1)", "bad-index", None, "without annotation"),
        ("with P.when(L[ALL] < 1): pass", "bad-index", "L[ALL]", "ALL in arguments of a task"),
    ],
)
def test_refusals(body: str, code: str | None, mark: str | None, found: str | None) -> None:
    workload = workload_of(HEAD + indent(body + "\nadd(U, 1)", "    "))
    if code is None:
        workload.trace()
        return
    with pytest.raises(PtoError) as caught:
        workload.trace()
    text = str(caught.value)
    assert caught.value.code == code, text
    assert mark is None or marked(caught.value) == mark, text
    assert found is not None and found in text, text
    if code == "call-argument":
        assert "is declared here -->" in text, text


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("named(zeros)", "unused-call", "`named.compile()(X=...)`"),
        ("combine()", "bad-handle", "expected workloads, found NoneType"),
        ("combine(named, add)", "bad-handle", "found Kernel"),
        (
            "@workload\ndef a(X: Tensor[f32]): pass\n@workload\ndef b(X: Tensor[f32, 4]): a(X)\nb.trace()",
            "bad-annotation",
            "parameter `X` of `a`",
        ),
        (
            "def make():\n  @workload\n  def a(n): make()(n)\n  return a\nmake().trace()",
            "call-argument",
            "calls itself",
        ),
        ("combine(rows(v=1), rows(v=2))", "name-clash", "`v`"),
        (
            "@workload\ndef o(X: Tensor[f32, 'n', 4]): pass\ncombine(named, o)",
            "name-clash",
            "the first one",
        ),
        ("@workload\ndef o(n: Scalar[f32]): pass\ncombine(rows, o)", "name-clash", "`n`"),
        ("@workload\ndef o(n: DenseDyn): o(n)\no.trace()", "call-argument", "calls itself"),
        (
            "@workload\ndef a(n): b(n)\n@workload\ndef b(n): a(n)\ncombine(a).trace()",
            "call-argument",
            "calls itself",
        ),
        ("named.named('')", "wrong-value", "expected a name"),
        (
            "import numpy\nnamed(numpy.zeros((4, 8), numpy.float32))",
            "unused-call",
            "`named.compile()(X=...)`",
        ),
    ],
)
def test_refusals_outside(text: str, code: str, found: str) -> None:
    with pytest.raises(PtoError) as caught:
        execute(KERNELS + text, {"zeros": np.zeros((4, 8), np.float32)})
    assert caught.value.code == code, str(caught.value)
    assert found in str(caught.value), str(caught.value)


def test_the_repr_of_a_workload_says_what_is_bound() -> None:
    text = repr(execute(KERNELS + "w = rows(v=2, n=DenseDyn(3))")["w"])
    assert text == "<workload rows(n=DenseDyn(extent=3), X, v=2), not compiled: `.compile()` makes a program>"
