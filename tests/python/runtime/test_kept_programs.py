"""Programs that are kept between processes: what is found is what would be made, or nothing is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import (
    In,
    Out,
    P,
    Program,
    Scalar,
    Schedule,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    kernel,
    parse,
    pto,
    workload,
)
from pto_wsp.errors import BadCache, PtoError
from pto_wsp.ir.verify import verify
from pto_wsp.runtime import engine, kept_programs, prepared
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.support.cache_directory import VARIABLE
from pto_wsp.targets.cpu.features import VARIABLE as FEATURES
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.workloads import Sample, samples
from tests.slow import mostly_slow


@kernel
def scale(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]], factor: Scalar[f32]):
    pto.store(y, x * factor)


@workload
def scale_rows(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], factor: Scalar[f32]):
    for rows in P.tiles("n", 4):
        scale[rows](x=X[rows], y=Y[rows], factor=factor)


@workload
def scale_by_twice(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], factor: Scalar[f32]):
    for rows in P.tiles("n", 4):
        scale[rows](x=X[rows], y=Y[rows], factor=factor * 2.0)


@workload
def scale_ahead(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], factor: Scalar[f32]):
    for i in P("n"):
        scale[i](x=X[i + 1 : i + 2], y=Y[i : i + 1], factor=factor)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries that are lowered, in order."""
    found: list[str] = []
    lower = engine.lower_workload_to_bytecode

    def noted(module, kernels, table):
        found.append(module.entry)
        return lower(module, kernels, table)

    monkeypatch.setattr(engine, "lower_workload_to_bytecode", noted)
    return found


def result(program: Program, rows: int = 6) -> np.ndarray:
    x = np.arange(8.0 * rows, dtype=np.float32).reshape(rows, 8)
    y = np.empty_like(x)
    program(X=x, Y=y, factor=3.0)
    assert program.stats is not None and program.stats.tasks == (rows + 3) // 4
    return y


def only_program(folder: Path) -> Path:
    (path,) = (folder / "libraries").glob("*.program")
    return path


def key_of(module: Prepared) -> str:
    key = kept_programs.program_key(module, CpuTarget(), ArtifactCache())
    assert key is not None
    return key


def prepared_from(program: Program) -> Prepared:
    return Prepared(verify(program.module), CpuTarget())


def keep(key: str, content: bytes) -> None:
    """Replace a kept program by a whole file of other content."""
    cache = ArtifactCache()
    found = cache.find(key, "program")
    if found is not None:
        found.unlink()
    cache.library(key, lambda path: path.write_bytes(content), "program")


def test_a_program_is_lowered_once(lowered: list[str]) -> None:
    first, second = scale_rows.compile(), scale_rows.compile()
    assert lowered == ["scale_rows"]
    assert np.array_equal(result(first), result(second))
    assert second.stats is not None and second.stats.compiles == 0
    assert str(second.module) == str(first.module)


def test_text_is_the_same_program(lowered: list[str]) -> None:
    first = scale_rows.compile()
    again = compile_module(parse(str(first.module)))
    assert lowered == ["scale_rows"] and np.array_equal(result(first), result(again))


@tries(60, compiles=True)
@given(samples())
def test_what_is_found_is_what_would_be_made(sample: Sample) -> None:
    note(str(sample.module))
    module = Prepared(verify(sample.module), CpuTarget())
    EngineRunner(module, CpuTarget())
    kept = kept_programs.find_program(key_of(module), ArtifactCache())
    again = EngineRunner(module, CpuTarget())
    again.loaded.origin  # compares with what is lowered  # noqa: B018
    assert kept is not None and kept.code == again.loaded.code and kept.library == again.artifact.path


def test_errors_and_traces_are_explained() -> None:
    def messages(program: Program) -> list[str]:
        found = []
        for values in ({"X": np.ones((6, 8), "f4")}, {"X": np.ones((5, 8), "f4")}):
            try:
                program(**values, Y=np.ones((6, 8), "f4"), factor=1.0)
            except PtoError as error:
                found.append(str(error))
        return found

    first, second = scale_ahead.compile(), scale_ahead.compile()
    assert messages(first) == messages(second) and len(messages(first)) == 2
    traced = scale_rows.compile(), scale_rows.compile()
    x = np.ones((6, 8), np.float32)
    for program in traced:
        program(X=x, Y=np.empty_like(x), factor=1.0, trace="full")
    labels = [[event.label for event in program.trace] for program in traced if program.trace]
    assert labels[0] == labels[1] and len(labels[0]) == 2


def test_other_schedules_are_other_programs(lowered: list[str]) -> None:
    module = scale_rows.compile().module
    text = str(module.with_schedule(Schedule().task_graph(window=TaskWindow(64)).policies))
    program = compile_module(parse(text))
    assert len(lowered) == 2 and "64" in str(program.schedule)
    again = compile_module(parse(text))
    assert len(lowered) == 2 and str(again.schedule) == str(program.schedule)
    again.reschedule(Schedule())
    assert len(lowered) == 3 and np.array_equal(result(again), result(program))


