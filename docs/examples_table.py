"""The page of examples: what each shows, and its time on a simulated device."""

from __future__ import annotations

import ast
from pathlib import Path

from examples.__main__ import golden
from examples.cases import DEVICE, LEFT_OUT, cases
from pto_wsp.device.reader import get_device

EXAMPLES = Path(__file__).parent.parent / "examples"
INTRODUCTION = """\
# Examples

`make examples` runs each program below with small inputs on the target `sim`, in the simulated time
of `{device}`. It compares values and cycles with [`golden.toml`](golden.toml). The
cycles are those of this small input. [Simulated time](../docs/simulation.md) explains them."""

HEADER = "| example | shows | tasks | cycles | us |\n|---|---|---:|---:|---:|"


def examples_page() -> str:
    """Return the page, from the descriptions of the programs and `golden.toml`."""
    lines = [_line(name) for name, _ in cases()]
    left_out = [f"- `{name}`: {reason}" for name, reason in LEFT_OUT.items()]
    parts = [INTRODUCTION.format(device=DEVICE), "\n".join([HEADER, *lines]), "Not simulated:"]
    return "\n\n".join([*parts, "\n".join(left_out)]) + "\n"


def _line(name: str) -> str:
    entry = golden()[name]
    cycles = entry["cycles"][max(entry["cycles"], key=int)]
    time_us = get_device(DEVICE).microseconds(cycles)
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    about = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return f"| [{name}]({name}) | {about} | {entry['tasks']:,} | {cycles:,} | {time_us:.1f} |"
