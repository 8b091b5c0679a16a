"""Random programs from source text: what Python, the interpreter and the engine make of them is the same.

Kernels come from a few pools, each compiled once; the workloads around them are drawn anew.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import Program
from pto_wsp.errors import KernelFailed, PtoError
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.source import meaning as python_meaning
from tests.generators.source.kernels import KernelText, random_kernel
from tests.generators.source.workloads import random_arguments, random_workload
from tests.python.lang.programs import execute
from tests.slow import mostly_slow

NUM_POOLS = 6
POOL_SIZE = 6


def pool(number: int) -> list[KernelText]:
    draw = random.Random(f"pool {number}")
    return [random_kernel(draw, f"k{i}") for i in range(POOL_SIZE)]


POOLS = [pool(number) for number in range(NUM_POOLS)]


def run(program: Program, arguments: dict[str, object], workers: int = 1) -> PtoError | None:
    try:
        program.run(**arguments, workers=workers)
    except PtoError as error:
        return error
    return None


def arrays(arguments: dict[str, object]) -> dict[str, np.ndarray]:
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def require_equal(found: dict[str, object], wanted: dict[str, object]) -> None:
    """All NaNs and both zeros count as one."""
    for name, b in arrays(wanted).items():
        a = arrays(found)[name]
        assert ((a == b) | ((a != a) & (b != b))).all(), name


@pytest.mark.parametrize("number", mostly_slow(range(NUM_POOLS)))
@tries(12, compiles=True)
@given(DRAWS, st.integers(0, 999))
def test_random_programs(number: int, draw: Draw, seed: int) -> None:
    kernels = POOLS[number]
    workload = random_workload(draw, kernels)
    text = "\n".join([*(kernel.text for kernel in kernels), workload.text])
    note(text)
    compiled, interpreted = (execute(text)["w"].compile(target) for target in ("cpu", "interp"))

    wanted = random_arguments(workload, seed)
    error = run(interpreted, wanted)
    if error is None:
        plain = random_arguments(workload, seed)
        python_meaning.run(text, plain, workload.sizes)
        require_equal(wanted, plain)

    first: dict[str, np.ndarray] | None = None
    for workers in (1, 2, 3, 5):
        found = random_arguments(workload, seed)
        failed = run(compiled, found, workers=workers)
        assert type(failed) is type(error), (failed, error)
        if isinstance(error, KernelFailed):
            continue
        require_equal(found, wanted)
        first = first or arrays(found)
        assert all(first[name].tobytes() == array.tobytes() for name, array in arrays(found).items())
