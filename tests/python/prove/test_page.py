"""docs/proofs.md: its programs print what the page says, and a run confirms each refutation."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

from pto_wsp.lang.workload.workload import Workload
from tests.python.prove.confirming import confirm

pytest.importorskip("islpy")

PAGE = (Path(__file__).parents[3] / "docs" / "proofs.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall(PAGE)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
PRINTED = [text for language, text in BLOCKS if language == "text"]
KERNELS = PROGRAMS[0].split("@workload")[0]
FIRST_WRONG = 3
"""The programs before this one print something else than a refutation."""


def ran(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    (folder / "example.py").write_text(program, encoding="utf-8")
    linecache.clearcache()
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(program, "example.py", "exec"), names)
    return names


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_print_what_the_page_says(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS[number] if number == 0 else KERNELS + PROGRAMS[number]
    names = ran(program, tmp_path, monkeypatch)
    assert capsys.readouterr().out == PRINTED[number]
    if number < FIRST_WRONG:
        return
    (wrong,) = (value for value in names.values() if isinstance(value, Workload))
    confirm(wrong.trace().module, wrong.prove().refuted[0])


def test_there_are_ten_wrong_programs() -> None:
    assert len(PROGRAMS) == len(PRINTED) == FIRST_WRONG + 10
