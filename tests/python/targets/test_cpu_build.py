"""Units compiled side by side, and the parts that libraries share."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pto_wsp.errors import CompilerFailed
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu import build, toolchain
from pto_wsp.targets.cpu.emit import emit_library
from pto_wsp.targets.cpu.parts import moves
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker

ROWS = ("exp", "abs", "neg", "relu", "sqrt", "recip", "tanh")


def unary(name: str) -> KernelFunction:
    maker = KernelMaker(f"apply_{name}")
    maker.store(maker.op(name, maker.input("x", 4, 40, f32)), "y")
    return maker.done()


def kernels() -> list[KernelFunction]:
    return [unary(name) for name in ROWS]


@pytest.fixture
def own_cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "own")


@pytest.fixture
def heads(own_cache: ArtifactCache) -> int:
    """How many commands a set of headers takes."""
    return int(toolchain.find_compiler(own_cache).is_gcc)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that are run, in order."""
    found: list[Sequence[str]] = []
    real = build.run

    def noted(command: Sequence[str], text: bytes) -> tuple[int, str]:
        found.append(command)
        return real(command, text)

    monkeypatch.setattr(build, "run", noted)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_kernel_is_in_one_unit(count: int) -> None:
    library = emit_library(kernels(), 4)
    units = library.split(count)
    assert len(units) == count and all(unit.startswith(library.head) for unit in units)
    for kernel in library.kernels:
        assert sum(kernel.text in unit for unit in units) == 1
    assert [library.table in unit for unit in units] == [True] + [False] * (count - 1)
    costs = [sum(kernel.cost for kernel in library.kernels if kernel.text in unit) for unit in units]
    assert max(costs) - min(costs) <= max(kernel.cost for kernel in library.kernels)


def test_mathematics_costs_more_than_arithmetic() -> None:
    (arithmetic,), (mathematics,) = (emit_library([unary(op)], 4).kernels for op in ("neg", "exp"))
    assert mathematics.cost > 2 * arithmetic.cost


@pytest.mark.parametrize("cores", [1, 2, 5, 64])
def test_results_do_not_depend_on_the_number_of_units(
    cores: int,
    own_cache: ArtifactCache,
    heads: int,
    monkeypatch: pytest.MonkeyPatch,
    commands: list[Sequence[str]],
) -> None:
    monkeypatch.setattr(build, "_num_cores", lambda: cores)
    artifact = CpuTarget().build(kernels(), own_cache)
    assert artifact.compiles == 1 and len(commands) == heads + min(cores, 4) + 2
    library = ctypes_abi.load(artifact)
    assert tuple(library.kernels) == artifact.kernels == tuple(f"apply_{name}" for name in ROWS)
    x = np.linspace(-2, 2, 160, dtype=np.float32).reshape(4, 40)
    for name, expected in (("abs", abs(x)), ("neg", -x), ("relu", np.maximum(x, 0)), ("exp", np.exp(x))):
        y = np.empty_like(x)
        assert library.call(unary(name), [x, y]) == 0
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_parts_and_heads_are_compiled_once_and_again_when_they_are_damaged(
    own_cache: ArtifactCache, heads: int, commands: list[Sequence[str]]
) -> None:
    target, folder = CpuTarget(), own_cache.directory / "libraries"
    plain = [unary(name) for name in ("abs", "neg", "relu", "recip")]
    libraries = {target.build(plain[:1], own_cache).path}
    assert len(commands) == heads + 3
    libraries.add(target.build(plain[1:2], own_cache).path)
    assert len(commands) == heads + 5
    shared = {*folder.iterdir()} - libraries
    assert sorted(path.suffix for path in shared) == [".gch"] * heads + [".so"]
    for kernel, path in zip(plain[2:], sorted(shared), strict=False):
        path.write_bytes(path.read_bytes()[:-100])
        before = len(commands)
        target.build([kernel], own_cache)
        assert len(commands) == before + 3


