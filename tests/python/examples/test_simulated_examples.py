"""Values and cycles of the examples on a simulated device."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.__main__ import check, difference, golden, text
from examples.cases import HERE, LEFT_OUT, cases
from tests.slow import mostly_slow


@pytest.mark.parametrize("name", mostly_slow(dict(cases()), quick=4))
def test_values_and_cycles_are_golden(name: str) -> None:
    assert not check(name, dict(cases())[name](), golden()[name])


def test_every_example_is_simulated_or_left_out_by_name() -> None:
    folders = {path.parent.relative_to(HERE).parts[0] for path in HERE.glob("*/*.py")}
    simulated = {Path(name).parts[0] for name, _ in cases()}
    assert folders | {"planner"} == simulated | LEFT_OUT.keys()
    assert {f"cookbook/{path.name}" for path in HERE.glob("cookbook/*.py")} <= dict(cases()).keys()
    assert [*golden()] == [name for name, _ in cases()]
    assert text(golden()) == (HERE / "golden.toml").read_text("utf-8")


def test_other_values_are_found() -> None:
    values = {"Y": [0.5, 1.0], "Z": [0.0, 2.0]}
    assert not difference(values, values)
    assert "`Z` has mean" in difference({**values, "Z": [0.01, 2.0]}, values)
    assert "writes Y" in difference({"Y": [0.5, 1.0]}, values)
