"""A program for Ascend as a folder: kernels for the device, and a host program that simulates them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.lower.lower_workload_to_bytecode import lower_workload_to_bytecode
from pto_wsp.support.record import replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.element_header import ELEMENTS
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.group_by import GROUP
from pto_wsp.targets.ascend.header import TILES, VIEWS
from pto_wsp.targets.ascend.interface import unverified
from pto_wsp.targets.ascend.kernel import AscendKernel, Part, write_kernel
from pto_wsp.targets.ascend.native import NativeCode
from pto_wsp.targets.ascend.orchestration import (
    FAILED_WORDS,
    extras_of,
    functions_of,
    kernel_entry,
    orchestration_file,
    require_expandable,
    workspace_bytes,
)
from pto_wsp.targets.ascend.runtime_header import RUNTIME
from pto_wsp.targets.ascend.split import CUBE, VECTOR
from pto_wsp.targets.base import Check, SourceTree, table_hash
from pto_wsp.targets.c_style.group_by import is_group_by
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cpu.emit import KernelText, Library, write_table
from pto_wsp.targets.cpu.readme import BuildText, command_name, readme
from pto_wsp.targets.cpu.tree import headers_of, program_tree

_CALL = "const View* views, const Scalar* scalars, const TaskContext* context"


def program(module: Module, generation: Generation) -> SourceTree:
    """Return the folder of a program; without an entry, that of its kernels.

    Raises:
        NoneKernelBody: a kernel is only declared.
        TilesTooLarge: the tiles of a kernel do not fit.
        UnsupportedByTarget: the program holds what the generation refuses.
    """
    codes = written(module.kernels, generation)
    own = {"views.hpp": VIEWS, "ascend.hpp": TILES, "runtime.hpp": RUNTIME}
    extras = extras_of(module)
    for number, (code, part) in enumerate(functions_of(codes)):
        entry = kernel_entry(number, part, extras[code.kernel.name])
        own[_path(part.phase.kernel)] = _device_file(code, part, entry)
    own |= {_caller_path(c): _caller_file(c) for c in codes.values() if c.caller}
    own |= {"elements.hpp": ELEMENTS} if _any_elements(codes) else {}
    own |= {"group.hpp": GROUP} if any(map(is_group_by, module.kernels)) else {}
    library = _library(module.kernels, codes, generation)
    if module.entry:
        require_expandable(module, codes, generation)
        names = [kernel.name for kernel in module.kernels]
        lowered = lower_workload_to_bytecode(module, names, table_hash(module.kernels))
        own["orchestration.cpp"] = orchestration_file(module, codes, lowered)

    def build_files(module: Module, library: Library) -> Mapping[str, str]:
        return _build_files(module, codes, generation, unverified([library.source, *own.values()]))

    tree = program_tree(generation.name, module, library, build_files, has_walk=True, has_networks=True)
    files = {path: text for path, text in tree.files.items() if path != "parts.cpp"}
    headers = {f"include/{name}": text for name, text in headers_of([RUNTIME] if module.entry else [])}
    return replace(
        tree, files={**files, **own, **headers}, kernels=tuple(path for path in own if "/" in path)
    )


def host_library(kernels: Sequence[KernelFunction], generation: Generation) -> Library:
    """Return the unit that simulates kernels on the host, and what their checks mean."""
    return _library(kernels, written(kernels, generation), generation)


def written(kernels: Iterable[KernelFunction], generation: Generation) -> dict[str, AscendKernel]:
    """Return written kernels by name; no two functions have one name."""
    kernels = tuple(kernels)
    taken = {kernel.name for kernel in kernels}
    found: dict[str, AscendKernel] = {}
    for kernel in kernels:
        found[kernel.name] = write_kernel(kernel, generation, taken)
        taken |= {part.phase.kernel.name for part in found[kernel.name].parts}
    return found


def _path(kernel: KernelFunction) -> str:
    return f"kernels/{function_name(kernel)}.cpp"


def _caller_path(code: AscendKernel) -> str:
    return f"callers/{function_name(code.kernel)}.hpp"


def _paths(codes: Iterable[AscendKernel], core: str) -> list[str]:
    """Return the files of one kind of core."""
    return [_path(p.phase.kernel) for code in codes for p in code.parts if p.phase.core == core]


def _any_elements(codes: Mapping[str, AscendKernel]) -> bool:
    return any(part.has_elements for code in codes.values() for part in code.parts)


def _device_file(whole: AscendKernel, part: Part, entry: str) -> str:
    """Return the file of a function of a core: the function, and what the runtime calls."""
    kernel, out = part.phase.kernel, TextWriter()
    name, title = function_name(kernel), ascii(whole.kernel.name)[1:-1]
    if whole.caller:
        title += f", phase {whole.parts.index(part) + 1} of {len(whole.parts)}"
    out.line(f"// Kernel {title}, for a {part.phase.core} core. Generated by pto-wsp: do not edit.")
    sizes = ", ".join(
        f"{size} of {memory.removesuffix('_bytes').upper()}" for memory, size in part.memory.items()
    )
    if sizes:
        out.line(f"// Bytes: {sizes}.")
    out.line(f'#include "{"elements" if part.has_elements else "ascend"}.hpp"')
    for line in part.code.includes if isinstance(part.code, NativeCode) else ():
        out.line(line)
    out.line()
    out.line("namespace ascend {")
    return f"""{out}{part.code.out}{_numbers(name, part.code.checks)}}}  // namespace ascend

