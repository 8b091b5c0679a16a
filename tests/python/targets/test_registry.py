"""Targets of other packages: registered by name, asked for policies, sources and runners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import In, Out, P, Schedule, TaskWindow, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import CannotRun, NameClash, UnknownTarget, UnsupportedByTarget, UnusableFile, WrongValue
from pto_wsp.ir.kernel import Instr, walk_statements
from pto_wsp.ir.module import Module
from pto_wsp.targets import registry
from pto_wsp.targets.base import SourceTree, Target
from pto_wsp.tools.main import main


class Listing(Target):
    """Lists the kernels of a program."""

    name = "listing"

    def check(self, module: Module) -> None:
        """Refuse square roots."""
        for each in module.kernels:
            for stmt in walk_statements(each.body or ()):
                if isinstance(stmt, Instr) and stmt.op == "sqrt":
                    raise UnsupportedByTarget(target=self.name, what="`sqrt`", reason="", loc=stmt.loc)

    def emit(self, module: Module) -> SourceTree:
        """Return the names of the kernels."""
        return SourceTree({"kernels.txt": "".join(f"{k.name}\n" for k in module.kernels)}, ("kernels.txt",))


@pytest.fixture(autouse=True)
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "TARGETS", dict(registry.TARGETS))
    registry.register_target(Listing())
    yield
    registry._made.cache_clear()


@kernel
def double(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x + x)


@kernel
def root(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, pto.sqrt(x))


@workload
def double_rows(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for rows in P.tiles("n", 4):
        double[rows](x=X[rows], y=Y[rows])


@workload
def root_rows(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for rows in P.tiles("n", 4):
        root[rows](x=X[rows], y=Y[rows])


def test_a_target_that_only_emits_refuses_to_run() -> None:
    program = double_rows.compile(target="listing")
    x, y = np.ones((6, 8), np.float32), np.zeros((6, 8), np.float32)
    with pytest.raises(CannotRun) as caught:
        program(X=x, Y=y)
    assert caught.value.fields["target"] == "listing" and not y.any() and program.stats is None
    with pytest.raises(CannotRun):
        program.submit(X=x, Y=y)


def test_the_command_refuses_to_run_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, x, y = tmp_path / "double.pto", tmp_path / "x.npy", tmp_path / "y.npy"
    text.write_text(str(double_rows.compile().module))
    np.save(x, np.ones((6, 8), np.float32))
    argv = ["run", str(text), "--target", "listing", "--input", f"X={x}", "--output", f"Y={y}"]
    assert main(argv) == 1 and not y.exists()
    assert "error[cannot-run]: target `listing` only emits" in capsys.readouterr().err


def test_what_it_does_not_support_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(UnsupportedByTarget, match="`listing` does not support `sqrt`"):
        root_rows.compile(target="listing")


def test_policies_that_it_does_not_know_are_refused() -> None:
    scheduled = double_rows.task_graph(window=TaskWindow(64))
    with pytest.raises(UnsupportedByTarget, match="window"):
        scheduled.compile(target="listing")
    with pytest.raises(UnsupportedByTarget, match="window"):
        double_rows.compile(target="listing").reschedule(Schedule().task_graph(window=TaskWindow(64)))


def test_names_are_unique() -> None:
    with pytest.raises(NameClash, match="listing"):
        registry.register_target(Listing())


def test_the_command_lists_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "root.pto"
    text.write_text(str(root_rows.compile().module))
    assert main(["targets"]) == 0 and "listing          Lists the kernels" in capsys.readouterr().out
    assert main(["emit", str(text), "--target", "listing"]) == 0
    assert capsys.readouterr().out == "root\n"
    assert main(["check", str(text), "--target", "listing"]) == 1
    assert "does not support `sqrt`" in capsys.readouterr().err


@pytest.mark.parametrize("value", [Listing, None, "listing"])
def test_what_is_registered_is_an_instance(value: Any) -> None:
    with pytest.raises(WrongValue, match="an instance of Target"):
        registry.register_target(value)


PACKAGE = """
from pto_wsp.targets.base import SourceTree, Target

class Counting(Target):
    \"\"\"Counts the kernels of a program.\"\"\"

    name = "counting"

    def check(self, module): ...

    def emit(self, module):
        return SourceTree({"count.txt": str(len(module.kernels))}, ("count.txt",))

class Other(Counting): ...
"""


def install(folder: Path, entry_points: str) -> None:
    """Lay out an installed package with targets."""
    (folder / "counting_target.py").write_text(PACKAGE)
    (folder / "counting-1.0.dist-info").mkdir()
    (folder / "counting-1.0.dist-info" / "METADATA").write_text("Name: counting\nVersion: 1.0\n")
    (folder / "counting-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{registry.GROUP}]\n{entry_points}\n"
    )


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._installed.cache_clear()
    yield tmp_path
    registry._installed.cache_clear()


def test_targets_of_installed_packages(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(packages, "counting = counting_target:Counting")
    assert registry.get("counting").emit(double_rows.compile().module).files == {"count.txt": "1"}
    assert main(["targets"]) == 0 and "counting         Counts the kernels" in capsys.readouterr().out
    with pytest.raises(UnknownTarget, match="did you mean `counting`"):
        registry.get("countin")


def test_entry_points_that_are_not_targets_of_their_name(packages: Path) -> None:
    install(packages, "other = counting_target:Other\nlist = counting_target:SourceTree")
    for name in ("other", "list"):
        with pytest.raises(WrongValue, match=f"a subclass of Target with the name `{name}`"):
            registry.get(name)


def test_names_of_installed_targets_are_unique(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(packages, "cpu = counting_target:Counting\nlisting = counting_target:Counting")
    with pytest.raises(NameClash, match="`cpu`"):
        registry.names()
    (packages / "counting-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{registry.GROUP}]\nlisting = counting_target:Counting\n"
    )
    monkeypatch.delitem(registry.TARGETS, "listing")
    with pytest.raises(NameClash, match="`listing`"):
        registry.register_target(Listing())


@pytest.mark.parametrize("path", ["../outside.txt", "a/../../outside.txt", "/outside.txt"])
def test_sources_stay_in_their_folder(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listing, "emit", lambda self, module: SourceTree({"in.txt": "", path: ""}, ()))
    with pytest.raises(UnusableFile, match="inside the folder"):
        double_rows.compile(target="listing").export(tmp_path / "out")
    assert not list(tmp_path.iterdir())
