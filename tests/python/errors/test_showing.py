"""What a program that ends with an error shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pto_wsp
from pto_wsp import PtoError, parse
from pto_wsp.errors import UnknownText

PACKAGE = str(Path(pto_wsp.__file__).parent)
TEXT = "func @f(%a: !pto.memref<gm,8x8,f32> {in, tile}) {\\n  %b = tload %a[:, :] : f32\\n  return\\n}\\n"
IMPORTS = (
    "from pto_wsp import In, Out, Tile, P, Tensor, f32, kernel, parse, pto, workload, PTOFunctionBuilder\n"
)

PROGRAMS = {
    "a text": f"def main():\n    parse('{TEXT}')\nmain()\n",
    "a kernel": """
@kernel
def scale(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, pto.foo(pto.load(x)))
""",
    "a workload": """
@kernel
def copy(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, pto.load(x))
@workload
def w(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    def step(t):
        copy(X[t], X[t + 1])
    for t in P.tiles("n", 8):
        step(t)
w.compile()
""",
    "a builder": "PTOFunctionBuilder('f').tile('a', 8, 8).add('a', 'b', 'c').build()\n",
    "a file": "pto_wsp.Program.load('/none.pto')\n",
    "an error in the handling of another": f"""
try:
    {{}}['x']
except KeyError:
    parse('{TEXT}')
""",
}


def stderr_of(program: str, tmp_path: Path, *options: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(IMPORTS + "import pto_wsp\n" + program)
    done = subprocess.run(
        [sys.executable, *options, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_program_shows_its_own_lines_and_the_message(program: str, tmp_path: Path) -> None:
    found = stderr_of(program, tmp_path)
    assert f'File "{tmp_path / "program.py"}", line ' in found
    assert f'File "{PACKAGE}' not in found, found
    assert "error[" in found


RAISES_ITSELF = """
@workload
def w(X: Tensor[f32, "n", 8]):
    widths = {}
    for i in P.range(2):
        widths["none"]
w.compile()
"""


def test_so_does_an_error_of_the_users_code(tmp_path: Path) -> None:
    found = stderr_of(RAISES_ITSELF, tmp_path)
    assert "KeyError: 'none'" in found and found.count("program.py") == 2
    assert f'File "{PACKAGE}' not in found, found


def test_what_goes_wrong_in_the_package_is_shown(tmp_path: Path) -> None:
    program = "from pto_wsp.location import Location\nLocation('f', 1).source_line(2)\n"
    assert "TypeError" in stderr_of(program, tmp_path)
    program = "from pto_wsp.ir.module import Module\nModule('m').kernel('k')\n"
    assert f'File "{PACKAGE}' in stderr_of(program, tmp_path)


def test_in_development_mode_everything_is_shown(tmp_path: Path) -> None:
    assert f'File "{PACKAGE}' in stderr_of(PROGRAMS["a text"], tmp_path, "-X", "dev")


def test_the_lines_of_an_error_before_are_kept(tmp_path: Path) -> None:
    found = stderr_of(PROGRAMS["an error in the handling of another"], tmp_path)
    assert "KeyError: 'x'" in found
    assert "During handling of the above exception" in found


def test_who_handles_an_error_has_its_whole_traceback() -> None:
    with pytest.raises(UnknownText) as found:
        parse("func @f(%a: !pto.memref<gm,8x8,f32> {in, tile}) {\n  %b = tload %a[:, :] : f32\n}\n")
    files = [entry.path for entry in found.traceback]
    assert any(str(file).startswith(PACKAGE) for file in files)


def test_notebooks_show_the_same() -> None:
    """IPython asks an error that nobody handles for its lines."""
    try:
        parse("func")
    except PtoError as error:
        lines = error._render_traceback_()
    assert not any(PACKAGE in line for line in lines)
    assert any("error[bad-text]" in line for line in lines)
