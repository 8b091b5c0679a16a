"""Eight families of wrong programs: each is refuted, and a run confirms the counter-example."""

from __future__ import annotations

import pytest

from benchmarks.lowerings.wrong import FAMILIES
from pto_wsp.errors import CannotRestructure
from pto_wsp.lang.workload.workload import Workload
from tests.python.prove.confirming import confirm

pytest.importorskip("islpy")

PROGRAMS = {f"{name}, {number}": w for name, ws in FAMILIES.items() for number, w in enumerate(ws)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_is_refuted(name: str) -> None:
    program: Workload = PROGRAMS[name]
    if program.operators:
        with pytest.raises(CannotRestructure, match="it swaps two tasks that touch"):
            program.prove()
        return
    confirm(program.trace().module, program.prove().refuted[0])


def test_there_are_forty() -> None:
    assert {len(programs) for programs in FAMILIES.values()} == {5} and len(PROGRAMS) == 40
