"""Orchestrations of Ascend on a simulated device: results, order of tasks, errors, refusals."""

from __future__ import annotations

import linecache
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    f16,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.runtime.export import write_tree
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.build import HERE
from tests.ascend.standin.device import Device
from tests.golden import Golden
from tests.python.targets.test_ascend_cube import decode
from tests.python.targets.test_export_networks import relay

CROSS = "aarch64-linux-gnu-g++"
GENERATIONS = ("ascend_a2a3", "ascend_a5")
AARCH64 = 0xB7
"""The machine in the head of a library."""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@kernel
def bump(x: InOut[Tile[12, 48, f32]], count: Scalar[i64]):
    pto.check(count < 3, "too often")
    tile = pto.load(x)
    pto.store(x, pto.minimum(tile * 2.0 + 1.0, 8.0))


@kernel
def expert(x: In[Tile[20, 48, f32]], w: In[Tile[48, 32, f32]], y: Out[Tile[20, 32, f32]]):
    pto.store(y, pto.matmul(pto.load(x), pto.load(w)))


@workload
def steps(
    Counts: Tensor[i32, "steps"],
    routing: Sparse["experts"],
    X: Tensor[f32, "tokens", 48],
    W: Tensor[f32, "experts", 48, 32],
    Y: Tensor[f32, "tokens", 32],
):
    """Rows change as often as the counts say; then experts read the rows that lists name."""
    for s in P.range("steps"):
        for i in P.range(Counts[s]):
            for rows in P.tiles("tokens", 12):
                bump[s, i, rows](x=X[rows], count=Counts[s])
    for e in P("experts"):
        for pick in P.tiles(routing[e], 20):
            chosen = routing.rows(pick)
            expert[e, pick](x=X[chosen], w=W[e], y=Y[chosen])


FUNCTIONS = ("bump", "expert")
"""The kernels of `steps`, in the order of their functions."""


def target_of(name: str) -> AscendTarget:
    target = registry.get(name)
    assert isinstance(target, AscendTarget)
    return target


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_a_routed_program_has_the_bits_of_the_interpreter(name: str, tmp_path: Path) -> None:
    """Counts, lengths and lists lie in memory of the device; tasks run as late as their tensors allow."""
    device = Device(steps.compile(name).module, target_of(name), tmp_path)
    rng = np.random.default_rng(0)
    lengths, counts = [5, 0, 43], np.array([2, 0, 1], np.int32)
    x = rng.integers(-4, 4, (48, 48)).astype(np.float32)
    w = rng.integers(-4, 4, (3, 48, 32)).astype(np.float32)
    offsets, indices = np.cumsum([0, *lengths]), rng.permutation(48).astype(np.int32)
    expected: dict[str, Any] = {"X": x.copy(), "Y": np.zeros((48, 32), np.float32)}
    routing = Sparse.csr(offsets, indices)
    steps.compile("interp")(Counts=counts, routing=routing, W=w, **expected)
    sizes = {"steps": 3, "experts": 3, "tokens": 48, "routing.count": 4, "routing.entries": 48}
    for last_first in (False, True):
        arrays = {"Counts": counts, "X": x.copy(), "W": w, "Y": np.zeros((48, 32), np.float32)}
        arrays |= {"routing.offsets": offsets, "routing.indices": indices[:, None]}
        tasks = device.run(arrays, sizes, last_first=last_first)
        assert device.core.report() == "" and not device.failed.any()
        assert tasks == 3 * 4 + 1 + 3
        assert np.array_equal(arrays["X"], expected["X"]) and np.array_equal(arrays["Y"], expected["Y"])
    counts[2] = 3
    device.run(arrays, sizes, last_first=True)
    assert device.failed[0] == 1 + FUNCTIONS.index("bump") and device.failed[1] == 1
    indices[7] = 48
    assert device.run(arrays, sizes, last_first=True) == 0
    assert device.failed[0] == -1 and b"rows" in device.failed[2:].tobytes()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_attention_has_phases_on_both_kinds_of_cores(name: str, tmp_path: Path) -> None:
    """Tiles that phases share lie in memory that later tasks use again."""
    device = Device(decode.compile(name).module, target_of(name), tmp_path)
    lengths, rng = [17, 32, 1, 70], np.random.default_rng(1)
    offsets = np.cumsum([0, *lengths])
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((4, 2, 4, 64), *2 * ((120, 2, 64),)))
    sizes = {"batch": 4, "tokens": 120, "kv.count": 5}
    found: list[np.ndarray] = []
    for last_first in (False, True):
        o = np.zeros((4, 2, 4, 64), np.float32)
        arrays = {"kv.offsets": offsets, "Q": q, "K": k, "V": v, "O": o}
        device.run(arrays, sizes, last_first=last_first)
        assert device.core.report() == "" and not device.failed.any()
        found.append(o)
    assert np.array_equal(found[0], found[1])
    for b, start in enumerate(offsets[:-1]):
        rows = slice(start, start + lengths[b])
        score = np.einsum("hgd,lhd->hgl", q[b], k[rows]) / 8
        weights = np.exp(score - score.max(-1, keepdims=True))
        expected = np.einsum("hgl,lhd->hgd", weights / weights.sum(-1, keepdims=True), v[rows])
        np.testing.assert_allclose(found[0][b], expected, rtol=1e-5, atol=1e-6)


