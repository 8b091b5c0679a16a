"""How an emitted program is built on this machine: a Makefile and a README."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.ir.module import Module
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.features import Features
from pto_wsp.targets.cpu.native import FREESTANDING
from pto_wsp.targets.cpu.readme import BuildText, command_name, kernel_flags, readme


def build_files(module: Module, library: Library, features: Features) -> Mapping[str, str]:
    """Return the README and the Makefile of a program."""
    names = ", ".join(features.names) or "no features beyond the baseline"
    text = BuildText(
        machine=f"{features.machine} with {names}",
        needs="`make` and g++ or clang++",
        commands=("make",),
        command=f"./{command_name(module)}",
    )
    return {"README.md": readme(module, text), "Makefile": _makefile(module, library, features)}


def _makefile(module: Module, library: Library, features: Features) -> str:
    name = command_name(module)
    native = "".join(f" {function_name(unit.kernel)}.o" for unit in library.units)
    flags = " ".join(kernel_flags(is_native=True))
    of_native = f"{native.strip()}: CXXFLAGS = $(COMMON) {flags}\n" if native else ""
    return f"""# Builds `{name}`. `make CXX=clang++` builds it with another compiler.
COMMON = -std=c++17 -Iinclude {" ".join(features.flags)}

{name}: kernels.o parts.o{native} main.o host.o
\t$(CXX) $^ -pthread -o $@

# Each instruction is rounded separately: without -ffp-contract=off, results change.
kernels.o parts.o: CXXFLAGS = $(COMMON) {flags} {" ".join(FREESTANDING)}
{of_native}main.o host.o: CXXFLAGS = $(COMMON) -O2 -ffp-contract=off -pthread -Wno-psabi

%.o: %.cpp
\t$(CXX) $(CXXFLAGS) -c $< -o $@

clean:
\trm -f {name} *.o
.PHONY: clean
"""
