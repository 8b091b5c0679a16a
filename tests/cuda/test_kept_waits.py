"""Waits that are kept between processes: what is found is what would be derived, or nothing is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import In, InOut, P, Schedule, TaskWindow, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import BadCache
from pto_wsp.ir.module import Module
from pto_wsp.prove.wait_text import waits_of_text, waits_to_text
from pto_wsp.prove.waits import symbolic_waits
from pto_wsp.runtime import kept_waits as kept
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.cache_directory import VARIABLE
from pto_wsp.targets.cuda.target import CudaTarget
from tests.generators.drawing import tries
from tests.generators.workloads import Sample, samples

pytest.importorskip("islpy")


@kernel
def add(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, x + y)


@workload
def rows(X: Tensor[f32, "n", 1, 8], Y: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        add[i](x=X[i], y=Y[i])
    for i in P("n"):
        add[i](x=Y[i], y=X[i])


def other_rows() -> Module:
    """Return the workload of the same name whose second loop reads another row."""

    @workload
    def rows(X: Tensor[f32, "n", 1, 8], Y: Tensor[f32, "n", 1, 8]):
        for i in P("n"):
            add[i](x=X[i], y=Y[i])
        for i in P("n"):
            add[i](x=Y[0], y=X[i])

    return rows.trace().module


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    """Return the modules whose waits are derived from now on."""
    found: list[Module] = []

    def derive(module: Module) -> object:
        found.append(module)
        return symbolic_waits(module)

    monkeypatch.setattr(kept, "symbolic_waits", derive)
    return found


@pytest.mark.usefixtures("gpu")
def test_a_warm_compile_derives_nothing(
    derived: list[Module], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor does another schedule."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    for _ in range(2):
        program = rows.compile("cuda")
        program.reschedule(Schedule().task_graph(window=TaskWindow(2)))
        x, y = np.ones((2, 5, 1, 8), np.float32)
        program(X=x, Y=y)
        assert (y == 2).all() and (x == 3).all()
        assert len(derived) == 1


def test_a_changed_program_has_its_own_waits(derived: list[Module], tmp_path: Path) -> None:
    cache, target = ArtifactCache(tmp_path / "cache"), CudaTarget()
    modules = [rows.trace().module, other_rows(), rows.trace().module]
    texts = [target.program_code(module, lambda of: kept.kept_waits(of, cache)).text for module in modules]
    assert texts == [target.program_code(module).text for module in modules]
    assert texts[0] == texts[2] != texts[1] and len(derived) == 2


def test_another_version_has_its_own_waits(
    derived: list[Module], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where files of the package have changed since they were imported, nothing is kept."""
    cache, module = ArtifactCache(tmp_path / "cache"), rows.trace().module
    for stamp, count in (("a", 1), ("b", 2), ("a", 2), (None, 3), (None, 4)):
        monkeypatch.setattr(kept, "package_stamp", lambda stamp=stamp: stamp)
        assert kept.kept_waits(module, cache) == symbolic_waits(module)
        assert len(derived) == count
    monkeypatch.setattr(kept, "package_stamp", lambda: "a")
    monkeypatch.setattr(kept, "version", lambda _: "0.0")
    assert kept.kept_waits(module, cache) == symbolic_waits(module)
    assert len(derived) == 5


def test_damaged_waits_are_derived_again(derived: list[Module], tmp_path: Path) -> None:
    cache, module = ArtifactCache(tmp_path / "cache"), rows.trace().module
    kept.kept_waits(module, cache)
    (path,) = (cache.directory / "libraries").glob("*.waits")
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    assert kept.kept_waits(module, cache) == symbolic_waits(module)
    assert len(derived) == 2


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache, module = ArtifactCache(tmp_path / "cache"), rows.trace().module

    def refuse(*_: object) -> None:
        raise BadCache(path=tmp_path, reason="the disk is full")

    monkeypatch.setattr(cache, "library", refuse)
    assert kept.kept_waits(module, cache) == symbolic_waits(module)


@tries(30)
@given(samples())
def test_waits_of_random_workloads(sample: Sample) -> None:
    note(str(sample.module))
    waits = symbolic_waits(sample.module)
    assert waits_of_text(waits_to_text(waits), sample.module) == waits
