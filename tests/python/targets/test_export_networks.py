"""Networks as functions of C: results and errors are those of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import Channel, DenseDyn, In, Out, P, Tensor, Tile, f32, kernel, network, process, pto
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.lang.workload.workload import Workload

ROWS = 6

CALLS = """\
#include <stdio.h>
#include <string.h>
#include "out/relay.h"

static void say(const char* error) { printf("%s\\n", error != NULL ? error : "well"); }

int main(void) {
  static float X[6 * 8], Y[6 * 8];
  for (int i = 0; i < 6 * 8; ++i) X[i] = (float)i;
  struct relay_arguments arguments = {.count = 2, .wanted = 2, .n = 6, .X = X, .Y = Y};
  for (uint32_t workers = 0; workers < 4; ++workers) {
    arguments.workers = workers;
    memset(Y, 0, sizeof Y);
    say(relay(&arguments));
    for (int i = 0; i < 6 * 8; ++i) {
      if (Y[i] != 2 * X[i]) return 1;
    }
  }
  arguments.count = arguments.wanted = 9;
  say(relay(&arguments));
  arguments.count = 2, arguments.wanted = 1;
  say(relay(&arguments));
  arguments.count = 1, arguments.wanted = 2;
  say(relay(&arguments));
  arguments.count = 2, arguments.Y = X;
  say(relay(&arguments));
  arguments.Y = Y;
  memset(Y, 0, sizeof Y);
  PTOSession* session = pto_session_create();
  PTOLaunch* launch;
  say(relay_launch(session, &arguments, NULL, &launch));
  say(pto_launch_wait(launch));
  if (Y[47] != 2 * X[47]) return 1;
  arguments.count = 9;
  say(relay_launch(session, &arguments, NULL, &launch));
  say(pto_session_wait(session));
  pto_session_destroy(session);
  return 0;
}
"""


@kernel
def double(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]) -> None:
    pto.store(y, x * 2.0)


@kernel
def keep(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]) -> None:
    pto.store(y, x)


rows = Channel("rows", Tensor[f32, 2, 8], depth=2)
there, back = (Channel(name, depth=2, scalars=("i",)) for name in ("there", "back"))


@process
def ask(count: DenseDyn, wanted: DenseDyn) -> None:
    for i in P(count):
        with there.send(i=i):
            pass
    for _ in back.receive(wanted):
        pass


@process
def answer(count: DenseDyn) -> None:
    for token in there.receive(count):
        with back.send(i=token.scalars.i):
            pass


@process
def load(X: Tensor[f32, "n", 8]) -> None:
    for i in P.range(3):
        with rows.send() as token:
            for j in P(2):
                double(x=X[2 * i + j : 2 * i + j + 1], y=token[j : j + 1])


@process
def store(Y: Tensor[f32, "n", 8]) -> None:
    for token in rows.receive():
        for j in P(2):
            at = 2 * token.index + j
            keep(x=token[j : j + 1], y=Y[at : at + 1])


def relay() -> Workload:
    """Double rows; beside that, send `count` tokens there and back before `wanted` are received."""
    return network(ask, answer, load, store, name="relay")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, cwd=folder, text=True, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_network_is_a_function_of_c_with_its_errors(tmp_path: Path) -> None:
    relay().compile().export(tmp_path / "out")
    assert (done := shell("make librelay.so relay", tmp_path / "out")).returncode == 0, done.stderr
    (tmp_path / "calls.c").write_text(CALLS)
    build = "gcc -std=c11 -Wall -Werror calls.c -Lout -lrelay -Wl,-rpath,'$ORIGIN/out' -o calls"
    assert (done := shell(build, tmp_path)).returncode == 0, done.stderr
    done = shell("./calls", tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    said = done.stdout
    assert said.startswith("well\n" * 4)
    place = os.path.basename(__file__)
    assert "error[deadlock]: every process that has not ended waits\n" in said
    assert f"  process `ask` at {place}:" in said and "waits for a free buffer of `there`\n" in said
    assert "error[unreceived-tokens]" in said and "  channel `back`: 2 tokens sent, 1 received" in said
    assert "error[channel-ended]" in said and "needs channel `back`, after 1 tokens that were" in said
    assert "X and Y share memory" in said
    assert said.count("error[deadlock]") == 2 and said.count("well\n") == 7, said

    x = np.arange(ROWS * 8, dtype=np.float32).reshape(ROWS, 8)
    np.save(tmp_path / "X.npy", x)
    files = "--input X=X.npy --output Y=Y.npy --set count=2 --set wanted=2"
    done = shell(f"out/relay {files}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "Y.npy"), 2 * x)
    done = shell(f"out/relay {files.replace('=2', '=9')}", tmp_path)
    assert done.returncode == 1 and "error[deadlock]" in done.stderr


def test_the_sources_name_processes_and_places(tmp_path: Path) -> None:
    relay().compile().export(tmp_path / "out")
    main = (tmp_path / "out" / "main.cpp").read_text()
    assert [line.strip() for line in main.partition("program.processes = {")[2].splitlines()[1:5]] == [
        '{"ask"},',
        '{"answer"},',
        '{"load"},',
        '{"store"},',
    ]
    header = (tmp_path / "out" / "relay.h").read_text()
    assert "relay_launch(" in header and "rows" not in header  # rings are not arguments


def test_a_target_without_the_engine_refuses_a_network() -> None:
    with pytest.raises(UnsupportedByTarget, match="a network of processes"):
        relay().compile("cuda")
