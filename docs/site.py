"""Build the site: `python -m docs.site`. Broken links and docstrings that cannot be read are errors.

The pages keep their places in the repository, so that their links hold. Files that pages link to are
copied. The reference is made from the docstrings of `pto_wsp.tools.reference`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.docstrings import subject_page
from pto_wsp.lang.kernel.functions import FUNCTIONS
from pto_wsp.tools.reference import SUBJECTS

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "site"
PAGES = SITE / "pages"
FOLDERS = ("docs", "examples")

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)
_EXTERNAL = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\s(?:src|href)=["']?https?://""")


def pages() -> Iterator[Path]:
    """Yield the hand-written and generated pages of the repository."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.md"))


def stage() -> None:
    """Write everything that mkdocs reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in pages():
        _copy(page)
        text = _CODE.sub("", page.read_text(encoding="utf-8"))
        for target in (page.parent / link for link in _LINK.findall(text) if "://" not in link):
            if target.is_file() and target.suffix != ".md":
                _copy(target)
    (PAGES / "assets").mkdir()
    shutil.copy(ROOT / "docs" / "site.css", PAGES / "assets" / "site.css")
    for name, text in reference_pages().items():
        path = PAGES / "docs" / "api" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _copy(path: Path) -> None:
    copied = PAGES / path.resolve().relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copied)


def reference_pages() -> dict[str, str]:
    """Return the pages of the reference by file name."""
    found = {f"{slug}.md": subject_page(subject) for slug, subject in SUBJECTS.items()}
    return {"index.md": _index_page(), "pto.md": _functions_page(), **found}


def _index_page() -> str:
    lines = ["# Reference", "", "| page | contents |", "|---|---|"]
    lines.append(f"| [Functions of a kernel](pto.md) | `pto`: {len(FUNCTIONS)} functions |")
    for slug, subject in SUBJECTS.items():
        names = ", ".join(f"`{subject.heading(name)}`" for name in subject.names[:12])
        more = ", ..." if len(subject.names) > 12 else ""
        lines.append(f"| [{subject.title}]({slug}.md) | {names}{more} |")
    return "\n".join(lines) + "\n"


def _functions_page() -> str:
    parts = ["# Functions of a kernel", "The same text as `help(pto.exp)` in Python."]
    for name, function in FUNCTIONS.items():
        about = function.__doc__.replace("<", "&lt;").split("\n")
        body = "  \n".join(line for line in about if line)
        parts.append(f"## pto.{name}\n\n```python\npto.{name}{function.__signature__}\n```\n\n{body}")
    return "\n\n".join(parts) + "\n"


def external_resources() -> list[str]:
    """Return the built pages that load a script, style or font from another host."""
    built = SITE / "html"
    return [
        str(page.relative_to(built))
        for page in sorted(built.rglob("*.html"))
        if _EXTERNAL.search(page.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Build the site; return the exit status."""
    stage()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    if status := subprocess.run(command, check=False).returncode:
        return status
    if found := external_resources():
        print(f"loads files of other hosts: {', '.join(found)}", file=sys.stderr)
        return 1
    print("site: build/site/html; its search needs a server: python -m http.server -d build/site/html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