@kernel
def narrowed(x: In[Tile[16, 32, f16]], w: In[Tile[32, 32, f16]], y: Out[Tile[16, 32, f32]]):
    total = pto.matmul(pto.load(x), pto.load(w))
    halves = pto.cast(pto.exp(total), f16)
    pto.store(y, pto.exp(pto.matmul(halves, pto.load(w))))


@workload
def mixed(X: Tensor[f16, 16, 32], W: Tensor[f16, 32, 32], Y: Tensor[f32, 16, 32]):
    narrowed[0](x=X, w=W, y=Y)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_phases_share_tiles_of_several_sizes_of_elements(name: str, tmp_path: Path) -> None:
    device = Device(mixed.compile(name).module, target_of(name), tmp_path)
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype(np.float16) / 8 for shape in ((16, 32), (32, 32)))
    for last_first in (False, True):
        y = np.zeros((16, 32), np.float32)
        device.run({"X": x, "W": w, "Y": y}, {}, last_first=last_first)
        assert device.core.report() == "" and not device.failed.any()
        halves = np.exp(x.astype(np.float32) @ w).astype(np.float16)
        np.testing.assert_allclose(y, np.exp(halves.astype(np.float32) @ w), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(CROSS) is None, reason="needs a cross compiler")
@pytest.mark.parametrize("name", GENERATIONS)
def test_the_orchestration_builds_for_the_control_core(name: str, tmp_path: Path) -> None:
    """The command of `device.cmake`, with the headers of the simulated runtime."""
    write_tree(target_of(name).emit(decode.compile(name).module), tmp_path)
    recipe = (tmp_path / "device.cmake").read_text()
    command = recipe[recipe.rindex(CROSS) : recipe.rindex("COMMAND_ERROR_IS_FATAL")].split()
    headers = HERE / "include"
    command = [part.replace("$ENV{ASCEND_RUNTIME_ROOT}", str(headers)) for part in command]
    subprocess.run([*command, "-O0"], cwd=tmp_path, check=True)
    assert (tmp_path / "orchestration.so").read_bytes()[18] == AARCH64


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("make", [lambda: decided, relay], ids=["decided", "network"])
def test_generated_sources_have_no_warnings(make: Any, tmp_path: Path) -> None:
    """A program with a value that tasks write, which the walk does not name itself, and a network."""
    write_tree(target_of("ascend_a2a3").emit(make().compile("ascend_a2a3").module), tmp_path)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fsyntax-only", "-DPTO_LANES=4"]
    include = ["-Iinclude", "-I.", f"-I{HERE / 'include'}"]
    for name in ("walk.cpp", "orchestration.cpp", "main.cpp"):
        subprocess.run(["g++", *options, *include, name], cwd=tmp_path, check=True)


def test_the_orchestration_is_golden(golden: Golden) -> None:
    files = registry.get("ascend_a2a3").emit(decode.compile("ascend_a2a3").module).files
    golden("ascend_a2a3_attention/orchestration.cpp", files["orchestration.cpp"])


# --- what is refused ---


@kernel
def counted(n: Out[Tile[1, 16, i32]]):
    pto.store(n, pto.full((1, 16), 3, i32))


@workload
def decided(N: Tensor[i32, 1, 16], X: Tensor[f32, "tokens", 48]):
    counted[0](n=N)
    for i in P.range(N[0, 0]):
        bump[i](x=X[i : i + 1], count=1)


@workload
def sequential(X: Tensor[f32, "tokens", 48]):
    for i in P.seq("tokens"):
        bump[i](x=X[i : i + 1], count=1)


@workload
def explicit(X: Tensor[f32, "tokens", 48], Z: Tensor[f32, "tokens", 48]):
    first = bump[0](x=X[:12], count=1)
    bump[1](x=Z[:12], count=1, after=[first])


@kernel
def numbered(x: In[Tile[16, 4, i32]], group: Out[Tile[16, 1, i32]]):
    pto.store(group, pto.extract(pto.load(x), (x.rows, 1)))


