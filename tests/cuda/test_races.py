"""ThreadSanitizer over an emulated block, whose threads it knows as fibers: no element is raced for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda.emit import emit_device_code
from tests.cuda.emulated import EMULATION, emulated_source
from tests.cuda.test_barriers import softmax_rows

_MAIN = """
int main() {
  static float a[16][32], y[16][16];
  for (int i = 0; i < 16 * 32; ++i) a[0][i] = float(i % 7) - 3.0f;
  pto::wsp::View views[2] = {{a, {16, 32, 1, 1}, {32, 1, 0, 0}, nullptr, false},
                             {y, {16, 16, 1, 1}, {16, 1, 0, 0}, nullptr, false}};
  pto::wsp::Monitor monitor{};
  alignas(64) static char scratch[1 << 20];
  pto::wsp::TaskContext context{scratch, nullptr, 0, 0, 0, 1, &monitor};
  return pto_wsp_kernel_library()->kernels[0].fn(views, nullptr, &context);
}
"""


def run_checked(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile a program with ThreadSanitizer, and run it."""
    source, output = folder / "race.cpp", folder / "race"
    source.write_text(text + _MAIN)
    options = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-fsanitize=thread"]
    command = ["g++", *options, f"-I{include_directory()}", f"-I{EMULATION}", str(source), "-o", str(output)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        pytest.skip(f"g++ builds nothing with ThreadSanitizer: {built.stderr[-300:]}")
    # The sanitizer needs its addresses where they are without randomisation.
    fixed = ["setarch", "-R"]
    may_fix = shutil.which("setarch") and subprocess.run([*fixed, "true"], check=False).returncode == 0
    command = [*(fixed if may_fix else []), str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_races(tmp_path: Path) -> None:
    kernel = softmax_rows().done()
    text = emulated_source([kernel], emit_device_code([kernel]))
    done = run_checked(text, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    broken = run_checked(text.replace("sync();", "", 3), tmp_path)
    assert "data race" in broken.stderr