{entry}"""


def _numbers(name: str, checks: Sequence[Check]) -> str:
    return "".join(
        f"// {name} returns {number}: {check.text.message}\n" for number, check in enumerate(checks, 1)
    )


def _caller_file(code: AscendKernel) -> str:
    """Return the file of the function that calls the phases of a kernel."""
    assert code.caller
    name, out = function_name(code.kernel), TextWriter()
    out.line(
        f"// The caller of the phases of {ascii(code.kernel.name)[1:-1]}. Generated by pto-wsp: do not edit."
    )
    out.line("#pragma once")
    out.line('#include "views.hpp"')
    out.line()
    out.line("namespace ascend {")
    return f"{out}{code.caller.out}{_numbers(name, code.checks)}}}  // namespace ascend\n"


def _library(
    kernels: Sequence[KernelFunction], codes: Mapping[str, AscendKernel], generation: Generation
) -> Library:
    """Return the unit that simulates the kernels on the host, as the engine calls them."""
    head, hash_text = TextWriter(), f"0x{table_hash(kernels):016x}"
    head.line("// The kernels on the host. Generated by pto-wsp: do not edit.")
    for code in codes.values():
        for part in code.parts:
            head.line(f'#include "{_path(part.phase.kernel)}"')
        if code.caller:
            head.line(f'#include "{_caller_path(code)}"')
    head.line('#include "pto/wsp/abi.hpp"')
    head.line()
    head.line("namespace pto::wsp::tile {")
    head.line(
        "static_assert(sizeof(View) == sizeof(ascend::View) && sizeof(Scalar) == sizeof(ascend::Scalar));"
    )
    texts = [KernelText(_on_host(code, generation), 1) for code in codes.values()]
    table = TextWriter()
    write_table(table, kernels, dict.fromkeys(codes, 0), hash_text)
    checks = {name: tuple(code.checks) for name, code in codes.items()}
    return Library(str(head), "", tuple(texts), str(table), checks)


def _on_host(code: AscendKernel, generation: Generation) -> str:
    """Return a function that runs a kernel on a simulated core."""
    name = function_name(code.kernel)
    begin = f"NPU_MEMORY_INIT(NPUArch::{generation.arch});"
    arguments = (
        "reinterpret_cast<const ascend::View*>(views), reinterpret_cast<const ascend::Scalar*>(scalars)"
    )
    if not code.caller:
        function = function_name(code.parts[0].phase.kernel)
        return f"""int32_t {name}({_CALL}) {{
  {begin}
  const ascend::TaskContext task{{context->block_idx, context->monitor->values, nullptr, nullptr}};
  return ascend::{function}({arguments}, &task);
}}"""
    functions = ", ".join(f"ascend::{function_name(part.phase.kernel)}" for part in code.parts)
    sizes = code.caller.workspace_bytes
    memory = "".join(
        f"  alignas(64) static thread_local uint8_t workspace_{size}[{count}];\n"
        for size, count in sizes.items()
    )
    names = ", ".join(f"workspace_{size}" if size in sizes else "nullptr" for size in (1, 2, 4, 8))
    return f"""static int32_t call_{name}(
    const ascend::TaskContext* context, int32_t phase, const ascend::View* views,
    const ascend::Scalar* scalars) {{
  constexpr decltype(&ascend::{function_name(code.parts[0].phase.kernel)}) phases[] = {{{functions}}};
  {begin}
  return phases[phase](views, scalars, context);
}}
int32_t {name}({_CALL}) {{
{memory}  uint8_t* const workspace[] = {{{names}}};
  const ascend::TaskContext task{{context->block_idx, context->monitor->values, call_{name}, workspace}};
  return ascend::{name}({arguments}, &task);
}}"""


# --- how it is built ---------------------------------------------------------------------------------------


_NOTES = """
`PTO_ISA_ROOT` is the folder of the PTO library, whose `include/pto/pto-inst.hpp` simulates a core on the
host. The program expands the workload and calls the kernels on the cores of the host.

