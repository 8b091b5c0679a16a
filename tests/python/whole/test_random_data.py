"""Random programs in which data decides: Python, the interpreter and the engine make the same of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import Program
from pto_wsp.errors import CarriedValue, InvalidIR, KernelFailed, PtoError, RunError
from pto_wsp.runtime.outcome import RunRequest
from tests.generators.data.meaning import meaning
from tests.generators.data.prelude import random_values
from tests.generators.data.programs import Writer
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.lang.programs import execute
from tests.slow import RUNS_SLOW


def arrays_of(values: dict[str, object]) -> dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def run(program: Program, values: dict[str, object], workers: int = 1, jitter: int = 0) -> int:
    """Run with random delays before tasks; return how many there were."""
    bound = program._binder.bind(values)
    runner = program._runner
    figures, _ = runner.run(RunRequest(bound.arrays, bound.scalars, workers, jitter=jitter))
    program._binder.keep(bound)
    return figures.tasks


def outcome(program: Program, values: dict[str, object], workers: int = 1, jitter: int = 0) -> object:
    """Return the number of tasks and the bytes of every array, or what the error says."""
    before = {name: array.tobytes() for name, array in arrays_of(values).items()}
    try:
        tasks = run(program, values, workers, jitter)
    except PtoError as error:
        earlier = error.tasks_before if isinstance(error, RunError) else None
        after = {name: array.tobytes() for name, array in arrays_of(values).items()}
        assert after == before or earlier or isinstance(error, KernelFailed), "tasks have run"
        return type(error), error.message, error.caret_text, error.loc, earlier or 0
    return tasks, {name: array.tobytes() for name, array in arrays_of(values).items()}


@tries(60, compiles=True)
@given(DRAWS, st.integers(0, 10**6))
def test_data_decides_as_in_python(draw: Draw, seed: int) -> None:
    """Thousands have been run: a change of the engine or of the language deserves as many."""
    workload, python = Writer(draw).program()
    note(f"{workload}\n{python}")
    w = execute(workload)["w"]
    compiled, interpreted = (w.compile(target) for target in ("cpu", "interp"))  # pyright: ignore
    for data in range(3 * seed, 3 * seed + 3):
        wanted = random_values(data)
        expected = outcome(interpreted, wanted)
        assert isinstance(expected, tuple)
        if isinstance(expected[0], int):
            plain = random_values(data)
            meaning(python, plain)
            assert {name: array.tobytes() for name, array in arrays_of(plain).items()} == expected[1]
        for workers in (1, 2, 5):
            assert outcome(compiled, random_values(data), workers, jitter=seed + 1) == expected, workers


def test_python_variables_mean_what_they_say_or_are_refused() -> None:
    """The body of a loop is described once: what Python would change in it from one iteration to the next."""
    refused: list[bool] = []

    @tries(60)
    @given(DRAWS, st.integers(0, 10**6))
    def check(draw: Draw, seed: int) -> None:
        workload, python = Writer(draw, names=("v", "u")).program()
        note(f"{workload}\n{python}")
        try:
            program = execute(workload)["w"].compile("interp")  # pyright: ignore
        except PtoError as error:
            assert isinstance(error, (CarriedValue, InvalidIR)), error
            refused.append(True)
            return
        refused.append(False)
        wanted = random_values(seed)
        try:
            program.run(**wanted)
        except PtoError:
            return
        plain = random_values(seed)
        meaning(python, plain)
        for name, array in arrays_of(plain).items():
            assert array.tobytes() == arrays_of(wanted)[name].tobytes()

    check()
    assert not RUNS_SLOW or (True in refused and False in refused)
