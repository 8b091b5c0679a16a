"""The targets `ascend_*`: what they refuse, and emitted kernels on the simulated cores."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.cases import cases, copied
from pto_wsp import DYN, In, InOut, Out, P, Scalar, Tensor, Tile, bf16, f16, f32, i32, kernel, pto, workload
from pto_wsp.errors import CannotRun, CompileError, TilesTooLarge, UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.isa.table import TABLE
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5
from pto_wsp.targets.ascend.hazards import LOAD, MAX_EVENTS, STORE, VECTOR, FlagPlanner, PipeStep, Touched
from pto_wsp.targets.ascend.interface import INTERFACE, VERSIONS, interface_names
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from pto_wsp.targets.ascend.templates import TEMPLATES, Unsupported
from pto_wsp.targets.ascend.vector import VectorCode
from pto_wsp.targets.base import Enforced, Idle, Refused
from pto_wsp.targets.schedules import support
from tests.ascend.standin.build import HERE as SIMULATED
from tests.ascend.standin.build import StandIn, StandInTarget, build
from tests.golden import Golden
from tests.python.targets.ctypes_abi import Library
from tests.python.targets.test_ascend_cube import decode
from tests.python.targets.test_ascend_masks import COMPARED
from tests.python.targets.test_cpu_rows import Case, check, make, variants

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
COLS = 200


@kernel
def softmax(x: In[Tensor[f32, DYN, 16, COLS]], y: Out[Tensor[f32, DYN, 16, COLS]]):
    """Each row of each block."""
    for block in range(x.shape[0]):
        powers = pto.exp(x[block] - pto.rowmax(x[block]))
        pto.store(y[block], powers / pto.rowsum(powers))


@kernel
def rmsnorm(x: InOut[Tile[16, COLS, f32]], weight: In[Tile[1, COLS, f32]], scale: Scalar[f32]):
    """Each row divided by its mean square."""
    part = pto.load(x)
    mean = pto.rowsum(part * part) * (1.0 / COLS) + 1e-5
    pto.store(x, part * scale / pto.sqrt(mean) * pto.load(weight))


@kernel
def gated(x: In[Tile[16, COLS, f16]], gate: In[Tile[16, COLS, f16]], y: Out[Tile[16, COLS, f16]]):
    """silu(x) * gate, in f32."""
    product = pto.silu(pto.cast(pto.load(x), f32)) * pto.cast(pto.load(gate), f32)
    pto.store(y, pto.cast(product, f16))


@workload
def layers(
    Lengths: Tensor[i32, "batch"],
    X: Tensor[f32, "batch", "blocks", 16, COLS],
    W: Tensor[f32, 1, COLS],
    Y: Tensor[f32, "batch", "blocks", 16, COLS],
):
    """Norms of blocks of at most 16 rows, then softmax of as many blocks as the length of an entry says."""
    for b in P("batch"):
        for i in P(Lengths[b]):
            for rows in P.tiles(16, 12):
                rmsnorm[b, i, rows](x=X[b, i, rows], weight=W, scale=0.5)
        for blocks in P.tiles(Lengths[b], 3):
            softmax[b, blocks](x=X[b, blocks], y=Y[b, blocks])


def target_of(name: str) -> AscendTarget:
    target = registry.get(name)
    assert isinstance(target, AscendTarget)
    return target


# --- what is refused, and the text ---


def test_templates_are_total() -> None:
    assert TEMPLATES.keys() == TABLE.keys()
    assert all(t.reason for t in TEMPLATES.values() if isinstance(t, Unsupported))


def test_it_refuses_to_run_by_name() -> None:
    x = np.zeros((1, 1, 16, COLS), np.float32)
    with pytest.raises(CannotRun, match="ascend_a2a3"):
        layers.compile("ascend_a2a3")(Lengths=np.ones(1, np.int32), X=x, Y=x.copy(), W=x[0, 0, :1])


@pytest.mark.parametrize("name", ["ascend_a2a3", "ascend_a5"])
def test_the_folder_is_golden(name: str, tmp_path: Path, golden: Golden) -> None:
    layers.compile(name).export(tmp_path / "out")
    for path in ("kernels/k_softmax.cpp", "README.md", "manifest.json", "device.cmake"):
        golden(f"{name}/{path}", (tmp_path / "out" / path).read_text())


@cache
def emitted_texts() -> tuple[str, ...]:
    """What is emitted for kernels of every row, for both kinds of cores."""
    target = target_of("ascend_a2a3")
    kernels = [make(*item) for item in rows_of(target).items()]
    kernels += [source.specialise({}, {}) for source in COMPARED.values()]
    trees = [target.emit(m).files for m in (Module("rows", tuple(kernels)), decode.trace().module)]
    return tuple(
        text
        for files in trees
        for path, text in files.items()
        if path.endswith(("cpp", "hpp")) and "include" not in path
    )


def test_every_name_of_the_library_is_in_the_table_of_versions() -> None:
    """Each version spells it alike, or the emitted header defines it."""
    used = set[str]().union(*map(interface_names, emitted_texts()))
    assert used <= INTERFACE.keys()
    assert {"TADD", "TMATMUL_ACC", "RoundMode::CAST_TRUNC", "PIPE_FIX", "EVENT_ID1"} <= used
    for name in used:
        row = INTERFACE[name]
        assert set(row.spellings) == {name} or row.note, name
        assert len(row.spellings) == len(VERSIONS)


def test_the_table_of_versions_has_no_name_that_nothing_uses() -> None:
    used = set[str]().union(*map(interface_names, emitted_texts()))
    assert INTERFACE.keys() - used <= {f"NPUArch::{A5.arch}"}


@workload
def gates(X: Tensor[f16, "n", 16, COLS], Y: Tensor[f16, "n", 16, COLS]):
    for i in P("n"):
        gated[i](x=X[i], gate=X[i], y=Y[i])


def test_the_readme_names_what_was_not_checked() -> None:
    """Conversions use a name that no description of the library has; other kernels do not."""
    target = target_of("ascend_a2a3")
    page = target.emit(gates.trace().module).files["README.md"]
    assert "- `RoundMode::CAST_RINT`" in page and "were not checked" in page and "- `ndims`" in page
    assert "RoundMode" not in target.emit(layers.trace().module).files["README.md"]


# --- schedules ---

HELD = {"deps = infer_tensor_map_exact"}
WITHOUT_EFFECT = {"dispatch": "work_steal", "ready": "work_steal", "start": "immediate", "streams": "off"}
WITHOUT_EFFECT |= {"interleave": "off", "load_balance": "off", "timing": "immediate", "concurrent": "off"}
WITHOUT_EFFECT |= {"pools": "single", "prefetch": "off", "trace": "off", "calendar": "off"}


@pytest.mark.parametrize("name", ["ascend_a2a3", "ascend_a5"])
def test_what_each_policy_is_on_the_device(name: str) -> None:
    for kind in DIRECTIVES.values():
        for policy in kind.policies.values():
            found = support(name, policy)
            if f"{policy.kind} = {policy.name}" in HELD:
                assert found == Enforced()
            elif kind.kind == "stores" or WITHOUT_EFFECT.get(kind.kind) == policy.name:
                assert found == Idle()
            else:
                assert isinstance(found, Refused) and found.reason, policy.name


def test_a_policy_that_the_device_does_not_keep_is_refused() -> None:
    scheduled = layers.dispatch(DispatchPolicy.round_robin(2))
    with pytest.raises(UnsupportedByTarget, match="one control core expands all tasks"):
        scheduled.compile("ascend_a2a3")


@kernel
def halves(x: In[Tile[16, 64, bf16]], y: Out[Tile[16, 64, bf16]]):
    part = pto.load(x)
    pto.store(y, part + part)


@kernel
def large(x: In[Tile[256, 96, f32]], y: Out[Tile[256, 96, f32]]):
    part = pto.load(x)
    pto.store(y, part * pto.exp(part) + part)


@kernel
def turned(x: In[Tensor[f32, 16, 64, 64]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, pto.load(x[:, :, 3]))


@pytest.mark.parametrize(
    ("refused", "words"),
    [(halves, "`add` of bf16.*cast to f32"), (turned, "not contiguous")],
)
def test_a_refusal_names_instruction_line_and_remedy(refused: Kernel, words: str) -> None:
    with pytest.raises(UnsupportedByTarget) as found:
        write_kernel(refused.specialise({}, {}), A2A3)
    text = " ".join(str(found.value).split())
    assert "ascend_a2a3" in text and "test_ascend.py:" in text
    assert re.search(words, text)


def test_generations_differ_in_types_and_capacity() -> None:
    for tested in (halves, large):
        write_kernel(tested.specialise({}, {}), A5)
    with pytest.raises(TilesTooLarge, match="188416"):
        write_kernel(large.specialise({}, {}), A2A3)


def test_tiles_that_do_not_fit_are_those_in_use_together() -> None:
    """Two tiles are in use at a time, and the result of a sum takes the place of an operand."""

    @kernel
    def chain(x: In[Tile[256, 256, f32]], y: Out[Tile[256, 256, f32]]):
        pto.store(y, pto.exp(x * x) + x)

    with pytest.raises(TilesTooLarge, match="take 524288 bytes") as caught:
        write_kernel(chain.specialise({}, {}), A5)
    assert str(caught.value).count("(262144)") == 2


# --- flags ---


def ub(start: int, stop: int) -> tuple[Touched, ...]:
    return (Touched("ub", start, stop),)


def test_a_flag_that_others_imply_is_left_out() -> None:
    planner = FlagPlanner(orders_vectors=False)
    planner.add(PipeStep(LOAD, (), ub(0, 64)))
    planner.add(PipeStep(VECTOR, ub(0, 64), ub(64, 128)))
    planner.add(PipeStep(STORE, ub(64, 128), ()))
    planner.add(
        PipeStep(LOAD, (), ub(64, 128))
    )  # the store has waited for the arithmetic: one flag is enough
    pairs = [[(f.source, f.target) for f in sync.waits] for sync in planner.syncs]
    assert pairs == [[], [(LOAD, VECTOR)], [(VECTOR, STORE)], [(STORE, LOAD)]]
    assert not any(sync.barriers for sync in planner.syncs)


def loads_and_sums(count: int) -> tuple[list[PipeStep], list[PipeStep]]:
    """Return loads of tiles, and per tile an instruction that reads it."""
    loads = [PipeStep(LOAD, (), ub(64 * i, 64 * i + 64)) for i in range(count)]
    sums = [
        PipeStep(VECTOR, ub(64 * i, 64 * i + 64), ub(64 * (i + count), 64 * (i + count + 1)))
        for i in range(count)
    ]
    return loads, sums


def planned(steps: Iterable[PipeStep]) -> FlagPlanner:
    planner = FlagPlanner(orders_vectors=False)
    for step in steps:
        planner.add(step)
    flags = [flag for sync in planner.syncs for flag in sync.sets]
    assert 0 < len(flags) and max(flag.event for flag in flags) < MAX_EVENTS
    assert sorted(map(str, flags)) == sorted(str(flag) for sync in planner.syncs for flag in sync.waits)
    return planner


def test_the_first_flags_are_joined_where_events_are_not_enough() -> None:
    """The first sum waits for as many loads as leave one event to each of the others."""
    loads, sums = loads_and_sums(20)
    syncs = planned([*loads, *sums]).syncs
    assert [number for number, sync in enumerate(syncs) if sync.sets] == [*range(20 - MAX_EVENTS, 20)]
    assert [number for number, sync in enumerate(syncs) if sync.waits] == [20, *range(34, 40)]
    assert not any(sync.barriers for sync in syncs)


def test_all_pipes_end_together_where_no_flags_can_be_joined() -> None:
    """Each load comes after the sum of the one before, so the first wait can be for no later load."""
    loads, sums = loads_and_sums(2 * MAX_EVENTS + 1)
    syncs = planned(step for pair in zip(loads, sums, strict=True) for step in pair).syncs
    fences = [number for number, sync in enumerate(syncs) if sync.barriers == ["PIPE_ALL"]]
    assert fences == [2 * MAX_EVENTS + 1]


# --- on simulated cores ---

DTYPES = (f32, f16, i32)
MOST_CASES = 5


def rows_of(target: AscendTarget) -> dict[str, list[Case]]:
    """The rows that a target accepts on tiles of their test, a few per kernel."""
    found: dict[str, list[Case]] = {}
    for row in TABLE.values():
        if row.numpy is None or isinstance(TEMPLATES[row.name], Unsupported):
            continue
        for dtype in (t for t in DTYPES if t in row.dtypes):
            for attrs in variants(row, dtype):
                name = f"{row.name}_{dtype}_{attrs.get('dtype', '')}_{attrs.get('rmode', '')}".replace(
                    "-", "_"
                )
                try:
                    write_kernel(make(name, [(row, dtype, attrs)]), target.generation)
                except CompileError:
                    continue
                found[name] = [(row, dtype, attrs)]
    return found


EMITTED = 100
COMPOSED = ("sigmoid", "silu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Case]], Library, StandIn]:
    target = target_of("ascend_a2a3")
    found = rows_of(target)
    path = build([make(*item) for item in found.items()], target, tmp_path_factory.mktemp("rows"))
    return found, Library(path), StandIn(path)


@needs_compiler
def test_every_row_that_is_accepted(rows: tuple[dict[str, list[Case]], Library, StandIn]) -> None:
    """Results are within the bounds of the table, and the simulated core finds nothing to report."""
    found, library, standin = rows
    assert len(found) >= EMITTED
    for number, (name, tested) in enumerate(found.items()):
        standin.loads_first(number % 2 == 0)
        if tested[0][0].name in COMPOSED:
            _check_composed(library, name, tested)
        else:
            check(library, name, tested)
        assert standin.report() == "", name


def _check_composed(library: Library, name: str, tested: list[Case]) -> None:
    """Results below 2^-120 may be 0: the exponential of -x overflows there."""
    x = np.linspace(-120, 120, 2800, dtype=np.float32).reshape(40, 70)
    y, row = np.zeros_like(x), tested[0][0]
    assert library.call(make(name, tested), [x, y]) == 0
    assert row.numpy is not None
    np.testing.assert_allclose(y, row.numpy(x.astype(np.float64), {}), rtol=5e-7, atol=2.0**-120)


@needs_compiler
def test_a_ragged_program_has_the_results_of_the_interpreter(standin: StandInTarget) -> None:
    module = layers.trace().module
    rng = np.random.default_rng(0)
    lengths = np.array([5, 0, 7, 3], np.int32)
    x = rng.standard_normal((4, 7, 16, COLS)).astype(np.float32)
    weight = rng.standard_normal((1, COLS)).astype(np.float32)
    found = []
    for name in ("interp", standin.name):
        arrays = {"Lengths": lengths, "X": x.copy(), "W": weight, "Y": np.zeros_like(x)}
        compile_module(module, name).run(**arrays)
        found.append(arrays)
    assert standin.standin is not None and standin.standin.report() == ""
    np.testing.assert_allclose(found[1]["X"], found[0]["X"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1]["Y"], found[0]["Y"], rtol=1e-5, atol=1e-6)
    assert found[0]["Y"][2].any()


@pytest.mark.parametrize("name", ["softmax", "bgemm", "llama"])
def test_kernels_of_examples_are_emitted(name: str) -> None:
    module = dict(cases())[f"pto_programs/{name}.py"]().module
    for target in map(target_of, ("ascend_a2a3", "ascend_a5")):
        assert target.emit(Module(name, module.kernels, ())).kernels


@needs_compiler
@pytest.mark.parametrize("example", ["softmax", "bgemm"])
def test_an_example_has_the_results_of_the_interpreter(standin: StandInTarget, example: str) -> None:
    run = dict(cases())[f"pto_programs/{example}.py"]()
    found: list[np.ndarray] = []
    for name in ("interp", standin.name):
        arguments = {key: copied(value) for key, value in run.arguments.items()}
        compile_module(run.module, name).run(**arguments)
        found.append(
            np.concatenate([arguments[n].ravel() for n in sorted(run.module.written & arguments.keys())])
        )
    assert standin.standin is not None and standin.standin.report() == ""
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_what_the_device_lacks_is_named(tmp_path: Path) -> None:
    """Folders that environment variables name, and compilers."""
    layers.compile("ascend_a2a3").export(tmp_path / "out")
    variables = ("PTO_ISA_ROOT", "ASCEND_RUNTIME_ROOT", "ASCEND_HOME_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    expected = [f"a folder in the environment variable {name}" for name in variables]
    for lacking in (*expected, "the compiler bisheng in PATH"):
        command = ["cmake", "-P", "device.cmake"]
        done = subprocess.run(command, cwd=tmp_path / "out", env=environment, capture_output=True, text=True)
        said = " ".join(done.stderr.split())
        assert done.returncode != 0 and f"expected {lacking}, found none" in said, said
        environment[lacking.split()[-1]] = str(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@needs_compiler
def test_the_folder_builds_and_runs(tmp_path: Path) -> None:
    """The commands of its README, with the simulated cores as the library."""
    layers.compile("ascend_a2a3").export(tmp_path / "out")
    rng = np.random.default_rng(0)
    arrays = {
        "Lengths": np.array([5, 0, 2], np.int32),
        "X": rng.standard_normal((3, 5, 16, COLS)).astype(np.float32),
        "W": np.ones((1, COLS), np.float32),
    }
    for name, array in arrays.items():
        np.save(tmp_path / "out" / f"{name}.npy", array)
    page = (tmp_path / "out" / "README.md").read_text()
    commands = page.split("```sh\n")[1].split("```")[0]
    environment = {**os.environ, "PTO_ISA_ROOT": str(SIMULATED)}
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path / "out", env=environment, check=True)
    arrays |= {"Y": np.zeros_like(arrays["X"])}
    layers.compile("interp")(**arrays)
    for name, path in (("X", "X_out"), ("Y", "Y")):
        found = np.load(tmp_path / "out" / f"{path}.npy")
        np.testing.assert_allclose(found, arrays[name], rtol=1e-5, atol=1e-7)


@kernel
def scaled(x: In[Tensor[f32, DYN, 16, COLS]], y: Out[Tensor[f32, DYN, 16, COLS]]):
    """A tile with two places, and one with one."""
    for block in range(x.shape[0]):
        pto.store(y[block], pto.exp(pto.load(x[block]) * -1.0))


@kernel
def columns(x: InOut[Tile[16, COLS, f32]], weight: In[Tile[1, COLS, f32]]):
    """Parts of one tensor: no iteration waits for the stores of another one."""
    for c in pto.tiles(COLS, 64):
        pto.store(x[:, c], pto.load(x[:, c]) * pto.load(weight[:, c]))


@kernel
def running(x: In[Tensor[f32, DYN, 16, COLS]], y: Out[Tile[16, COLS, f32]]):
    """A tile that lives from one iteration to the next one."""
    total = pto.zeros((16, COLS))
    for block in range(x.shape[0]):
        total = pto.maximum(total * 0.5, pto.load(x[block]))
    pto.store(y, total)


@needs_compiler
@pytest.mark.parametrize("name", ["ascend_a2a3", "ascend_a5"])
def test_each_flag_that_is_left_out_is_found(tmp_path: Path, name: str) -> None:
    """Kernels run once per flag and barrier of their code, without it: the vector clocks report every one."""
    rng = np.random.default_rng(1)
    x, wide = rng.standard_normal((16, COLS)).astype(np.float16), rng.random((16, COLS)).astype(np.float32)
    weight, blocks = np.ones((1, COLS), np.float32), rng.random((5, 16, COLS)).astype(np.float32)
    runs: list[tuple[Kernel, list[Any]]] = [
        (gated, [x, x, x.copy()]),
        (rmsnorm, [wide, weight, 0.5]),
        (scaled, [blocks, blocks.copy()]),
        (softmax, [blocks, blocks.copy()]),
        (columns, [wide, weight]),
        (running, [blocks, wide.copy()]),
    ]
    kernels = [source.specialise({}, {}) for source, _ in runs]
    path = build(kernels, target_of(name), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    for function, (_, arguments) in zip(kernels, runs, strict=True):
        core.skip(-1)
        assert library.call(function, arguments) == 0
        assert core.report() == ""
        for number in range(core.skip(-1)):
            core.skip(number)
            library.call(function, arguments)
            assert core.report() != "", f"{function.name}: {number}"


def test_iterations_overlap() -> None:
    """Loads run ahead of the arithmetic of the iteration before, and no flag is from store to load."""
    for source, places in ((scaled, 2), (columns, 2), (running, 2)):
        code = write_kernel(source.specialise({}, {}), A2A3).parts[0].code
        assert isinstance(code, VectorCode)
        (loop,) = code.loops
        assert len(code.memory.shifts) == places - (source is not columns)
        assert not loop.has_fence and (VECTOR, LOAD, 2) in {
            (flag.source, flag.target, flag.distance) for flag in loop.carried
        }
        assert not any((flag.source, flag.target) == (STORE, LOAD) for flag in loop.carried)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@needs_compiler
def test_a_loop_runs_any_number_of_times(tmp_path: Path, count: int) -> None:
    """Flags between iterations are set before the loop and waited for after it; tensors may be one."""
    function = scaled.specialise({}, {})
    path = build([function], target_of("ascend_a2a3"), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    for is_first in (True, False):
        core.loads_first(is_first)
        x = np.random.default_rng(count).random((count, 16, COLS)).astype(np.float32)
        y, shifted = np.zeros_like(x), np.concatenate([x[:1], x]) if count else x
        assert library.call(function, [x, y]) == 0
        np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)
        # Each iteration stores what the next one loads.
        expected = shifted[:1] if count else x
        for _ in range(count):
            expected = np.concatenate([expected, np.exp(-expected[-1:])])
        assert library.call(function, [shifted[:count], shifted[-count:] if count else x]) == 0
        assert core.report() == ""
        np.testing.assert_allclose(shifted, expected, rtol=1e-5)


@kernel
def copy_twice(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]], z: Out[Tile[16, 64, f32]]):
    pto.store(y, pto.load(x) * 2.0)
    pto.store(z, pto.load(x) * 3.0)


@needs_compiler
def test_tensors_that_are_passed_twice_are_ordered(tmp_path: Path) -> None:
    """The second load reads what the first store wrote."""
    function = copy_twice.specialise({}, {})
    path = build([function], target_of("ascend_a2a3"), tmp_path / "out")
    library, core = Library(path), StandIn(path)
    for is_first in (True, False):
        core.loads_first(is_first)
        x, z = np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)
        assert library.call(function, [x, x, z]) == 0
        assert core.report() == "" and (z == 6).all()


@needs_compiler
def test_a_failed_check_leaves_no_flag(tmp_path: Path) -> None:
    function = gated.specialise({}, {})
    path = build([function], target_of("ascend_a2a3"), tmp_path / "out")
    x = np.zeros((16, COLS), np.float16)
    assert Library(path).call(function, [x, x[:7], x.copy()]) > 0
    assert StandIn(path).report() == ""