def test_a_unit_whose_head_the_compiler_refuses_is_compiled_without(
    own_cache: ArtifactCache, heads: int, monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]
) -> None:
    noted = build.run

    def refuse(command: Sequence[str], text: bytes) -> tuple[int, str]:
        return (1, "relocated") if "-include" in command else noted(command, text)

    monkeypatch.setattr(build, "run", refuse)
    library = ctypes_abi.load(CpuTarget().build([unary("neg")], own_cache))
    assert len(commands) == heads + 3
    x = np.ones((4, 40), np.float32)
    y = np.empty_like(x)
    assert library.call(unary("neg"), [x, y]) == 0 and (y == -1).all()


@pytest.mark.parametrize("where", ["compiler", "cache"])
def test_a_disk_that_is_full_costs_the_precompiled_headers_alone(
    where: str, own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, folder = build.run, own_cache.directory / "libraries"
    refused: list[Sequence[str]] = []

    def full(command: Sequence[str], text: bytes) -> tuple[int, str]:
        if "c++-header" not in command:
            return real(command, text)
        refused.append(command)
        if where == "compiler":
            return 1, "fatal error: cannot write PCH file: No space left on device"
        output = Path(command[command.index("-o") + 1])
        output.write_bytes(b"headers")
        monkeypatch.setattr(Path, "read_bytes", lambda path: no_space(path, output))
        return 0, ""

    def no_space(path: Path, wanted: Path) -> bytes:
        if path == wanted:
            raise OSError(errno.ENOSPC, "No space left on device")
        with path.open("rb") as file:
            return file.read()

    monkeypatch.setattr(build, "run", full)
    library = ctypes_abi.load(CpuTarget().build([unary("neg")], own_cache))
    x = np.ones((4, 40), np.float32)
    y = np.empty_like(x)
    assert library.call(unary("neg"), [x, y]) == 0 and (y == -1).all()
    assert len(refused) == int(toolchain.find_compiler(own_cache).is_gcc)
    assert not [path for path in folder.iterdir() if path.suffix != ".so"]


def product(name: str, rows: int, dtype: DType) -> KernelFunction:
    """A product of few rows, by a matrix that is read where it lies, behind another instruction."""
    maker = KernelMaker(name)
    left = maker.op(name, maker.input("a", rows, 32, f32))
    maker.store(maker.op("matmul", left, maker.input("b", 32, 40, dtype)), "c")
    return maker.done()


def test_kernels_share_the_parts_that_they_call(
    own_cache: ArtifactCache, commands: list[Sequence[str]]
) -> None:
    target, before = CpuTarget(), 0
    for kernel, parts in (
        (product("exp", 4, f32), 2),
        (product("abs", 3, f32), 0),  # as many rows as the tile library tells apart
        (product("neg", 1, f32), 1),
        (product("relu", 4, bf16), 2),
    ):
        found = emit_library([kernel], 8).parts
        assert len({part.source for part in found}) == len(found) >= parts
        target.build([kernel], own_cache)
        compiled = [command for command in commands if "c++-header" not in command]
        assert len(compiled) - before == 2 + parts, kernel.name
        before = len(compiled)


@pytest.mark.parametrize("broken", ["apply_tanh", "copy"])
def test_a_unit_that_does_not_compile_is_named(
    broken: str, own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_num_cores", lambda: 3)
    real, part = build.run, moves("float").source

    def refuse(command: Sequence[str], text: bytes) -> tuple[int, str]:
        is_wanted = text == part.encode() if broken == "copy" else b"int32_t k_apply_tanh([" in text
        return (1, f"no {broken} today") if is_wanted else real(command, text)

    monkeypatch.setattr(build, "run", refuse)
    with pytest.raises(CompilerFailed, match=f"no {broken} today") as caught:
        CpuTarget().build(kernels(), own_cache)
    kept = Path(str(caught.value.fields["source"])).read_text()
    assert kept == part if broken == "copy" else "k_apply_tanh([" in kept
    assert not [path for path in (own_cache.directory / "libraries").iterdir() if path.name.startswith(".")]
