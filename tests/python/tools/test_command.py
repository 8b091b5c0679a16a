"""The `pto` command."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.pto_programs.reference import softmax
from examples.pto_programs.softmax import softmax_module
from pto_wsp.passes.pipeline import PASSES
from pto_wsp.targets.cpu.build import Build
from pto_wsp.text import parse
from pto_wsp.tools.main import FAILED, OK, USAGE, main
from tests.slow import mostly_slow

PROGRAM = """\
// PTO Module: demo
// Entry: @scale_rows

// Function Type: InCore (tile-level computation)
func @scale(%x: !pto.memref<gm,8x16,f32> {in, tile}, %y: !pto.memref<gm,8x16,f32> {out, tile}, %factor: f32) {
  %t = alloc_tile : !pto.tile<8x16xf32>
  %u = alloc_tile : !pto.tile<8x16xf32>
  %t = tload %x[:, :] : !pto.tile<8x16xf32>
  %u = tmuls %t, %factor : !pto.tile<8x16xf32>, f32
  tstore %u, %y[:, :]
  return
}

// Function Type: Orchestration (control flow only)
func @scale_rows(%n: index, %X: !pto.memref<gm,"n"x16,f32>, %Y: !pto.memref<gm,"n"x16,f32>, %factor: f32) {
  FOR %i:idx, 0:idx, %n:idx, 8:idx {parallel, tiles}
    CALL @scale[%i](%X[%i, :], %Y[%i, :], %factor)
  ENDFOR
  return
}
"""

NATIVE = """\
// PTO Module: native
// Function Type: InCore (tile-level computation)
func @wild(%x: !pto.memref<gm,8x16,f32> {in, tile}) {
  CPP body (x)
  |#error "compiled"
  ENDCPP
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.pto").write_text(PROGRAM)
    (tmp_path / "native.pto").write_text(NATIVE)
    (tmp_path / "bad.pto").write_text(PROGRAM.replace("tmuls", "tmuls_"))
    np.save("x.npy", np.arange(20 * 16, dtype=np.float32).reshape(20, 16))
    return tmp_path


def pto(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    return status, out.out, out.err


# --- reading ------------------------------------------------------------------------------------------------


def test_print_and_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pto(capsys, "print", "demo.pto") == (OK, str(parse(PROGRAM)), "")
    assert pto(capsys, "print", "demo.pto", "-o", "out.pto")[1] == ""
    assert Path("out.pto").read_text() == str(parse(PROGRAM))
    status, out, err = pto(capsys, "check", "demo.pto", "bad.pto", "native.pto", "--target", "cpu")
    assert status == FAILED
    assert out == "demo.pto: 1 InCore and 1 Orchestration functions\nnative.pto: 1 InCore function\n"
    assert "bad.pto:9:" in err and "tmuls_" in err
    status, out, err = pto(capsys, "check", ".")
    assert status == FAILED and "demo.pto: 1 InCore" in out and "bad.pto:9:" in err


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("concurrent = by(%t.kernel, n = 2)", "its key follows no loop"),
        ("ready = order_by(%t.kernel, %t.nothing)", "no task has `t.nothing`"),
    ],
)
def test_check_refuses_schedules_for_a_target(
    folder: Path, capsys: pytest.CaptureFixture[str], schedule: str, message: str
) -> None:
    (folder / "tuned.pto").write_text(f"{PROGRAM}\nSCHEDULE {{\n  {schedule}\n}}\n")
    assert pto(capsys, "check", "tuned.pto")[0] == OK
    status, _, err = pto(capsys, "check", "tuned.pto", "--target", "cpu")
    assert status == FAILED and message in err


