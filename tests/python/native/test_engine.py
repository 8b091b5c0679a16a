"""The Python face of the engine: arguments, aliases, errors, threads, fork, exit."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import _native
from tests.generators.drawing import tries
from tests.python.native.asm import Assembler
from tests.python.native.conftest import KERNELS, TABLE_HASH, copy_program, tiles_program

Error = _native.EngineError
Library = _native.KernelLibrary


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Error) as caught:
        call()
    return caught.value.code


def test_runs_and_counts(library: Library) -> None:
    program = _native.Executable(tiles_program(), library)
    for n in (0, 1, 8, 1001):
        x = np.zeros(n, np.float32)
        for workers in (1, 2, 5):
            result = program.run((x,), (None, 2.0), workers)
            per_worker = result.counters["worker_tasks"]
            assert isinstance(per_worker, list)
            assert result.tasks == -(-n // 8) == sum(per_worker)
            assert result.workers == workers
        assert (x == 6).all()


def test_a_trace_names_sites_and_registers(library: Library) -> None:
    program = _native.Executable(tiles_program(8, repeat=2), library)
    record = program.run((np.zeros(84, np.float32),), (None, 1.0), 2, True).record
    (site, registers), (worker, start_ns, end_ns) = record.places(), record.times()
    assert record.tasks == 22 and set(site.tolist()) == {2}
    assert registers[:, 1].tolist() == list(range(11)) * 2
    assert registers[10].tolist() == [0, 10, 80, 4]
    assert ((start_ns <= end_ns) & (worker < 2) & (record.dispatchers() < 2)).all()
    assert registers[21].tolist() == [1, 10, 80, 4]


def test_arrays_are_checked(library: Library) -> None:
    run = _native.Executable(tiles_program(), library).run
    good = np.zeros(64, np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    unaligned = np.zeros(260, np.uint8)[1:257].view(np.float32)
    bad = {
        "wrong-dtype": good.astype(np.float64),
        "wrong-rank": good.reshape(8, 8),
        "read-only-array": frozen,
        "negative-stride": good[::-1],
        "inner-stride": good[::2],
        "zero-stride": np.lib.stride_tricks.as_strided(good, (4,), (0,)),
        "misaligned-array": unaligned,
        "foreign-byte-order": good.astype(">f4"),
        "unknown-dtype": np.zeros(4, np.complex64),
        "unsupported-array": [1.0, 2.0],
        "too-many-dimensions": np.zeros((1,) * 9, np.float32),
    }
    for code, array in bad.items():
        assert code_of(lambda array=array: run((array,), (None, 1.0))) == code
    assert code_of(lambda: run((), (None, 1.0))) == "wrong-argument-count"
    assert code_of(lambda: run((good,), (None, None))) == "unbound-symbol"
    assert code_of(lambda: run((good,), (None, cast(float, "x")))) == "wrong-scalar"
    assert code_of(lambda: run((good,), (65, 1.0))) == "size-mismatch"
    run((good,), (64, 1.0))


def test_a_size_mismatch_names_both_tensors(library: Library) -> None:
    run = _native.Executable(copy_program(), library).run
    with pytest.raises(Error) as caught:
        run((np.zeros((8, 4), np.float32), np.zeros((8, 5), np.float32)), (None, None))
    assert caught.value.code == "size-mismatch"
    details = {"tensor": 1, "dim": 1, "symbol": 1, "expected": 4, "found": 5, "other_tensor": 0}
    assert caught.value.details == details


def test_aliases(library: Library) -> None:
    run = _native.Executable(copy_program(), library).run
    matrix = np.arange(64 * 100, dtype=np.float32).reshape(64, 100)
    left, right = matrix[:, :50], matrix[:, 50:]
    run((left, right), (None, None), 2)
    assert (left == right).all()
    run((matrix, matrix), (None, None), 2)
    for x, y in ((matrix[:, :51], matrix[:, 49:]), (matrix[:63], matrix[1:])):
        assert code_of(lambda x=x, y=y: run((x, y), (None, None))) == "overlapping-arrays"


def test_bfloat16_arrays(library: Library) -> None:
    a = Assembler(KERNELS, TABLE_HASH)
    a.tensor("bf16", [10])
    a.task(3)
    a.io("OUTPUT", 0, ":")
    x = np.zeros(10, ml_dtypes.bfloat16)
    _native.Executable(a.bytes(), library).run((x,), ())
    assert (x == 1).all()


def test_one_kernel_can_be_called(library: Library) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = np.zeros((3, 8), np.float32)
    assert library.call(1, (x, y[:, 2:6]), ())[0] == 0
    assert (y[:, 2:6] == x).all()
    z = np.zeros(4, np.float32)
    assert library.call(0, (z,), (-1.0,), (_native.DTYPES["f32"],))[0] == 0
    assert library.call(0, (z,), (-1.0,), (_native.DTYPES["f32"],), 1)[0] == 7
    assert (z == -1).all()
    assert code_of(lambda: library.call(1, (x, y), (1,))) == "wrong-argument-count"
    assert code_of(lambda: library.call(1, (x, y[0]), ())) == "wrong-rank"


def test_a_kernel_error_is_located(library: Library) -> None:
    program = _native.Executable(tiles_program(), library)
    x = np.zeros(800, np.float32)
    for workers in (1, 3):
        with pytest.raises(Error) as caught:
            program.run((x,), (None, -1.0), workers)
        assert caught.value.code == "kernel-failed"
        assert caught.value.details["check"] == 7 and caught.value.details["pc"] == 2
        registers = caught.value.details["registers"]
        assert isinstance(registers, list) and registers[1] == caught.value.details["task"]
    program.run((x,), (None, 1.0), 3)


def test_a_nested_run_is_an_error(library: Library) -> None:
    program = _native.Executable(tiles_program(kernel=2), library)
    codes = []

    @ctypes.CFUNCTYPE(None)
    def nested() -> None:
        codes.append(code_of(lambda: program.run((np.zeros(1, np.float32),), (None, 1.0))))

    path = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "kernels.so" in line
    )
    set_callback = ctypes.CDLL(path).set_callback
    set_callback(nested)
    program.run((np.zeros(64, np.float32),), (None, 1.0), 2)
    set_callback(None)
    assert codes == ["nested-run"] * 8


def test_threads_and_programs_share_the_pool(library: Library) -> None:
    programs = [_native.Executable(tiles_program(4, repeat=5), library) for _ in range(2)]
    arrays = [np.zeros(3000, np.float32) for _ in range(6)]

    def work(i: int) -> None:
        for _ in range(10):
            programs[i % 2].run((arrays[i],), (None, 1.0), 2)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((x == 50).all() for x in arrays)


def test_a_run_releases_the_gil_and_can_be_cancelled(library: Library) -> None:
    program = _native.Executable(tiles_program(1, repeat=10**7), library)
    codes = []

    def run() -> None:
        codes.append(code_of(lambda: program.run((np.zeros(100, np.float32),), (None, 1.0), 2)))

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        time.sleep(0.01)
        program.cancel()
    assert codes == ["run-cancelled"]


CHILD = """
import os, sys, threading, time
import numpy as np
from pto_wsp import _native
from tests.python.native.conftest import tiles_program
library = _native.KernelLibrary(sys.argv[1])
x = np.zeros(1000, np.float32)
def program(repeat=1):
    return _native.Executable(tiles_program(1, repeat=repeat), library)
