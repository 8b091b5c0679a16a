"""Orchestrations: which tasks their steps make, and what the tasks compute."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import CompareMode, ElementType, MemorySpace, Program, PTOFunctionBuilder, PTOModule
from pto_wsp.errors import BadExpression, RegionOutside
from pto_wsp.ir import workload as w
from pto_wsp.passes.pipeline import prepare

GM, F32, I32 = MemorySpace.GM, ElementType.F32, ElementType.I32
RNG = np.random.default_rng(5)


def add_kernels(module: PTOModule) -> None:
    """Tiles of 4 x 8: y = x * factor, c = a + b, and the sum of each row."""
    (
        PTOFunctionBuilder("scale", module)
        .in_core()
        .memref("x", GM, F32)
        .memref("y", GM, F32)
        .scalar("factor", F32)
        .tile("t", 4, 8, F32)
        .load("t", "x")
        .muls("t", "t", "factor")
        .store("t", "y")
        .build()
    )
    (
        PTOFunctionBuilder("add", module)
        .memref("a", GM, F32)
        .memref("b", GM, F32)
        .memref("c", GM, F32)
        .tile("s", 4, 8, F32)
        .tile("t", 4, 8, F32)
        .load("s", "a")
        .load("t", "b")
        .add("t", "s", "t")
        .store("t", "c")
        .build()
    )


def control(module: PTOModule) -> PTOFunctionBuilder:
    """Steps, lower bounds, conditions, variables and branches."""
    return (
        PTOFunctionBuilder("control", module)
        .not_in_core()
        .memref("x", GM, F32)
        .memref("y", GM, F32)
        .scalar("n", I32)
        .scalar("first", I32)
        .scalar("next", I32)
        .scalar_mov("next", 0)
        .for_loop("i", "first", "n", 2)
        .scalar_cmp("is_small", "i", 4, CompareMode.LT)
        .if_then("is_small")
        .call("scale", {"x": ("x", "i", 0), "y": ("y", "next", 0), "factor": 2})
        .else_block()
        .call("scale", {"x": ("x", "i", 0), "y": ("y", "next", 0), "factor": "0.5"})
        .endif()
        .scalar_add("next", "next", 1)
        .end_for()
        .if_bit("n", 1)
        .call("scale", {"x": "x", "y": ("y", "next", 0), "factor": -1.0})
        .endif()
    )


def wide(module: PTOModule) -> PTOFunctionBuilder:
    """Tiles out of a wide matrix, a part of one, and a buffer that the run makes."""
    return (
        PTOFunctionBuilder("wide", module)
        .not_in_core()
        .memref("x", GM, F32, (None, 24))
        .memref("y", GM, F32, (None, 24))
        .intermediate_buffer("kept", 2 * 4 * 8 * 4, F32)
        .scalar("n", I32)
        .scalar("rest", I32)
        .scalar("shift", I32)
        .scalar_li("shift", 8)
        .for_loop("i", 0, "n", kind="parallel")
        .for_loop("j", 0, 3, kind="seq")
        .call("scale", {"x": ("x", "i", "j * 8"), "y": ("y", "i", "j * shift"), "factor": "2.0"})
        .end_for()
        .end_for()
        .call("scale", {"x": ("x", "n", 8, "rest", 5), "y": ("y", "n", 16, "rest", 5), "factor": 3.0})
        .call("scale", {"x": ("x", 0, 0), "y": ("kept", 1, 0), "factor": 1.0})
        .call("add", {"a": ("kept", 1, 0), "b": ("x", 0, 8), "c": ("y", 0, 0)})
    )


def both(module: PTOModule) -> PTOFunctionBuilder:
    """y = x * factor + x, through a tensor that the run makes."""
    return (
        PTOFunctionBuilder("both", module)
        .not_in_core()
        .memref("x", GM, F32)
        .memref("y", GM, F32)
        .scalar("n", I32)
        .scalar("factor", F32)
        .for_loop("i", 0, "n")
        .call("scale", {"x": ("x", "i", 0), "y": ("scaled", "i", 0), "factor": "factor"})
        .end_for()
        .for_loop("k", 0, "n")
        .call("add", {"a": ("scaled", "k", 0), "b": ("x", "k", 0), "c": ("y", "k", 0)})
        .end_for()
    )


def layers(module: PTOModule) -> PTOFunctionBuilder:
    """An Orchestration calls another one, which makes a tensor of its own."""
    return (
        PTOFunctionBuilder("layers", module)
        .not_in_core()
        .memref("a", GM, F32)
        .memref("b", GM, F32)
        .scalar("tiles", I32)
        .scalar("times", I32)
        .call("both", {"x": "a", "y": "b", "n": "tiles", "factor": 2.0})
        .for_loop("t", 1, "times")
        .call("both", {"x": "b", "y": "b", "n": "tiles", "factor": 1.0})
        .end_for()
    )


@pytest.fixture(scope="module")
def module() -> PTOModule:
    module = PTOModule("orchestrations")
    add_kernels(module)
    for make in (control, wide, both, layers):
        make(module).build()
    return module


@pytest.fixture(scope="module", params=["interp", "cpu"])
def programs(request: pytest.FixtureRequest, module: PTOModule) -> dict[str, Program]:
    names = ("control", "wide", "both", "layers")
    return {name: module.compile(request.param, entry=name) for name in names}


def matrix(tiles: int, cols: int = 8) -> np.ndarray:
    return RNG.integers(-8, 8, (4 * tiles, cols)).astype(np.float32)


@pytest.mark.parametrize(("first", "n"), [(0, 9), (1, 6), (3, 3), (5, 2), (0, 8)])
def test_control(programs: dict[str, Program], first: int, n: int) -> None:
    x, y = matrix(9), np.zeros((4 * 9, 8), np.float32)
    expected = y.copy()
    programs["control"](x=x, y=y, n=n, first=first)
    steps = list(range(first, n, 2))
    for at, i in enumerate(steps):
        expected[4 * at : 4 * at + 4] = x[4 * i : 4 * i + 4] * (2 if i < 4 else 0.5)
    if n & 1:
        expected[4 * len(steps) : 4 * len(steps) + 4] = -x[:4]
    assert np.array_equal(y, expected)


def test_parts_of_wide_matrices(programs: dict[str, Program]) -> None:
    x, y = matrix(3, 24), np.zeros((12, 24), np.float32)
    programs["wide"](x=x, y=y, n=2, rest=3)
    expected = np.zeros_like(y)
    expected[:8] = 2 * x[:8]
    expected[8:11, 16:21] = 3 * x[8:11, 8:13]
    expected[:4, :8] = x[:4, :8] + x[:4, 8:16]
    assert np.array_equal(y, expected)


def test_a_tensor_that_the_run_makes(programs: dict[str, Program]) -> None:
    for n in (0, 3):
        x, y = matrix(3), np.zeros((12, 8), np.float32)
        programs["both"](x=x, y=y, n=n, factor=4.0)
        assert np.array_equal(y[: 4 * n], 5 * x[: 4 * n])
        assert not y[4 * n :].any()


def test_an_orchestration_calls_another(programs: dict[str, Program], module: PTOModule) -> None:
    x, y = matrix(2), np.empty((8, 8), np.float32)
    programs["layers"](a=x, b=y, tiles=2, times=3)
    assert np.array_equal(y, 12 * x)
    assert any(isinstance(n, w.WorkloadCall) for n in w.walk_nodes(function(module, "layers").body))


def function(module: PTOModule, name: str) -> w.WorkloadFunction:
    found = module.get_function(name)
    assert isinstance(found, w.WorkloadFunction)
    return found


def test_what_is_a_parameter(module: PTOModule) -> None:
    def params(name: str) -> list[str]:
        found = function(module, name).params
        return [p.name for p in found if not isinstance(p, w.SizeParam)]

    assert params("control") == ["x", "y", "n", "first"]
    assert params("wide") == ["x", "y", "kept", "n", "rest"]
    assert params("both") == ["x", "y", "n", "factor", "scaled"]
    scaled = function(module, "both").tensor("scaled")
    assert scaled.is_local and scaled.type.dims == ("scaled_rows", 8)
    assert function(module, "wide").tensor("kept").type.dims == (8, 8)


def test_loops_keep_their_ranges_and_names() -> None:
    module = PTOModule("m")
    add_kernels(module)
    builder = PTOFunctionBuilder("f", module).not_in_core().memref("x").scalar("n", I32)
    for _ in range(2):
        builder.for_loop("i", 0, "n", 1, max_range=4000, min_range=200, tile_levels={0: 4, 256: 8})
        builder.call("scale", {"x": ("x", "i", 0), "y": ("x", "i", 0), "factor": 1.0}).end_for()
    built = builder.build()
    assert isinstance(built, w.WorkloadFunction)
    loops = [node for node in built.body if isinstance(node, w.Loop)]
    assert [(loop.var, loop.called) for loop in loops] == [("i", "i"), ("i_1", "i")]
    for loop in loops:
        assert (loop.max_range, loop.min_range, loop.tile_levels) == (4096, 256, ((256, 8), (0, 4)))
    assert not any(isinstance(n, w.Loop) and n.max_range for n in w.walk_nodes(prepared(module)))


def prepared(module: PTOModule) -> tuple[w.Node, ...]:
    module.set_entry("f")
    return prepare(module.ir).entry_workload.body


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize(
    ("name", "first", "shown"), [("even", 0, "2"), ("odd", 1, "1"), ("last", "n - 3", "n - 3 + 2")]
)
def test_errors_name_loops_as_the_user_does(
    module: PTOModule, target: str, name: str, first: int | str, shown: str
) -> None:
    """A second loop `i` has another name in the IR, and the IR counts iterations, not steps."""
    (
        PTOFunctionBuilder(f"{name}_{target}", module)
        .not_in_core()
        .memref("x")
        .memref("y")
        .scalar("n", ElementType.I32)
        .for_loop("i", 0, "n")
        .call("scale", {"x": ("x", "i", 0), "y": ("y", "i", 0), "factor": 1.0})
        .end_for()
        .for_loop("i", first, "n", 2)
        .call("scale", {"x": ("x", f"i + {1 + (first == 1)}", 0), "y": ("y", "i", 0), "factor": 1.0})
        .end_for()
        .build()
    )
    x = np.zeros((12, 8), np.float32)
    with pytest.raises(RegionOutside) as caught:
        module.compile(target, entry=f"{name}_{target}")(x=x, y=x.copy(), n=3)
    assert f"found [12, 16) in iteration i = {shown}" in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_an_index_is_checked_against_a_limit(module: PTOModule, target: str) -> None:
    (
        PTOFunctionBuilder(f"checked_{target}", module)
        .not_in_core()
        .memref("x")
        .memref("y")
        .scalar("n", ElementType.I32)
        .scalar("limit", ElementType.I32)
        .for_loop("i", 0, "n")
        .call("scale", {"x": ("x", "within(i, limit)", 0), "y": ("y", "i", 0), "factor": 2.0})
        .end_for()
        .build()
    )
    program, x, y = (
        module.compile(target, entry=f"checked_{target}"),
        matrix(3),
        np.zeros((12, 8), np.float32),
    )
    program(x=x, y=y, n=3, limit=2)
    assert np.array_equal(y, 2 * x)
    with pytest.raises(BadExpression, match="index 2 of a range is outside 0") as caught:
        program(x=x, y=np.zeros_like(y), n=3, limit=1)
    assert "in iteration i = 2" in str(caught.value)
