"""The table of the keys of a device file in `docs/simulation.md`, from the classes that hold the figures."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from pathlib import Path

from pto_wsp.device import model
from pto_wsp.support.record import record

PAGE = Path(__file__).parent / "simulation.md"
BEGIN, END = "<!-- device keys: made by `make docs` -->\n", "<!-- end of device keys -->\n"

NEEDED = "needed"
_COST = "costs.ROW."
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


@record
class Part:
    """A class of the model, and how a file writes it.

    Attributes:
        cls: the class.
        key: what its keys begin with.
        name: what its attributes begin with in Python.
        units: per field its unit; a text for fields without a unit.
        keys: keys of a file, where they are not the names of the fields.
        apart: fields that rows of other parts describe.
    """

    cls: type
    key: str
    name: str
    units: Mapping[str, str]
    keys: Mapping[str, str] = {}
    apart: tuple[str, ...] = ()


_RATE, _CYCLES, _NS = "bytes / cycle", "cycles", "ns"
PARTS = (
    Part(
        model.Device,
        "",
        "",
        {"name": "text", "about": "text", "clock_ghz": "GHz", "groups": "a count per kind of core"}
        | {"gm_rate": _RATE, "gm_core_rate": _RATE, "cost_table": "text"}
        | {"sources": "a text per key", "unknown": "list of texts"},
        {"gm_rate": "gm.rate", "gm_core_rate": "gm.core_rate", "cost_table": "costs"},
        ("cores", "transfers", "l2", "dispatchers", "host", "costs", "widths", "core_caches"),
    ),
    Part(
        model.CoreKind,
        "cores.NAME.",
        "cores[i].",
        {"count": "cores", "units": "list of texts", "pipes": "list of texts", "memories": "bytes each"},
        apart=("name",),
    ),
    Part(
        model.Route,
        "transfers[i].",
        "transfers[i].",
        {"source": "memory", "target": "memory", "pipe": "text", "rate": _RATE, "start": _CYCLES},
        {"source": "from", "target": "to"},
    ),
    Part(
        model.Cache,
        "l2.",
        "l2.",
        {"size": "bytes", "block": "bytes", "rate": _RATE, "core_rate": _RATE, "hit": _CYCLES}
        | {"miss": _CYCLES},
    ),
    Part(model.CoreCache, "core_caches[i].", "core_caches[i].", {"size": "bytes", "rate": _RATE}),
    Part(
        model.Widths,
        "widths.",
        "widths.",
        {"vector": "bytes", "rows": "rows", "cols": "columns", "inner": "bytes"},
    ),
    Part(
        model.Dispatchers,
        "dispatchers.",
        "dispatchers.",
        {"count": "dispatchers", "generate": _NS, "skip": _NS, "dispatch": _NS, "complete": _NS}
        | {"records": "tasks"},
    ),
    Part(model.HostLink, "host.", "host.", {"latency": _NS, "rate": "bytes / ns", "generate": _NS}),
    Part(
        model.InstructionCost,
        _COST,
        'costs["ROW"].',
        dict.fromkeys(("start", "repeat", "row", "block", "block_of_4", "right"), _CYCLES)
        | {"wide": "the same keys, and `columns`", "transposed": "the same keys"},
    ),
)
DEFAULTS: Mapping[str, object] = {
    "about": "the name",
    "groups": {},
    "costs": "a2a3_fit",
    "sources": {},
    "unknown": (),
    "cores.NAME.memories": {},
}
"""What a file may leave out, although Python code states it."""


@record
class Row:
    """A key of a file.

    Attributes:
        key: with its table.
        name: the same in Python.
        unit: its unit or type.
        default: what holds without it; `NEEDED` if it cannot be left out.
        about: what it says.
    """

    key: str
    name: str
    unit: str
    default: object
    about: str


def rows() -> list[Row]:
    """Return every key of a file that describes a device, from the fields of the model."""
    return [row for part in PARTS for row in _rows_of(part)]


def _rows_of(part: Part) -> list[Row]:
    texts = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(str(inspect.getdoc(part.cls)))}
    found = []
    for field in part.cls.__annotations__:
        if field not in part.apart:
            key = part.key + part.keys.get(field, field)
            default = DEFAULTS.get(key, getattr(part.cls, field, NEEDED))
            found.append(Row(key, part.name + field, part.units[field], default, texts[field].rstrip(".")))
    return found


def keys_table() -> str:
    """Return the table of keys."""
    lines = ["| key | in Python | unit | default | meaning |", "|---|---|---|---:|---|"]
    lines += [
        f"| `{r.key}` | `{r.name}` | {r.unit} | {_shown(r.default)} | {_about(r.about)} |" for r in rows()
    ]
    return "\n".join(lines) + "\n"


def _about(text: str) -> str:
    return text[0].lower() + text[1:]


def _shown(default: object) -> str:
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, float) and math.isinf(default):
        return "unlimited"
    return f"{default:g}" if isinstance(default, float) else str(default)


def simulation_page() -> str:
    """Return the page with its table up to date."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + keys_table() + END + rest.partition(END)[2]