"""


def run_child(script: str) -> subprocess.CompletedProcess[str]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(line.split()[-1] for line in maps if "kernels.so" in line)
    root = str(Path(__file__).parents[3])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD + script, path],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


def test_a_forked_child_makes_its_own_pool(library: Library) -> None:
    done = run_child("""
p = program()
p.run((x,), (None, 1.0), 3)
pid = os.fork()
p.run((x,), (None, 1.0), 3)
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(int(x.sum()), flush=True)
os._exit(0)
""")
    assert (done.returncode, done.stdout) == (0, "2000\n2000\n"), done.stderr


def test_a_run_in_flight_at_fork_is_an_error_in_the_child(library: Library) -> None:
    done = run_child("""
p, q = program(10**7), program()
thread = threading.Thread(target=lambda: p.run((x,), (None, 1.0), 2), daemon=True)
thread.start()
time.sleep(0.1)
pid = os.fork()
if pid == 0:
    try:
        p.run((x,), (None, 1.0), 2)
    except _native.EngineError as error:
        print(error.code, flush=True)
    q.run((np.zeros(10, np.float32),), (None, 1.0), 2)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
p.cancel()
os._exit(code)
""")
    assert (done.returncode, done.stdout) == (0, "run-in-flight-at-fork\n"), done.stderr


def test_exit_and_collection_during_a_run_are_clean(library: Library) -> None:
    done = run_child("""
def work():
    try:
        program(10**7).run((np.zeros(100, np.float32),), (None, 1.0), 2)
    except _native.EngineError as error:
        os.write(1, (error.code + "\\n").encode())
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
del x
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) <= {"run-cancelled"}


def test_programs_are_collected(library: Library) -> None:
    for _ in range(50):
        program = _native.Executable(tiles_program(), library)
        program.run((np.zeros(100, np.float32),), (None, 1.0), 3)
        del program
    gc.collect()


@tries(300)
@given(st.data())
def test_mutated_bytecode_is_an_error_or_runs(library: Library, data: st.DataObject) -> None:
    code = bytearray(tiles_program())
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    try:
        _native.Executable(bytes(code), library)
    except Error as error:
        assert error.code in {"bad-bytecode", "bytecode-version", "kernel-table-mismatch"}


@tries(100)
@given(st.binary(max_size=400))
def test_random_bytes_are_an_error(library: Library, code: bytes) -> None:
    assert code_of(lambda: _native.Executable(code, library)) == "bad-bytecode"
    header = struct.pack("<II", 0x50544F57, _native.BYTECODE_VERSION)
    assert code_of(lambda: _native.Executable(header + code, library)) == "bad-bytecode"
