"""The C++ examples compile without a warning and check their own results."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.python.planner.test_headers import COMPILERS, INCLUDE, ROOT, STANDARDS, STRICT
from tests.slow import mostly_slow

EXAMPLES = ROOT / "examples" / "planner"
CXX20 = {"decode_attention_aicpu"}
PROGRAMS = [
    (path.stem, standard)
    for path in sorted(EXAMPLES.glob("*.cpp"))
    for standard in STANDARDS
    if standard == "c++20" or path.stem not in CXX20
]


@pytest.mark.parametrize(("name", "standard"), mostly_slow(PROGRAMS, quick=2))
@pytest.mark.parametrize("cxx", COMPILERS)
def test_example(cxx: str, name: str, standard: str, tmp_path: Path) -> None:
    command = [cxx, f"-std={standard}", "-O1", "-D__CPU_SIM", *STRICT[:2], "-Werror", "-pthread"]
    files = [f"-I{INCLUDE}", EXAMPLES / f"{name}.cpp", "-o", tmp_path / name]
    built = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_page_says_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    program = "".join(part.split("```")[0] for part in page.split("```python\n")[1:])
    exec(program, {})
    said = [line.split("# ")[1] for line in program.splitlines() if line.startswith("print(")]
    assert capsys.readouterr().out.splitlines() == said
