"""The TextMate grammar of `.pto` text: words and instructions from the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pto_wsp.ir import kernel as k
from pto_wsp.ir.scalar import BINARY_CALLS, UNARY_CALLS
from pto_wsp.isa import BY_MNEMONIC, attributes
from pto_wsp.isa.compositions import BY_COMPOSED_MNEMONIC
from pto_wsp.isa.statements import CONTROL, DEBUGGING
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.text.foreign.scalars import SCALAR_WORDS
from pto_wsp.text.modules import HEADER_KEYS
from pto_wsp.types.dtype import DTYPES

DECLARATIONS = ("func", "attributes", "alloc_tile", "alloc_scalar", "SCHEDULE")
NATIVE = ("CPP", "ENDCPP", "INCLUDE", "FOLDER", "TARGET", "CONSTANT")
ATTRIBUTES = (
    *("in", "out", "inout", "tile", "local", "distinct", "columns", "parallel", "seq", "range", "tiles"),
    *("name", "max_range", "min_range", "tile_levels", "label", "after", "workspace", "cost", "bounds"),
    *("unit", "block_dim", "body", "n", "offsets", "depth", "latency", "scalars", "ends_loop"),
)
NETWORKS = ("PROCESS", "ENDPROCESS", "SEND", "ENDSEND", "RECEIVE", "ENDRECEIVE", "WAIT")
CALLS = (*BINARY_CALLS, "select", "stage", "dim", "rows", "at", "merged", "and", "or", *UNARY_CALLS)
TYPES = (*DTYPES, "u1", "idx", "index", "memref", "ragged", "sparse", "gm", "l1", "l2")


def words(scope: str, found: Iterable[str]) -> dict[str, str]:
    """Return the pattern of whole words, the longest first."""
    listed = "|".join(re.escape(word) for word in sorted(set(found), key=lambda w: (-len(w), w)))
    return {"name": f"{scope}.pto", "match": rf"(?<![\w.%@#])(?:{listed})(?![\w.])"}


def patterns() -> list[dict[str, str]]:
    """Return the patterns of the grammar, in the order in which they are tried."""
    keys = "|".join(HEADER_KEYS)
    plain = {
        "meta.header.pto": rf"^\s*//\s*(?:{keys})\s*:.*$",
        "comment.line.double-slash.pto": r"^\s*//.*$",
        "source.cpp.embedded.pto": r"^\s*\|.*$",
        "string.quoted.other.pto": r"(?<=INCLUDE )<[^>]*>",
        "keyword.control.import.pto": r"^\s*#import\b",
        "storage.type.pto": r'!pto\.\w+(?:<(?:[^<>"]|"[^"]*"|<[^<>"]*>)*>)?',
        "storage.modifier.pto": r"^\s*\.(?:function|end|tile|memref|scalar)\b",
        "entity.name.function.pto": r"@[A-Za-z_]\w*",
        "constant.numeric.operand.pto": r"%-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?",
        "variable.other.pto": r"%[A-Za-z_]\w*(?:\.\w+)*",
        "string.quoted.double.pto": r'"(?:[^"\\]|\\.)*"',
        "constant.other.attribute.pto": r"#pto\.\w+<\w+>",
    }
    found: list[dict[str, str]] = [{"name": name, "match": match} for name, match in plain.items()]
    modes = [word for listed in attributes.MODES.values() for mode in listed for word in (mode, mode.upper())]
    policies = [name for directive in DIRECTIVES.values() for name in directive.policies]
    groups = (
        ("keyword.control", (*CONTROL, *DEBUGGING, "REFUSE", "return", *NETWORKS)),
        ("keyword.other", DECLARATIONS),
        ("keyword.other.native", NATIVE),
        ("support.function", (*BY_MNEMONIC, *BY_COMPOSED_MNEMONIC, "tprefetch")),
        ("support.function.scalar", (*SCALAR_WORDS, "LOAD", "STORE")),
        ("storage.type", TYPES),
        ("keyword.operator.word", CALLS),
        ("support.constant", (*DIRECTIVES, *policies, *modes)),
        ("entity.other.attribute-name", (*ATTRIBUTES, *attributes.ATTRIBUTES, *k.UNITS)),
        ("constant.language", ("true", "false", "inf", "nan", "True", "False")),
    )
    found += [words(scope, listed) for scope, listed in groups]
    found.append({"name": "constant.numeric.pto", "match": r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"})
    operators = r":\+|:=|->|//|<<|>>|<=|>=|==|!=|[-+*/%&|^~<>=:?]"
    return [*found, {"name": "keyword.operator.pto", "match": operators}]


def editor_grammar() -> str:
    """Return the grammar as JSON."""
    grammar = {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "PTO",
        "scopeName": "source.pto",
        "fileTypes": ["pto"],
        "patterns": patterns(),
    }
    return json.dumps(grammar, indent=2) + "\n"
