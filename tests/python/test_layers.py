"""Imports inside the package go one way, and importing it stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import PACKAGE, tree

# From the bottom up; a module imports its own line and those above it. "" is the package's own __init__.
ORDER = (
    ("_native",),
    ("support",),
    ("location",),
    ("errors",),
    ("types",),
    ("isa",),
    ("ir",),
    ("analysis",),
    ("device",),
    ("interp",),
    ("visualize",),
    ("advice",),
    ("planner",),
    ("passes",),
    ("lower",),
    ("prove",),
    ("restructure",),
    ("lang",),
    ("builder",),
    ("text",),
    ("targets",),
    ("runtime",),
    ("ops", "simulation"),
    ("torch",),
    ("",),
    ("calibration",),
    ("tools",),
    ("__main__",),
)
RANK = {layer: rank for rank, line in enumerate(ORDER) for layer in line}
NATIVE_USERS = {"planner", "runtime"}

# Imports inside functions, as (importer, imported): only where a registry loads what it was asked for, and
# what programs without errors, or that do not ask, need not load: explanations of errors, the adviser, the
# simulator, proofs, generated walks, dialects of text.
DEFERRED = {
    ("targets.registry", f"targets.{path.parent.name}.target") for path in PACKAGE.glob("targets/*/target.py")
} | {
    ("runtime.trace", "advice.case"),
    ("runtime.trace", "advice.registry"),
    ("runtime.runners", "runtime.simulated"),
    ("runtime.runners", "runtime.launched"),
    ("runtime.dlpack", "targets.cuda.driver"),
    ("runtime.launched", "runtime.explain_launch"),
    ("runtime.launched", "runtime.launch_trace"),
    ("runtime.engine", "lower.lower_workload_to_source"),
    ("runtime.engine", "runtime.explain"),
    ("runtime.run_options", "runtime.explain"),
    ("runtime.engine", "interp.depths"),
    ("text.modules", "text.foreign.detection"),
    ("text.modules", "text.foreign.functions"),
    ("tools.commands", "tools.language_server.server"),
    ("tools.commands", "calibration.host"),
    ("lang.workload.workload", "prove.prove"),
    ("lang.workload.operators", "restructure.operators"),
}

# The hook by which `compile` methods reach the runtime; it mentions the type that it returns.
HOOK = ("lang.compiling", "runtime.program")

HEAVY = (
    "torch",
    "scipy",
    "pandas",
    "matplotlib",
    "ml_dtypes",
    "rich",
    "jax",
    "IPython",
    "pytest",
    "hypothesis",
)


@dataclass(frozen=True)
class Import:
    importer: str  # dotted, without the package: "ir.module", "" for the package itself
    imported: str
    line: int
    deferred: bool

    def __str__(self) -> str:
        return f"{self.importer or '__init__'}:{self.line} imports {self.imported or 'the package itself'}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    return module.split(".")[0]


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
LOADABLE = {*MODULES, "_native"}


def import_statements(node: ast.AST, inside_function: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Every import statement, those for type checkers too, with whether a function body defers it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside_function
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from import_statements(child, inside_function or is_function)


def own_targets(statement: ast.stmt) -> Iterator[str]:
    """The modules of the package that one import statement loads by name."""
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    else:
        assert isinstance(statement, ast.ImportFrom)
        assert statement.level == 0, f"relative import in line {statement.lineno}"
        base = statement.module or ""
        submodules = [f"{base}.{alias.name}" for alias in statement.names]
        names = [name if name.removeprefix("pto_wsp.") in LOADABLE else base for name in submodules]
    for name in sorted(set(names)):
        if name == "pto_wsp" or name.startswith("pto_wsp."):
            yield name.removeprefix("pto_wsp").removeprefix(".")


def imports_of(module: str) -> list[Import]:
    return [
        Import(module, target, statement.lineno, deferred)
        for statement, deferred in import_statements(tree(MODULES[module]))
        for target in own_targets(statement)
        if (module, target) != HOOK
    ]


@cache
def imports() -> list[Import]:
    return [found for module in MODULES for found in imports_of(module)]


def report(found: list[Import]) -> str:
    return "\n".join(map(str, found))


def test_every_module_has_a_layer() -> None:
    unknown = [module for module in MODULES if layer_of(module) not in RANK]
    assert not unknown, f"not in the layer order: {unknown}"


def test_imports_go_down() -> None:
    upward = [i for i in imports() if RANK[layer_of(i.imported)] > RANK[layer_of(i.importer)]]
    assert not upward, report(upward)


def test_only_planner_and_runtime_use_the_native_module() -> None:
    users = [
        i for i in imports() if layer_of(i.imported) == "_native" and layer_of(i.importer) not in NATIVE_USERS
    ]
    assert not users, report(users)


@pytest.mark.parametrize("level", ["layers", "modules"])
def test_no_import_cycles(level: str) -> None:
    graph: dict[str, set[str]] = {}
    for i in imports():
        pair = (
            (i.importer, i.imported) if level == "modules" else (layer_of(i.importer), layer_of(i.imported))
        )
        if pair[0] != pair[1]:
            graph.setdefault(pair[0], set()).add(pair[1])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_class_names_are_unique_or_private() -> None:
    owners: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners.setdefault(node.name, []).append(module)
    shared = {name: modules for name, modules in owners.items() if len(modules) > 1}
    assert not shared


def test_imports_inside_functions_are_listed() -> None:
    hidden = [i for i in imports() if i.deferred and (i.importer, i.imported) not in DEFERRED]
    assert not hidden, report(hidden)
    unused = DEFERRED - {(i.importer, i.imported) for i in imports() if i.deferred}
    assert not unused, f"listed but gone: {unused}"


def test_importing_the_package_stays_light() -> None:
    code = f"import sys, pto_wsp; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


IMPORT_COST = """
import time

def seconds(code):
    before = time.process_time()
    exec(code)
    return time.process_time() - before

print(seconds("import numpy"), seconds("import pto_wsp"))
"""


def test_importing_the_package_costs_little_more_than_numpy(tmp_path: Path) -> None:
    """About 1.2 times numpy. The bound is for a module that is slow to import, on busy machines, too."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ratios: list[float] = []
    for _ in range(6):
        command = [sys.executable, "-c", IMPORT_COST]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        numpy_s, own_s = map(float, done.stdout.split())
        ratios.append(own_s / numpy_s)
    assert min(ratios[1:]) < 1.5, ratios
