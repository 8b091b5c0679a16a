"""Proofs that `compile` is given: runs leave out the checks of what is proved, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Deps,
    In,
    InOut,
    Out,
    P,
    Program,
    Schedule,
    Tensor,
    Tile,
    assume,
    distinct,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import AssumptionFails, EdgesMissing, InstancesConflict, IterationsConflict, WrongValue

pytest.importorskip("islpy")

EXPLICIT = Deps.explicit()


@kernel
def copy(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x)


@kernel
def add(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y + x)


@kernel(block_dim=4)
def split(y: Out[Tensor[f32, DYN, 8]]):
    for r in pto.tiles(y.rows, 1):
        if r.start == pto.block_idx():
            pto.store(y[r], pto.full((r.extent, 8), 1.0))


@kernel(block_dim=2)
def halves(y: Out[Tensor[f32, DYN, 8]], z: Out[Tensor[f32, DYN, 8]]):
    if pto.block_idx() == 0:
        pto.store(y[0:1], pto.full((1, 8), 1.0))
    if pto.block_idx() == 1:
        pto.store(z[0:1], pto.full((1, 8), 2.0))


@workload
def chain(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Add a row and its copy; an edge orders each pair of tasks."""
    for i in P("n"):
        first = copy[i](x=X[i : i + 1], y=Y[i : i + 1])
        add[i](x=Y[i : i + 1], y=Z[i : i + 1], after=[first])


@workload
def unordered(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Lacks the edge."""
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[i : i + 1])
        add[i](x=Y[i : i + 1], y=Z[i : i + 1])


@workload
def shifted(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    """Independent iterations where the tensors are different arrays."""
    for i in P("n"):
        with P.when(i > 0):
            copy[i](x=X[i - 1 : i], y=Y[i : i + 1])


@workload
def pairs(W: Tensor[f32, "n", 8], X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Two tasks that no edge orders."""
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[i : i + 1])
        copy[i](x=W[i : i + 1], y=Z[i : i + 1])


@workload
def scatter(slots: Tensor[i32, "n"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "m", 8]):
    assume(distinct(slots))
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[slots[i] : slots[i] + 1])


@workload
def parts(Y: Tensor[f32, "n", 8]):
    split(y=Y)


@workload
def twice(Y: Tensor[f32, "n", 8]):
    halves(y=Y, z=Y)


def rows(count: int = 5) -> list[np.ndarray]:
    return [np.full((count, 8), k, np.float32) for k in (1, 2, 3)]


def left_out(program: Program) -> tuple[str, ...]:
    assert program.stats is not None
    return program.stats.proved.left_out


@pytest.mark.parametrize("workers", [1, 3])
def test_proved_edges_are_not_checked(workers: int) -> None:
    made = chain.task_graph(deps=EXPLICIT)
    outputs = []
    for proof, expected in ((made.prove(), ("edges",)), (chain.prove(), ()), (None, ())):
        program = made.compile(proof=proof)
        x, y, z = rows()
        program(X=x, Y=y, Z=z, workers=workers)
        outputs.append(z)
        assert left_out(program) == expected
    assert all(np.array_equal(z, outputs[0]) for z in outputs) and outputs[0][0, 0] == 4


def test_a_run_says_what_is_proved() -> None:
    made = chain.task_graph(deps=EXPLICIT)
    program = made.compile(proof=made.prove())
    x, y, z = rows()
    program(X=x, Y=y, Z=z)
    assert program.stats is not None
    claims = program.stats.proved.claims
    assert "independence of `P` over `i`" in claims and "edges of `add`" in claims
    assert "no check of edges" in str(program.stats)


def test_edges_that_are_not_proved_are_checked() -> None:
    made = unordered.task_graph(deps=EXPLICIT)
    program = made.compile(proof=made.prove())
    x, y, z = rows()
    with pytest.raises(EdgesMissing):
        program(X=x, Y=y, Z=z)


def test_calls_with_shared_memory_are_checked() -> None:
    """A proof is about different arrays: one array for two tensors makes new conflicts."""
    made = pairs.task_graph(deps=EXPLICIT)
    program = made.compile(proof=made.prove())
    x, y, z = rows()
    program(W=x.copy(), X=x, Y=y, Z=z)
    assert left_out(program) == ("edges",)
    with pytest.raises(EdgesMissing):
        program(W=y, X=x, Y=y, Z=z)
    program(W=x, X=x, Y=y, Z=z)  # equal arrays that no task writes: checked, and right
    assert left_out(program) == ()


def test_proved_iterations_are_not_checked() -> None:
    program = shifted.compile(proof=shifted.prove())
    x, y, _ = rows()
    program(X=x, Y=y)
    assert left_out(program) == ()
    program(X=x, Y=y, check="hazards")
    assert left_out(program) == ("independence",)
    with pytest.raises(IterationsConflict):
        program(X=x, Y=x, check="hazards")


def test_proofs_under_assumptions_hold_where_these_are_checked() -> None:
    program = scatter.compile(proof=scatter.prove())
    x, y, _ = rows()
    program(slots=np.array([4, 2, 0, 1, 3], np.int32), X=x, Y=y, check="hazards")
    assert left_out(program) == ("independence",)
    with pytest.raises(AssumptionFails):
        program(slots=np.array([4, 2, 0, 1, 4], np.int32), X=x, Y=y, check="hazards")


def test_proved_instances_are_not_checked() -> None:
    program = parts.compile(proof=parts.prove())
    (y, *_) = rows(4)
    program(Y=y, check="hazards")
    assert left_out(program) == ("instances",) and (y == 1).all()


def test_instances_with_one_tensor_twice_are_checked() -> None:
    proof = twice.prove()
    assert "`y` and `z` are parts of `Y`" in str(proof.unknown[0])
    with pytest.raises(InstancesConflict):
        twice.compile(proof=proof).run(Y=rows()[0], check="hazards")


def test_another_schedule_keeps_the_proof() -> None:
    program = chain.compile(proof=chain.task_graph(deps=EXPLICIT).prove())
    x, y, z = rows()
    program(X=x, Y=y, Z=z)
    assert left_out(program) == ()
    program.reschedule(Schedule().task_graph(deps=EXPLICIT))
    program(X=x, Y=y, Z=z)
    assert left_out(program) == ("edges",)


def test_generated_source_leaves_out_the_same() -> None:
    made = chain.task_graph(deps=EXPLICIT)
    program = made.compile(expander="source", proof=made.prove())
    x, y, z = rows()
    program(X=x, Y=y, Z=z)
    assert left_out(program) == ("edges",)


REFUSED: dict[str, tuple[Callable[[], Program], str]] = {
    "another workload": (lambda: chain.compile(proof=unordered.prove()), "a proof of another workload"),
    "no proof": (lambda: chain.compile(proof=True), "what `prove` returns for `chain`"),  # pyright: ignore[reportArgumentType]
    "another target": (lambda: chain.compile("sim", proof=chain.prove()), '`target="cpu"` with it'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    compiling, text = REFUSED[name]
    with pytest.raises(WrongValue) as caught:
        compiling()
    assert text in str(caught.value)
