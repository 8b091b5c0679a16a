"""Schedules as options of the engine."""

from __future__ import annotations

from pto_wsp import _native
from pto_wsp.ir.schedule import Directives


def run_options(schedule: Directives) -> _native.RunOptions:
    """Return the options of runs under a schedule; the engine chooses what it leaves open."""
    options = _native.RunOptions()
    for directive in schedule:
        for name, value in directive.engine_settings().items():
            kind = type(getattr(options, name))
            setattr(options, name, getattr(kind, value) if isinstance(value, str) else value)
    return options
