"""Symbolic waits as text, for those who keep them: numbers of tasks in the text, and bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pto_wsp.analysis.accesses.sites import sites
from pto_wsp.ir.module import Module
from pto_wsp.prove.waits import SymbolicWait, WaitBound, inlined


def waits_to_text(waits: Sequence[SymbolicWait]) -> str:
    """Return the text of waits, without their tasks, which are those of their module."""
    rows = []
    for wait in waits:
        bounds = [(bound.kind, bound.loop, bound.offset) for bound in wait.bounds]
        numbers = wait.first.number, wait.second.number, wait.depth
        rows.append((*numbers, wait.is_earlier, wait.is_cut_off, bounds))
    return json.dumps(rows)


def waits_of_text(text: str, module: Module) -> tuple[SymbolicWait, ...]:
    """Return the waits that `waits_to_text` wrote for a module whose text is the same."""
    found = sites(inlined(module))
    return tuple(
        SymbolicWait(
            found[first], found[second], depth, is_earlier, tuple(WaitBound(*b) for b in bounds), is_cut_off
        )
        for first, second, depth, is_earlier, is_cut_off, bounds in json.loads(text)
    )
