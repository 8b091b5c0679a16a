"""InCore functions: what their steps compute."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import CompareMode, ElementType, MemorySpace, Program, PTOFunctionBuilder, PTOModule, parse
from pto_wsp.ir.kernel import (
    IN,
    INOUT,
    OUT,
    Assign,
    KernelFunction,
    Load,
    Prefetch,
    walk_statements,
)
from pto_wsp.types import TileType, ViewType, f32, i32

GM, F32, I32, U1 = MemorySpace.GM, ElementType.F32, ElementType.I32, ElementType.U1
RNG = np.random.default_rng(4)


def sum_of_tiles(module: PTOModule) -> PTOFunctionBuilder:
    """Row offsets count whole tiles."""
    return (
        PTOFunctionBuilder("sum_of_tiles", module)
        .in_core()
        .memref("input", GM, F32)
        .memref("output", GM, F32)
        .scalar("n", I32)
        .tile("total", 4, 8, F32)
        .tile("x", 4, 8, F32)
        .expands("total", 0.0)
        .for_loop("i", 1, "n", 2)
        .load("x", "input", "i", 0)
        .add("total", "total", "x")
        .end_for()
        .store("output", "total")
    )


def cut(module: PTOModule) -> PTOFunctionBuilder:
    """Column offsets count elements; a shape says where the next row begins."""
    return (
        PTOFunctionBuilder("cut", module)
        .memref("input", GM, F32, (None, 24))
        .memref("output", GM, F32, (12, 24))
        .tile("x", 4, 8, F32)
        .load("x", "input", 1, 8)
        .load("y", "output")
        .muls("y", "y", 2.0)
        .store("y", "output")
        .store("x", "output", "1 + 1", "4 * 4")
    )


def chosen(module: PTOModule) -> PTOFunctionBuilder:
    """Conditionals on scalars and bits, and an else."""
    return (
        PTOFunctionBuilder("chosen", module)
        .memref("output", GM, I32)
        .scalar("n", I32)
        .scalar("is_large", U1)
        .scalar("found", I32)
        .tile("t", 1, 1, I32)
        .scalar_cmp("is_large", "n", 8, CompareMode.GE)
        .scalar_mov("found", 0)
        .if_then("is_large")
        .scalar_add("found", "found", 100)
        .else_block()
        .if_then("n - 3")
        .scalar_add("found", "found", 10)
        .endif()
        .end_if()
        .if_bit("n", 4)
        .scalar_sub("found", "found", 1)
        .endif()
        .expands("t", "found")
        .store("t", "output")
    )


def quotient(module: PTOModule) -> PTOFunctionBuilder:
    """Integers are divided toward zero, as on tiles."""
    return (
        PTOFunctionBuilder("quotient", module)
        .memref("output", GM, I32)
        .scalar("a", I32)
        .scalar("b", I32)
        .tile("t", 1, 1, I32)
        .scalar_div("q", "a", "b")
        .scalar_mul("q", "q", "1000")
        .scalar_add("q", "q", "b")
        .expands("t", "q")
        .store("t", "output")
    )


def count(module: PTOModule) -> PTOFunctionBuilder:
    """Loops over the valid elements of a tile, and one that runs while a condition holds."""
    return (
        PTOFunctionBuilder("count", module)
        .memref("input", GM, F32)
        .memref("output", GM, I32)
        .tile("x", 8, 8, F32)
        .tile("t", 1, 1, I32)
        .scalar("found", I32)
        .load("x", "input")
        .scalar_mov("found", 0)
        .nested_tile_loop("r", "c", "x", 1, 2)
        .scalar_add("found", "found", "r * 10 + c")
        .end_nested_loop()
        .tile_loop("r", "x", "cols", 3)
        .scalar_add("found", "found", 1000)
        .end_for()
        .while_loop("found % 7 != 0")
        .scalar_add("found", "found", 1)
        .end_while()
        .expands("t", "found")
        .store("t", "output")
    )


def gathered(module: PTOModule) -> PTOFunctionBuilder:
    """Rows that a tile names."""
    return (
        PTOFunctionBuilder("gathered", module)
        .memref("input", GM, F32)
        .memref("rows", GM, I32)
        .memref("output", GM, F32)
        .tile("numbers", 4, 1, I32)
        .tile("x", 4, 8, F32)
        .load("numbers", "rows")
        .gather("x", "input", "numbers")
        .scatter("output", "x", "numbers")
    )


def twice(module: PTOModule) -> PTOFunctionBuilder:
    """A call of another InCore function stands for its steps."""
    return (
        PTOFunctionBuilder("twice", module)
        .memref("input", GM, F32)
        .memref("output", GM, F32)
        .scalar("n", I32)
        .call("sum_of_tiles", {"input": "input", "output": "output", "n": "n + 1"})
    )


MAKERS = (sum_of_tiles, cut, chosen, quotient, count, gathered, twice)


@pytest.fixture(scope="module")
def module() -> PTOModule:
    module = PTOModule("in_core")
    for make in MAKERS:
        make(module).build()
    return module


@pytest.fixture(scope="module", params=["interp", "cpu"])
def programs(request: pytest.FixtureRequest, module: PTOModule) -> dict[str, Program]:
    return {name: module.compile(request.param, entry=name) for name in module.get_function_names()}


def kernel(module: PTOModule, name: str) -> KernelFunction:
    function = module.get_function(name)
    assert isinstance(function, KernelFunction)
    return function


def test_types_and_roles_follow_from_what_is_moved(module: PTOModule) -> None:
    def params(name: str) -> dict[str, tuple[str, object]]:
        return {p.name: (p.role, p.type) for p in kernel(module, name).views}

    assert params("sum_of_tiles") == {
        "input": (IN, ViewType(f32, (None, 8))),
        "output": (OUT, TileType(4, 8, f32)),
    }
    assert params("cut") == {
        "input": (IN, ViewType(f32, (None, 24))),
        "output": (INOUT, ViewType(f32, (12, 24))),
    }
    assert params("gathered") == {
        "input": (IN, ViewType(f32, (None, 8))),
        "rows": (IN, TileType(4, 1, i32)),
        "output": (OUT, ViewType(f32, (None, 8))),
    }
    assert params("twice") == params("sum_of_tiles")


def test_row_offsets_count_tiles(programs: dict[str, Program]) -> None:
    x = RNG.standard_normal((20, 8)).astype(np.float32)
    for name, n, tiles in (("sum_of_tiles", 4, (1, 3)), ("sum_of_tiles", 1, ()), ("twice", 4, (1, 3))):
        y = np.empty((4, 8), np.float32)
        programs[name](input=x, output=y, n=n)
        expected = sum((x[4 * i : 4 * i + 4] for i in tiles), np.zeros((4, 8), np.float32))
        assert np.array_equal(y, expected)


def test_column_offsets_count_elements(programs: dict[str, Program]) -> None:
    x, y = RNG.standard_normal((2, 12, 24)).astype(np.float32)
    expected = y.copy()
    expected[:12] *= 2
    expected[8:12, 16:24] = x[4:8, 8:16]
    programs["cut"](input=x, output=y)
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("n", [0, 3, 4, 7, 8, 12])
def test_conditionals(programs: dict[str, Program], n: int) -> None:
    y = np.empty((1, 1), np.int32)
    programs["chosen"](output=y, n=n)
    assert y[0, 0] == (100 if n >= 8 else 10 if n != 3 else 0) - bool(n & 4)


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, -3), (6, 3)])
def test_integers_are_divided_toward_zero(programs: dict[str, Program], a: int, b: int) -> None:
    y = np.empty((1, 1), np.int32)
    programs["quotient"](output=y, a=a, b=b)
    assert y[0, 0] == int(a / b) * 1000 + b


@pytest.mark.parametrize("shape", [(8, 8), (3, 5), (1, 1), (0, 4)])
def test_loops_over_tiles_see_valid_elements(programs: dict[str, Program], shape: tuple[int, int]) -> None:
    y = np.empty((1, 1), np.int32)
    programs["count"](input=np.zeros(shape, np.float32), output=y)
    found = sum(r * 10 + c for r in range(shape[0]) for c in range(0, shape[1], 2))
    found += 1000 * -(-shape[1] // 3)
    assert y[0, 0] == found + -found % 7


def test_rows_by_number(programs: dict[str, Program]) -> None:
    x = RNG.standard_normal((9, 8)).astype(np.float32)
    y = np.zeros((9, 8), np.float32)
    rows = np.array([[8], [0], [3], [5]], np.int32)
    programs["gathered"](input=x, rows=rows, output=y)
    expected = np.zeros_like(y)
    expected[rows[:, 0]] = x[rows[:, 0]]
    assert np.array_equal(y, expected)


def test_functions_say_which_cores_they_want() -> None:
    for is_cube, unit in ((True, "cube"), (False, "vector")):
        built = PTOFunctionBuilder("f").cube(is_cube).memref("x", shape=(8, 8)).load("t", "x").build()
        assert isinstance(built, KernelFunction)
        assert built.unit == unit


def test_a_number_assigned_once_is_no_variable(module: PTOModule) -> None:
    built = (
        PTOFunctionBuilder("scaled")
        .memref("x")
        .tile("t", 8, 8)
        .scalar("half", F32)
        .scalar_li("half", 0.5)
        .load("t", "x")
        .muls("t", "t", "half")
        .store("t", "x")
        .build()
    )
    assert isinstance(built, KernelFunction)
    assert not any(isinstance(s, Assign) for s in walk_statements(built.body or ()))
    assert not built.scalars and not built.scalar_params


def test_an_output_that_some_path_does_not_store_keeps_what_it_has() -> None:
    built = (
        PTOFunctionBuilder("maybe")
        .memref("x")
        .memref("y")
        .scalar("n", I32)
        .tile("t", 8, 8)
        .load("t", "x")
        .if_then("n > 0")
        .store("t", "y")
        .endif()
        .build()
    )
    assert isinstance(built, KernelFunction)
    assert built.param("y").role == INOUT


def test_prefetch_looks_where_load_reads() -> None:
    module = PTOModule("m")
    builder = PTOFunctionBuilder("f", module).memref("x", GM, F32).memref("y", GM, F32).tile("t", 8, 16, F32)
    builder.for_loop("i", 0, 3).prefetch("t", "x", "i").load("t", "x", "i").store(
        "y", "t", "i"
    ).end_for().build()
    kernel = module.get_function("f")
    assert isinstance(kernel, KernelFunction)
    fetch, load = [s for s in walk_statements(kernel.body or ()) if isinstance(s, (Prefetch, Load))]
    assert isinstance(fetch, Prefetch)
    assert fetch.region == load.region
    assert parse(str(module)) == module
    x = RNG.standard_normal((24, 16)).astype(np.float32)
    y = np.empty_like(x)
    module.compile("cpu", entry="f")(x=x, y=y)
    assert np.array_equal(x, y)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_scalars_are_stored_and_extents_are_numbers(target: str) -> None:
    """A kernel writes how many rows it has, and the largest of a table, to elements."""
    module = PTOModule("m")
    builder = (
        PTOFunctionBuilder("f", module).memref("x", GM, F32, (None, 8)).memref("table", GM, I32, (None, 2))
    )
    builder.memref("y", GM, F32, (2, 3)).tile("t", 4, 8, F32).scalar("top", I32)
    builder.expands("t", 0.0, rows="min(dim(x, 0), 4)").scalar_mov("top", 0)
    builder.for_loop("i", 0, "dim(table, 0)").scalar_mov("top", "max(top, table[i, 1])").end_for()
    builder.scalar_store("y", "f32(dim(t, 0))").scalar_store("y", "f32(top)", 1, 2).build()
    assert parse(str(module)) == module
    y = np.zeros((2, 3), np.float32)
    table = np.array([[9, 1], [9, 7], [9, 2]], np.int32)
    module.compile(target, entry="f")(x=np.zeros((3, 8), np.float32), table=table, y=y)
    assert y.tolist() == [[3, 0, 0], [0, 0, 7]]


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_elements_of_integers_decide(target: str) -> None:
    """The tiles of `x` are added up as often as a table says, starting where it says."""
    module = PTOModule("m")
    builder = (
        PTOFunctionBuilder("f", module).memref("table", GM, I32).memref("x", GM, F32).memref("y", GM, F32)
    )
    builder.tile("t", 4, 8, F32).tile("total", 4, 8, F32).expands("total", 0.0)
    builder.scalar_load("first", "table").scalar_load("count", "table", 1, "first - 1")
    builder.for_loop("i", "first", "first + count").load("t", "x", "i").add("total", "total", "t").end_for()
    builder.store("y", "total").build()
    assert parse(str(module)) == module
    x = RNG.standard_normal((24, 8)).astype(np.float32)
    y = np.empty((4, 8), np.float32)
    module.compile(target, entry="f")(table=np.array([[2, 9], [9, 3]], np.int32), x=x, y=y)
    assert np.array_equal(y, x[8:12] + x[12:16] + x[16:20])