def test_parse_writes_python_that_builds_the_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = pto(capsys, "parse", "demo.pto")
    scope: dict[str, object] = {}
    exec(out, scope)
    assert status == OK and str(scope["module"]) == str(parse(PROGRAM))
    (folder / "bad.pto").unlink()
    (folder / "inside").mkdir()
    (folder / "inside" / "demo.pto").write_text(PROGRAM)
    status, out, _ = pto(capsys, "parse", ".", "-o", "made")
    assert status == OK and out.count("\n") == 3
    assert sorted(map(str, Path("made").rglob("*.py"))) == [
        "made/demo_builder.py",
        "made/inside/demo_builder.py",
        "made/native_builder.py",
    ]
    assert pto(capsys, "parse", "made")[0] == FAILED  # no `.pto` file in it


def test_every_file_of_a_folder_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is bad stops none of the others."""
    good = (folder / "demo.pto").read_text()
    many = folder / "many"
    many.mkdir()
    for name, content in (("a", good.encode()), ("b", b"func @"), ("c", b"\xff\x00"), ("d", good.encode())):
        (many / f"{name}.pto").write_bytes(content)
    (many / "e.pto").mkdir()
    for command in ("parse", "check"):
        assert main([command, str(many)]) == 1
        out, err = capsys.readouterr()
        assert out.count("InCore") == 2 and err.count("error[") == 3
    assert sorted(p.name for p in many.glob("*.py")) == ["a_builder.py", "d_builder.py"]


def test_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = pto(capsys, "opt", "demo.pto", "--passes", "reuse,dce", "--print-after")
    assert status == OK and "%u" not in out and out == str(parse(out))
    assert [line for line in err.splitlines() if "-----" in line] == [
        "// ----- after reuse -----",
        "// ----- after dce -----",
    ]
    listed = pto(capsys, "opt", "--list")[1]
    assert [line.split()[0].split("{")[0] for line in listed.splitlines()] == list(PASSES)
    assert "unroll{factor=4,full=4}" in listed
    status, out, err = pto(capsys, "opt", "demo.pto", "--passes", "reuse{capacity=100}")
    assert (status, out) == (FAILED, "") and "error[tiles-too-large]" in err
    assert "error[unknown-pass]" in pto(capsys, "opt", "demo.pto", "--passes", "dec")[2]


def test_code_of_targets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = pto(capsys, "emit", "demo.pto", "--kernel", "scale")
    assert status == OK and "int32_t k_scale(" in out
    assert "did you mean `scale`" in pto(capsys, "emit", "demo.pto", "--kernel", "scal")[2]
    assert pto(capsys, "emit", "demo.pto", "--target", "interp")[0] == FAILED
    assert pto(capsys, "emit", "demo.pto", "--target", "gpu")[0] == FAILED
    assert [line.split()[0] for line in pto(capsys, "targets")[1].splitlines()] == [
        "cpu",
        "arm64",
        "c-orchestration",
        "ascend_a2a3",
        "ascend_a5",
        "interp",
        "sim",
        "cuda",
    ]
    assert "lanes" in pto(capsys, "info")[1]
    assert "tiles 1024 bytes, 512 where they share" in pto(capsys, "info", "demo.pto")[1]


def test_what_is_read_is_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was compiled or run")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(Build, "library", refuse)
    monkeypatch.setattr("builtins.__import__", _no_new_modules(folder))
    for command in (
        ["print"],
        ["check"],
        ["check", "--target", "cpu"],
        ["parse"],
        ["emit"],
        ["opt", "--passes", "dce"],
    ):
        status, _, err = pto(capsys, command[0], "native.pto", *command[1:])
        assert (status, err) == (OK, ""), command
    for name in ('a"b', "os.system('x')", "x;y", "a b", "..", "é\n"):
        (folder / "evil.pto").write_text(PROGRAM.replace("@scale(", f"@{name}("))
        for command in ("print", "check", "parse", "emit"):
            assert pto(capsys, command, "evil.pto")[0] == FAILED, name
    assert sorted(p.name for p in folder.iterdir()) == [
        "bad.pto",
        "demo.pto",
        "evil.pto",
        "native.pto",
        "x.npy",
    ]


def _no_new_modules(folder: Path) -> object:
    real = __import__

    def guarded(name: str, *args: object, **more: object) -> object:
        found = real(name, *args, **more)  # type: ignore[arg-type]
        assert str(folder) not in str(getattr(found, "__file__", ""))
        return found

    return guarded


# --- running ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_from_text_to_numbers(folder: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    x = np.load("x.npy")
    values = ["--set", "factor=0.5", "--input", "X=x.npy", "--output", "Y=y.npy", "--target", target]
    status, out, err = pto(capsys, "run", "demo.pto", *values, "--stats", "--workers", "1")
    assert (status, err) == (OK, "") and out.startswith(
        "Y: float32[20, 16] -> y.npy\n3 tasks on 1 worker in "
    )
    assert (np.load("y.npy") == x * np.float32(0.5)).all()


def test_a_kernel_is_run_on_its_tiles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.load("x.npy")[:8]
    np.save("tile.npy", x)
    np.save("five.npy", np.asfortranarray(x[:5]))
    values = [
        "run",
        "demo.pto",
        "--target",
        "interp",
        "--entry",
        "scale",
        "--set",
        "factor=2",
        "--output",
        "y=y.npy",
    ]
    assert pto(capsys, *values, "--input", "x=tile.npy")[0] == OK
    assert (np.load("y.npy") == x * 2).all()
    status, _, err = pto(capsys, *values, "--input", "x=five.npy")
    assert status == FAILED and "error[kernel-failed]" in err
    rows = parse_sizes(capsys)
    assert pto(capsys, *values, "--input", "x=five.npy", "--set", f"{rows}=5")[0] == OK
    assert (np.load("y.npy") == x[:5] * 2).all()


def test_tensors_between_tasks_are_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing says how large `T` is but the tasks that write it."""
    text = PROGRAM.replace(
        '%Y: !pto.memref<gm,"n"x16,f32>', '%Y: !pto.memref<gm,"n"x16,f32>, %T: !pto.memref<gm,"t"x16,f32>'
    )
    text = text.replace("%n: index, ", "%n: index, %t: index, ").replace("{parallel, tiles}", "{range}")
    text = text.replace("0:idx, %n:idx, 8:idx", "0:idx, %n // 8:idx, 1:idx").replace(
        "%i, :]", "%i * 8 :+ 8, :]"
    )
    call = "CALL @scale[%i](%X[%i * 8 :+ 8, :], %Y[%i * 8 :+ 8, :], %factor)"
    calls = [call.replace("%Y", "%T"), call.replace("%X", "%T")]
    (folder / "two.pto").write_text(text.replace(call, "\n    ".join(calls)))
    np.save("x16.npy", np.load("x.npy")[:16])
    values = ["--set", "factor=2", "--input", "X=x16.npy", "--output", "Y=y.npy", "--target", "interp"]
    status, out, err = pto(capsys, "run", "two.pto", *values)
    assert (status, err) == (OK, "") and "T: float32[16, 16]" in out
    assert (np.load("y.npy") == np.load("x16.npy") * 4).all()


