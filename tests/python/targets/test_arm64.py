"""The target `arm64`: its folder, the machine code, and programs under emulation against those of `cpu`.

What is emulated needs `apt-get install g++-aarch64-linux-gnu qemu-user-static`, and is skipped without.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.cases import Run, cases, copied
from examples.llama.kernels import Shape
from examples.llama.model import Cache, Chunk, Layer, pack, random_weights
from examples.minilm import model as minilm
from examples.minilm.__main__ import MAX_DIFFERENCE, REFERENCE, SENTENCES
from examples.minilm.encoder import Encoder
from examples.minilm.tokens import WordPieces, read_lines
from pto_wsp.errors import CannotRun
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.export import write_tree
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.readme import command_name
from pto_wsp.targets.cpu.toolchain import include_directory
from pto_wsp.types.dtype import bf16, f32, i8, i32
from tests.golden import Golden
from tests.python.targets import foreign
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.host_program import run_host_program
from tests.python.targets.test_cpu_rows import MAIN, SMALL, check, make
from tests.python.targets.test_export import blend_rows, files_of, readme_commands, shell

OBJDUMP = "aarch64-linux-gnu-objdump"
emulated = pytest.mark.skipif(
    not (foreign.is_emulated() and shutil.which(OBJDUMP)),
    reason="needs g++-aarch64-linux-gnu and qemu-user-static",
)
asked = pytest.mark.skipif(not os.environ.get("EMULATE"), reason="takes minutes: EMULATE=1 runs it")
QUICK = (
    "07_pipeline",
    "10_decode",
    "01_scale",
    "02_paged",
    "03_moe",
    "batched_lora",
    "capped_moe",
    "quantised",
    "top_p",
    "softmax",
)
"""Parts of the names of examples that are always emulated."""

KERNEL = ("-O2", "-fno-math-errno", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti")
HOST = ("-O1", "-ffp-contract=off")
TOLERANCE = 2e-3
"""Of all examples, relative to the largest value: f16 and bf16 round at other places where sums differ."""


def test_the_folder_is_golden(tmp_path: Path, golden: Golden) -> None:
    blend_rows.compile("arm64").export(tmp_path / "out")
    files = files_of(tmp_path / "out")
    assert "include/pto/wsp/host/command.hpp" in files
    for path in ("README.md", "CMakeLists.txt", "aarch64.cmake", "walk.cpp", "main.cpp"):
        golden(f"blend_rows/{path}", files[path])


def test_it_refuses_to_run_by_name() -> None:
    program = blend_rows.compile("arm64")
    x = np.zeros((16, 32), np.float32)
    with pytest.raises(CannotRun, match="arm64"):
        program(X=x, Y=x.copy(), Z=x.copy(), weight=1.0, rows=1)


# --- machine code ---


def compiled(kernels: list[KernelFunction], folder: Path, march: str = "armv8-a") -> Path:
    """Build the kernels of a folder as a library."""
    tree = registry.get("arm64").emit(Module("kernels", tuple(kernels), ()))
    write_tree(tree, folder)
    options = ("-std=c++17", *KERNEL, "-fPIC", "-Wno-psabi", f"-march={march}", "-DPTO_LANES=4")
    units = [str(folder / path) for path in tree.kernels]
    command = [foreign.COMPILER, *options, f"-I{include_directory()}", "-shared", *units]
    subprocess.run([*command, "-o", str(folder / "kernels.so")], check=True)
    return folder / "kernels.so"


def instructions(path: Path) -> set[str]:
    """Return the names of the instructions in a file, each with its first operand."""
    text = subprocess.run([OBJDUMP, "-d", str(path)], capture_output=True, text=True, check=True).stdout
    parts = (line.split("\t")[2:] for line in text.splitlines())
    return {f"{part[0].strip()} {part[1].partition('.')[2].partition(',')[0]}" for part in parts if part[1:]}


def product(left: Any, result: Any) -> KernelFunction:
    maker = KernelMaker(f"product_{left}")
    a, b = maker.input("a", 24, 96, left), maker.input("b", 96, 40, left)
    product = maker.op("matmul", a, b)
    assert maker.tiles[product].dtype is result
    maker.store(product, "y")
    return maker.done()


@emulated
def test_products_use_neon(tmp_path: Path) -> None:
    found = instructions(compiled([product(f32, f32)], tmp_path))
    assert "fmla 4s" in found and not any(name.startswith("fmadd s") for name in found)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("march", "name"), [("armv8.2-a+dotprod", "sdot"), ("armv8.6-a+i8mm", "usdot"), ("armv8-a", "")]
)
def test_dot_products_of_bytes(march: str, name: str, tmp_path: Path) -> None:
    kernel = product(i8, i32)
    path = compiled([kernel], tmp_path, march)
    dots = {line.split()[0] for line in instructions(path)} & {"sdot", "usdot"}
    assert dots == ({name} if name else set())
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((24, 96), (96, 40)))
    a[0], b[:, 0] = -128, -128
    y = np.zeros((24, 40), np.int32)
    assert foreign.ForeignLibrary(path).call(kernel, [a, b, y]) == 0
    assert np.array_equal(y, a.astype(np.int32) @ b.astype(np.int32))


@emulated
@pytest.mark.slow
def test_dot_products_of_bf16(tmp_path: Path) -> None:
    kernel = product(bf16, f32)
    path = compiled([kernel], tmp_path, "armv8.2-a+bf16")
    assert "bfdot 4s" in instructions(path)
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(bf16.to_numpy()) for shape in ((24, 96), (96, 40)))
    y = np.zeros((24, 40), np.float32)
    assert foreign.ForeignLibrary(path).call(kernel, [a, b, y]) == 0
    np.testing.assert_allclose(y, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("found", [MAIN, SMALL], ids=["wide types", "small types"])
def test_every_row(found: dict[str, Any], tmp_path: Path) -> None:
    """Exact rows have the bits of numpy, others are within their bound."""
    library = foreign.ForeignLibrary(compiled([make(*item) for item in found.items()], tmp_path))
    for name, rows in found.items():
        check(library, name, rows)  # pyright: ignore[reportArgumentType]


# --- programs ---


@functools.cache
def engine() -> Path:
    """Return the object of the engine, which is the same for every program."""
    folder = Path(tempfile.mkdtemp(prefix="pto-wsp-tests-"))
    source = '#include "pto/wsp/host/command.hpp"\n'
    options = ("-std=c++17", *HOST, "-Wno-psabi", f"-I{include_directory()}", "-DPTO_LANES=4")
    command = [foreign.COMPILER, *options, "-x", "c++", "-", "-c", "-o", str(folder / "host.o")]
    subprocess.run(command, input=source, text=True, check=True)
    return folder / "host.o"


class Emulated:
    """A program that is built as its folder says, with the engine of other programs."""

    def __init__(self, module: Module, folder: Path) -> None:
        self.module = Prepared(module, registry.get("arm64")).module
        self.folder = folder
        tree = registry.get("arm64").emit(self.module)
        write_tree(tree, folder)
        assert tree.files["host.cpp"].endswith('#include "pto/wsp/host/command.hpp"\n')
        objects = [str(engine())]
        for path in (*tree.kernels, "walk.cpp", "main.cpp"):
            own = KERNEL if path in ("kernels.cpp", "parts.cpp") else HOST
            objects.append(str(folder / f"{path}.o"))
            command = [foreign.COMPILER, "-std=c++17", *own, "-Wno-psabi", "-Iinclude", "-DPTO_LANES=4"]
            subprocess.run([*command, "-c", path, "-o", objects[-1]], cwd=folder, check=True)
        self.path = folder / command_name(self.module)
        subprocess.run([foreign.COMPILER, *objects, "-pthread", "-o", str(self.path)], check=True)

    def run(self, arguments: Mapping[str, Any], workers: int = 2) -> tuple[int, dict[str, np.ndarray]]:
        """Return the number of tasks, and the tensors that tasks wrote."""
        command = [*foreign.EMULATOR, str(self.path), "--workers", str(workers)]
        return run_host_program(command, self.module, self.folder, arguments)


def both(run: Run, folder: Path, workers: int = 2) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what the emulated program and that of `cpu` write; they make as many tasks."""
    tasks, found = Emulated(run.module, folder).run(run.arguments, workers)
    program = compile_module(run.module)
    expected = {key: copied(value) for key, value in run.arguments.items()}
    program.run(**expected)
    assert program.stats is not None and program.stats.tasks == tasks
    return found, {name: expected[name] for name in found}


