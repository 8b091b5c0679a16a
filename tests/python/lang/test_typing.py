"""The surface satisfies type checkers, and the stub of `pto` is the instruction table's."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pto_wsp.lang.kernel import pto

SAMPLES = Path(__file__).parent / "typing_samples"
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["basic", "standard", "strict"])
def test_pyright_accepts_the_samples(mode: str, tmp_path: Path) -> None:
    pyright = shutil.which("pyright") or shutil.which("pyright", path=str(ROOT / ".venv" / "bin"))
    if pyright is None:
        pytest.skip("pyright is not installed")
    quiet = ("reportMissingParameterType", "reportUnknownParameterType", "reportUnknownVariableType")
    quiet += ("reportUnknownArgumentType", "reportUnknownMemberType")  # of the parameters without annotation
    config = {
        "include": [str(SAMPLES)],
        "extraPaths": [str(ROOT / "python")],
        "typeCheckingMode": mode,
        "pythonVersion": "3.11",
        **dict.fromkeys(quiet, False),
    }
    path = tmp_path / "pyrightconfig.json"
    path.write_text(json.dumps(config))
    done = subprocess.run([pyright, "-p", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_stub_of_pto_is_complete() -> None:
    assert pto.__file__ is not None
    tree = ast.parse(Path(pto.__file__).with_suffix(".pyi").read_text())
    stubs = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert stubs.keys() == pto.FUNCTIONS.keys()
    for name, args in stubs.items():
        function = pto.FUNCTIONS[name]
        names = [a.arg for a in (*args.args, *filter(None, [args.vararg]))]
        assert tuple(names) == function.parameters, name
        assert len(args.args) - len(args.defaults) == len(function.required), name
