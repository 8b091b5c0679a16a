"""`assume` and `distinct`: each run checks them, text keeps them, and proofs use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, assume, distinct, errors, f32, i32, kernel, parse, pto, workload
from pto_wsp.tools.main import FAILED, OK, main


@kernel
def copy(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x)


@workload
def scatter(slot: Tensor[i32, "n"], X: Tensor[f32, "n", 8], Y: Tensor[f32, 4, 8]):
    assume(distinct(slot))
    for i in P("n"):
        assume(slot[i] >= 0)
        assume(slot[i] < 4)
        copy[i](x=X[i : i + 1], y=Y[slot[i] : slot[i] + 1])


@workload
def shift(X: Tensor[f32, "n", 8]):
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=X[0:1])


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_each_run_checks_assumptions(target: str) -> None:
    program = scatter.compile(target)
    x = np.ones((2, 8), np.float32)
    for slots, problem in (
        ([0, 3], ""),
        ([3, 3], "distinct(slot)"),
        ([1, 4], "slot[i] < 4"),
        ([-1, 0], ">= 0"),
    ):
        y = np.zeros((4, 8), np.float32)
        if not problem:
            program(slot=np.array(slots, np.int32), X=x, Y=y)
            assert y[slots].all()
            continue
        with pytest.raises(errors.AssumptionFails) as caught:
            program(slot=np.array(slots, np.int32), X=x, Y=y)
        assert problem in str(caught.value)
        assert not y.any()


def test_findings_propose_statements_that_a_workload_can_contain() -> None:
    pytest.importorskip("islpy")

    @workload
    def gather(slot: Tensor[i32, "n"], X: Tensor[f32, "m", 1, 8], Y: Tensor[f32, "n", 8]):
        for i in P("n"):
            copy[i](x=X[slot[i]], y=Y[i : i + 1])

    @workload
    def gather_safely(slot: Tensor[i32, "n"], X: Tensor[f32, "m", 1, 8], Y: Tensor[f32, "n", 8]):
        for i in P("n"):
            assume(slot[i] >= 0)
            assume(slot[i] < X.shape[0])
            copy[i](x=X[slot[i]], y=Y[i : i + 1])

    proof, safe = gather.prove(), gather_safely.prove()
    assert repr(proof) == f"<Proof of {proof.summary}>"
    assert "help: state `assume(slot[i] >= 0)` and `assume(slot[i] < X.shape[0])`" in str(proof.unknown[0])
    assert safe.status == "proved" and "regions of `assume(slot[i] < m)`" in str(safe)


def test_text_keeps_assumptions_and_proofs_use_them() -> None:
    pytest.importorskip("islpy")
    module = scatter.trace().module
    assert parse(str(module)) == module
    assert scatter.prove().status == "proved"


def test_conditions_that_cannot_be_assumed_are_refused() -> None:
    @workload
    def parts(slot: Tensor[i32, "n", 2], X: Tensor[f32, 1, 8]):
        assume(distinct(slot[0]))

    @workload
    def floats(X: Tensor[f32, 1, 8]):
        assume(distinct(X))

    @workload
    def never(X: Tensor[f32, 1, 8]):
        assume(False)

    for wrong in (parts, floats, never):
        with pytest.raises(errors.BadOperand):
            wrong.trace()


def test_the_command_prints_what_is_not_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("islpy")
    for program, status, text in (
        (scatter, OK, "proved: independence"),
        (shift, FAILED, "two tasks touch: X[0:1"),
    ):
        file = tmp_path / "program.pto"
        file.write_text(str(program.trace().module))
        assert main(["prove", str(file), "--all"]) == status
        assert text in capsys.readouterr().out
