"""Variables around kernels and workloads: a change after they were read is an error, and nothing else is."""

from __future__ import annotations

import cProfile
import pstats

import numpy as np
import pytest

from pto_wsp import Program, Ragged, errors
from pto_wsp.lang.captured import Captured
from pto_wsp.lang.workload.workload import Workload
from tests.python.lang.programs import execute

TEXT = """
import numpy as np

SCALE, WIDTH, KIND = 2.0, 8, f32
NUMBERS = [1, 2]
TABLE = np.arange(4)
UNUSED = 1
r = 5


def helper(t):
    return t * SCALE


@kernel
def scale(x: In[Tile[4, WIDTH, KIND]], y: Out[Tile[4, WIDTH, KIND]]):
    r = helper(x)
    pto.store(y, r)


@workload
def run(X: Tensor[f32, "n", WIDTH], Y: Tensor[f32, "n", WIDTH]):
    assert len(TABLE) == 4
    for number in NUMBERS[:1]:
        for r in P.tiles("n", 4):
            scale[r](x=X[r], y=Y[r])
"""


def made(text: str = TEXT) -> tuple[dict[str, object], Workload]:
    names = execute(text)
    run = names["run"]
    assert isinstance(run, Workload)
    return names, run


def call(program: Program) -> np.ndarray:
    y = np.zeros((6, 8), np.float32)
    program(X=np.ones((6, 8), np.float32), Y=y)
    return y


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize(
    ("name", "value", "function", "shown"),
    [
        ("SCALE", 3.0, "helper", "expected 2.0, found 3.0"),
        ("SCALE", 2, "helper", "expected 2.0, found 2"),
        ("WIDTH", 9, "scale", "expected 8, found 9"),
        ("NUMBERS", [1, 3], "run", "expected [1, 2], found [1, 3]"),
        ("TABLE", np.arange(4), "run", "array 4 of int64, found another array 4 of int64"),
    ],
)
def test_a_change_is_an_error(name: str, value: object, function: str, shown: str, target: str) -> None:
    names, run = made()
    program = run.compile(target)
    assert (call(program) == 2).all()
    names[name] = value
    for action in (lambda: call(program), lambda: program.submit(X=1), lambda: run.compile(target)):
        with pytest.raises(errors.VariableChanged) as caught:
            action()
        assert caught.value.fields["name"] == name
        assert shown in str(caught.value), str(caught.value)
    assert function == caught.value.fields["function"] or name == "WIDTH"


def test_a_change_before_the_first_compile_is_an_error_for_what_was_read() -> None:
    names, run = made()
    names["SCALE"] = 3.0
    with pytest.raises(errors.VariableChanged, match="`helper` was read"):
        run.compile()
    names, run = made()
    names["TABLE"] = np.arange(4)  # the workload has not run yet
    call(run.compile("interp"))


def test_a_list_that_changes_in_place_is_an_error() -> None:
    names, run = made()
    program = run.compile("interp")
    numbers = names["NUMBERS"]
    assert isinstance(numbers, list)
    numbers.append(3)
    with pytest.raises(errors.VariableChanged, match=r"expected \[1, 2\], found \[1, 2, 3\]"):
        call(program)
    numbers.pop()
    call(program)


@pytest.mark.parametrize(
    ("name", "value"),
    [("UNUSED", 2), ("r", "other"), ("y", 3), ("x", np.ones(3)), ("number", 4), ("SCALE", float("2.0"))],
)
def test_other_variables_may_change(name: str, value: object) -> None:
    names, run = made()
    program = run.compile("interp")
    names[name] = value
    call(program)
    run.compile("interp")
    del names[name]
    call(program)


def test_the_same_text_again_is_no_change() -> None:
    names, run = made()
    program = run.compile("interp")
    again = execute(TEXT)
    for name in ("helper", "scale", "run"):
        names[name] = again[name]
    call(program)
    changed = execute(TEXT.replace("t * SCALE", "t + SCALE"))
    names["helper"] = changed["helper"]
    with pytest.raises(errors.VariableChanged, match="`helper` has changed since `scale` was defined"):
        call(program)


