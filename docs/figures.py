"""The table of figures in the README, from the results of the last run of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import RESULTS, number

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- figures: made by `make docs` -->\n", "<!-- end of figures -->\n"

FIGURES = (
    ("engine", "total_a256_2w_vs_tbb", "tasks of a LLaMA layer: made, ordered by their data, run"),
    ("planner", "replan_vs_flashinfer_256", "a new plan for a batch of 256 requests whose lengths grew"),
    (
        "ragged_decode",
        "decode_f32_vs_torch_padded",
        "decode attention of 32 requests of 128 to 16,384 tokens",
    ),
    ("ragged_decode", "decode_f32_vs_torch_loop", "the same"),
    ("dynamic", "moe_ms", "tokens through 2 of 64 experts each, which the run chooses"),
    ("minilm", "minilm_vs_onnxruntime", "256 sentences to MiniLM embeddings, nothing padded"),
    ("minilm", "minilm_vs_sentence_transformers", "the same"),
)
"""Case, row, and what it measures in a few words."""


def figures() -> str:
    """Return the table: ours, the peer's, and the ratio; what was measured beside other work says so."""
    lines = ["| | PTO-WSP | peer | faster |", "|---|---:|---|---:|"]
    for case, name, about in FIGURES:
        result = json.loads((RESULTS / f"{case}.json").read_text(encoding="utf-8"))
        row = next((row for row in result["rows"] if row["name"] == name), None)
        if row is None or row["ratio"] is None:
            continue
        peer, unit = row["peer"].replace("_", " "), row["unit"]
        is_ratio = unit == "x"
        ours = "" if is_ratio else f"{number(row['value'])} {unit}"
        theirs = peer if is_ratio else f"{peer}: {number(row['peer_value'])}"
        disturbed = " (disturbed)" if row.get("noisy") else ""
        lines.append(f"| {about} | {ours} | {theirs}{disturbed} | **{row['ratio']:.3g}x** |")
    return "\n".join(lines) + "\n"


def readme_page() -> str:
    """Return the README with the figures of the last run between its two marks."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + figures() + END + rest.split(END)[1]
