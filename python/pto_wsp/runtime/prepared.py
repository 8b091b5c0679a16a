"""A module as what runs it needs it."""

from __future__ import annotations

from functools import cached_property

from pto_wsp.ir.module import Module
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.passes.pipeline import prepare
from pto_wsp.passes.settle_floats import settle_floats
from pto_wsp.prove.finding import Proof
from pto_wsp.targets.base import Target
from pto_wsp.targets.schedules import require_support


class Prepared:
    """A verified module, and what passes make of it for its target when it is first needed.

    Attributes:
        source: what the entry of the module comes to, as it was written.
        target: where it runs.
        proof: what is proved about it, if `compile` was given a proof.
    """

    def __init__(self, source: Module, target: Target, proof: Proof | None = None) -> None:
        self.source = source.reached
        self.target = target
        self.proof = proof

    @cached_property
    def module(self) -> Module:
        """The module to run: without calls and loops to be expanded, nor functions that only these needed.

        Raises:
            CannotInline, CannotExpand, BadKey, UnsupportedByTarget: it cannot run so.
        """
        module = prepare(self.source).reached
        check_schedule(module, self.target.name)
        self.target.require_spaces(module)
        self.target.require_networks(module.entry_workload)
        return module if self.target.evaluates_floats else settle_floats(module)


def check_schedule(module: Module, target: str) -> None:
    """Check the schedule of a verified module against its tasks and against a target.

    Raises:
        BadKey, UnsupportedByTarget: it does not fit.
    """
    require_support(target, module)
    for directive in module.schedule:
        for key in directive.key_exprs:
            TaskKeys(module, key).check()
