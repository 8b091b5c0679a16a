"""The wheel works alone: in a fresh environment, in a path with a space, without the source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.python.planner.test_headers import find_and_run

ROOT = Path(__file__).parents[2]
SOURCES = (
    "python",
    "docs",
    "include",
    "cpp",
    "cmake",
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)

PROGRAM = """
import sys
import numpy as np
import pto_wsp
from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, kernel, pto, workload

assert pto_wsp.__file__.startswith(sys.prefix), pto_wsp.__file__

@kernel
def scale(x: In[Tile[64, 128, f32]], y: Out[Tile[64, 128, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)

@workload
def scale_rows(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128], factor: Scalar[f32]):
    for rows in P.tiles("n", 64):
        scale[rows](x=X[rows], y=Y[rows], factor=factor)

program = scale_rows.compile(target="cpu")
for n in (1000, 7):
    x = np.random.rand(n, 128).astype(np.float32)
    y = np.empty_like(x)
    program(X=x, Y=y, factor=2.0)
    assert np.array_equal(y, x * np.float32(2.0))
print(program.stats)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=variables | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel offline from a copy of the sources that is gone before the wheel is used."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "sources"
    copy.mkdir()
    for source in (ROOT / name for name in SOURCES):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-C", "cmake.build-type=Debug")
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, copy, cwd=folder)
    shutil.rmtree(copy)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_wheel_holds_what_kernels_and_type_checkers_need(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    headers = {
        f"pto_wsp/include/{path.relative_to(ROOT / 'include')}" for path in (ROOT / "include").rglob("*.hpp")
    }
    assert headers and headers <= names
    assert {"pto_wsp/docs/tutorial.md", "pto_wsp/docs/errors.md"} <= names
    assert {"pto_wsp/py.typed", "pto_wsp/_native.pyi"} <= names
    assert any(name.startswith("pto_wsp/_native.") and name.endswith(".so") for name in names)
    assert not any("__pycache__" in name for name in names)
    # Calibration compiles its loops where it measures.
    assert {name for name in names if name.endswith(".cpp")} == {"pto_wsp/calibration/machine.cpp"}


@pytest.mark.slow
def test_find_package_in_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    find_and_run(tmp_path / "user", f"-DCMAKE_PREFIX_PATH={tmp_path / 'pto_wsp'}")


@pytest.mark.slow
def test_wheel_compiles_and_runs_the_first_program(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    run(
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=folder
    )
    # numpy is the only thing that a run needs; it comes from this environment so that no index is asked.
    numpy_home = Path(np.__file__).parents[1]
    for package in ("numpy", "numpy.libs"):
        if (numpy_home / package).exists():
            (site / package).symlink_to(numpy_home / package)
    (folder / "first program.py").write_text(PROGRAM, encoding="utf-8")
    printed = run(python, "-I", "first program.py", cwd=folder, PTO_WSP_CACHE=str(folder / "kernel cache"))
    assert printed.strip()
