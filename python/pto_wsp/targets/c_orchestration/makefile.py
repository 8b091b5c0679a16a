"""How a program with an orchestration in C is built: a Makefile and a README."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.ir.module import Module
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.c_function import c_name
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.features import Features
from pto_wsp.targets.cpu.makefile import unit_flags
from pto_wsp.targets.cpu.readme import BuildText, command_name, readme

_LIB = "LIB=\"$(pto info | sed -n 's/^lib *//p')\""
_NOTES = """
`LIB` is the folder of `libpto_wsp`, the library of the C API. `--dump tasks.txt` writes the tasks and the
tasks that each one waits for; `pto visualize tasks.txt` draws them. `make {lib} lib{name}.so` builds a
library with the function of `{name}.h`, which runs the program on arrays in memory.
"""


def build_files(module: Module, library: Library, features: Features) -> Mapping[str, str]:
    """Return the README and the Makefile of a program."""
    names = ", ".join(features.names) or "no features beyond the baseline"
    text = BuildText(
        machine=f"{features.machine} with {names}",
        needs="`make`, gcc or clang, and g++ or clang++",
        commands=(f"make {_LIB}",),
        command=f"./{command_name(module)}",
        notes=_NOTES.format(name=c_name(module.entry), lib=_LIB),
        files=(
            "| `orchestration.c` | the workload in C, which adds its tasks by the C API |",
            f"| `{c_name(module.entry)}.h` | the program as a function of C |",
        ),
        bytecode="the tables of tensors, sizes and scalars that the host program checks arrays by",
    )
    return {"README.md": readme(module, text), "Makefile": _makefile(module, library, features)}


def _makefile(module: Module, library: Library, features: Features) -> str:
    name, header = command_name(module), c_name(module.entry)
    native = "".join(f" {function_name(unit.kernel)}.o" for unit in library.units)
    objects = f"kernels.o parts.o{native} main.o host.o orchestration.o"
    return f"""# Builds `{name}`. LIB is the folder of libpto_wsp.
LIB ?= $(error set LIB to the folder of libpto_wsp: `pto info` names it)
COMMON = -fPIC -fvisibility=hidden -Iinclude {" ".join(features.flags)}
LINKED = -L$(LIB) -lpto_wsp -Wl,-rpath,$(LIB) -pthread

{name}: {objects}
\t$(CXX) $^ $(LINKED) -o $@

# The function of `{header}.h`. Symbols of several such libraries in one process stay apart.
lib{header}.so: {objects}
\t$(CXX) -shared -Wl,-Bsymbolic $^ $(LINKED) -o $@

{unit_flags(native, "-std=c++17 $(COMMON)")}
orchestration.o: orchestration.c
\t$(CC) -std=c11 -O2 -Wall -Wextra -pedantic $(COMMON) -c $< -o $@

%.o: %.cpp
\t$(CXX) $(CXXFLAGS) -c $< -o $@

clean:
\trm -f {name} lib{header}.so *.o
.PHONY: clean
"""