def test_programs_whose_parameters_are_made_are_not_kept(folder: Path, lowered: list[str]) -> None:
    results = [result(scale_by_twice.compile()) for _ in range(2)]
    assert np.array_equal(*results) and len(lowered) == 2 and not [*(folder / "libraries").glob("*.program")]


Damage = Callable[[Path], None]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[90] ^= 1
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Damage] = {
    "truncated": truncate,
    "flipped": flip,
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_bytes(bytes(500)),
    "folder": lambda path: (path.unlink(), path.mkdir())[0],
    "link to nothing": lambda path: (path.unlink(), path.symlink_to(path.parent / "nothing"))[0],
    "unreadable": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("damage", mostly_slow(DAMAGES, quick=3))
def test_damaged_files_are_not_used(damage: str, folder: Path, lowered: list[str]) -> None:
    expected = result(scale_rows.compile())
    DAMAGES[damage](only_program(folder))
    assert np.array_equal(result(scale_rows.compile()), expected)
    assert len(lowered) == (1 if damage == "unreadable" and os.geteuid() == 0 else 2)


def test_a_library_that_is_gone_is_built_again() -> None:
    program = scale_rows.compile()
    expected = result(program)
    program._runner.artifact.path.unlink()
    program = scale_rows.compile()
    assert np.array_equal(result(program), expected) and program.stats and program.stats.compiles == 1


def test_a_program_of_another_content_is_made_again(lowered: list[str]) -> None:
    first = scale_rows.compile()
    expected, key = result(first), key_of(prepared_from(first))
    own, library = bytes.fromhex(key), bytes.fromhex(first._runner.artifact.path.stem)
    contents = (b"short", own, own + library + b"no bytecode", bytes(32) + library, own + bytes(33))
    for number, content in enumerate(contents, 2):
        keep(key, content)
        assert np.array_equal(result(scale_rows.compile()), expected) and len(lowered) == number


def test_a_program_with_the_code_of_another_is_refused_when_it_is_looked_at() -> None:
    cache = ArtifactCache()
    module, other = (prepared_from(w.compile()) for w in (scale_rows, scale_ahead))
    content = cache.read(key_of(other), "program")
    assert content is not None
    keep(key_of(module), bytes.fromhex(key_of(module)) + content[32:])
    with pytest.raises(BadCache, match="differs from what its text is lowered to"):
        EngineRunner(module, CpuTarget()).loaded.origin  # noqa: B018


@pytest.mark.parametrize("name", ["open", "rename"])
def test_a_disk_that_cannot_be_written(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    expected = result(scale_rows.compile())
    only_program(folder).unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes" if name == "open" else "rename", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    for _ in range(2):
        assert np.array_equal(result(scale_rows.compile()), expected)
    assert len(lowered) == 3 and not [*(folder / "libraries").glob("*.program")]


def test_another_package_is_another_program(monkeypatch: pytest.MonkeyPatch, lowered: list[str]) -> None:
    scale_rows.compile()
    monkeypatch.setattr(kept_programs, "package_stamp", lambda: "another")
    scale_rows.compile()
    scale_rows.compile()
    assert len(lowered) == 2
    monkeypatch.setattr(kept_programs, "package_stamp", lambda: None)
    scale_rows.compile()
    scale_rows.compile()
    assert len(lowered) == 4


def test_a_package_that_changes_while_it_runs_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_programs.package_stamp.cache_clear()
    stamp = kept_programs.package_stamp()
    assert stamp is not None
    kept_programs.package_stamp.cache_clear()
    monkeypatch.setattr(kept_programs, "_IMPORTED_NS", 0)
    assert kept_programs.package_stamp() is None
    kept_programs.package_stamp.cache_clear()


@pytest.mark.parametrize("left_out", [1, None])
def test_other_processors_are_other_programs(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    expected = result(scale_rows.compile())
    names = resolve_features().names
    if not names:
        pytest.skip("this processor has nothing beyond its baseline")
    monkeypatch.setenv(FEATURES, ",".join(names[:-left_out] if left_out else ()))
    program = scale_rows.compile()
    assert np.array_equal(result(program), expected) and program._runner.artifact.compiles == 1
    assert len(lowered) == 2


def test_a_program_that_cannot_run_fails_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: object, target: str) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(prepared, "check_schedule", refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            scale_rows.compile()


SCRIPT = """
import sys
import numpy as np
from pto_wsp import parse
from pto_wsp.runtime.compiling import compile_module
text = open(sys.argv[1]).read()
for turn in range(30):
    changed = text.replace("scale_rows", f"scale_rows{turn % 3}")
    program = compile_module(parse(changed))
    x = np.ones((6, 8), np.float32)
    y = np.empty_like(x)
    program(X=x, Y=y, factor=2.0)
    assert (y == 2).all()
    program.trace, program._runner.loaded.origin
"""


def test_processes_share_programs(tmp_path: Path) -> None:
    (tmp_path / "scale.pto").write_text(str(scale_rows.compile().module))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "scale.pto")]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
