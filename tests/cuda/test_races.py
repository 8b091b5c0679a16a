"""ThreadSanitizer over an emulated block, whose threads it knows as fibers: no element is raced for."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest

from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.targets.cuda.emit import emit_device_code
from pto_wsp.types.dtype import bf16, f16, f32
from pto_wsp.types.tile import TileType, ViewType
from tests.cuda import test_products as products
from tests.cuda import test_programs as programs
from tests.cuda import test_rows as rows
from tests.cuda.alone import run_fixed
from tests.cuda.emulated import EMULATION, emulated_source
from tests.cuda.test_barriers import softmax_rows
from tests.slow import mostly_slow

ROWS = 23
"""The size of a dimension that a kernel leaves open: a part of the last tile of its loops."""


def _view(number: int, param: Param) -> tuple[str, str]:
    """Return the declaration of the elements of a view, and the view."""
    kind = param.type
    assert isinstance(kind, TileType | ViewType) and kind.dtype is not None
    extents = (kind.rows, kind.cols) if isinstance(kind, TileType) else kind.dims or ()
    dims = [extent or ROWS for extent in extents]
    strides = [prod(dims[place + 1 :]) for place in range(len(dims))]
    rest = 4 - len(dims)
    shape, stride = (", ".join(map(str, few)) for few in (dims + [1] * rest, strides + [0] * rest))
    size = prod(dims) * kind.dtype.itemsize
    array = f"alignas(64) static char a{number}[{size}];"
    if kind.dtype == f32:
        value = "const float v = float(i % 7) - 3;"
        array += f" for (int i = 0; i < {size // 4}; ++i) {{ {value} memcpy(a{number} + 4 * i, &v, 4); }}"
    return array, f"{{a{number}, {{{shape}}}, {{{stride}}}, nullptr, false}}"


def main_of(kernels: Sequence[KernelFunction]) -> str:
    """Return a program that calls each kernel of the library, and names the first one that fails."""
    calls = ["#include <string.h>", "int main() {", "alignas(64) static char scratch[1 << 20];"]
    for number, kernel in enumerate(kernels):
        arrays, views = zip(*(_view(i, param) for i, param in enumerate(kernel.views)), strict=True)
        calls += [
            "{",
            *arrays,
            f"const pto::wsp::View views[] = {{{', '.join(views)}}};",
            "const pto::wsp::Scalar scalars[8] = {};",
            "pto::wsp::Monitor monitor{};",
            "const pto::wsp::TaskContext context{scratch, nullptr, 0, 0, 0, 1, &monitor};",
            f"const int code = pto_wsp_kernel_library()->kernels[{number}].fn(views, scalars, &context);",
            f'if (code != 0) return fprintf(stderr, "{kernel.name} fails check %d\\n", code);',
            "}",
        ]
    return "\n".join([*calls, "return 0;", "}"])


def run_checked(
    kernels: Sequence[KernelFunction], text: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Compile kernels, whose code is `text`, with ThreadSanitizer, and run each once."""
    source, output = folder / "race.cpp", folder / "race"
    source.write_text(text + main_of(kernels))
    options = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-fsanitize=thread"]
    command = ["g++", *options, f"-I{include_directory()}", f"-I{EMULATION}", str(source), "-o", str(output)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        pytest.skip(f"g++ builds nothing with ThreadSanitizer: {built.stderr[-300:]}")
    return run_fixed([str(output)])


def code_of(kernels: Sequence[KernelFunction]) -> str:
    """Return the code of a library of kernels for the emulation."""
    return emulated_source(kernels, emit_device_code(kernels))


def kernels_of(*workloads: Workload) -> list[KernelFunction]:
    """Return the kernels of workloads."""
    return [found for each in workloads for found in each.compile("interp").module.kernels]


def test_barriers_that_are_left_out_are_found(tmp_path: Path) -> None:
    """Two are not needed here: a thread sums elements that it wrote itself, and no task follows."""
    kernels = [softmax_rows().done()]
    parts = code_of(kernels).split("sync();")
    done = run_checked(kernels, "sync();".join(parts), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    missed = []
    for number in range(len(parts) - 1):
        broken = "sync();".join([*parts[:number], parts[number] + parts[number + 1], *parts[number + 2 :]])
        if "data race" not in run_checked(kernels, broken, tmp_path).stderr:
            missed.append(number)
    assert missed == [2, len(parts) - 2]


def test_kernels_of_programs(tmp_path: Path) -> None:
    kernels = kernels_of(programs.chain, programs.decode)
    for dtype in (f32, f16, bf16):
        kernels += [
            products.product(*shape, dtype, turned)
            for shape, turned in zip(products.SHAPES[3:5], products.TURNS[1:3], strict=True)
        ]
    done = run_checked(kernels, code_of(kernels), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize("part", mostly_slow(range(8), quick=1))
def test_rows(part: int, tmp_path: Path) -> None:
    """Rows whose check fails for zeros are left out."""
    kernels = [rows.make(name) for name in list(rows.CASES)[part::8] if not name.startswith("extract")]
    done = run_checked(kernels, code_of(kernels), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
