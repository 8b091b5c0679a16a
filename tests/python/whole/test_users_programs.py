"""Programs of users of different kinds: right for any size, and the same to the bit under every schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import Schedule
from tests.generators.drawing import tries
from tests.generators.schedules import schedules
from tests.python.whole.users_programs import PROGRAMS, UserProgram, Values

SIZES = (0, 1, 2, 7, 64, 129)


def copied(values: Values) -> Values:
    return {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in values.items() if n[0] != "_"}


def require_close(program: UserProgram, found: Values, wanted: dict[str, np.ndarray]) -> None:
    for name, exact in wanted.items():
        same = found[name] == exact
        near = np.abs(np.where(same, 0, found[name] - np.where(same, 0, exact)))
        assert (near <= program.tolerance * np.maximum(1, np.abs(np.where(same, 0, exact)))).all(), name


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_size_under_any_schedule(name: str) -> None:
    user = PROGRAMS[name]
    program = user.workload.compile("cpu")
    cases = [user.arguments(np.random.default_rng(n), n) for n in SIZES]
    plain: list[Values] = []
    for case in cases:
        found = copied(case)
        program.run(**found, workers=1, check="hazards")
        require_close(user, found, user.expected(case))
        plain.append(found)

    @tries(12, compiles=True)
    @given(schedules(program.module), st.integers(1, 8), st.integers(0, len(SIZES) - 1))
    def scheduled(schedule: Any, workers: int, number: int) -> None:
        program.reschedule(Schedule(schedule))
        found = copied(cases[number])
        program.run(**found, workers=workers)
        for array, value in plain[number].items():
            assert not isinstance(value, np.ndarray) or found[array].tobytes() == value.tobytes(), array

    scheduled()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_means_the_same(name: str) -> None:
    user = PROGRAMS[name]
    case = user.arguments(np.random.default_rng(7), 7)
    found = copied(case)
    user.workload.compile("interp").run(**found)
    require_close(user, found, user.expected(case))