`device.cmake` compiles the kernels for the device with the vendor's compiler, one object per kernel, and the
orchestration with a cross compiler. A control core of the device loads the orchestration: it expands the
workload and submits each task to the runtime, which orders tasks by their tensors. `manifest.json` says what
the runtime needs to know: the functions with their numbers and cores, and the arguments of a run. The
arguments are the tensors, also those that the program makes for itself; then 128 integers, all zero, for a
check that fails; then memory for tiles that phases share, a tensor per size of elements that the manifest
names. Scalars are all sizes and scalars of the program, floats as their bits. The folder has no host program
that loads the runtime.

| in the program | on the device |
|---|---|
| tile | bytes of a core's memory at a fixed address, see the top of each kernel |
| load, store | `TLOAD` on the pipe MTE2, `TSTORE` on the pipe MTE3; of a cube core on FIX |
| arithmetic | a tile call on the vector pipe, with the valid shape of the operands |
| sorting, elements by index | a loop of the scalar unit over elements of tiles: `elements.hpp` |
| product | parts of operands move from L1 to L0A and L0B on MTE1; products are added up in L0C on M |
| a kernel with both | phases, one kernel per kind of core; `callers/` calls them in order |
| order of instructions | flags between pipes, barriers inside of one; all pipes end together around loops |
| failed check | the kernel ends and writes its number and what it found to `failed` |
"""


def _unchecked_names(names: Sequence[str]) -> str:
    """Return the paragraph of the README about names of the library that are guesses."""
    if not names:
        return ""
    listed = "\n".join(f"- `{name}`" for name in names)
    return f"""
These names were not checked against any version of the PTO library or of the runtime. If the compiler does
not know one, replace it:

{listed}
"""


def _build_files(
    module: Module, codes: Mapping[str, AscendKernel], generation: Generation, guesses: Sequence[str]
) -> Mapping[str, str]:
    name, calls = command_name(module), any(code.caller for code in codes.values())
    text = BuildText(
        machine=f"Ascend, {generation.arch}",
        needs="CMake 3.16 or newer, g++ or clang++, and the PTO library",
        commands=("cmake -B build -DPTO_ISA_ROOT=$PTO_ISA_ROOT", "cmake --build build"),
        command=f"build/{name}",
        notes=_NOTES + _unchecked_names(guesses),
        files=(
            "| `kernels/` | one file per kernel, for the device and the host |",
            *(
                ["| `callers/` | one file per kernel that needs cube cores and vector cores |"]
                if calls
                else []
            ),
            "| `ascend.hpp`, `views.hpp` | what all kernels use; what callers use, too |",
            *(["| `elements.hpp` | what scalar units compute |"] if _any_elements(codes) else []),
            "| `orchestration.cpp`, `runtime.hpp` | what a control core of the device runs |",
            "| `device.cmake` | how kernels and the orchestration are compiled for the device |",
            "| `manifest.json` | kernels, arguments and memory, for other tools |",
            "| `walk.cpp` | the walk of the workload, which the engine expands into tasks |",
        ),
    )
    page = "\n".join(
        line.replace("the kernels, one function each", "the kernels, as the engine calls them")
        for line in readme(module, text).splitlines()
        if not line.startswith("| `parts.cpp`")
    )
    return {
        "README.md": page + "\n",
        "CMakeLists.txt": _lists(name),
        "device.cmake": _device(codes, generation),
        "manifest.json": _manifest(module, codes, generation),
    }


def _lists(name: str) -> str:
    return f"""\
cmake_minimum_required(VERSION 3.16)
project({name} LANGUAGES CXX)

set(PTO_ISA_ROOT "" CACHE PATH "The folder of the PTO library")
if(NOT EXISTS "${{PTO_ISA_ROOT}}/include/pto/pto-inst.hpp")
  message(FATAL_ERROR "expected include/pto/pto-inst.hpp in PTO_ISA_ROOT, found '${{PTO_ISA_ROOT}}'")
endif()

find_package(Threads REQUIRED)
add_executable({name} kernels.cpp walk.cpp main.cpp host.cpp)
target_include_directories({name} PRIVATE include .)
target_compile_definitions({name} PRIVATE PTO_LANES=4)
target_compile_options({name} PRIVATE -Wno-psabi)
set_source_files_properties(kernels.cpp PROPERTIES
  COMPILE_DEFINITIONS "__CPU_SIM;PTO_CPU_MAX_THREADS=1"
  COMPILE_OPTIONS "-std=c++20;-O2;-I${{PTO_ISA_ROOT}}/include;-includestdint.h;-includestddef.h")
set_source_files_properties(walk.cpp main.cpp host.cpp PROPERTIES
  COMPILE_OPTIONS "-std=c++17;-O2;-ffp-contract=off")
