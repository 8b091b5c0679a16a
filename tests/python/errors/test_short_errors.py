"""What `short_errors` shows of a program that ends with an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

import pto_wsp
from pto_wsp import parse
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


def stderr_of(program: str, tmp_path: Path, context: str = "pto_wsp.short_errors()") -> str:
    path = tmp_path / "program.py"
    path.write_text(IMPORTS + f"import contextlib, pto_wsp\nwith {context}:\n" + indent(program, "    "))
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False
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


def test_an_error_of_the_users_code_is_short_too(tmp_path: Path) -> None:
    found = stderr_of(RAISES_ITSELF, tmp_path)
    assert "KeyError: 'none'" in found and found.count("program.py") == 2
    assert f'File "{PACKAGE}' not in found, found


def test_a_defect_of_the_package_keeps_its_frames(tmp_path: Path) -> None:
    program = "from pto_wsp.ir.module import Module\nModule('m').kernel('k')\n"
    assert f'File "{PACKAGE}' in stderr_of(program, tmp_path)


def test_other_errors_are_as_they_were(tmp_path: Path) -> None:
    assert "ZeroDivisionError" in stderr_of("1 / 0\n", tmp_path)


def test_without_the_context_all_frames_are_shown_with_the_message(tmp_path: Path) -> None:
    found = stderr_of(PROGRAMS["a text"], tmp_path, "contextlib.nullcontext()")
    assert f'File "{PACKAGE}' in found and "error[" in found and "^" in found.splitlines()[-1]


def test_the_lines_of_an_error_before_are_kept(tmp_path: Path) -> None:
    found = stderr_of(PROGRAMS["an error in the handling of another"], tmp_path)
    assert "KeyError: 'x'" in found
    assert "During handling of the above exception" in found


def test_a_program_that_handles_an_error_has_its_whole_traceback() -> None:
    with pytest.raises(UnknownText) as found:
        parse("func @f(%a: !pto.memref<gm,8x8,f32> {in, tile}) {\n  %b = tload %a[:, :] : f32\n}\n")
    files = [entry.path for entry in found.traceback]
    assert any(str(file).startswith(PACKAGE) for file in files)


HOOKS = """
import builtins, faulthandler, gc, signal, sys, threading, warnings, numpy

def hooks():
    names = ("excepthook", "displayhook", "unraisablehook", "breakpointhook", "meta_path", "path_hooks")
    found = [getattr(sys, name) for name in names]
    found += [sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.getswitchinterval()]
    found += [threading.excepthook, gc.get_threshold(), gc.get_freeze_count(), gc.callbacks, builtins.open]
    found += [list(warnings.filters)]
    return [*map(repr, found), [repr(signal.getsignal(number)) for number in signal.valid_signals()]]

before = hooks()
import pto_wsp
print(before == hooks() or [pair for pair in zip(before, hooks()) if pair[0] != pair[1]])
"""


def test_importing_the_package_installs_no_hook() -> None:
    done = subprocess.run([sys.executable, "-c", HOOKS], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
