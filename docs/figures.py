"""The table of figures in the README, from the results of the last run of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import RESULTS, number

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- figures: made by `make docs` -->\n", "<!-- end of figures -->\n"

FIGURES = (
    ("engine", "total_a256_2w_vs_tbb", "task graph of a LLaMA layer: build, order, run", "oneTBB flow graph"),
    ("planner", "replan_vs_flashinfer_256", "plan of 256 growing requests", "FlashInfer's holistic planner"),
    ("ragged_decode", "decode_f32_vs_torch_padded", "ragged decode attention, 32 requests", "torch, padded"),
    (
        "ragged_decode",
        "decode_f32_vs_torch_loop",
        "ragged decode attention, 32 requests",
        "torch, one by one",
    ),
    ("dynamic", "moe_ms", "MoE layer, top-2 of 64 experts, routed at run time", "numpy"),
    ("minilm", "minilm_vs_onnxruntime", "MiniLM embeddings of 256 sentences", "onnxruntime"),
    (
        "minilm",
        "minilm_vs_sentence_transformers",
        "MiniLM embeddings of 256 sentences",
        "sentence-transformers",
    ),
)
"""Case, row, operator and peer."""


def figures() -> str:
    """Return the table of ours, the peer's and the ratio. It marks rows that other work disturbed."""
    lines = ["| operator | peer | PTO-WSP | peer's | faster |", "|---|---|---:|---:|---:|"]
    for case, name, operator, peer in FIGURES:
        result = json.loads((RESULTS / f"{case}.json").read_text(encoding="utf-8"))
        row = next((row for row in result["rows"] if row["name"] == name), None)
        if row is None or row["ratio"] is None:
            continue
        unit = row["unit"].replace("ns per task", "ns / task")
        is_ratio = unit == "x"
        ours = "1x" if is_ratio else f"{number(row['value'])} {unit}"
        theirs = f"{number(row['ratio'])}x" if is_ratio else f"{number(row['peer_value'])} {unit}"
        disturbed = " (disturbed)" if row.get("noisy") else ""
        lines.append(f"| {operator} | {peer} | {ours} | {theirs}{disturbed} | **{row['ratio']:.3g}x** |")
    return "\n".join(lines) + "\n"


def readme_page() -> str:
    """Return the README with the figures of the last run between its two marks."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + figures() + END + rest.split(END)[1]
