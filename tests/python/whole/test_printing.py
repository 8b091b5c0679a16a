"""`pto.print` and `pto.check` in kernels: the same lines and errors on all targets, from all front ends."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    ElementType,
    In,
    InOut,
    MemorySpace,
    Out,
    P,
    Program,
    PTOFunctionBuilder,
    PTOModule,
    Scalar,
    Tensor,
    Tile,
    f16,
    f32,
    i32,
    i64,
    kernel,
    parse,
    pto,
    workload,
)
from pto_wsp.errors import BadOperand, KernelFailed, UnsupportedSyntax
from pto_wsp.passes.pipeline import parse_pipeline, run_pipeline
from pto_wsp.runtime.compiling import compile_module

TARGETS = ("cpu", "interp")


@kernel
def look(x: InOut[Tile[12, 16, f32]], z: In[Tile[3, 2, i32]], n: Scalar[i64], f: Scalar[f32]):
    t = pto.load(x) * 2
    pto.print("start", n, f, n < 3, 1.5)
    for r in pto.tiles(n, 2):
        pto.print("r", r, "t", t, "end of\nr")
        t = t + 1
    if n > 2:
        pto.print(z, t < 3, pto.cast(t, f16), pto.rowsum(t))
    pto.store(x, t)


@workload
def looks(X: Tensor[f32, "m", 16], Z: Tensor[i32, 3, 2], n: Scalar[i64], f: Scalar[f32]):
    for i in P.range(2):
        look[i](x=X, z=Z, n=n, f=f)


def values(n: int) -> dict[str, object]:
    x = np.arange(10 * 16, dtype=np.float32).reshape(10, 16) / 3
    x[1, 3], x[0, 0], x[9, 15] = -np.inf, np.nan, 1e-9
    return {"X": x, "Z": np.arange(6, dtype=np.int32).reshape(3, 2) - 1, "n": n, "f": 0.1}


def test_both_targets_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for target in TARGETS:
        looks.compile(target).run(**values(4), workers=1)
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    lines = found[0].splitlines()
    assert lines[0] == "task 0, look: start 4 0.1 false 1.5"
    assert lines[1] == "task 0, look: r 0 t [10, 16]"
    assert lines[2] == "task 0, look:   nan 0.666667 1.33333 2 ... 8 8.66667 9.33333 10"
    assert lines[6] == "task 0, look:   ..."
    assert "task 0, look: end of" in lines
    assert "task 0, look: r" in lines
    assert any(line.startswith("task 1, look: ") for line in lines)


@kernel
def tell(x: In[Tile[1, 4, f32]], y: Out[Tile[1, 4, f32]]):
    for i in range(20):
        pto.print("step", i, x, "of many")
    pto.store(y, x)


@workload
def tells(X: Tensor[f32, "n", 4], Y: Tensor[f32, "n", 4]):
    for i in P("n"):
        tell[i](x=X[i : i + 1], y=Y[i : i + 1])


def test_prints_of_several_workers_never_mix_within_a_print(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.ones((40, 4), np.float32)
    tells.compile("cpu").run(X=x, Y=np.empty_like(x), workers=4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 40 * 20 * 3
    steps = dict.fromkeys(range(40), 0)
    for first, row, last in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        found = re.fullmatch(r"task (\d+), tell: step (\d+) \[1, 4\]", first)
        assert found is not None
        task = int(found[1])
        assert int(found[2]) == steps[task]
        steps[task] += 1
        assert (row, last) == (f"task {task}, tell:   1 1 1 1", f"task {task}, tell: of many")


def test_a_submitted_run_prints_too(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.ones((2, 4), np.float32)
    tells.compile("cpu").submit(X=x, Y=np.empty_like(x), workers=2).wait()
    assert len(capsys.readouterr().out.splitlines()) == 2 * 20 * 3


def test_what_standard_output_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    x = np.ones((2, 4), np.float32)
    program = tells.compile("cpu")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Closed())
        with pytest.raises(BrokenPipeError):
            program.run(X=x, Y=np.empty_like(x), workers=2)


@kernel(block_dim=2)
def blocks(y: Out[Tensor[f32, 2, 4]]):
    i = pto.block_idx()
    pto.print(i)
    pto.store(y[i : i + 1], 1.0)


@workload
def in_blocks(Y: Tensor[f32, 2, 4]):
    blocks(y=Y)


def test_prints_name_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    for target in TARGETS:
        in_blocks.compile(target).run(Y=np.empty((2, 4), np.float32), workers=1)
        assert capsys.readouterr().out == "task 0, block 0, blocks: 0\ntask 0, block 1, blocks: 1\n"


@kernel
def checked(x: In[Tensor[f32, DYN, 4]], y: Out[Tile[1, 4, f32]], most: Scalar[f32]):
    pto.check(x.rows > 0, "no rows")
    pto.check(True, "never")
    t = pto.zeros((1, 4))
    for r in pto.tiles(x.rows, 1):
        t = t + x[r]
        v = t[0, 0]
        pto.check(v < most, "too large")
    pto.store(y, t)


@workload
def checks(X: Tensor[f32, "n", 4], Y: Tensor[f32, 1, 4], most: Scalar[f32]):
    checked(x=X, y=Y, most=most)


@pytest.mark.parametrize("target", TARGETS)
def test_a_check_ends_the_run(target: str) -> None:
    program = checks.compile(target)
    y = np.empty((1, 4), np.float32)
    program.run(X=np.ones((3, 4), np.float32), Y=y, most=4)
    assert (y == 3).all()
    with pytest.raises(KernelFailed, match="kernel `checked` failed: no rows") as caught:
        program.run(X=np.ones((0, 4), np.float32), Y=y, most=4)
    assert caught.value.caret_text == "in task 0"
    with pytest.raises(KernelFailed, match="kernel `checked` failed: too large") as caught:
        program.run(X=np.ones((3, 4), np.float32), Y=y, most=1.5)
    assert re.fullmatch(r"in task 0, where r = 1, \w+ = 2, most = 1\.5", caught.value.caret_text)


def test_text_holds_prints_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    for program in (looks, checks):
        module = program.compile("interp").module
        assert parse(str(module)) == module
    for target in TARGETS:
        compile_module(parse(str(looks.compile("interp").module)), target).run(**values(2), workers=1)
        assert "task 1, look: start 2 0.1 true 1.5\n" in capsys.readouterr().out


def test_builders_print_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    function = (
        PTOFunctionBuilder("scale")
        .in_core()
        .tile("t", 1, 4, ElementType.F32)
        .memref("x", MemorySpace.GM, ElementType.F32)
        .memref("y", MemorySpace.GM, ElementType.F32)
        .scalar("n", ElementType.I64)
        .check("n < 3", "n is too large")
        .load("t", "x")
        .print("n and t", "n", "n + 1", "t")
        .store("t", "y")
        .build()
    )
    module = PTOModule("m")
    module.add_function(function)
    text = str(module)
    assert 'CHECK %n < 3, "n is too large"' in text
    assert 'PRINT "n and t", %n, %n + 1, %t' in text
    for target in TARGETS:
        program: Program = module.compile(target)
        y = np.empty((1, 4), np.float32)
        program.run(x=np.ones((1, 4), np.float32), y=y, n=2)
        assert capsys.readouterr().out == "task 0, scale: n and t 2 3 [1, 4]\ntask 0, scale:   1 1 1 1\n"
        with pytest.raises(KernelFailed, match="n is too large"):
            program.run(x=np.ones((1, 4), np.float32), y=y, n=3)


def test_passes_keep_prints_and_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    module = looks.compile("interp").module
    compile_module(module, "interp").run(**values(4))
    expected = capsys.readouterr().out
    for name in ("dce", "forward", "fuse", "unroll", "reuse", "canonical"):
        found = run_pipeline(module, parse_pipeline(name))
        compile_module(found, "interp").run(**values(4))
        assert capsys.readouterr().out == expected, name


def test_mistakes_are_refused() -> None:
    with pytest.raises(BadOperand, match="at least one value"):

        @kernel
        def nothing(y: Out[Tile[1, 4, f32]]):
            pto.print()
            pto.store(y, 1.0)

    with pytest.raises(BadOperand, match="values without names"):

        @kernel
        def named(y: Out[Tile[1, 4, f32]]):
            pto.print(x=1)  # pyright: ignore[reportCallIssue]
            pto.store(y, 1.0)

    with pytest.raises(BadOperand, match="expected a text, found 3"):

        @kernel
        def no_text(y: Out[Tile[1, 4, f32]], n: Scalar[i64]):
            pto.check(n > 1, 3)  # pyright: ignore[reportArgumentType]
            pto.store(y, 1.0)

    with pytest.raises(UnsupportedSyntax, match=r"inside a kernel it is `pto\.print`"):

        @kernel
        def printed(y: Out[Tile[1, 4, f32]], n: Scalar[i64]):
            print(n)
            pto.store(y, 1.0)


def test_an_exported_program_prints_and_explains(tmp_path: Path) -> None:
    program = checks_and_prints.compile("cpu")
    program.export(tmp_path / "out")
    subprocess.run(["make", "-C", str(tmp_path / "out")], check=True, capture_output=True)
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    (executable,) = [p for p in (tmp_path / "out").iterdir() if p.is_file() and p.stat().st_mode & 0o100]

    def run(most: str) -> subprocess.CompletedProcess[str]:
        y, x = tmp_path / "y.npy", tmp_path / "x.npy"
        command = [executable, "--input", f"X={x}", "--output", f"Y={y}", "--set", f"most={most}"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("9").stdout == "task 0, add_up: t [1, 4]\ntask 0, add_up:   3 3 3 3\n"
    failed = run("2")
    assert failed.returncode == 1
    assert "too many rows" in failed.stderr
    assert "most = 2" in failed.stderr


@kernel
def add_up(x: In[Tensor[f32, DYN, 4]], y: Out[Tile[1, 4, f32]], most: Scalar[i64]):
    pto.check(x.rows <= most, "too many rows")
    t = pto.zeros((1, 4))
    for r in pto.tiles(x.rows, 1):
        t = t + x[r]
    pto.print("t", t)
    pto.store(y, t)


@workload
def checks_and_prints(X: Tensor[f32, "n", 4], Y: Tensor[f32, 1, 4], most: Scalar[i64]):
    add_up(x=X, y=Y, most=most)