def require_close(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name, array in expected.items():
        a, b = found[name].view(array.dtype).astype(np.float64), array.astype(np.float64)
        assert np.array_equal(np.isfinite(a), np.isfinite(b)), name
        if array.dtype.kind in "iu":
            # Scores whose sums round differently exchange a few places among the largest, and nothing else.
            most = 0.01 if name == "TopK" else 0.0
            assert np.mean(a != b) <= most, name
            continue
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=0.0)
        assert np.abs(a[finite] - b[finite]).max(initial=0.0) <= TOLERANCE * scale, name


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if any(part in name for part in QUICK) else asked)
        for name in dict(cases())
    ],
)
def test_every_example(name: str, tmp_path: Path) -> None:
    require_close(*both(dict(cases())[name](), tmp_path / "out"))


@emulated
@pytest.mark.slow
@asked
def test_a_layer_of_llama(tmp_path: Path) -> None:
    shape = Shape(heads=4, dim=64, inner=704)
    rng = np.random.default_rng(0)
    layer = Layer(shape, pack(random_weights(rng, shape), shape))
    program = Emulated(layer.program.module, tmp_path / "out")
    for positions in (1024, 2048):
        hidden = rng.standard_normal((positions, shape.hidden), np.float32)
        cache = Cache.of(shape, 1, positions)
        arguments = layer.arguments(hidden, [Chunk(0, 0, positions)], cache)
        tasks, found = program.run(arguments)
        layer.program.run(**arguments)
        assert layer.program.stats is not None and tasks == layer.program.stats.tasks
        require_close({"Hidden": found["Hidden"]}, {"Hidden": hidden})


