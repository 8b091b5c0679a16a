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
    "peak_gflops_1c": "{} GFLOP/s on 1 core",
    "peak_gflops_2c": "{} on 2",
    "peak_bf16_gflops_2c": "{} in bf16",
    "dram_read_gbs_1c": "{} GB/s of DRAM on 1 core",
    "dram_read_gbs_2c": "{} on 2",
}
"""Calibrations that a chapter of the page states above its table, and how."""

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
    missed: dict[str, list[str]] = {}
    for case, row in goals:
        if not row["ok"]:
            missed.setdefault(case, []).append(f"`{row['name']}`")
    num_met = len(goals) - sum(map(len, missed.values()))
    lines = [_filled(f"- [{case}](#{case}): {', '.join(names)}") for case, names in missed.items()]
    return "\n".join([f"{num_met} of {len(goals)} goals are met. Missed:\n", *(lines or ["- none"])])


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  " * text.startswith("-"), break_on_hyphens=False)


def _chapter(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['compiler']}"
    peaks = {row["name"]: row for row in result["rows"] if row["name"] in PEAKS}
    measured = [row for row in result["rows"] if row["name"] not in peaks]
    lines = [HEADER, ("---", "---:", "---", "---", "---:", "---", "---"), *map(_cells, measured)]
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    rates = [text.format(number(peaks[name]["value"])) for name, text in PEAKS.items() if name in peaks]
    made = _filled(f"Commit {result['commit']}; {where}; " + ", ".join(rates) + ".")
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
