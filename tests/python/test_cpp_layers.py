"""Includes between the folders of the engine go one way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "include" / "pto" / "wsp"

# From the bottom up; a line may include the lines above it. A folder is a layer, and so is a header beside
# the folders. `cpp` and `capi` are the libraries that are built of the engine.
ORDER = (
    ("abi", "error", "spin", "forks", "pto_runtime", "pto_session"),
    ("native", "walk"),
    ("crash",),
    ("tile", "library"),
    ("bytecode",),
    ("progress",),
    ("bind",),
    ("graph",),
    ("trace",),
    ("sched",),
    ("device",),
    ("run_result",),
    ("in_flight", "sim"),
    ("core",),
    ("engine",),
    ("contract",),
    ("launch",),
    ("session",),
    ("host",),
    ("cpp", "capi"),
)
RANK = {layer: rank for rank, line in enumerate(ORDER) for layer in line}

TILE_SEES = {"abi", "native", "tile"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"(?:pto/wsp/)?([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Include:
    includer: str  # below include/pto/wsp, or below the root
    included: str  # below include/pto/wsp

    def __str__(self) -> str:
        return f"{self.includer} includes {self.included}"

    def layers(self) -> tuple[str, str]:
        return layer_of(self.includer), layer_of(self.included)


def layer_of(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return parts[1] if parts[:2] == ("cpp", "capi") else parts[0]


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(ENGINE.rglob("*.h*")):
        yield path.relative_to(ENGINE).as_posix(), path
    for path in sorted((ROOT / "cpp").rglob("*.[ch]pp")):
        yield path.relative_to(ROOT).as_posix(), path


SOURCES = dict(sources())
INCLUDES = [
    Include(name, included)
    for name, path in SOURCES.items()
    for included in INCLUDE.findall(path.read_text(encoding="utf-8"))
    if included in SOURCES
]


def report(found: list[Include]) -> str:
    return "\n".join(map(str, found))


def test_every_file_has_a_layer() -> None:
    unknown = [name for name in SOURCES if layer_of(name) not in RANK]
    assert not unknown, f"not in the layer order: {unknown}"


def test_includes_are_found() -> None:
    assert Include("core.hpp", "sched/sharing.hpp") in INCLUDES
    assert Include("cpp/capi/runtime.hpp", "trace/clock.hpp") in INCLUDES


def test_includes_go_down() -> None:
    upward = [i for i in INCLUDES if RANK[i.layers()[1]] > RANK[i.layers()[0]]]
    assert not upward, report(upward)


def test_kernels_see_the_abi_alone() -> None:
    seen = [i for i in INCLUDES if i.layers()[0] == "tile" and i.layers()[1] not in TILE_SEES]
    assert not seen, report(seen)


def test_no_include_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for i in INCLUDES:
        graph.setdefault(i.includer, set()).add(i.included)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"include cycle: {' -> '.join(error.args[1])}")
