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
from tests.slow import mostly_slow

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *EXAMPLES]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

CHECKS = """
starts = np.cumsum([0, *lengths])
for b, (first, end) in enumerate(zip(starts[:-1], starts[1:])):
    scores = np.einsum("hgd,thd->hgt", q[b].astype(float), k[first:end]) / 128**0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(o[b], np.einsum("hgt,thd->hgd", weights, v[first:end]), atol=1e-5)
"""
SAVED = """
open("decode.pto", "w").write(str(program.module))
for name, array in dict(offsets=starts, q=q, k=k, v=v, expected=o).items():
    np.save(name + ".npy", array)
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


def test_example_fits_a_screen() -> None:
    (example,) = programs_of(README)
    assert len([line for line in example.splitlines() if line.strip()]) <= 30


def test_example_and_command_run_as_printed(tmp_path: Path) -> None:
    (example,) = programs_of(README)
    assert run_in(tmp_path, example + CHECKS + SAVED).strip()
    text = README.read_text(encoding="utf-8").replace("\\\n", "")
    (command,) = re.findall("^pto (run .*)$", text, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "pto_wsp", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "160 tasks" in done.stdout + done.stderr
    assert np.array_equal(np.load(tmp_path / "o.npy"), np.load(tmp_path / "expected.npy"))


def test_figures_are_rows_of_results() -> None:
    for case, name, *_ in FIGURES:
        result = json.loads((ROOT / "benchmarks" / "results" / f"{case}.json").read_text(encoding="utf-8"))
        assert name in {row["name"] for row in result["rows"]}
    assert figures() in README.read_text(encoding="utf-8")


def test_tutorial_runs_as_printed(tmp_path: Path) -> None:
    printed = run_in(tmp_path, "\n".join(programs_of(ROOT / "docs" / "tutorial.md")))
    assert "error[wrong-shape]" in printed
    assert (tmp_path / "scale_rows.svg").read_text(encoding="utf-8").startswith("<svg")


BEFORE = {
    "adding_a_pass": "from pto_wsp import parse\nfrom tests.python.builder.softmax import softmax_module\n"
    "module = parse(str(softmax_module()))\n",
    "advice": "",
    "processes": "",
    "simulation": "",
    "ascend": "",
    "architecture": """
from pto_wsp import DYN, In, Out, P, Tensor, f32, kernel, pto, workload

@kernel
def mul(a: In[Tensor[f32, DYN, 512]], b: In[Tensor[f32, 512, 64]], y: Out[Tensor[f32, DYN, 64]]):
    for r in pto.tiles(a.rows, 32):
        pto.store(y[r], pto.matmul(a[r], b))

@kernel
def add(p: In[Tensor[f32, DYN, 64]], q: In[Tensor[f32, DYN, 64]], y: Out[Tensor[f32, DYN, 64]]):
    for r in pto.tiles(p.rows, 32):
        pto.store(y[r], p[r] + q[r])
""",
    "attention": "",
    "builder": "",
    "debugging": "",
    "from_spec_001": "",
    "matmul": "",
    "planner": "",
    "pto_text": """
from tests.python.builder.softmax import softmax_module
open("softmax.pto", "w").write(str(softmax_module()))
""",
    "runs": """
from importlib import import_module
import numpy as np
program = import_module("examples.01_scale_rows.scale_rows").scale_rows.compile()
x = np.ones((1000, 128), np.float32)
y0, y1 = np.empty_like(x), np.empty_like(x)
prepare_the_next_batch = lambda: None
""",
    "sessions": "",
    "schedules": "from importlib import import_module\n"
    "decode = import_module('examples.06_tuned_decode.tuned_decode').decode\n",
    "tile_library": "",
    "torch": "",
}
"""What the programs of a page take for granted."""

OF_THEIR_OWN = {"cookbook", "errors", "proofs", "tutorial"}
"""Pages whose programs other tests run."""


def test_every_page_with_programs_is_run() -> None:
    found = {page.stem for page in (ROOT / "docs").glob("*.md") if programs_of(page)}
    assert found == BEFORE.keys() | OF_THEIR_OWN


@pytest.mark.parametrize("page", mostly_slow(BEFORE, quick=3))
def test_pages_run_as_printed(page: str, tmp_path: Path) -> None:
    if page == "torch":
        pytest.importorskip("torch")
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" if BEFORE[page] else ""
    run_in(tmp_path, "\n".join([path + BEFORE[page], *programs_of(ROOT / "docs" / f"{page}.md")]))


def plain(code: str) -> str:
    """Python without comments, spaces and trailing commas."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"#[^\n]*|\s", "", code))


@pytest.mark.parametrize("page", mostly_slow(EXAMPLES, quick=4), ids=lambda page: page.parent.name)
def test_pages_of_examples_quote_them(page: Path, tmp_path: Path) -> None:
    """A program with imports runs; others stand in the example, but for what `...` and gaps leave out."""
    source = plain("\n".join(path.read_text("utf-8") for path in sorted(page.parent.glob("*.py"))))
    for program in programs_of(page):
        if program.startswith("import "):
            run_in(tmp_path, f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}")
            continue
        for part in re.split(r"\.\.\.|\n\n", program):
            assert plain(part).strip(",") in source, part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / target).exists(), target