def parse_sizes(capsys: pytest.CaptureFixture[str]) -> str:
    """The name of the rows of `y`, as the error says that asks for it."""
    text = PROGRAM.replace("memref<gm,8x16,f32> {out, tile}", "memref<gm,?x16,f32> {out}")
    Path("view.pto").write_text(text)
    err = pto(capsys, "run", "view.pto", "--entry", "scale", "--set", "factor=2", "--input", "x=five.npy")[2]
    return err.split("--set ")[1].split("=")[0]


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["--set", "factor=abc"], FAILED, "expected a number of type f32, found `abc`"),
        (["--set", "factor"], FAILED, "expected name=value, found `factor`"),
        (["--set", "factor=1", "--set", "factor=2"], FAILED, "`factor` twice"),
        (["--set", "factr=1"], FAILED, "did you mean `factor`"),
        (["--set", "X=1"], FAILED, "expected a number, found an array\nhelp: give `--input X=FILE`"),
        (["--input", "n=x.npy"], FAILED, "expected an array, found a number\nhelp: give `--set n=...`"),
        (["--output", "n=y.npy"], FAILED, "expected an array, found a number"),
        (["--set", "factor=1e400"], FAILED, "expected a number of type f32, found `1e400`"),
        (["--set", "n=" + "9" * 5000], FAILED, "found `" + "9" * 40 + "...`"),
        (["--input", "X=huge.npy"], FAILED, "`huge.npy` cannot be read: it holds no array: Unable"),
        (["--input", "X=cut.npy"], FAILED, "`cut.npy` cannot be read: it holds no array"),
        (["--input", "X=cut.npz"], FAILED, "`cut.npz` cannot be read: it holds no array"),
        (["--input", "X=x.npy", "--set", "factor=1", "--output", "X=y.npy"], FAILED, "help: written: `Y`"),
        (["--input", "X=x.npy", "--set", "factor=1", "--output", "Y=."], FAILED, "Is a directory"),
        (["--set", "factor=1"], FAILED, "help: give `--input X=FILE`"),
        (["--input", "X=x.npy"], FAILED, "scalar `factor` has no value in this call\nhelp: give `--set f"),
        (["--input", "X=missing.npy"], FAILED, "`missing.npy` cannot be read: No such file"),
        (["--input", "X=demo.pto"], FAILED, "it holds no array"),
        (["--input", "X=wrong.npy", "--set", "factor=1"], FAILED, "expected f32, found float64"),
        (["--input", "X=flat.npy", "--set", "factor=1"], FAILED, "error["),
        (["--input", "X=x.npy", "--set", "factor=1", "--set", "n=9"], FAILED, "error["),
        (["--input", "X=x.npy", "--set", "factor=1", "--output", "Z=z.npy"], FAILED, "has no parameter `Z`"),
        (["--input", "X=x.npy", "--set", "factor=1", "--output", "Y=no/y"], FAILED, "cannot be written"),
        (["--entry", "scal"], FAILED, "did you mean `scale`"),
        (["--workers", "many"], USAGE, "invalid int value"),
        (["--unknown"], USAGE, "unrecognized arguments"),
    ],
)  # fmt: skip
def test_mistakes(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str], status: int, message: str
) -> None:
    np.save("wrong.npy", np.zeros((4, 16)))
    np.save("flat.npy", np.zeros(16, np.float32))
    np.savez("whole.npz", x=np.zeros(16, np.float32))
    whole = Path("x.npy").read_bytes()
    shape = str(np.load("x.npy").shape).encode()
    Path("huge.npy").write_bytes(whole.replace(shape + b", }", b"(99999999999999, 16), }"))
    Path("cut.npy").write_bytes(whole[:100])
    Path("cut.npz").write_bytes(Path("whole.npz").read_bytes()[:100])
    found, _, err = pto(capsys, "run", "demo.pto", "--target", "interp", *argv)
    assert found == status and message in err, err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["prove", "demo.pto", "--all", "--waits"], "expected no `--waits` with it"),
        (["opt", "demo.pto", "--list", "-o", "x.pto"], "`--output` does not fit"),
        (["opt", "demo.pto", "--list", "--print-after"], "`--print-after` does not fit"),
        (["devices", "ascend_910b", "--calibrate"], "expected no `--calibrate` with it"),
        (["emit", "demo.pto", "--kernel", "scal"], "did you mean `scale`"),
        (["emit", "empty.pto"], "expected a file with kernels, found none"),
        (["emit", "empty.pto", "-o", "out"], "expected a file with functions, found none"),
        (["prove", "empty.pto"], "expected a file with functions, found none"),
    ],
)
def test_options_are_used_or_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    Path("empty.pto").write_text("")
    found, out, err = pto(capsys, *argv)
    assert (found, out) == (FAILED, "") and message in err, err


