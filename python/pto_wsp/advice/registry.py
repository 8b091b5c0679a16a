"""Every advice, and the adviser that asks all of them."""

from __future__ import annotations

from pto_wsp.advice.advice import Advices
from pto_wsp.advice.case import Case
from pto_wsp.advice.report import Report
from pto_wsp.advice.rules import (
    finding_dependences,
    idle_workers,
    large_tiles,
    serial_loop,
    shared_cores,
    short_bodies,
    strided_weights,
)
from pto_wsp.location import of_user
from pto_wsp.support.record import replace

RULES = tuple(
    module.RULE
    for module in (
        shared_cores,
        finding_dependences,
        short_bodies,
        serial_loop,
        idle_workers,
        strided_weights,
        large_tiles,
    )
)
"""The table of advices."""


def advise(case: Case) -> Advices:
    """Return what costs time in a run, the largest gain first.

    Lines inside this package are not a user's to change: an advice about one of them is left out. There is
    no advice on simulated time.
    """
    if case.machine.is_simulated:
        return Advices()
    is_disturbed = shared_cores.is_disturbed(case)
    rules = (rule for rule in RULES if not (rule.is_timed and is_disturbed))
    found = (advice for rule in rules for advice in rule.find(case))
    ours = (advice for advice in found if advice.loc is None or of_user(advice.loc) is not None)
    return Advices(sorted(ours, key=lambda advice: -advice.gain_ns))


def full_report(case: Case) -> Report:
    """Return the figures of a run, with advice."""
    return replace(case.report, advice=advise(case))
