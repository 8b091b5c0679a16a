"""What the quick tier leaves out exists, and its list names nothing twice."""

from __future__ import annotations

import re
from pathlib import Path

from tests.slow import NOT_QUICK, not_quick

ROOT = Path(__file__).parents[2]


def test_what_is_left_out_exists() -> None:
    for entry in not_quick():
        path, _, name = entry.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), entry


def test_nothing_is_left_out_twice() -> None:
    lines = NOT_QUICK.read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    assert len(entries) == len(not_quick())
    assert not [entry for entry in entries if "::" in entry and entry.split("::")[0] in not_quick()]
