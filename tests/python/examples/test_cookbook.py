"""The programs of `examples/cookbook`, each of which checks its result itself."""

from __future__ import annotations

import runpy

import pytest

from docs.cookbook import FOLDER, recipes
from docs.pictures import IMAGES
from tests.slow import mostly_slow

MAX_LINES = 65


@pytest.mark.parametrize("name", mostly_slow(recipes(), quick=3))
def test_programs_agree_with_numpy(name: str) -> None:
    names = runpy.run_path(str(FOLDER / f"{name}.py"))
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert "assert np." in text or "assert drawn" in text
    drawn = (IMAGES / "cookbook" / f"{name}.svg").read_text("utf-8")
    graph = names["program"].task_graph(**names["arguments"])
    assert all(task.label in drawn for task in graph.tasks[:3]), "run `python -m docs.pictures`"


def test_programs_are_short_and_drawn() -> None:
    for name in recipes():
        assert len((FOLDER / f"{name}.py").read_text("utf-8").splitlines()) <= MAX_LINES, name
        assert (IMAGES / "cookbook" / f"{name}.svg").exists()
