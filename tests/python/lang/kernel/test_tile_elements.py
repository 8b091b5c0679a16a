"""Elements of tiles as scalars, and scalars as elements of tiles: in Python, in builders and in text."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    ElementType,
    In,
    Out,
    P,
    PTOFunctionBuilder,
    PTOModule,
    Tensor,
    Tile,
    errors,
    f32,
    kernel,
    parse,
    pto,
    ptoisa,
    ptoisa_kernel,
    workload,
)
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.text import to_python
from pto_wsp.types.dtype import DTYPES
from tests.python.lang.programs import execute

TARGETS = ("cpu", "interp")
STORED = ("f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32")


@kernel
def normalized(x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]]):
    shifted = x + 1.0
    first = shifted[0, 0]
    scaled = shifted * 2.0
    last = scaled[x.rows - 1, x.cols - 1]
    if first > last:
        scaled = pto.setval(scaled, first, 0, 1)
    else:
        scaled = pto.setval(scaled, last - first, row=x.rows - 1)
    pto.store(y, scaled)


@workload
def normalize(X: Tensor[f32, "n", 16], Y: Tensor[f32, "n", 16]):
    for i in P.tiles("n", 8):
        normalized[i](x=X[i], y=Y[i])


@pytest.mark.parametrize("target", TARGETS)
def test_elements_decide_what_a_kernel_does(target: str) -> None:
    x = np.random.default_rng(3).standard_normal((21, 16)).astype(np.float32)
    x[0, 0] = 9
    y = np.zeros_like(x)
    normalize.compile(target)(X=x, Y=y)
    wanted = (x + np.float32(1)) * np.float32(2)
    for start in range(0, 21, 8):
        part, old = wanted[start : start + 8], x[start : start + 8] + np.float32(1)
        first, last = old[0, 0], part[-1, -1]
        if first > last:
            part[0, 1] = first
        else:
            part[-1, 0] = last - first
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STORED)
def test_every_type(target: str, name: str) -> None:
    """The middle element is read, changed, and written to a corner."""
    more = "+ 0.5" if DTYPES[name].is_float else "- 2"
    text = f"""
@kernel
def swap(x: In[Tile[4, 8, {name}]], y: Out[Tile[4, 8, {name}]]):
    t = x + 1
    pto.store(y, pto.setval(t, t[2, 3] {more}, x.rows - 1, 7))

@workload
def w(X: Tensor[{name}, 4, 8], Y: Tensor[{name}, 4, 8]):
    swap(x=X, y=Y)
"""
    program = execute(text)["w"].compile(target)  # pyright: ignore
    x = np.arange(32).reshape(4, 8).astype(DTYPES[name].to_numpy())
    y = np.zeros_like(x)
    program(X=x, Y=y)
    wanted = x + np.ones((), x.dtype)
    wanted[3, 7] = float(wanted[2, 3]) + (0.5 if DTYPES[name].is_float else -2)
    assert np.array_equal(y.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
def test_masks_and_loops(target: str) -> None:
    text = """
@kernel
def first_above(x: In[Tile[1, 32, f32]], y: Out[Tile[1, 1, i32]], limit: Scalar[f32]):
    above = x > limit
    at = 0
    found = above[0, 0]
    while at < x.cols - 1 and not found:
        at = at + 1
        found = above[0, at]
    pto.store(y, pto.full((1, 1), at if found else -1, i32))

@workload
def w(X: Tensor[f32, 1, "n"], Y: Tensor[i32, 1, 1], limit: Scalar[f32]):
    for i in P.tiles("n", 32):
        first_above(x=X[:, i], y=Y, limit=limit)
"""
    program = execute(text)["w"].compile(target)  # pyright: ignore
    x, y = np.arange(20, dtype=np.float32)[None], np.zeros((1, 1), np.int32)
    for limit, wanted in ((-1.0, 0), (6.5, 7), (18.0, 19), (19.0, -1)):
        program(X=x, Y=y, limit=limit)
        assert y[0, 0] == wanted


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "statement", ["t[n, 0]", "t[0, n]", "pto.setval(t, 1.0, n, 0)", "pto.setval(t, 1.0, 0, n)"]
)
@pytest.mark.parametrize("n", [-1, 3])
def test_outside_of_the_valid_part_is_an_error_at_its_line(target: str, statement: str, n: int) -> None:
    """The tile has room for 8 x 8 elements; the array has 3 x 3."""
    text = f"""
@kernel
def bad(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]], n: Scalar[i64]):
    t = x + 1.0
    v = {statement}
    pto.store(y, t + v)

@workload
def w(X: Tensor[f32, "r", "c"], Y: Tensor[f32, "r", "c"], n: Scalar[i64]):
    bad(x=X, y=Y, n=n)
