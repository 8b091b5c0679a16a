"""The tables of docs/simulation.md are those of the present model."""

from __future__ import annotations

import pytest

from benchmarks.sim.claims import PAGE, tables


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_present_model() -> None:
    assert tables() in PAGE.read_text("utf-8"), "run `python -m benchmarks.sim.claims --write`"
