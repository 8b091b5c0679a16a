"""How an emitted program is built for 64-bit ARM: CMake, a toolchain file and a README."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.ir.module import Module
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.readme import WALK_FILE, WITH_WALK, BuildText, command_name, kernel_flags, readme

TOOLCHAIN = """\
# For machines that are not 64-bit ARM themselves: apt-get install g++-aarch64-linux-gnu
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
"""

_NOTES = """
Without the toolchain file, CMake builds for the machine that it runs on. On an x86 machine, prefix the
program with `qemu-aarch64-static -L /usr/aarch64-linux-gnu` to run it under emulation.

`-DPTO_MARCH=armv8.2-a+dotprod` makes products of `i8` use `sdot`, `armv8.6-a+i8mm+bf16` makes them use
`usdot` and those of `bf16` use `bfdot`. The processor must have these instructions. Products of `i8` keep
their bits; those of `bf16` add two terms at a time.
"""


def build_files(module: Module, library: Library) -> Mapping[str, str]:
    """Return the README, the list of CMake and the toolchain file of a program."""
    text = BuildText(
        machine="64-bit ARM Linux",
        needs="CMake 3.16 or newer, and g++ or clang++",
        commands=("cmake -B build -DCMAKE_TOOLCHAIN_FILE=aarch64.cmake", "cmake --build build"),
        command=f"build/{command_name(module)}",
        notes=_NOTES,
        files=(WALK_FILE,),
        bytecode=WITH_WALK,
    )
    return {
        "README.md": readme(module, text),
        "CMakeLists.txt": _lists(module, library),
        "aarch64.cmake": TOOLCHAIN,
    }


def _lists(module: Module, library: Library) -> str:
    name = command_name(module)
    native = [f"{function_name(unit.kernel)}.cpp" for unit in library.units]
    of_native = (
        f'set_source_files_properties({" ".join(native)} PROPERTIES COMPILE_OPTIONS "{_options(True)}")\n'
        if native
        else ""
    )
    return f"""\
cmake_minimum_required(VERSION 3.16)
project({name} LANGUAGES CXX)

set(PTO_MARCH armv8-a CACHE STRING "The architecture, with its extensions, as -march names it")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  message(FATAL_ERROR "expected a 64-bit ARM machine, found ${{CMAKE_SYSTEM_PROCESSOR}}: "
                      "give -DCMAKE_TOOLCHAIN_FILE=aarch64.cmake")
endif()

find_package(Threads REQUIRED)
add_executable({name} {" ".join(["kernels.cpp", "parts.cpp", *native, "walk.cpp", "main.cpp", "host.cpp"])})
target_compile_features({name} PRIVATE cxx_std_17)
target_include_directories({name} PRIVATE include)
target_compile_options({name} PRIVATE -march=${{PTO_MARCH}} -Wno-psabi)
target_compile_definitions({name} PRIVATE PTO_LANES=4)
target_link_libraries({name} PRIVATE Threads::Threads ${{CMAKE_DL_LIBS}})

# Each instruction is rounded separately: without -ffp-contract=off, results change.
set_source_files_properties(kernels.cpp parts.cpp PROPERTIES COMPILE_OPTIONS "{_options(False)}")
{of_native}set_source_files_properties(
  walk.cpp main.cpp host.cpp PROPERTIES COMPILE_OPTIONS "-O2;-ffp-contract=off")
"""


def _options(is_native: bool) -> str:
    return ";".join(kernel_flags(is_native=is_native))
