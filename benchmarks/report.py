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

PEAKS = {
    "peak_gflops_1c": "GFLOP/s, 1 core",
    "peak_gflops_2c": "2 cores",
    "peak_bf16_gflops_2c": "in bf16",
    "dram_read_gbs_1c": "DRAM GB/s, 1 core",
    "dram_read_gbs_2c": "2 cores",
}
"""Calibrations: columns of the table of machines, and not rows of a case."""

HEADER = ("row", "value", "unit", "peer", "ratio", "goal", "")


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows as aligned text."""
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join("  " + _aligned(line, widths).rstrip() for line in lines)


def performance_page() -> str:
    """Return docs/performance.md: the last full run of every case."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    return "\n\n".join([INTRODUCTION, _goals(results), _machines(results), *map(_chapter, results)]) + "\n"


def _goals(results: list[dict[str, Any]]) -> str:
    goals = [(result["case"], row) for result in results for row in result["rows"] if row["ok"] is not None]
    missed: dict[str, list[str]] = {}
    for case, row in goals:
        if not row["ok"]:
            missed.setdefault(case, []).append(f"`{row['name']}`")
    num_met = len(goals) - sum(map(len, missed.values()))
    lines = [_filled(f"- [{case}](#{case}): {', '.join(names)}") for case, names in missed.items()]
    return "\n".join([f"{num_met} of {len(goals)} goals are met. Missed:\n", *(lines or ["- none"])])


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  " * text.startswith("-"), break_on_hyphens=False)


def _machines(results: list[dict[str, Any]]) -> str:
    """Return the table of where each case was measured, and what its calibration found."""
    lines: list[tuple[str, ...]] = [
        ("case", "commit", "processor", "cores", "GiB", "compiler", *PEAKS.values())
    ]
    lines.append(("---", "---", "---", "---:", "---:", "---", *["---:"] * len(PEAKS)))
    for result in results:
        machine = result["machine"]
        found = {row["name"]: row["value"] for row in result["rows"] if row["name"] in PEAKS}
        facts = [machine[key] for key in ("cpu", "cores", "memory_gib", "compiler")]
        rates = [number(found[name]) if name in found else "" for name in PEAKS]
        lines.append((f"[{result['case']}](#{result['case']})", result["commit"], *map(str, facts), *rates))
    return "## machines\n\n" + _rows(lines)


def _rows(lines: Iterable[Iterable[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _chapter(result: dict[str, Any]) -> str:
    measured = [row for row in result["rows"] if row["name"] not in PEAKS]
    lines = [HEADER, ("---", "---:", "---", "---", "---:", "---", "---"), *map(_cells, measured)]
    parts = [f"## {result['case']}", _rows(lines)]
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
