"""Loads of the target `cuda` that begin some iterations ahead, in tiles with several places."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.errors import KernelFailed
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda import ahead
from pto_wsp.targets.cuda.emit import emit_device_code
from pto_wsp.targets.cuda.memory import MOST_BLOCKS, MULTIPROCESSOR_BYTES, OWN_BYTES, room_of_blocks
from tests.cuda.alone import SANITIZED, Broken, alone
from tests.cuda.emulated import EMULATION
from tests.cuda.test_races import code_of, kernels_of, run_checked
from tests.slow import mostly_slow

COLS = 32


@kernel
def add_rows(
    x: In[Tensor[f32, DYN, COLS]],
    w: In[Tensor[f32, DYN, COLS]],
    y: Out[Tile[1, COLS, f32]],
    first: Scalar[i64],
):
    acc = pto.zeros((1, COLS))
    for r in pto.tiles(x.rows, 8):
        acc = acc * 0.5 + pto.colsum(pto.load(x[r]) * w[r])
    for i in range(first, 7, 2):
        acc = acc + x[i : i + 1] * 3.0
    pto.store(y, acc)


@workload
def add_all(
    X: Tensor[f32, "n", COLS], W: Tensor[f32, "m", COLS], Y: Tensor[f32, 1, COLS], first: Scalar[i64]
):
    add_rows(x=X, w=W, y=Y, first=first)


@kernel
def double(x: InOut[Tensor[f32, DYN, COLS]]):
    for r in pto.tiles(x.rows, 8):
        pto.store(x[r], pto.load(x[r]) * 2.0)


@workload
def double_all(X: Tensor[f32, "n", COLS]):
    double(x=X)


@kernel
def jump(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[8, COLS, f32]]):
    acc, at = pto.zeros((8, COLS)), 0
    for i in range(3):
        acc = acc + x[at : at + 8]
        at = at + i
    pto.store(y, acc)


@workload
def jump_all(X: Tensor[f32, "n", COLS], Y: Tensor[f32, 8, COLS]):
    jump(x=X, y=Y)


@kernel
def add_large(x: In[Tensor[f32, DYN, 128]], w: In[Tensor[f32, DYN, 128]], y: Out[Tile[1, 128, f32]]):
    acc = pto.zeros((1, 128))
    for r in pto.tiles(x.rows, 64):
        acc = acc + pto.colsum(pto.load(x[r])) + pto.colsum(pto.load(w[r]))
    pto.store(y, acc)


@workload
def add_all_large(X: Tensor[f32, "n", 128], W: Tensor[f32, "n", 128], Y: Tensor[f32, 1, 128]):
    add_large(x=X, w=W, y=Y)


@kernel
def add_broadcast(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[16, 16, f32]]):
    acc = pto.zeros((16, 16))
    for i in range(x.rows):
        acc = acc + x[i : i + 1, 0:16]
    pto.store(y, acc)


@workload
def broadcast_all(X: Tensor[f32, "n", COLS], Y: Tensor[f32, 16, 16]):
    add_broadcast(x=X, y=Y)


@kernel
def add_medium(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[1, COLS, f32]]):
    acc = pto.zeros((1, COLS))
    for r in pto.tiles(x.rows, 56):
        acc = acc + pto.colsum(pto.load(x[r]))
    pto.store(y, acc)


@workload
def add_all_medium(X: Tensor[f32, "n", COLS], Y: Tensor[f32, 1, COLS]):
    add_medium(x=X, y=Y)


@kernel
def add_thrice(x: In[Tensor[f32, 24, COLS]], w: In[Tensor[f32, DYN, COLS]], y: Out[Tile[8, COLS, f32]]):
    acc, at = pto.zeros((8, COLS)), 0
    for r in pto.tiles(24, 8):
        acc = acc + x[r]
    for i in range(2):
        acc = acc + x[i : i + 8]
    for r in pto.tiles(24, 8):
        acc = acc + x[r] + w[at : at + 8]
        at = at + 2
    pto.store(y, acc)


@workload
def add_all_thrice(X: Tensor[f32, 24, COLS], W: Tensor[f32, "n", COLS], Y: Tensor[f32, 8, COLS]):
    add_thrice(x=X, w=W, y=Y)


@pytest.mark.parametrize(
    ("of", "loads"),
    [(add_all, 3), (broadcast_all, 1), (add_all_large, 1), (double_all, 0), (jump_all, 0)],
    ids=[
        "of two loops",
        "of rows",
        "as far as two places fit",
        "not of what it stores",
        "not of moving rows",
    ],
)
def test_which_loads_begin_ahead(of: Workload, loads: int) -> None:
    assert code_of(kernels_of(of)).count("+ place * ") == loads


STAGES = {
    "small tiles": (add_all, (4, 4)),
    "rows": (broadcast_all, (4,)),
    "as blocks have memory": (add_all_medium, (3,)),
    "two places are many bytes": (add_all_large, (2,)),
    "three iterations, two, and a load in place": (add_all_thrice, (3, 2, 2)),
}


@pytest.mark.parametrize(("of", "stages"), STAGES.values(), ids=STAGES)
def test_groups_in_flight(of: Workload, stages: tuple[int, ...]) -> None:
    """With n stages, n - 1 groups begin first. Each iteration waits for all but n - 2, and begins one."""
    (function,) = kernels_of(of)
    code = emit_device_code([function])
    assert code.stages[function.name] == stages
    loops = code.text.split("const int turn")[1:]
    assert len(loops) == len(stages)
    for text, count in zip(loops, stages, strict=True):
        assert f" % {count});" in text
        assert f"place < {count - 1};" in text and f"finish_groups<{count - 2}>();" in text
        assert f".later({count - 1});" in text and text.count("end_group();") == 2


def test_stages_leave_room_for_as_many_blocks() -> None:
    def blocks(shared: int) -> list[int]:
        return [min(size // (shared + OWN_BYTES), MOST_BLOCKS) for size in MULTIPROCESSOR_BYTES]

    for shared in range(0, 163 * 1024, 64):
        room = room_of_blocks(shared)
        assert room >= shared and blocks(room) == blocks(shared)
    assert room_of_blocks(64) == room_of_blocks(20_000) == 100 * 1024 // 4 - OWN_BYTES


def test_a_large_kernel_lets_others_of_its_program_have_more_stages() -> None:
    (medium,), (large,) = kernels_of(add_all_medium), kernels_of(add_all_large)
    code = emit_device_code([medium, large])
    assert code.stages == {"add_medium": (4,), "add_large": (2,)}
    assert code.shared_bytes["add_medium"] < code.shared_bytes["add_large"] == max(code.shared_bytes.values())


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("n", [7, 8, 9, 16, 23, 40])
def test_results_have_the_bits_of_loads_in_place(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n)
    x, w = rng.standard_normal((2, n, COLS)).astype(np.float32)
    found = []
    for is_ahead in (True, False):
        if not is_ahead:
            monkeypatch.setattr(ahead, "loads_ahead", lambda of: [])
        program = add_all.compile("cuda")
        for first in (0, 3, 6, 7, 9):
            y = np.full((1, COLS), np.nan, np.float32)
            program(X=x, W=w, Y=y, first=first)
            found.append(y)
    np.testing.assert_array_equal(found[:5], found[5:])
    assert np.isfinite(found).all()


@pytest.mark.usefixtures("gpu")
def test_a_load_that_fails_does_so_in_its_iteration() -> None:
    """The load ahead of it begins nothing, and the task's own check fails."""
    program = add_all.compile("cuda")
    x = np.ones((5, COLS), np.float32)
    y = np.zeros((1, COLS), np.float32)
    for first, fails in ((1, 5), (0, 6), (-2, -2)):
        with pytest.raises(KernelFailed, match=rf"i = {fails}\b"):
            program(X=x, W=x.copy(), Y=y, first=first)
    with pytest.raises(KernelFailed, match=r"r = 0\b"):
        program(X=x, W=x[:3].copy(), Y=y, first=7)