def test_another_kernel_of_the_name_is_a_change() -> None:
    names, run = made()
    program = run.compile("interp")
    names["scale"] = execute(TEXT.replace("y, r)", "y, r + 1.0)"))["scale"]
    with pytest.raises(errors.VariableChanged, match="`scale` has changed since `run` was compiled"):
        call(program)


def test_variables_of_enclosing_functions() -> None:
    text = TEXT.replace("y, r)", "y, r + shift)")
    start = text.index("@kernel")
    body = "\n".join("    " + line for line in text[start:].splitlines())
    outer = f"""
def make():
    shift = 1.0
{body}
    def move(by):
        nonlocal shift
        shift = by
    return run, move
run, move = make()
"""
    names, run = made(text[:start] + outer)
    program = run.compile("interp")
    assert (call(program) == 3).all()
    names["move"](2.0)  # type: ignore[operator]
    with pytest.raises(errors.VariableChanged, match="`shift` has changed since `scale` was defined"):
        call(program)
    names["move"](1.0)  # type: ignore[operator]
    call(program)


def test_kernels_that_read_different_values_of_one_variable() -> None:
    text = """
SCALE = 1.0
@kernel
def one(y: Out[Tile[4, 8, f32]]):
    pto.store(y, SCALE)
SCALE = 2.0
@kernel
def two(y: Out[Tile[4, 8, f32]]):
    pto.store(y, SCALE)
@workload
def run(Y: Tensor[f32, 2, 4, 8]):
    one(y=Y[0])
    two(y=Y[1])
"""
    _, run = made(text)
    with pytest.raises(errors.VariableChanged, match="`SCALE` has changed since `one` was defined"):
        run.compile()


def test_axes_and_workloads_that_are_called() -> None:
    text = """
N = 3
@kernel
def bump(x: InOut[Tile[4, 8, f32]]):
    pto.store(x, x + 1.0)
@workload
def inner(X: Tensor[f32, "n", 8]):
    for r in P.tiles("n", N):
        bump(x=X[r])
@workload
def run(rows: Ragged["b"], X: Tensor[f32, "n", 8]):
    inner(X)
"""
    names, run = made(text)
    program = run.compile("interp")
    program(rows=Ragged.lengths([1, 3]), X=np.zeros((4, 8), np.float32))
    names["N"] = 2
    with pytest.raises(errors.VariableChanged, match="`N` has changed since `inner` was compiled"):
        program(rows=Ragged.lengths([1, 3]), X=np.zeros((4, 8), np.float32))


def many(count: int) -> tuple[dict[str, object], Workload]:
    """Return a workload that reads `count` variables of its module and `count` of a function around it."""
    numbers = "\n".join(f"V{i} = {1000 + i}" for i in range(count))
    inner = "\n    ".join(f"W{i} = {2000 + i}" for i in range(count))
    used = ", ".join(f"V{i}, W{i}" for i in range(count))
    return made(f"""
{numbers}
@kernel
def clear(y: Out[Tile[4, 4, f32]]):
    pto.store(y, 0.0)
def around():
    {inner}
    @workload
    def run(Y: Tensor[f32, 4, 4]):
        assert all([{used}])
        clear(y=Y)
    def change(by):
        nonlocal W11
        W11 = by
    return run, change
run, change = around()
""")


def test_each_of_many_variables_is_compared() -> None:
    names, run = many(12)
    captured: Captured = run.trace().captured
    for i in range(12):
        names[f"V{i}"] = 0
        with pytest.raises(errors.VariableChanged, match=f"`V{i}` has changed"):
            captured.check()
        del names[f"V{i}"]
        captured.check()  # nothing reads another value
        names[f"V{i}"] = int(str(1000 + i))
        captured.check()
    names["change"](0)  # type: ignore[operator]
    with pytest.raises(errors.VariableChanged, match="`W11` has changed"):
        captured.check()


def test_a_check_of_many_variables_makes_two_calls_for_each_scope() -> None:
    """Of a module's variables, and of those in cells: a comparison that Python compiled."""
    calls = []
    for count in (12, 120):
        _, run = many(count)
        captured: Captured = run.trace().captured
        profile = cProfile.Profile()
        profile.runcall(captured.check)
        calls.append(pstats.Stats(profile).total_calls)  # pyright: ignore[reportAttributeAccessIssue]
    assert calls[0] == calls[1] <= 6, calls