@emulated
@pytest.mark.slow
@asked
def test_embeddings_of_minilm(tmp_path: Path) -> None:
    try:
        folder = minilm.model_folder()
    except minilm.ModelMissing as error:
        pytest.skip(str(error))
    ids = list(WordPieces(folder)(read_lines(SENTENCES)))
    chosen = sorted(range(len(ids)), key=lambda i: len(ids[i]))[:2]
    encoder = Encoder(minilm.load_weights(folder))
    kept: dict[str, Any] = {}

    def keep(**values: Any) -> None:
        kept.update({key: copied(value) for key, value in values.items() if key != "trace"})
        program.run(**values)

    program, module = encoder.program, encoder.program.module
    encoder.program = type("Kept", (), {"run": staticmethod(keep), "stats": None})()  # pyright: ignore
    encoder._count = lambda lengths: None
    encoder.run([ids[i] for i in chosen])
    _, found = Emulated(module, tmp_path / "out").run(kept)
    assert np.abs(found["Embeddings"][:, 0] - np.load(REFERENCE)[chosen]).max() <= MAX_DIFFERENCE


@emulated
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_the_readme_builds_and_runs_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    blend_rows.compile("arm64").export(folder)
    x, y = np.random.default_rng(1).standard_normal((2, 50, 32), np.float32)
    np.save(folder / "X.npy", x)
    np.save(folder / "Y.npy", y)
    *build, run = readme_commands(folder).splitlines()
    done = shell("\n".join([*build, f"{' '.join(foreign.EMULATOR)} {run}"]), folder)
    assert done.returncode == 0, done.stderr
    z = np.zeros((1, 32), np.float32)
    blend_rows.compile()(X=x, Y=y, Z=z, weight=1.0, rows=1)
    np.testing.assert_allclose(np.load(folder / "Y_out.npy"), y, rtol=1e-6)
    assert np.load(folder / "Z.npy").tobytes() == z.tobytes()