def test_files_that_are_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bytes.pto").write_bytes(b"func \xff")
    assert "byte 5 is not part of UTF-8" in pto(capsys, "print", "bytes.pto")[2]
    assert "Is a directory" in pto(capsys, "print", ".")[2]
    assert pto(capsys)[0] == USAGE
    assert pto(capsys, "--help")[0] == OK


# --- processes ----------------------------------------------------------------------------------------------

PTO = [sys.executable, "-m", "pto_wsp"]
RUN = ["demo.pto", "--target", "interp", "--set", "factor=3", "--input", "X=x.npy"]


def test_pipes(folder: Path) -> None:
    passed = subprocess.run(
        [*PTO, "opt", "--passes", "dce"], input=PROGRAM.encode(), capture_output=True, check=True
    )
    assert passed.stdout.decode() == str(parse(PROGRAM)) and passed.stderr == b""
    argv = [
        *PTO,
        "run",
        "demo.pto",
        "--target",
        "interp",
        "--set",
        "factor=3",
        "--input",
        "X=-",
        "--output",
        "Y=-",
    ]
    ran = subprocess.run(argv, input=Path("x.npy").read_bytes(), capture_output=True, check=True)
    assert (np.load(io.BytesIO(ran.stdout)) == np.load("x.npy") * 3).all()


