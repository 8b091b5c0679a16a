"""The generated code: readable, warning-free, and contracted nowhere but where it says so."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pto_wsp.errors import NoneKernelBody, TilesTooLarge, UnsupportedByTarget
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const
from pto_wsp.location import Location
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.targets.base import table_hash
from pto_wsp.targets.cpu import toolchain
from pto_wsp.targets.cpu.emit import emit_library
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import f32, f64, u64
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker, whole
from tests.python.targets.test_cpu_rows import MAIN, SMALL, make
from tests.python.targets.widths import WIDTHS, vectors_of


def compiler_output(source: str, *options: str) -> str:
    include = f"-I{toolchain.include_directory()}"
    command = [
        "g++",
        *toolchain.FLAGS,
        *options,
        *resolve_features().flags,
        include,
        "-x",
        "c++",
        "-",
        "-o",
        "-",
    ]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assembly(kernels: Sequence[KernelFunction]) -> str:
    return compiler_output(CpuTarget().library(kernels).text, "-S")


needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@needs_gcc
@pytest.mark.parametrize("width", WIDTHS)
def test_no_warnings(width: str | None) -> None:
    seen: dict[str, KernelFunction] = {}
    for cases in (MAIN | SMALL).values():
        for case in cases:
            seen.setdefault(case[0].name, make(case[0].name, [case]))
    with vectors_of(width):
        source = CpuTarget().library(list(seen.values())).text
        compiler_output(source, "-fsyntax-only", "-Wall", "-Wextra", "-Werror")


def arithmetic() -> KernelFunction:
    """(a * b + c) and a row sum of squares: what a compiler would love to contract."""
    maker = KernelMaker("arithmetic")
    a, b, c = (maker.input(name, 32, 64, f32) for name in "abc")
    maker.store(maker.op("add", maker.op("mul", a, b), c), "y")
    maker.store(maker.op("rowsum", maker.op("mul", a, a)), "z")
    return maker.done()


def product() -> KernelFunction:
    maker = KernelMaker("product")
    maker.store(maker.op("matmul", maker.input("a", 64, 64, f32), maker.input("b", 64, 64, f32)), "y")
    return maker.done()


@needs_gcc
def test_only_products_and_approximations_use_fma() -> None:
    if "fma" not in resolve_features().names:
        pytest.skip("this CPU has no fma")
    assert "fmadd" not in assembly([arithmetic()])
    packed = re.findall(r"vfn?m(?:add|sub)\w+ps\s.*%([xyz]mm)", assembly([product()]))
    wide = {16: "zmm", 8: "ymm"}[resolve_features().lanes]
    assert packed.count(wide) == len(packed) >= 16
    assert not re.search(r"vfn?m(add|sub)\w+(ss|sd)\b", assembly([product()]))


def test_nothing_depends_on_folders(cache: ArtifactCache) -> None:
    def located(folder: str, line: int) -> KernelFunction:
        kernel = product()
        loc = Location(f"{folder}/kernels.py", line)
        return replace(kernel, loc=loc, body=tuple(replace(s, loc=loc) for s in kernel.body or ()))

    here, there = (CpuTarget().build([located(*at)], cache) for at in (("/a", 3), ("/b/c", 40)))
    assert here.path == there.path
    assert "// kernels.py:3\n" in here.source and "/a" not in here.source.replace("a/wsp", "")


def test_code_is_the_same_every_time() -> None:
    assert CpuTarget().library([arithmetic(), product()]) == CpuTarget().library([arithmetic(), product()])


def test_the_table(cache: ArtifactCache) -> None:
    view = ViewType(f32, (None, 3, 70, None))
    odd = k.KernelFunction(
        "größe_int",
        (
            k.Param("void", k.INOUT, view),
            k.Param("ä", k.IN, ScalarType(f32)),
            k.Param("t", k.IN, TileType(3, 70, f32)),
        ),
        (("class", TileType(3, 70, f32)),),
        (),
        (
            k.Load("class", whole("t")),
            k.Store(Region("void", (Index(Const(0)), Full(), Full(), Index(Const(0)))), "class"),
        ),
    )
    artifact = CpuTarget().build([odd, product()], cache)
    library = ctypes_abi.load(artifact)
    assert artifact.kernels == tuple(library.kernels) == ("größe_int", "product")
    assert library.table.table_hash == artifact.table_hash == table_hash([odd, product()])
    info = library.kernels["größe_int"]
    assert (info.num_views, info.num_scalars) == (2, 1)
    first, second = info.params[0], info.params[1]
    assert (first.role, first.dtype, first.rank) == (2, f32.code, 4)
    assert list(first.min_shape) == [0, 3, 70, 0] and list(first.max_shape) == [2**63 - 1, 3, 70, 2**63 - 1]
    assert (second.role, list(second.min_shape), list(second.max_shape)) == (0, [0, 0, 1, 1], [3, 70, 1, 1])
    assert table_hash([product()]) != table_hash([replace(product(), name="other")])


def refused(**changes: object) -> None:
    CpuTarget().library([replace(product(), **changes)])


def test_what_is_refused() -> None:
    loc = Location("k.py", 7)
    with pytest.raises(UnsupportedByTarget, match=r"scalars of type f64[\s\S]*k.py:7"):
        refused(params=(*product().params, k.Param("s", k.IN, ScalarType(f64), loc)))
    with pytest.raises(UnsupportedByTarget, match=r"tensors of type f64"):
        refused(params=(k.Param("s", k.IN, TileType(3, 3, f64), loc),))
    with pytest.raises(UnsupportedByTarget, match=r"tile `t` of type u64"):
        refused(tiles=(("t", TileType(3, 3, u64)),))
    with pytest.raises(UnsupportedByTarget, match=r"its type is not decided"):
        refused(params=(k.Param("s", k.IN, ViewType(None, None), loc),))
    with pytest.raises(UnsupportedByTarget, match=r"more than 4 dimensions"):
        refused(params=(k.Param("s", k.IN, ViewType(f32, (None,) * 5), loc),))
    with pytest.raises(NoneKernelBody):
        refused(body=None)


def test_too_large_tiles_are_refused() -> None:
    maker = KernelMaker("large")
    maker.store(maker.op("transpose", maker.input("x", 2**14, 2**14, f32)), "y")
    with pytest.raises(TilesTooLarge, match="the tiles of kernel `large` take") as caught:
        CpuTarget().library([maker.done()])
    assert caught.value.fields["live"] == "`tx` (1073741824), `x1` (1073741824)"


def test_elementwise_chains_share_a_loop() -> None:
    source = emit_library([arithmetic()], 16).source
    assert source.count("for (int64_t i = 0") == 1
    assert source.count(" = copy(") == 0


def test_scratch_is_shared(tmp_path: Path) -> None:
    maker = KernelMaker("chain")
    tile = maker.input("x", 64, 64, f32)
    for _ in range(6):
        tile = maker.op("transpose", tile)
    maker.store(tile, "y")
    code = emit_library([maker.done()], 16).source
    size = int(re.search(r'"chain", \w+, \w+, 2, 0, (\d+)', code).group(1))
    assert size <= 3 * 64 * 64 * 4 + 128
