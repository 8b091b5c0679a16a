"""The headers alone: every compiler, standard and macro; what must not compile; what they include."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slow import mostly_slow

ROOT = Path(__file__).parents[3]
INCLUDE = ROOT / "include"
RUNTIME = INCLUDE / "pto" / "runtime"
CPP_TESTS = ROOT / "tests" / "cpp" / "planner"
MUST_NOT_COMPILE = CPP_TESTS / "must_not_compile.cpp"

NAMED_BY_THE_SPECIFICATION = (
    "runtime.hpp",
    "dim.hpp",
    "iteration_space.hpp",
    "work_descriptor.hpp",
    "tier_config.hpp",
    "work_planner.hpp",
    "kernel_dispatch.hpp",
)
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"))
    for name in ("g++", "clang++")
]
STANDARDS = ("c++17", "c++20")
SIMULATION = ([], ["-D__CPU_SIM"])
NOT_ON_DEVICES = ("string", "vector", "functional")


def compiler() -> str:
    return next(name for name in ("g++", "clang++") if shutil.which(name))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def syntax(source: Path, *flags: str, cxx: str | None = None) -> subprocess.CompletedProcess[str]:
    return run(cxx or compiler(), "-fsyntax-only", f"-I{INCLUDE}", *flags, source)


def test_the_named_headers_exist() -> None:
    assert {path.name for path in RUNTIME.glob("*.hpp")} >= set(NAMED_BY_THE_SPECIFICATION)


@pytest.mark.parametrize("simulation", SIMULATION, ids=["device", "cpu_sim"])
@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("cxx", COMPILERS)
def test_headers_compile_without_a_warning(cxx: str, standard: str, simulation: list[str]) -> None:
    done = syntax(
        CPP_TESTS / "test_planner_spec.cpp", f"-std={standard}", *STRICT[:3], "-Werror", *simulation, cxx=cxx
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("cxx", COMPILERS)
def test_every_header_compiles_alone(cxx: str, standard: str, tmp_path: Path) -> None:
    for header in sorted(RUNTIME.rglob("*.hpp")):
        source = tmp_path / "alone.cpp"
        name = header.relative_to(INCLUDE).as_posix()
        source.write_text(f"#include <{name}>\n#include <{name}>\nint main() {{}}\n")
        done = syntax(source, f"-std={standard}", *STRICT, cxx=cxx)
        assert done.returncode == 0, done.stderr


def test_headers_include_nothing_that_a_device_lacks(tmp_path: Path) -> None:
    source = tmp_path / "all.cpp"
    source.write_text("#include <pto/runtime/runtime.hpp>\n")
    for standard in STANDARDS:
        done = run(compiler(), "-M", f"-std={standard}", f"-I{INCLUDE}", source)
        included = {Path(word).name for word in done.stdout.replace("\\\n", " ").split()}
        assert done.returncode == 0 and "runtime.hpp" in included
        assert included.isdisjoint(NOT_ON_DEVICES), included & set(NOT_ON_DEVICES)


def cases() -> list[tuple[int, str]]:
    found = re.findall(r"// CASE (\d+): (.*)", MUST_NOT_COMPILE.read_text(encoding="utf-8"))
    return [(int(number), text.strip()) for number, text in found]


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("cxx", COMPILERS)
def test_the_control_compiles(cxx: str, standard: str) -> None:
    done = syntax(MUST_NOT_COMPILE, f"-std={standard}", "-DCASE=0", *STRICT[:2], "-Werror", cxx=cxx)
    assert done.returncode == 0, done.stderr
    assert [number for number, _ in cases()] == list(range(1, len(cases()) + 1))


@pytest.mark.parametrize(("number", "text"), mostly_slow(cases(), quick=8))
@pytest.mark.parametrize("cxx", COMPILERS)
def test_must_not_compile(cxx: str, number: int, text: str) -> None:
    done = syntax(MUST_NOT_COMPILE, "-std=c++17", f"-DCASE={number}", cxx=cxx)
    assert done.returncode != 0
    assert any(text in line for line in done.stderr.splitlines() if "error" in line), done.stderr


def configured(folder: Path, version: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Configure a project that asks for a version of the package."""
    (folder / "main.cpp").write_text(
        "#include <pto/runtime/runtime.hpp>\n"
        "const int length = 5;\n"
        "int main() { return pto::runtime::AttentionPlanner().get_total_work(&length, 1, 1, 5) - 1; }\n"
    )
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user LANGUAGES CXX)\n"
        f"find_package(pto {version} CONFIG REQUIRED)\nadd_executable(user main.cpp)\n"
        "target_link_libraries(user PRIVATE pto::runtime)\n"
    )
    return run("cmake", "-S", folder, "-B", folder / "build", *options)


def find_and_run(folder: Path, *options: str) -> None:
    """A project finds the package, builds and runs; a version that does not exist is refused."""
    folder.mkdir()
    assert "9.0" in configured(folder, "9.0", *options).stderr
    done = configured(folder, "0.1", *options)
    assert done.returncode == 0, done.stderr
    built = run("cmake", "--build", folder / "build")
    assert built.returncode == 0, built.stdout + built.stderr
    assert run(folder / "build" / "user").returncode == 0


def test_find_package_in_the_sources(tmp_path: Path) -> None:
    find_and_run(tmp_path / "user", f"-Dpto_DIR={ROOT / 'cmake'}")


def test_find_package_in_a_prefix(tmp_path: Path) -> None:
    """Headers are installed without building anything, and without Python."""
    build, prefix = tmp_path / "build", tmp_path / "a prefix"
    made = run("cmake", "-S", ROOT, "-B", build, "-DPTO_WSP_PYTHON=OFF")
    assert made.returncode == 0, made.stderr
    installed = run("cmake", "--install", build, "--component", "headers", "--prefix", prefix)
    assert installed.returncode == 0, installed.stderr
    find_and_run(tmp_path / "user", f"-DCMAKE_PREFIX_PATH={prefix}")