@pytest.mark.parametrize("argv", [["print", "demo.pto"], ["run", *RUN, "--output", "Y=-"]])
def test_readers_that_are_gone(folder: Path, argv: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([*PTO, *argv], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_an_output_that_cannot_be_made_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAM.replace("CALL @scale[%i](%X[%i, :]", "CALL @scale[%i](%X[0 :+ 8, :]")
    (folder / "huge.pto").write_text(text)
    for size in (10**13, 2**63 - 1, 10**30):
        argv = ["--set", f"n={size}", "--set", "factor=1", "--input", "X=x.npy", "--target", "interp"]
        status, _, err = pto(capsys, "run", "huge.pto", *argv)
        assert status == FAILED and err.startswith("error["), err


@pytest.mark.parametrize("argv", [["print", "demo.pto"], ["info"], ["check", "demo.pto"], ["targets"]])
@pytest.mark.parametrize("closed", mostly_slow([">/dev/full", ">&-", "<&-"]))
def test_streams_that_are_closed_or_full(folder: Path, argv: list[str], closed: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *PTO, *argv], capture_output=True, text=True, check=False
    )
    status, err = (
        (OK, "") if closed == "<&-" else (FAILED, "error[unusable-file]: `standard output` cannot be")
    )
    assert ran.returncode == status
    assert ran.stderr.startswith(err) and ran.stderr.count("\n") == (err != ""), ran.stderr


def test_a_closed_standard_input_and_closed_messages(folder: Path) -> None:
    for closed, argv, err in (("<&-", ["print", "-"], "standard input"), ("2>&-", ["print", "bad.pto"], "")):
        command = ["bash", "-c", f'"$@" {closed}', "bash", *PTO, *argv]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (FAILED, "")
        assert err in ran.stderr and "Traceback" not in ran.stderr


def test_a_file_with_the_mark_of_its_encoding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "marked.pto").write_bytes(b"\xef\xbb\xbf" + PROGRAM.encode())
    assert pto(capsys, "print", "marked.pto")[1] == str(parse(PROGRAM))


def test_errors_of_a_process(folder: Path) -> None:
    ran = subprocess.run([*PTO, "print", "bad.pto"], capture_output=True, text=True, check=False)
    assert ran.returncode == FAILED and ran.stdout == "" and ran.stderr.startswith("error[")


def test_outputs_are_as_large_as_their_regions_reach(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "softmax.pto").write_text(str(softmax_module()))
    x = np.linspace(-3, 3, 19 * 8, dtype=np.float32).reshape(19, 8)
    np.save("x.npy", x)
    options = ["--set", "total_rows=19", "--input", "input=x.npy", "--output", "output=y.npy"]
    assert main(["run", "softmax.pto", "--target", "interp", *options]) == OK
    assert "output: float32[19, 8] -> y.npy" in capsys.readouterr().out
    np.testing.assert_allclose(np.load("y.npy"), softmax(x), rtol=1e-6)
