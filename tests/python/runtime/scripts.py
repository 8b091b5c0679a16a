"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_script(text: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may import from `tests`, and return what it has printed."""
    path = folder / "program.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
