"""The programs in the README and the tutorial run as printed, and links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs.figures import FIGURES, figures

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

CHECKS = """
assert np.array_equal(y[:7], x[:7] * np.float32(3.0))
assert np.array_equal(y[7:], x[7:] * np.float32(2.0))
"""


def programs_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run_in(folder: Path, program: str) -> str:
    path = folder / "example.py"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example_fits_the_first_screen() -> None:
    (example,) = programs_of(README)
    assert len([line for line in example.splitlines() if line.strip()]) <= 20


def test_example_runs_as_printed(tmp_path: Path) -> None:
    (example,) = programs_of(README)
    assert run_in(tmp_path, example + CHECKS).strip()


def test_command_runs_as_printed(tmp_path: Path) -> None:
    (example,) = programs_of(README)
    run_in(tmp_path, example + 'open("scale_rows.pto", "w").write(str(program.module)); np.save("x.npy", x)')
    (command,) = re.findall("^pto (run .*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "pto_wsp", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "16 tasks" in done.stdout + done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * np.load(tmp_path / "x.npy"))


def test_figures_are_rows_of_results() -> None:
    for case, name, _ in FIGURES:
        result = json.loads((ROOT / "benchmarks" / "results" / f"{case}.json").read_text(encoding="utf-8"))
        assert name in {row["name"] for row in result["rows"]}
    assert figures() in README.read_text(encoding="utf-8")


def test_tutorial_runs_as_printed(tmp_path: Path) -> None:
    printed = run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "tutorial.md")))
    assert "error[wrong-shape]" in printed
    assert (tmp_path / "scale_rows.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_page_on_the_tile_library_runs_as_printed(tmp_path: Path) -> None:
    run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "tile_library.md")))


def test_the_page_on_attention_runs_as_printed(tmp_path: Path) -> None:
    run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "attention.md")))


def test_the_page_on_products_runs_as_printed(tmp_path: Path) -> None:
    run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "matmul.md")))


def test_the_page_on_the_builder_runs_as_printed(tmp_path: Path) -> None:
    run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "builder.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / target).exists(), target
