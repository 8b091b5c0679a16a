"""How an emitted program is built on this machine: a Makefile and a README."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.ir.module import Module
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.c_function import c_name
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.features import Features
from pto_wsp.targets.cpu.native import FREESTANDING
from pto_wsp.targets.cpu.readme import WALK_FILE, WITH_WALK, BuildText, command_name, kernel_flags, readme

_NOTES = """
`make lib{name}.so` builds a library with the functions of `{name}.h`, which run the program on arrays
in memory, also concurrently with programs of other libraries in one session.
"""


def build_files(module: Module, library: Library, features: Features, *, has_walk: bool) -> Mapping[str, str]:
    """Return the README and the Makefile of a program, which may have its workload as source."""
    names = ", ".join(features.names) or "no features beyond the baseline"
    text = BuildText(
        machine=f"{features.machine} with {names}",
        needs="`make` and g++ or clang++",
        commands=("make",),
        command=f"./{command_name(module)}",
        notes=_NOTES.format(name=c_name(module.entry)),
        files=(f"| `{c_name(module.entry)}.h` | the program as functions of C |", *[WALK_FILE] * has_walk),
        bytecode=WITH_WALK if has_walk else BuildText.bytecode,
    )
    makefile = _makefile(module, library, features, "walk.o " * has_walk)
    return {"README.md": readme(module, text), "Makefile": makefile}


def _makefile(module: Module, library: Library, features: Features, walk: str) -> str:
    name, header = command_name(module), c_name(module.entry)
    native = "".join(f" {function_name(unit.kernel)}.o" for unit in library.units)
    return f"""# Builds `{name}`. `make CXX=clang++` builds it with another compiler.
COMMON = -std=c++17 -fPIC -fvisibility=hidden -Iinclude {" ".join(features.flags)}

{name}: kernels.o parts.o{native} {walk}main.o host.o
\t$(CXX) $^ -pthread -o $@

# The functions of `{header}.h`. Symbols of several such libraries in one process stay apart.
# Threads may sleep in a library, so it is never unloaded.
lib{header}.so: kernels.o parts.o{native} {walk}main.o host.o
\t$(CXX) -shared -Wl,-Bsymbolic -Wl,-z,nodelete $^ -pthread -o $@

{unit_flags(native, "$(COMMON)", walk)}
%.o: %.cpp
\t$(CXX) $(CXXFLAGS) -c $< -o $@

clean:
\trm -f {name} lib{header}.so *.o
.PHONY: clean
"""


def unit_flags(native: str, common: str, walk: str = "") -> str:
    """Return the lines of a Makefile with the options of each unit in C++.

    Args:
        native: object files of kernels in C++.
        common: options of all units.
        walk: object files of the workload as source.
    """
    flags = " ".join(kernel_flags(is_native=True))
    of_native = f"{native.strip()}: CXXFLAGS = {common} {flags}\n" if native else ""
    return f"""# Each instruction is rounded separately: without -ffp-contract=off, results change.
kernels.o parts.o: CXXFLAGS = {common} {flags} {" ".join(FREESTANDING)}
{of_native}{walk}main.o host.o: CXXFLAGS = {common} -O2 -ffp-contract=off -pthread -Wno-psabi
"""
