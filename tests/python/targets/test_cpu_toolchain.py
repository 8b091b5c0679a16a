"""Finding and running the compiler, and the CPU features that code is built for."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from pto_wsp.errors import CompilerFailed, NoCompiler, UnknownTarget, UnsupportedByTarget
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets import registry
from pto_wsp.targets.cpu import features, toolchain
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.targets.preferences import panel_cols
from pto_wsp.types.dtype import f32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker


def copy_kernel() -> object:
    maker = KernelMaker("copy")
    maker.store(maker.op("mov", maker.input("x", 4, 4, f32)), "y")
    return maker.done()


@pytest.fixture
def own_cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache of its own")


def test_a_second_build_compiles_nothing(own_cache: ArtifactCache) -> None:
    target = CpuTarget()
    first, second = (target.build([copy_kernel()], own_cache) for _ in range(2))
    assert (first.compiles, second.compiles) == (1, 0)
    assert (
        first.path == second.path and first.checks == second.checks and first.compile_ms > second.compile_ms
    )


def test_options_of_the_compiler_are_in_the_key(
    own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = set()
    for wanted in ("g++", "g++ -O1", "g++ -fwrapv", "g++ -O1"):
        monkeypatch.setenv("CXX", wanted)
        paths.add(CpuTarget().build([copy_kernel()], own_cache).path)
    assert len(paths) == 3


def test_paths_with_spaces(tmp_path: Path, own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my compilers"
    folder.mkdir()
    script = folder / "the compiler"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    compiler = toolchain.find_compiler(own_cache)
    assert compiler.command == (str(script),)
    monkeypatch.setenv("CXX", f"{script!s}".replace(" ", "\\ ") + " -fno-plt")
    assert toolchain.find_compiler(own_cache).command == (str(script), "-fno-plt")
    ctypes_abi.load(CpuTarget().build([copy_kernel()], own_cache))


def test_zig_builds_for_the_baseline(own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "run", lambda *_: (0, "clang version 20"))
    monkeypatch.setenv("CXX", f"{sys.executable} -m ziglang c++")
    assert toolchain.find_compiler(own_cache).command[-2:] == ("c++", "-mcpu=baseline")


@pytest.mark.parametrize("wanted", ["/no/such/compiler", "false", "no-such-compiler -O1", "g++ '"])
def test_a_wanted_compiler_that_does_not_run_is_an_error(
    own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.setenv("CXX", wanted)
    with pytest.raises(NoCompiler, match=re.escape(f"CXX={wanted}")):
        toolchain.find_compiler(own_cache)


def test_no_compiler(own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoCompiler, match=r"g\+\+, clang\+\+, c\+\+, ziglang"):
        CpuTarget().build([copy_kernel()], own_cache)


def test_a_failing_compiler_shows_its_text_and_keeps_the_source(
    own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "cxx"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1 && exit 0\necho "<stdin>:3: no"; exit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(CompilerFailed, match="<stdin>:3: no") as caught:
        CpuTarget().build([copy_kernel()], own_cache)
    source = Path(str(caught.value.fields["source"])).read_text()
    assert CpuTarget().library([copy_kernel()]).text.startswith(source)


@pytest.mark.parametrize(("end", "said"), [("exit 0", "it wrote no library"), ("kill -9 $$", "status -9")])
def test_a_compiler_that_says_nothing(
    end: str, said: str, tmp_path: Path, own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit\n{end}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(CompilerFailed, match=said):
        CpuTarget().build([copy_kernel()], own_cache)


def test_identity_of_a_binary_is_asked_for_once(
    own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = toolchain.find_compiler(own_cache)
    monkeypatch.setattr(toolchain, "run", lambda *_: pytest.fail("a process was started"))
    assert toolchain.find_compiler(own_cache) == first
    monkeypatch.undo()
    asked = []
    monkeypatch.setattr(toolchain, "run", lambda command, _: (asked.append(command) or 0, "v1"))
    monkeypatch.setenv("CXX", f"{sys.executable} -c pass")
    for _ in range(2):
        toolchain.find_compiler(own_cache)
    assert len(asked) == 2


on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="features of x86-64")


@on_x86
def test_features_decide_the_width_and_the_key(
    own_cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, lanes = set(), []
    for names in ("", "avx2,fma"):
        monkeypatch.setenv(features.VARIABLE, names)
        lanes.append(features.resolve_features().lanes)
        artifact = CpuTarget().build([copy_kernel()], own_cache)
        assert artifact.compiles == 1
        paths.add(artifact.path)
    assert lanes == [4, 8] and len(paths) == 2
    assert "native" not in " ".join(toolchain.FLAGS)


@on_x86
def test_panels_are_as_wide_as_blocks_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_cpu_info", lambda: (frozenset(features.KNOWN["x86_64"]), "GenuineIntel"))
    for names, cols in (("", 32), ("avx2,fma", 32), ("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl", 64)):
        monkeypatch.setenv(features.VARIABLE, names)
        assert panel_cols() == features.resolve_features().panel_cols == cols


@on_x86
def test_features_of_another_machine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(features.VARIABLE, "avx2,fma,avx512f")
    monkeypatch.setattr(features, "_cpu_info", lambda: (frozenset({"avx2", "fma"}), "GenuineIntel"))
    with pytest.raises(UnsupportedByTarget, match="this CPU does not have it"):
        features.resolve_features()
    monkeypatch.setenv(features.VARIABLE, "mmx")
    with pytest.raises(UnsupportedByTarget, match="known are avx2"):
        features.resolve_features()


def test_unknown_targets() -> None:
    with pytest.raises(UnknownTarget, match="did you mean `cpu`"):
        registry.get("cpv")
