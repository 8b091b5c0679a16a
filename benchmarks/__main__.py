"""Run a case, or write the performance page: `python -m benchmarks CASE | report`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.calibrate import Calibrator
from benchmarks.harness import Bench, available_cores, calibration_rows
from benchmarks.report import RESULTS, performance_page, table

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/case.py"))


def main() -> int:
    """Run what the command line names; return the exit status: 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "case", choices=[*CASES, "report"], help="the case, or `report` for docs/performance.md"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions: ends within 50 s on two cores"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that verify the order of tasks")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="default: benchmarks/results/CASE.json; --quick: out/CASE.json",
    )
    options = parser.parse_args()
    if options.case == "report":
        (HERE.parent / "docs" / "performance.md").write_text(performance_page(), encoding="utf-8")
        return 0
    began = time.perf_counter()
    bench = run_case(options.case, options.quick, options.seed)
    result = to_json(options.case, bench)
    print_result(result, bench, time.perf_counter() - began)
    path: Path = options.json or (HERE.parent / "out" if options.quick else RESULTS) / f"{options.case}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\n  written to {path}")
    return 1 if any(row["ok"] is False for row in result["rows"]) else 0


def run_case(name: str, quick: bool, seed: int) -> Bench:
    """Run one case and return its rows, followed by the calibrations of the run."""
    bench = Bench(Calibrator(max_threads=min(2, available_cores())), quick, seed)
    bench.calibrator.measure_all(repeats=3)
    try:
        importlib.import_module(f"benchmarks.{name}.case").run(bench)
        bench.calibrator.measure_all(repeats=1)
    finally:
        bench.calibrator.close()
    bench.rows += calibration_rows(bench.calibrator)
    return bench


def to_json(case: str, bench: Bench) -> dict[str, Any]:
    """Return the result in the schema of the result files."""
    return {
        "case": case,
        "commit": machine.commit(),
        "machine": machine.describe(),
        "rows": [row.to_json() for row in bench.rows],
    }


def print_result(result: dict[str, Any], bench: Bench, seconds: float) -> None:
    """Print the table and what was left out of it."""
    where = result["machine"]
    print(f"{result['case']} at {result['commit']}, {where['cpu']}, {where['cores']} cores\n")
    print(table(result["rows"]))
    print(f"\n  {bench.dropped} repetitions dropped by the quiet gate, {seconds:.0f} s")
    for peer, reason in bench.skipped.items():
        print(f"  skipped: {peer}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
