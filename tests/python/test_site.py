"""The site: pages that are made from docstrings and tables. `make site` builds it and checks its links."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import kernel_python, site
from docs.docstrings import markdown, wrapped_signature
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.tools.reference import SUBJECTS

ROOT = Path(__file__).parents[2]


def test_every_docstring_of_the_reference_can_be_read() -> None:
    pages = site.reference_pages()
    assert pages.keys() == {"index.md", "pto.md"} | {f"{slug}.md" for slug in SUBJECTS}
    for slug, subject in SUBJECTS.items():
        for name in subject.names:
            assert f"\n## {subject.heading(name)}\n" in pages[f"{slug}.md"]
    assert pages["pto.md"].count("\n## pto.") == len(FUNCTIONS)


def test_every_page_has_a_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in [*(p.relative_to(ROOT) for p in site.pages()), *site.reference_pages()]:
        path = f"docs/api/{page}" if isinstance(page, str) else page.as_posix()
        assert f"- {path}\n" in navigation or f": {path}\n" in navigation, path


def test_docstrings_become_lists_of_names() -> None:
    def scaled(x: float, by: float = 2.0) -> float:
        return x * by

    text = "Scale.\n\nArgs:\n    x: a number, of\n        two lines.\n    by: another.\n"
    shown = markdown(text, "scaled", scaled)
    assert shown == "Scale.\n\n**Args**\n\n- `x`: a number, of two lines.\n- `by`: another.\n"


@pytest.mark.parametrize("text", ["", "Do it.\n\nArgs:\n    no name\n", "Do it.\n\nArgs:\n    z: missing.\n"])
def test_docstrings_that_cannot_be_read_are_refused(text: str) -> None:
    def function(x: int) -> None: ...

    with pytest.raises(ValueError, match="function"):
        markdown(text, "function", function)


def test_long_signatures_have_a_parameter_per_line() -> None:
    signature = f"(a: dict[str, int] = {{}}, {', '.join(f'name{i}: int' for i in range(8))}) -> None"
    lines = wrapped_signature("f", signature).splitlines()
    assert lines[0] == "f(" and lines[1] == "    a: dict[str, int] = {}," and lines[-1] == ") -> None"


def test_rows_of_the_tables_of_python_are_read() -> None:
    with pytest.raises(ValueError, match="may use"):
        kernel_python.refusal("t = x * 2")
    for row in kernel_python.REFUSED:
        kernel_python.refusal(row.code)
        kernel_python.read(row.instead)


def test_resources_of_other_hosts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "a.html").write_text('<a href="https://example.com">fine</a>')
    (tmp_path / "html" / "b.html").write_text('<link rel="stylesheet" href="https://example.com/a.css">')
    assert site.external_resources() == ["b.html"]
