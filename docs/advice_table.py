"""The table of advices in `docs/advice.md`, from the table of the adviser."""

from __future__ import annotations

from pathlib import Path

from pto_wsp.advice.registry import RULES

PAGE = Path(__file__).parent / "advice.md"
BEGIN, END = "<!-- advices: made by `make docs` -->\n", "<!-- end of advices -->\n"


def advice_table() -> str:
    """Return the table of advices."""
    lines = ["| advice | says | for | remedy | timed |", "|---|---|---|---|---|"]
    for rule in RULES:
        timed = "yes" if rule.is_timed else ""
        lines.append(f"| `{rule.code}` | {rule.says} | {rule.evidence} | {rule.remedy} | {timed} |")
    return "\n".join(lines) + "\n"


def advice_page() -> str:
    """Return the page with its table up to date."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + advice_table() + END + rest.partition(END)[2]
