"""Random workloads: a proof never contradicts the check of a run, and a run confirms every refutation."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import Deps, Schedule, errors
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.prove.finding import EDGES, INDEPENDENT, INSIDE, PROVED
from pto_wsp.prove.prove import prove
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.support.record import replace
from tests.generators.drawing import tries
from tests.generators.dynamic_workloads import Sample as DynamicSample
from tests.generators.dynamic_workloads import samples as dynamic_samples
from tests.generators.workloads import Sample, samples
from tests.python.prove.confirming import confirm
from tests.slow import examples

pytest.importorskip("islpy")

OUTSIDE = (errors.RegionOutside, errors.ViewShape)


def outcome(sample: Sample) -> type[errors.PtoError] | None:
    """Return the error of a checked run, or None."""
    arrays = sample.arrays()
    program = compile_module(sample.module, "cpu")
    try:
        program.run(**arrays, **sample.sizes, check="hazards", workers=1)
    except errors.PtoError as error:
        return type(error)
    return None


@given(samples())
@tries(60)
def test_a_proof_agrees_with_the_check_of_a_run(sample: Sample) -> None:
    proof = prove(sample.module)
    found = outcome(sample)
    statuses = {
        claim: {f.status for f in proof.findings if f.claim == claim} for claim in (INDEPENDENT, INSIDE)
    }
    if found is errors.IterationsConflict:
        assert statuses[INDEPENDENT] != {PROVED}, proof
    if found in OUTSIDE:
        assert statuses[INSIDE] != {PROVED}, proof
    for finding in proof.refuted[:1]:
        confirm(sample.module, finding)


def checked_edges(sample: DynamicSample) -> Module:
    """Return a sample's module in which edges alone order tasks."""
    return sample.module.with_schedule(Schedule().task_graph(deps=Deps.explicit()).policies)


@given(dynamic_samples())
@tries(60)
def test_edges_that_do_not_suffice_are_not_proved(sample: DynamicSample) -> None:
    module = checked_edges(sample)
    program = compile_module(module)
    try:
        program.run(**sample.arrays(), n=5, workers=1)
    except errors.EdgesMissing:
        proof = prove(module)
        assert not proof.holds(EDGES), proof
    except errors.PtoError:
        pass


def parallel(body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
    """Return nodes in which `P.range` and `P.seq` are `P`: a mutation that most programs do not survive."""
    made = (w.rebuild(node, parallel) for node in body)
    return tuple(replace(n, kind=w.PARALLEL) if isinstance(n, w.Loop) else n for n in made)


@given(samples(), st.integers(0, 9))
@settings(max_examples=examples(40), deadline=None)
def test_no_unsafe_mutation_is_proved(sample: Sample, n: int) -> None:
    workload = sample.module.entry_workload
    mutated = replace(workload, body=parallel(workload.body))
    module = replace(sample.module, workloads=(mutated,))
    if outcome(Sample(module, sample.shapes, sample.sizes)) is errors.IterationsConflict:
        loops = [f for f in prove(module).findings if f.claim == INDEPENDENT]
        assert any(f.status != PROVED for f in loops)


COOKBOOK = (
    "gated_linear_attention",
    "mixture_of_experts",
    "quantised_linear",
    "ragged_attention",
    "windowed_alibi",
)


def module_of(example: str) -> Module:
    found: Any = importlib.import_module(f"examples.cookbook.{example}")
    (workload,) = (value for value in vars(found).values() if isinstance(value, Workload))
    return workload.trace().module


@pytest.mark.parametrize("example", COOKBOOK)
def test_examples_are_proved(example: str) -> None:
    assert Counter(f.status for f in prove(module_of(example)).findings).keys() == {PROVED}