@workload
def grouped(Keys: Tensor[i32, "tokens", 4], Group: Tensor[i32, "tokens", 1], X: Tensor[f32, "tokens", 48],
            W: Tensor[f32, 3, 48, 32], Y: Tensor[f32, "tokens", 32]):  # fmt: skip
    """Groups that the run makes choose the rows of each expert."""
    for t in P.tiles("tokens", 16):
        numbered[t](x=Keys[t], group=Group[t])
    routing = group_by(Group[:, 0], num_groups=3)
    for e in P(3):
        for pick in P.tiles(routing[e], 20):
            rows = routing.rows(pick)
            expert[e, pick](x=X[rows], w=W[e], y=Y[rows])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_the_control_core_waits_for_what_decides(name: str, tmp_path: Path) -> None:
    """A count that a task writes, and lists that a task makes; a key outside is an error."""
    device = Device(decided.compile(name).module, target_of(name), tmp_path / "decided")
    for last_first in (False, True):
        n, x = np.zeros((1, 16), np.int32), np.zeros((5, 48), np.float32)
        assert device.run({"N": n, "X": x}, {"tokens": 5}, last_first=last_first) == 4
        assert device.core.report() == "" and not device.failed.any()
        assert (x[:3] == 1).all() and not x[3:].any()
    module = grouped.compile(name).module
    device, rng = Device(module, target_of(name), tmp_path / "grouped"), np.random.default_rng(4)
    keys, w = rng.integers(0, 3, (48, 4)).astype(np.int32), rng.random((3, 48, 32), np.float32)
    x = rng.random((48, 48), np.float32)
    sizes = {"tokens": 48, "routing.groups": 3, "routing.count": 4, "routing.entries": 48}
    for last_first in (False, True):
        arrays = {"Keys": keys, "Group": np.zeros((48, 1), np.int32), "X": x, "W": w}
        arrays |= {"Y": np.zeros((48, 32), np.float32), "routing.offsets": np.zeros(4, np.int64)}
        arrays |= {"routing.indices": np.zeros((48, 1), np.int32)}
        device.run(arrays, sizes, last_first=last_first)
        assert device.core.report() == "" and not device.failed.any()
        np.testing.assert_allclose(arrays["Y"], np.einsum("tk,tkn->tn", x, w[keys[:, 0]]), rtol=1e-5)
    keys[9, 0] = 3
    device.run(arrays, sizes, last_first=True)
    assert device.failed[1] == 2 and [*device.failed[2:5]] == [9, 3, 3]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("source", [sequential, explicit], ids=lambda source: source.name)
def test_tasks_that_the_program_orders_run_in_its_order(source: Any, name: str, tmp_path: Path) -> None:
    """They touch separate elements, and all conflict: none is ready before the one before it."""
    device = Device(source.compile(name).module, target_of(name), tmp_path)
    x, z = np.zeros((12, 48), np.float32), np.zeros((12, 48), np.float32)
    arrays = {"X": x} | ({"Z": z} if source is explicit else {})
    tasks = device.run(arrays, {"tokens": 12}, last_first=True)
    assert device.order == [*range(tasks)] and device.core.report() == "" and not device.failed.any()
    assert (x == 1).all() and (z == (source is explicit)).all()


@kernel
def scored(x: In[Tile[16, 32, f32]], w: In[Tensor[f32, DYN, 32, 32]], at: In[Tensor[i32, 1, 16]],
           y: Out[Tile[16, 32, f32]]):  # fmt: skip
    pto.store(y, pto.exp(pto.matmul(pto.load(x), pto.load(w[at[0, 0]]))))


@workload
def chosen(
    At: Tensor[i32, 1, 16], X: Tensor[f32, 16, 32], W: Tensor[f32, "n", 32, 32], Y: Tensor[f32, 16, 32]
):
    scored[0](x=X, w=W, at=At, y=Y)


@workload
def chosen_in_the_run(
    At: Tensor[i32, 1, 16], X: Tensor[f32, 16, 32], W: Tensor[f32, "n", 32, 32], Y: Tensor[f32, 16, 32]
):
    counted[0](n=At)
    scored[0](x=X, w=W, at=At, y=Y)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_a_caller_of_phases_reads_elements_that_no_task_writes(name: str, tmp_path: Path) -> None:
    device = Device(chosen.compile(name).module, target_of(name), tmp_path)
    rng = np.random.default_rng(5)
    x, w = rng.random((16, 32), np.float32) / 9, rng.random((4, 32, 32), np.float32) / 9
    at, y = np.full((1, 16), 2, np.int32), np.zeros((16, 32), np.float32)
    device.run({"At": at, "X": x, "W": w, "Y": y}, {"n": 4}, last_first=True)
    assert device.core.report() == "" and not device.failed.any()
    np.testing.assert_allclose(y, np.exp(x @ w[2]), rtol=1e-5)


SCALARS = ", ".join(f"s{i}: Scalar[i64]" for i in range(15))


def test_tasks_have_as_many_arguments_as_the_runtime_takes() -> None:
    """A kernel with 15 scalars, of 14 that are left beside the two of every task."""
    values = ", ".join(f"s{i}={i}" for i in range(15))
    text = f"""
@kernel
def many(x: InOut[Tile[12, 48, f32]], {SCALARS}):
    pto.store(x, pto.load(x) * 2.0)

@workload
def program(X: Tensor[f32, 12, 48]):
    many[0](x=X, {values})
"""
    names: dict[str, Any] = dict(globals())
    path = "test_ascend_device_many.py"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), names)
    with pytest.raises(UnsupportedByTarget, match="1 tensors and 17 scalars"):
        names["program"].compile("ascend_a2a3")


REFUSED = [
    (chosen_in_the_run, "an element of `At`, which tasks write, in `scored`, which has phases"),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_a_refusal_says_what_to_do(program: Any, words: str) -> None:
    with pytest.raises(UnsupportedByTarget, match=words):
        program.compile("ascend_a2a3")