def test_copies_ahead_do_not_race(tmp_path: Path) -> None:
    kernels = kernels_of(add_all, broadcast_all, double_all, jump_all, add_all_medium, add_all_large)
    done = run_checked(kernels, code_of(kernels), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


LATER = r"(turn\d+) == 0 \? 3 : \1 - 1"
MUTANTS = {
    "waits for one group too few": {"finish_groups<2>": "finish_groups<3>"},
    "uses a place one iteration too early": {LATER: r"\1", "% 4": "% 3"},
    "begins a load where one is read": {LATER: r"\1"},
    "ends no group in an iteration": {r"(- 1\);\n +)end_group\(\);": r"\1"},
    "ends no group before the first iteration": {r"(place\);\n +)end_group\(\);": r"\1"},
    "has no barrier after the wait": {r"(finish_groups<2>\(\);\n +)sync\(\);": r"\1"},
}


@pytest.mark.parametrize("name", [None, *mostly_slow(MUTANTS, quick=2)])
def test_mutants_are_found(name: str | None, tmp_path: Path) -> None:
    """Sums of small whole numbers are exact."""
    module = add_all.compile("interp").module
    code, changes = emit_device_code(module.kernels).text, {}
    for pattern, by in MUTANTS.get(name or "", {}).items():
        found = {match[0]: match.expand(by) for match in re.finditer(pattern, code)}
        assert found
        changes |= found
    program, wanted = alone(module, tmp_path, SANITIZED, text=changes), add_all.compile("interp")
    x, w = np.random.default_rng(7).integers(-2, 3, (2, 60, COLS)).astype(np.float32)
    results = [np.full((1, COLS), np.nan, np.float32) for _ in range(2)]
    wanted(X=x, W=w, Y=results[0], first=0)
    try:
        program(X=x, W=w, Y=results[1], first=0)
    except Broken:
        assert name is not None
        return
    assert np.array_equal(*results) == (name is None)


GROUPS = """
#include "pto/wsp/tile/cuda/device.hpp"
namespace pto::wsp::cuda {
/// Three groups of a copy each, and a copy that belongs to none yet.
uint32_t from[4][emulation::kThreads], to[4][emulation::kThreads];
int landed() {
  int found = 0;
  for (int k = 0; k < 4; ++k) found |= (to[k][thread()] == from[k][thread()]) << k;
  return found;
}
int32_t groups(void*) {
  for (int k = 0; k < 4; ++k) {
    copy_later<4>(shared_place(&to[k][thread()]), &from[k][thread()]);
    if (k < 3) end_group();
  }
  if (landed() != 0) return 1;
  finish_groups<3>();
  if (landed() != 0) return 2;
  finish_groups<2>();
  if (landed() != 1) return 3;
  finish_groups<0>();
  if (landed() != 7) return 4;
  end_group();
  end_group();
  finish_groups<2>();
  if (landed() != 7) return 5;
  finish_groups<1>();
  if (landed() != 15) return 6;
  copy_later<4>(shared_place(&to[0][thread()]), &from[1][thread()]);
  finish_groups<0>();
  if (to[0][thread()] != ~uint32_t{0}) return 7;
  finish_copies();
  return to[0][thread()] == from[1][thread()] ? 0 : 8;
}
}  // namespace pto::wsp::cuda
int main() {
  using namespace pto::wsp::cuda;
  for (auto& row : from) {
    for (uint32_t& word : row) word = static_cast<uint32_t>(&word - from[0] + 1);
  }
  return emulation::run_block(groups, nullptr);
}
"""


def test_groups_of_the_emulation(tmp_path: Path) -> None:
    """A wait for groups makes the copies of all but the last ones, and no copy that is in no group."""
    source, output = tmp_path / "groups.cpp", tmp_path / "groups"
    source.write_text(GROUPS)
    includes = [f"-I{include_directory()}", f"-I{EMULATION}"]
    subprocess.run(["g++", "-std=c++17", "-O1", *includes, str(source), "-o", str(output)], check=True)
    assert subprocess.run([str(output)], check=False).returncode == 0
