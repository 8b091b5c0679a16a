"""Proofs and runs: which checks a run leaves out because their outcome is proved."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp import _native
from pto_wsp.errors import WrongValue
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import DEFAULT
from pto_wsp.location import argument_location
from pto_wsp.prove.finding import EDGES, INDEPENDENT, INSTANCES, PROVED, Proof
from pto_wsp.support.record import record

_OPTIONS = {INDEPENDENT: "proves_iterations", INSTANCES: "proves_instances", EDGES: "proves_edges"}
"""The option of runs per claim that they check, in the order of `Statement` in sched/options.hpp."""


@record
class Proved:
    """What is proved about a program, and what a run did not check because of it.

    Attributes:
        claims: what is proved: "independence of `P` over `b`".
        left_out: claims that the run was to check and did not: "edges", "independence", "instances". Empty
            if tensors of the call share memory.
    """

    claims: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def proved(proof: Proof | None, left_out: Iterable[int]) -> Proved:
    """Return what a proof says, with the numbers of the statements that a run left out."""
    claims = () if proof is None else tuple(f.head for f in proof.findings if f.status == PROVED)
    return Proved(claims, tuple([*_OPTIONS][number] for number in left_out))


def use_proof(proof: Proof | None, options: _native.RunOptions) -> None:
    """Let runs leave out the checks of what is proved."""
    for claim, option in _OPTIONS.items():
        setattr(options, option, proof is not None and proof.holds(claim))


def require_proof_of(module: Module, proof: object, target: str) -> None:
    """Refuse what is not a proof of a module, and targets whose runs make no such checks.

    Raises:
        WrongValue: it is one of these.
    """
    name, loc = module.entry, argument_location("proof")
    if target != "cpu":
        expected, found = '`target="cpu"` with it', f'`target="{target}"`'
        raise WrongValue(name="proof", expected=expected, found=found, loc=loc)
    expected = f"what `prove` returns for `{name}`"
    if not isinstance(proof, Proof):
        raise WrongValue(name="proof", expected=expected, found=repr(proof), loc=loc)
    if proof.module.with_schedule(DEFAULT) != module.with_schedule(DEFAULT):
        found = f"a proof of another workload, `{proof.module.entry}`"
        raise WrongValue(name="proof", expected=expected, found=found, loc=loc)
