"""The programs of `examples/cookbook`, each of which checks its result itself."""

from __future__ import annotations

import ast

import pytest

from docs.cookbook import FOLDER, LESSONS, recipes
from docs.pictures import IMAGES, recipe_graph
from tests.slow import mostly_slow

MAX_LINES = 45
MAX_LINES_OF_LESSONS = 30


@pytest.mark.parametrize("name", mostly_slow(recipes(), quick=3))
def test_programs_agree_with_numpy(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert "assert np." in text or "assert drawn" in text
    drawn = (IMAGES / "cookbook" / f"{name}.svg").read_text("utf-8")
    assert all(task.label in drawn for task in recipe_graph(name).tasks[:3]), "run `python -m docs.pictures`"


def test_programs_are_short_and_drawn() -> None:
    for name in recipes():
        text = (FOLDER / f"{name}.py").read_text("utf-8")
        about = ast.parse(text).body[0].end_lineno
        code = [line for line in text.splitlines()[about:] if line.strip()]
        assert len(code) <= (MAX_LINES_OF_LESSONS if name in LESSONS else MAX_LINES), name
        assert (IMAGES / "cookbook" / f"{name}.svg").exists()
