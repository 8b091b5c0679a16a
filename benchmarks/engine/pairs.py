"""Compare the engine of this checkout with another: `python benchmarks/engine/pairs.py OTHER [--rounds N]`.

Each checkout has a process of its own, in its own environment (`.venv`). The processes measure every row in
turn, so that changes of the machine meet both. The table has medians, and medians of the ratio per round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2]


def rows() -> dict[str, Callable[[], float]]:
    """Return the rows of the case `engine` that need no peer, each ready to be measured."""
    from benchmarks.engine import programs
    from benchmarks.engine.case import SHAPES
    from benchmarks.engine.ours import Layer, Ours
    from pto_wsp import StartPolicy

    built = StartPolicy.after_build()
    a64, a256 = (Layer(n, start=built) for n in (64, 256))
    found = {"build_a64": a64.rebuilt("build_ms"), "build_a256": a256.rebuilt("build_ms")}
    for workers in (1, 2):
        found[f"run_a256_{workers}w"] = a256.rebuilt("body_ms", workers)
        found[f"replay_a256_{workers}w"] = Layer(256, start=built).total(workers)
    layers = [(f"stream_{name}", Layer(n)) for name, n in (("a256", 256), ("n1024", 1024), ("n2048", 2048))]
    shapes = [
        (name, Ours(workload, {**sizes, "rows": sizes["n"] + 1})) for name, workload, _, sizes in SHAPES
    ]
    for name, ours in [*layers, *shapes]:
        found |= {f"{name}_{workers}w": ours.total(workers) for workers in (1, 2)}
    one = Ours(programs.single, {})
    found["roundtrip_python"] = lambda: median(one.ns_per_task(2) for _ in range(300))
    found["window64_2us_2w"] = Layer(64, programs.slow_layer(), window=64).total(2)
    traced = Layer(256)
    found["traced_1w"] = lambda: traced.ns_per_task(1, trace=True)
    return found


def serve() -> None:
    """Measure the rows whose names come in, a line each; the first line out lists them all."""
    sys.path.insert(0, str(Path.cwd()))
    measured = rows()
    for value in measured.values():
        for _ in range(4):  # by then runs have tried both ways, and graphs are kept
            value()
    print(json.dumps(list(measured)), flush=True)
    for line in sys.stdin:
        print(measured[line.strip()](), flush=True)


def start(tree: Path) -> subprocess.Popen[str]:
    """Start the process of a checkout."""
    command = [str(tree / ".venv" / "bin" / "python"), str(Path(__file__).resolve()), "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=tree, stdin=pipe, stdout=pipe, text=True)


def ask(process: subprocess.Popen[str], row: str) -> float:
    """Return a measured value in nanoseconds."""
    assert process.stdin is not None and process.stdout is not None
    print(row, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    """Print the table of both checkouts."""
    parser = argparse.ArgumentParser(description="Compare the engine of two checkouts.")
    parser.add_argument("other", type=Path, nargs="?", help="a checkout with an environment")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved pairs per row")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.other is None:
        parser.error("name the other checkout")
    trees = {
        "other": start(options.other.resolve()),
        "same": start(options.other.resolve()),
        "this": start(HERE),
    }
    names = [json.loads(process.stdout.readline()) for process in trees.values() if process.stdout]
    print("| row | other, ns | this, ns | this / other | other / other |\n|---|---:|---:|---:|---:|")
    for row in names[0]:
        found = [{name: ask(process, row) for name, process in trees.items()} for _ in range(options.rounds)]
        other, this = (median(values[name] for values in found) for name in ("other", "this"))
        ratio = median(values["this"] / values["other"] for values in found)
        noise = median(values["same"] / values["other"] for values in found)
        print(f"| {row} | {other:.4g} | {this:.4g} | {ratio:.3f} | {noise:.3f} |", flush=True)


if __name__ == "__main__":
    main()
