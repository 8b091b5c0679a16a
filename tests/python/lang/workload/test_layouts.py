"""Tensors in panels: what indices select, results equal to row-major order, and what is refused where."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import (
    ArgumentShape,
    BadAnnotation,
    BadIndex,
    ConstantIndexOutside,
    OutsideWorkload,
    WrongRank,
    WrongShape,
    WrongTensor,
)
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.types import MemLayout, f32
from tests.python.lang.programs import execute, marked
from tests.slow import mostly_slow

K, N, COLS = 24, 40, 16
"""The last panel has 8 valid columns."""

KERNELS = """
@kernel
def multiply(x: In[Tile[8, 24, f32]], w: In[Tile[24, 16, f32]], y: Out[Tile[8, 16, f32]]):
    pto.store(y, pto.matmul(x, w))

@kernel
def copy(x: In[Tensor], y: Out[Tensor]):
    pto.store(y[0:4, 0:8], x[0:4, 0:8])

@kernel
def all_panels(x: In[Tile[8, 24, f32]], w: In[Tensor[f32, 3, 24, 16]], y: Out[Tensor[f32, DYN, 48]]):
    for i in range(3):
        pto.store(y[:, i * 16 : i * 16 + 16], pto.matmul(x, w[i]))
"""


def workload_of(text: str, **scope: object) -> Workload:
    found = execute(KERNELS + dedent(text), scope)["w"]
    assert isinstance(found, Workload)
    return found


def product(weight: str, columns: str = "") -> Workload:
    """Return Y[l] = X @ W[l], for W annotated with `weight`."""
    return workload_of(f"""
        @workload
        def w(X: Tensor[f32, "m", 24], W: {weight}, Y: Tensor[f32, "layers", "m", 40]):
            for layer in P("layers"):
                for r in P.tiles("m", 8):
                    for j in P.tiles(40, 16):
                        multiply[layer, r, j](x=X[r], w={columns or "W[layer, :, j]"}, y=Y[layer, r, j])
    """)


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "X": random.random((13, K), np.float32),
        "W": random.random((2, K, N), np.float32),
        "Y": np.zeros((2, 13, N), np.float32),
    }


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("columns", mostly_slow(["W[layer, :, j]", "W[layer][:, j]", "W[layer, 0:24, j]"]))
def test_results_are_those_of_row_major_order(target: str, columns: str) -> None:
    plain = arrays()
    product('Tensor[f32, "layers", 24, 40]').compile(target)(**plain)
    packed = arrays()
    packed["W"] = MemLayout.panels(COLS).pack(packed["W"])
    before = packed["W"].copy()
    program = product('Tensor[f32, "layers", 24, 40, MemLayout.panels(16)]', columns).compile(target)
    program(**packed)
    assert plain["Y"].any() and np.array_equal(packed["Y"], plain["Y"])
    assert np.array_equal(packed["W"], before)
    row_major = arrays()
    product('Tensor[f32, "layers", 24, 40, MemLayout.row_major()]').compile(target)(**row_major)
    assert np.array_equal(row_major["Y"], plain["Y"])


def test_ir_shows_the_tensor_as_it_lies_in_memory() -> None:
    text = product('Tensor[f32, "layers", 24, 40, MemLayout.panels(16)]').compile("interp").dump()
    assert "%W[at(%layer), at(%j), :, 0 :+ %j.len]" in text
    assert '%W: !pto.memref<gm,"layers"x3x24x16,f32>' in text
    even = product('Tensor[f32, "layers", 24, 40, MemLayout.panels(8)]', "W[layer, :, 8:16]").trace()
    assert "%W[at(%layer), at(1), :, :]" in str(even.module)


def test_a_panel_that_no_tile_of_the_kernel_holds() -> None:
    whole = product('Tensor[f32, "layers", 24, 40, MemLayout.panels(64)]', "W[layer][:, 0:40]")
    with pytest.raises(ArgumentShape, match="40 elements in dimension 1") as caught:
        whole.trace()
    assert marked(caught.value) == "W[layer][:, 0:40]"


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_panels_can_be_written_and_read_by_constant_slices(target: str) -> None:
    program = workload_of("""
        @workload
        def w(A: Tensor[f32, 4, 16, MemLayout.panels(8)], B: Tensor[f32, 2, 4, 24, MemLayout.panels(8)]):
            copy[0](x=A[:, 8:16], y=B[1, :, 16:])
            copy[1](x=A.panels[0], y=B[0].panels[1])
    """).compile(target)
    layout = MemLayout.panels(8)
    logical = np.random.default_rng(0).random((4, 16), np.float32)
    a, b = layout.pack(logical), layout.pack(np.zeros((2, 4, 24), np.float32))
    program(A=a, B=b)
    expected = np.zeros((2, 4, 24), np.float32)
    expected[1, :, 16:] = logical[:, 8:]
    expected[0, :, 8:16] = logical[:, :8]
    assert np.array_equal(layout.unpack(b, 24), expected)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_kernel_can_loop_over_panels_itself(target: str) -> None:
    program = workload_of("""
        @workload
        def w(
            X: Tensor[f32, "m", 24], W: Tensor[f32, 2, 24, 40, MemLayout.panels(16)], Y: Tensor[f32, "m", 48]
        ):
            for r in P.tiles("m", 8):
                all_panels[r](x=X[r], w=W[1].panels, y=Y[r])
    """).compile(target)
    given = arrays()
    y = np.empty((13, 48), np.float32)
    program(X=given["X"], W=MemLayout.panels(16).pack(given["W"]), Y=y)
    assert np.allclose(y[:, :40], given["X"] @ given["W"][1], rtol=1e-5)
    assert not y[:, 40:].any()  # the padding is zeros


@pytest.mark.parametrize("by_parameter", [False, True])
def test_a_tensor_object_carries_its_layout_and_packed_data(by_parameter: bool) -> None:
    given = arrays()
    layout = MemLayout.panels(16)
    weight = Tensor(layout.pack(given["W"][0]), shape=(24, 40), layout=layout)
    text = """
        @workload
        def w(X: Tensor[f32, "m", 24], Y: Tensor[f32, "m", 40]PARAMETER):
            for r in P.tiles("m", 8):
                for j in P.tiles(40, 16):
                    multiply[r, j](x=X[r], w=Weight[:, j], y=Y[r, j])
    """
    if by_parameter:
        function = workload_of(text.replace("PARAMETER", ", Weight"))(Weight=weight)
    else:
        function = workload_of(text.replace("PARAMETER", ""), Weight=weight)
    function.compile("interp")(X=given["X"], Y=given["Y"][0])
    assert np.allclose(given["Y"][0], given["X"] @ given["W"][0], rtol=1e-5)
    assert weight.dims == (24, 40) and weight.stored.dims == (3, 24, 16)


# --- refusals ---

INDICES = [
    ("W", "all columns"),
    ("W[0:8]", "all columns"),
    ("W[:, 0:8]", "`0:8`"),
    ("W[:, 8:24]", "`8:24`"),
    ("W[:, 0:32]", "`0:32`"),
    ("W[:, 16:40]", "`16:40`"),
    ("W[:, 40:40]", "`40:40`"),
    ("W[:, n : n + 16]", "a range known only at run time"),
    ("W[:, other]", "a range of `P.tiles(40, 8)`"),
    ("W[:, wide]", "a range of `P.tiles(48, 16)`"),
    ("W[:, any]", "a range of `P.tiles(..., 16)`"),
]


@pytest.mark.parametrize(("view", "found"), INDICES)
def test_columns_that_are_no_panel(view: str, found: str) -> None:
    function = workload_of(f"""
        @workload
        def w(n: DenseDyn, W: Tensor[f32, 24, 40, MemLayout.panels(16)], Y: Tensor[f32, 24, 40]):
            for other in P.tiles(40, 8):
                for wide in P.tiles(48, 16):
                    for any in P.tiles(n, 16):
                        copy[0](x={view}, y=Y)
    """)
    with pytest.raises(BadIndex) as caught:
        function.trace()
    assert caught.value.fields["found"] == found and caught.value.fields["tensor"] == "W"
    for possible in ("`P.tiles(40, 16)`", "`16:32`", "`.panels`", "16 columns"):
        assert possible in str(caught.value)
    assert marked(caught.value) == (view if view != "W" else marked(caught.value))


def test_one_column_is_no_panel() -> None:
    function = workload_of("""
        @kernel
        def line(x: In[Tensor[f32, DYN]], y: Out[Tile[1, 1, f32]]):
            pto.store(y, pto.zeros((1, 1)))
        @workload
        def w(W: Tensor[f32, 24, 40, MemLayout.panels(16)], Y: Tensor[f32, 1, 1]):
            line[0](x=W[:, 3], y=Y)
    """)
    with pytest.raises(BadIndex, match="found one column") as caught:
        function.trace()
    assert marked(caught.value) == "W[:, 3]"


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ("Y.panels", "one in row-major order"),
        ("Y[0:4].panels", "one in row-major order"),
        ("Untyped[0].panels", "one in row-major order"),
        ("W[0:8].panels", "a part of them"),
        ("W[:, 0:16].panels", "a part of them"),
    ],
)
def test_panels_of_what_has_none_or_not_whole_ones(view: str, found: str) -> None:
    function = workload_of(f"""
        @workload
        def w(Untyped, W: Tensor[f32, 24, 40, MemLayout.panels(16)], Y: Tensor[f32, 24, 40]):
            copy[0](x={view}, y=Y)
    """)
    with pytest.raises(BadIndex) as caught:
        function.trace()
    assert caught.value.fields["found"] == found
    assert marked(caught.value) == view


def test_indices_outside_are_counted_in_the_tensors_own_dimensions() -> None:
    function = workload_of("""
        @workload
        def w(W: Tensor[f32, 24, 40, MemLayout.panels(16)], Y: Tensor[f32, 24, 40]):
            copy[0](x=W[20:28, 0:16], y=Y)
    """)
    with pytest.raises(ConstantIndexOutside, match="dimension 0") as caught:
        function.trace()
    assert caught.value.fields["size"] == 24
    layout = MemLayout.panels(16)
    with pytest.raises(OutsideWorkload):
        _ = Tensor(shape=(24, 40), dtype=f32, layout=layout).panels


@pytest.mark.parametrize(
    "annotation",
    [
        'Tensor[f32, 24, "n", MemLayout.panels(16)]',
        "Tensor[f32, 24, DYN, MemLayout.panels(16)]",
        "Tensor[f32, 40, MemLayout.panels(16)]",
        "Tensor[f32, MemLayout.panels(16)]",
        "Tensor[f32, 24, MemLayout.panels(16), 40]",
        "Tensor[MemLayout.panels(16)]",
    ],
)
def test_annotations_that_panels_cannot_have(annotation: str) -> None:
    function = workload_of(f"""
        @workload
        def w(W: {annotation}, Y: Tensor[f32, 24, 40]):
            copy[0](x=Y, y=Y)
    """)
    with pytest.raises(BadAnnotation) as caught:
        function.trace()
    assert caught.value.fields["param"] == "W" and marked(caught.value).startswith("W")


@pytest.mark.parametrize(
    "arguments",
    [
        {"shape": (24, "n"), "dtype": f32},
        {"shape": (40,), "dtype": f32},
        {"data": np.zeros((24, 40), np.float32)},
        {"data": np.zeros((24, 40), np.float32), "shape": (24, 40)},
        {"data": np.zeros((3, 24, 8), np.float32), "shape": (24, 40)},
    ],
)
def test_tensors_that_panels_cannot_have(arguments: dict[str, Any]) -> None:
    with pytest.raises(WrongTensor):
        Tensor(**arguments, layout=MemLayout.panels(16))


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_arrays_that_are_not_packed(target: str) -> None:
    program = product('Tensor[f32, "layers", 24, 40, MemLayout.panels(16)]').compile(target)
    given = arrays()
    with pytest.raises(WrongRank) as caught:
        program(**given)
    text = str(caught.value)
    assert "expected 4 (MemLayout.panels(16) stores [layers, 24, 40] as [layers, 3, 24, 16]), found 3" in text
    assert "`MemLayout.panels(16).pack(array)`" in text and "`W`" in text
    assert marked(caught.value).startswith("W")
    for wrong, dim, size in ((MemLayout.panels(8), 1, 5), (MemLayout.panels(20), 1, 2)):
        with pytest.raises(WrongShape) as mismatch:
            program(**given | {"W": wrong.pack(given["W"])})
        assert mismatch.value.fields["dim"] == dim and mismatch.value.fields["found"] == size
        assert "MemLayout.panels(16) stores" in str(mismatch.value)
    with pytest.raises(WrongShape, match="layers"):
        program(**given | {"W": MemLayout.panels(16).pack(given["W"][:1])})
    assert not given["Y"].any()
