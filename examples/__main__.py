"""Simulate the examples and compare values and cycles with `golden.toml`: `python -m examples [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from examples.cases import DEVICE, LEFT_OUT, Run, cases, copied
from pto_wsp import Program, panel_cols
from pto_wsp.errors import CyclesDiffer
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.simulation import expect_cycles

GOLDEN = Path(__file__).parent / "golden.toml"
TOLERANCE = 1e-4
"""Of golden values: kernels of other vectors add in another order."""

Entry = dict[str, Any]


def golden() -> dict[str, Entry]:
    """Return the golden entries by example.

    An entry has `tasks`, `cycles` by the columns of a panel of weights, which the processor decides, and
    `values`: of each tensor that tasks write, the mean and the root of the mean square of finite elements.
    """
    return tomllib.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}


def simulate(run: Run) -> tuple[Program, dict[str, list[float]]]:
    """Run an example on its device; return the program and its values."""
    program = compile_module(run.module, "sim", DEVICE)
    arguments = {key: copied(value) for key, value in run.arguments.items()}
    program.run(**arguments)
    written = sorted(run.module.written & arguments.keys())
    return program, {key: summary(arguments[key]) for key in written}


def summary(array: np.ndarray) -> list[float]:
    """Return the mean and the root of the mean square of the finite elements."""
    with np.errstate(invalid="ignore"):  # elements that no task writes may be NaN
        values = array.astype(np.float64).ravel()
    values = values[np.isfinite(values)]
    return [float(values.mean()), float(np.sqrt((values**2).mean()))] if len(values) else [0.0, 0.0]


def difference(found: Mapping[str, list[float]], expected: Mapping[str, list[float]]) -> str:
    """Return what differs from the golden values, or nothing."""
    if found.keys() != expected.keys():
        return f"writes {', '.join(found)}, expected {', '.join(expected)}"
    for key, (mean, size) in found.items():
        if max(abs(mean - expected[key][0]), abs(size - expected[key][1])) > TOLERANCE * max(size, 1.0):
            return f"`{key}` has mean {mean:.6g} and size {size:.6g}, expected {expected[key]}"
    return ""


def check(name: str, run: Run, entry: Entry | None) -> str:
    """Run an example; return what is wrong, or nothing. It prints a line."""
    program, values = simulate(run)
    assert program.stats is not None
    print(f"{name:40} {program.stats.tasks:6,} tasks {program.stats.cycles:10,} cycles", flush=True)
    if entry is None or str(panel_cols()) not in entry["cycles"]:
        return f"no golden entry for panels of {panel_cols()} columns: write it with --update"
    if wrong := difference(values, entry["values"]):
        return wrong
    try:
        expect_cycles(program, entry["cycles"][str(panel_cols())])
    except CyclesDiffer as error:
        return f"expected {error.fields['expected']} cycles, found {error.fields['found']}"
    return ""


def update(entries: dict[str, Entry], name: str, run: Run) -> None:
    """Replace the golden entry of an example for this processor."""
    program, values = simulate(run)
    assert program.stats is not None
    cycles = dict(entries.get(name, {}).get("cycles", {}))
    cycles[str(panel_cols())] = program.stats.cycles
    entries[name] = {"tasks": program.stats.tasks, "cycles": cycles, "values": values}


def text(entries: Mapping[str, Entry]) -> str:
    """Return golden entries as TOML."""
    lines = ["# Written by `python -m examples --update`; docs/simulation.md says what it is for."]
    for name, entry in entries.items():
        cycles = ", ".join(f"{columns} = {n}" for columns, n in sorted(entry["cycles"].items()))
        lines += ["", f'["{name}"]', f"tasks = {entry['tasks']}", f"cycles = {{ {cycles} }}"]
        lines.append(f'["{name}".values]')
        lines += [f"{key} = [{mean:.9g}, {size:.9g}]" for key, (mean, size) in entry["values"].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check or update the examples that are named, or all; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of examples")
    parser.add_argument("--update", action="store_true", help="write the golden entries of this processor")
    options = parser.parse_args()
    entries, failures = golden(), 0
    chosen: dict[str, Callable[[], Run]] = {
        name: make for name, make in cases() if any(part in name for part in options.names or [""])
    }
    for name, make in chosen.items():
        if options.update:
            update(entries, name, make())
        elif wrong := check(name, make(), entries.get(name)):
            print(f"  {wrong}")
            failures += 1
    if options.update:
        order = [name for name, _ in cases()]
        GOLDEN.write_text(text({name: entries[name] for name in order if name in entries}), "utf-8")
        return 0
    for name, reason in LEFT_OUT.items():
        print(f"{name:40} left out: {reason}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