"""
    program = execute(text)["w"].compile(target)  # pyright: ignore
    x = np.zeros((3, 3), np.float32)
    with pytest.raises(errors.KernelFailed, match="outside") as caught:
        program(X=x, Y=np.zeros_like(x), n=n)
    assert caught.value.loc is not None
    assert (caught.value.loc.source_line() or "").strip() == f"v = {statement}"
    program(X=x, Y=np.zeros_like(x), n=2)


def refused(body: str) -> errors.PtoError:
    text = f"@kernel\ndef bad(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):\n    t = x + 1.0\n{body}\n"
    with pytest.raises(errors.PtoError) as caught:
        execute(text)
    return caught.value


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("    while t[0, 0] > 0:\n        t = t - 1.0\n    pto.store(y, t)", errors.UnsupportedSyntax),
        ("    pto.store(y, t + t[0])", errors.BadIndex),
        ("    pto.store(y, t + t[0:2, 0])", errors.PtoError),
        ("    pto.store(y, t + t[0.5, 0])", errors.BadOperand),
        ("    t[0, 0] = 1.0\n    pto.store(y, t)", errors.UnsupportedSyntax),
        ("    pto.store(y, pto.setval(t, t))", errors.BadOperand),
        ("    pto.store(y, pto.setval(t, True))", errors.PtoError),
    ],
)
def test_what_is_no_element_is_refused(body: str, kind: type[errors.PtoError]) -> None:
    assert isinstance(refused(body), kind)


def test_of_instructions() -> None:
    @ptoisa_kernel
    def halved(x: In[Tensor[f32, DYN, 8]], y: Out[Tensor[f32, DYN, 8]]):
        t = ptoisa.tile(4, 8, f32)
        ptoisa.TLOAD(t, x[0:4])
        s = t[1, 2]
        ptoisa.SETVAL(t, t, s * 0.5, row=3)
        ptoisa.SETVAL(t, t, s)
        ptoisa.TSTORE(y[0:4], t)

    @workload
    def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
        halved(x=X, y=Y)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    y = np.zeros_like(x)
    w.compile()(X=x, Y=y)
    wanted = x.copy()
    wanted[3, 0], wanted[0, 0] = x[1, 2] / 2, x[1, 2]
    assert np.array_equal(y, wanted)
    assert str(parse(str(w.trace().module))) == str(w.trace().module)


# --- builders and text ----------------------------------------------------------------------------------


def built() -> PTOModule:
    module = PTOModule("m")
    (
        PTOFunctionBuilder("largest_first", module)
        .memref("x")
        .memref("y")
        .tile("t", 8, 16)
        .load("t", "x")
        .rowmax("m", "t")
        .getval("most", "m", "dim(t, 0) - 1")
        .getval("first", "t")
        .scalar_add("both", "most", "t[0, 1]")
        .setval("t", "t", "both * 0.5 + first")
        .setval("t", "t", "first", 1, col=2)
        .store("y", "t")
        .build()
    )
    return module


@pytest.mark.parametrize("target", TARGETS)
def test_a_builder_reads_and_writes_elements(target: str) -> None:
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    y = np.zeros_like(x)
    built().compile(target, entry="largest_first")(x=x, y=y)
    wanted = x.copy()
    wanted[0, 0] = (x[7].max() + x[0, 1]) * np.float32(0.5) + x[0, 0]
    wanted[1, 2] = x[0, 0]
    assert np.array_equal(y, wanted)


def test_text_says_elements() -> None:
    text = str(built())
    assert "%most = %m[dim(%t, 0) - 1, 0] : f32" in text and "{row = 1, col = 2}" in text
    assert parse(text) == built() and ".getval('most'" in to_python(built().ir).replace('"', "'")


def test_other_forms_of_text() -> None:
    text = """func @f(%x: !pto.memref<gm,...,i32>, %y: !pto.memref<gm,...,i32>) {
  %t = alloc_tile : !pto.tile<4x8xi32>
  %s = alloc_scalar : i32
  %t = tload %x[0, 0] : (memref, index, index) -> tile
  %s = getval %t[1, 2] : !pto.tile<4x8xi32> -> i32
  ADD %s:i32, %s:i32, 1
  %t = setval %t[3, 0], %s : !pto.tile<4x8xi32>, i32
  tstore %t, %y[0, 0]
}
"""
    module = parse(text)
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    y = np.zeros_like(x)
    compile_module(module, "interp")(x=x, y=y)
    assert y[3, 0] == x[1, 2] + 1 and np.array_equal(y.ravel()[:24], x.ravel()[:24])
    assert parse(str(module)) == module


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda b: b.getval("s", "x"), errors.UnknownName),
        (lambda b: b.getval("s", "t", 0.5), errors.BadOperand),
        (lambda b: b.getval("t", "t"), errors.NameClash),
        (lambda b: b.adds("u", "t", "t[0, 0]"), errors.BadOperand),
        (lambda b: b.scalar_li("s", "t[0, 0]"), errors.BadOperand),
        (lambda b: b.getval("s", "t").for_loop("i", 0, "s").end_for(), errors.BadOperand),
        (lambda b: b.scalar("s", ElementType.I32).getval("s", "t"), errors.DTypeMismatch),
        (lambda b: b.tile("v", 8, 16).getval("s", "v"), errors.CarriedValue),
        (lambda b: b.not_in_core().getval("s", "t"), errors.WrongFunctionKind),
    ],
)
def test_mistakes_in_builders(step, kind) -> None:
    with pytest.raises(kind) as caught:
        step(PTOFunctionBuilder("f").memref("x").tile("t", 8, 16).load("t", "x")).store("x", "t").build()
    assert caught.value.loc is not None


def test_only_assignments_read_elements() -> None:
    text = str(built())
    for old, new in (
        ("tstore %t, %y[:, :]", "tstore %t, %y[%t[0, 0] :+ 8, :]"),
        ("%first = %t", "%first = %x"),
    ):
        assert text.count(old) == 1
        with pytest.raises(errors.PtoError):
            parse(text.replace(old, new))
