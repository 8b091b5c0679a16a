"""One Markdown page per error code: prose, a program with the mistake, and the error as it is printed.

A page `<code>.md` starts with `# <code>` and holds one or more pairs of a `python` block and the `text`
block that it must produce. Each program runs from a file `example.py` in a folder of its own, which is also
its working directory. In a `text` block `[...]` matches text that depends on the machine. The pages are
also the chapters of docs/errors.md.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pto_wsp.errors import PtoError, catalogue
from pto_wsp.targets import registry

PAGES = Path(__file__).parent
CODES = [cls.code for cls in catalogue()]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELISION = "[...]"


@dataclass(frozen=True)
class Case:
    page: Path
    number: int
    program: str
    expected: str

    def __str__(self) -> str:
        return f"{self.page.stem}-{self.number}"


def cases_of(page: Path) -> list[Case]:
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    languages = [language for language, _ in blocks]
    assert languages, f"{page.name} has no blocks"
    assert languages == ["python", "text"] * (len(blocks) // 2), f"{page.name}: {languages} are not pairs"
    texts = [text for _, text in blocks]
    return [
        Case(page, number, program, expected.rstrip("\n"))
        for number, (program, expected) in enumerate(zip(texts[::2], texts[1::2], strict=True), start=1)
    ]


CASES = [case for page in sorted(PAGES.glob("*.md")) for case in cases_of(page)]


def run_program(program: str, folder: Path) -> PtoError:
    path = folder / "example.py"
    path.write_text(program, encoding="utf-8")
    os.chdir(folder)
    with pytest.raises(PtoError) as caught:
        runpy.run_path(str(path))
    return caught.value


def matches(expected: str, printed: str) -> bool:
    pattern = ".+?".join(map(re.escape, expected.split(ELISION)))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.fixture
def environment() -> Iterator[None]:
    """Undoes what a program does to environment variables, folder, modules and registered targets."""
    variables, folder, targets = dict(os.environ), Path.cwd(), dict(registry.TARGETS)
    modules = [vars(module) for name, module in sys.modules.items() if name.split(".")[0] == "pto_wsp"]
    names = [dict(module) for module in modules]
    yield
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for module, before in zip(modules, names, strict=True):
        module.update(before)
    registry.TARGETS.clear()
    registry.TARGETS.update(targets)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_error_is_printed_as_its_page_says(
    case: Case, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "import torch\n" in case.program:
        pytest.importorskip("torch")
    error = run_program(case.program, tmp_path)
    printed = str(error).replace(f"{tmp_path}{os.sep}", "")
    assert error.code == case.page.stem
    if not matches(case.expected, printed):
        if request.config.getoption("--update") and ELISION not in case.expected:
            text = case.page.read_text(encoding="utf-8")
            case.page.write_text(text.replace(case.expected, printed), encoding="utf-8")
            return
        assert printed == case.expected


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_page(code: str) -> None:
    page = PAGES / f"{code}.md"
    assert page.exists(), f"write tests/errors/{code}.md"
    assert page.read_text(encoding="utf-8").startswith(f"# {code}\n")


def test_every_page_has_its_code() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} <= set(CODES)
    assert len(CODES) == len(set(CODES))


def test_every_class_is_documented() -> None:
    assert [cls.__name__ for cls in catalogue() if not cls.__doc__] == []
