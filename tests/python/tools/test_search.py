"""`pto docs`, and the reference that it searches."""

from __future__ import annotations

import pytest

import pto_wsp
from pto_wsp import builder, planner, text
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.ops.functional import OPERATORS
from pto_wsp.tools.main import FAILED, OK, main
from pto_wsp.tools.reference import SUBJECTS, entries, resolve
from pto_wsp.tools.search import search, sections_of
from pto_wsp.types import DTYPES

ELSEWHERE = {"pto", "ptoisa"} | set(DTYPES)
"""Modules with pages of their own, and element types, which one sentence lists."""


def test_every_public_name_is_in_the_reference_once() -> None:
    listed = [name for subject in SUBJECTS.values() for name in subject.names]
    assert len(listed) == len(set(listed))
    found = {id(resolve(name)) for name in listed}
    for module in (pto_wsp, builder, text, planner):
        for name in set(module.__all__) - ELSEWHERE:
            member = getattr(module, name)
            is_constant = name.isupper() and name not in ("ALL", "DYN")
            is_error = isinstance(member, type) and issubclass(member, pto_wsp.PtoError)
            kinds = {id(member), id(type(member))}
            assert is_constant or is_error or kinds & found, f"{module.__name__}.{name}"
    assert {f"pto_wsp.ops.functional.{name}" for name in OPERATORS} <= set(listed)


def test_every_entry_has_a_docstring() -> None:
    found = list(entries())
    assert len(found) > 400
    for _, heading, shown in found:
        assert len(shown.splitlines()) > 1 and not shown.endswith("\nNone"), heading


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("rowmax",), ("instructions.md", "rowmax")),
        (("Carried-Value",), ("errors.md", "carried-value")),
        (("group_by",), ("api/workloads", "group_by")),
        (("flush", "point"), ("glossary.md", "flush point")),
        (("paged", "cache"), ("tutorial.md", "Pages")),
    ],
)
def test_the_best_match_comes_first(words: tuple[str, ...], place: tuple[str, str]) -> None:
    found = search(words)
    assert place in [(section.page, section.heading) for section in found[:2]]


def test_every_function_of_a_kernel_is_found_by_its_name() -> None:
    for name in list(FUNCTIONS)[::10]:
        assert any(name in section.heading for section in search((name,))[:2]), name


def test_sections_end_at_headings_and_rows_that_name_something_are_sections() -> None:
    page = "# Page\n\nfirst\n\n```sh\n# no heading\n```\n\n## Part\n\n| `row` | meaning |\n\nlast\n"
    found = [(s.title, s.heading, s.lines[-1]) for s in sections_of("page.md", page)]
    assert found == [("Page", "Page", ""), ("Page", "row", "| `row` | meaning |"), ("Page", "Part", "last")]


def test_the_command_shows_places_and_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "rowmax", "-n", "1"]) == OK
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "instructions.md: rowmax" and "trowmax" in shown[1]
    assert shown[-1].endswith(tuple("0123456789")) and "more: -n" in shown[-1]


def test_unknown_words_are_refused_with_the_closest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "kernel", "softmx"]) == FAILED
    assert "did you mean `softmax`?" in capsys.readouterr().err
