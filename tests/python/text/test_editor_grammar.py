"""The grammar of editors knows every word of the text."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from pto_wsp.isa import BY_MNEMONIC
from pto_wsp.text.foreign.functions import WORDS
from tests.generators.modules import random_module
from tests.python.builder.softmax import softmax_module
from tests.python.text.test_foreign import LOOPED, ROWMAX, kernel
from tests.python.text.test_fuzz import OLDER, SCALARS

GRAMMAR = Path(__file__).parents[3] / "editors" / "vscode" / "pto.tmLanguage.json"
PATTERNS = [(p["name"], re.compile(p["match"])) for p in json.loads(GRAMMAR.read_text())["patterns"]]


def scopes(line: str) -> list[tuple[str, str]]:
    """Return the pieces of a line with their scopes, as an editor finds them."""
    found, at = [], 0
    while at < len(line):
        matches = [
            (m.start(), n, name, m) for n, (name, p) in enumerate(PATTERNS) if (m := p.search(line, at))
        ]
        if not matches:
            break
        start, _, name, match = min(matches, key=lambda item: item[:2])
        assert match.end() > start, name
        found += [("", line[at:start])] if line[at:start].strip(" ()[]{},") else []
        found.append((name, match.group()))
        at = match.end()
    return found + ([("", line[at:])] if line[at:].strip(" ()[]{},") else [])


def test_every_word_of_modules_has_a_scope() -> None:
    texts = [str(softmax_module()), ROWMAX + LOOPED, kernel(SCALARS), OLDER.replace("x", "%x")]
    labels = re.compile(
        r"(?:name|label) = [\w.]+|"
        r"(?:after|scalars) = \[[^]]*\]|// .*|\.\w+ .*|CONSTANT .*|CPP .*|\|.*|(?<=, )i(?=,)"
    )
    for text in texts + [str(random_module(random.Random(seed))) for seed in range(40)]:
        for line in text.splitlines():
            plain = labels.sub("", line)
            assert [piece for name, piece in scopes(plain) if not name] == [], line


def test_every_statement_of_elsewhere_has_a_scope() -> None:
    for word in WORDS:
        assert scopes(f"  {word} ")[0][0], word


def test_every_instruction_is_a_function() -> None:
    for mnemonic in BY_MNEMONIC:
        assert ("support.function.pto", mnemonic) in scopes(
            f"  %a = {mnemonic} %b, %1.0 : !pto.tile<8x8xf32>"
        )


def test_pieces_of_a_line() -> None:
    assert scopes("  %a = tmuls %b, %1e-05 : !pto.tile<8x8xf32>, f32") == [
        ("variable.other.pto", "%a"),
        ("keyword.operator.pto", "="),
        ("support.function.pto", "tmuls"),
        ("variable.other.pto", "%b"),
        ("constant.numeric.operand.pto", "%1e-05"),
        ("keyword.operator.pto", ":"),
        ("storage.type.pto", "!pto.tile<8x8xf32>"),
        ("storage.type.pto", "f32"),
    ]
    assert scopes("// Entry: @f") == [("meta.header.pto", "// Entry: @f")]
    assert scopes("  |int x = 1;") == [("source.cpp.embedded.pto", "  |int x = 1;")]
