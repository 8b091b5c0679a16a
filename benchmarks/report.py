"""A result as a table on the terminal, and docs/performance.md from the results that are kept."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent
RESULTS = CASES / "results"

INTRODUCTION = """\
# Performance

`make docs` generates this page from `benchmarks/results/`; `make bench CASE=name` runs a case. Each
value is the median of interleaved repetitions between two calibrations of the machine. Repetitions
whose calibrations differ by more than 5 % are dropped. Ratios to a peer or to the calibrated peak
can be compared between machines; times cannot. `benchmarks/<case>/notes.md` tells what was tried."""

HEADER = ("row", "value", "unit", "peer", "ratio", "goal", "")


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows as aligned text."""
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join("  " + _aligned(line, widths).rstrip() for line in lines)


def performance_page() -> str:
    """Return docs/performance.md: the last full run of every case."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    return "\n\n".join([INTRODUCTION, _goals(results), *map(_chapter, results)]) + "\n"


def _goals(results: list[dict[str, Any]]) -> str:
    goals = [(result["case"], row) for result in results for row in result["rows"] if row["ok"] is not None]
    missed = [f"- [{row['name']}](#{case})" for case, row in goals if not row["ok"]]
    met = f"{len(goals) - len(missed)} of {len(goals)} goals are met. Missed:\n"
    return "\n".join([met, *(missed or ["- none"])])


def _chapter(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['compiler']}"
    lines = [HEADER, ("---", "---:", "---", "---", "---:", "---", "---"), *map(_cells, result["rows"])]
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    made = textwrap.fill(f"Commit {result['commit']}; {where}.", 100, break_on_hyphens=False)
    parts = [f"## {result['case']}", made, rows]
    about = CASES / result["case"] / "rows.md"
    return "\n\n".join([*parts, about.read_text(encoding="utf-8").strip()] if about.exists() else parts)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    peer = "" if row["peer"] is None else f"{row['peer']} {number(row['peer_value'])}".strip()
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}x"
    verdict = {None: "", True: "ok", False: "MISSED"}[row["ok"]]
    marks = " ".join(filter(None, [verdict, "noisy" if row.get("noisy") else ""]))
    return (row["name"], number(row["value"]), row["unit"], peer, ratio, row["goal"] or "", marks)


def number(value: float | None) -> str:
    """Return a figure as tables show it."""
    if value is None:
        return "skipped"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    right = {1, 4}
    cells = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells)