target_link_libraries({name} PRIVATE Threads::Threads ${{CMAKE_DL_LIBS}})
"""


def _device(codes: Mapping[str, AscendKernel], generation: Generation) -> str:
    vector, cube = (" ".join(_paths(codes.values(), core)) for core in (VECTOR, CUBE))
    return f"""\
# Compiles the kernels and the orchestration for the device: cmake -P device.cmake. It needs the vendor's
# compiler, a cross compiler, and the headers of the runtime in ASCEND_RUNTIME_ROOT.
foreach(VARIABLE PTO_ISA_ROOT ASCEND_RUNTIME_ROOT ASCEND_HOME_PATH)
  if("$ENV{{${{VARIABLE}}}}" STREQUAL "")
    message(FATAL_ERROR "expected a folder in the environment variable ${{VARIABLE}}, found none")
  endif()
endforeach()
foreach(COMPILER bisheng aarch64-linux-gnu-g++)
  find_program(FOUND ${{COMPILER}})
  if(NOT FOUND)
    message(FATAL_ERROR "expected the compiler ${{COMPILER}} in PATH, found none")
  endif()
  unset(FOUND CACHE)
endforeach()
set(VECTOR_KERNELS {vector})
set(CUBE_KERNELS {cube})
function(compile CORES)
  foreach(KERNEL ${{ARGN}})
    execute_process(
      COMMAND bisheng -xcce -std=c++17 -O2 --cce-aicore-arch=${{CORES}} -D{generation.define}
        -mllvm -cce-aicore-stack-size=0x8000 -mllvm -cce-aicore-function-stack-size=0x8000
        -DASCEND_RUNTIME -I$ENV{{PTO_ISA_ROOT}}/include -I$ENV{{ASCEND_RUNTIME_ROOT}}
        -I$ENV{{ASCEND_HOME_PATH}}/include -I. -c ${{KERNEL}} -o ${{KERNEL}}.o
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()
compile({generation.vector_cores} ${{VECTOR_KERNELS}})
compile({generation.cube_cores} ${{CUBE_KERNELS}})
execute_process(
  COMMAND aarch64-linux-gnu-g++ -std=c++17 -O2 -fPIC -shared -static-libstdc++ -static-libgcc
    -ffp-contract=off -Iinclude -I. -I$ENV{{ASCEND_RUNTIME_ROOT}} orchestration.cpp walk.cpp
    -o orchestration.so
  COMMAND_ERROR_IS_FATAL ANY)
"""


def _manifest(module: Module, codes: Mapping[str, AscendKernel], generation: Generation) -> str:
    rows = [
        {
            "name": name,
            "blocks": code.kernel.block_dim,
            "views": _views(code.kernel),
            "scalars": [{"name": p.name, "type": str(p.type)} for p in code.kernel.scalar_params],
            "workspace_bytes": sum(code.caller.workspace_bytes.values()) if code.caller else 0,
            "phases": [_phase(part) for part in code.parts],
            "checks": [check.text.message for check in code.checks],
        }
        for name, code in codes.items()
    ]
    found = {"target": generation.name, "arch": generation.arch, "kernels": rows}
    return json.dumps(found | {"orchestration": _run_arguments(module, codes)}, indent=2) + "\n"


def _run_arguments(module: Module, codes: Mapping[str, AscendKernel]) -> dict[str, object]:
    """Return what the host gives to a run of the orchestration, and the functions that it submits."""
    if not module.entry:
        return {}
    tensors: list[dict[str, object]] = [
        {"name": t.name, "type": str(t.type), "local": t.is_local} for t in module.entry_workload.tensors
    ]
    tensors.append({"name": "failed", "integers": FAILED_WORDS})
    tensors += [
        {"name": f"workspace_{size}", "element_bytes": size, "least_bytes": count}
        for size, count in workspace_bytes(codes).items()
    ]
    functions = [
        {
            "id": number,
            "core": {CUBE: "aic", VECTOR: "aiv"}[part.phase.core],
            "file": _path(part.phase.kernel),
        }
        | {"signature": [view.role for view in part.phase.kernel.views]}
        for number, (_, part) in enumerate(functions_of(codes))
    ]
    scalars = [param.name for param in module.entry_workload.symbols]
    return {"tensors": tensors, "scalars": scalars, "functions": functions}


def _views(kernel: KernelFunction) -> list[dict[str, str]]:
    return [{"name": p.name, "role": p.role, "type": str(p.type)} for p in kernel.views]


def _phase(part: Part) -> dict[str, object]:
    kernel = part.phase.kernel
    return {
        "name": kernel.name,
        "file": _path(kernel),
        "core": part.phase.core,
        **part.memory,
        "views": _views(kernel),
    }
