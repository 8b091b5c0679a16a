"""The cookbook page, from the programs of `examples/cookbook`."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "examples" / "cookbook"

LESSONS = ("ragged_attention", "mixture_of_experts")
"""What to read first; the other programs follow in alphabetic order."""

INTRODUCTION = """\
# Cookbook

Complete operators in 25 to 40 lines of code. The programs are in
[`examples/cookbook`](../examples/cookbook/README.md). Each compares its result with numpy. Tiles
are small and weights are plain tensors, so that the structure is visible. The
[examples](../README.md#where-to-go) add panels and slabs, which make products fast. A picture shows
the tasks of the program's run: solid arrows are data, dashed arrows are decisions."""


def recipes() -> list[str]:
    """Return the names of the programs, in the order of the page."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    return [*LESSONS, *(name for name in names if name not in LESSONS)]


def cookbook_page() -> str:
    """Return the page: of each program the description, the picture of its graph and the code."""
    return "\n\n".join([INTRODUCTION, *map(_chapter, recipes())]) + "\n"


def _chapter(name: str) -> str:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(text)) or ""
    title, description = about.split(":", 1) if ":" in about.split("\n")[0] else (name, about)
    code = re.sub(r'\A""".*?"""\n+', "", text, flags=re.DOTALL).replace("  # fmt: skip", "").strip()
    picture = f"![tasks of {name}](images/cookbook/{name}.svg)"
    sentences = description.strip()[0].upper() + description.strip()[1:]
    described = "\n\n".join(textwrap.fill(part, 100) for part in sentences.split("\n\n"))
    return f"## {title}\n\n{described}\n\n{picture}\n\n```python\n{code}\n```"
