"""Attributes of instructions, by form: constants, valid extents of what they make, and places of parts."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.isa.forms import Form
from pto_wsp.isa.meaning import COMPARE_MODES, ROUND_MODES
from pto_wsp.types.quantised import FORMATS

MODES: dict[str, tuple[str, ...]] = {
    "mode": COMPARE_MODES,
    "rmode": ROUND_MODES,
    "format": tuple(FORMATS),
}
"""Constants that are one of several words."""

EXTENTS: dict[Form, tuple[str, ...]] = {
    Form.FILL: ("rows", "cols"),
    Form.IOTA: ("rows", "cols"),
    Form.RESHAPE: ("rows", "cols"),
    Form.EXTRACT: ("rows", "cols"),
    Form.ROW_EXPAND: ("cols",),
    Form.COL_EXPAND: ("rows",),
    Form.MERGE: ("cols",),
    Form.TOPK_VALUES: ("cols",),
    Form.TOPK_INDICES: ("cols",),
    Form.QUANTISE: ("cols",),
}
"""Valid extents that instructions of a form make: optional arguments; the destination's own by default."""

CONSTANTS: dict[Form, dict[str, tuple[type, object]]] = {
    Form.MATMUL: {"trans_a": (bool, False), "trans_b": (bool, False)},
    Form.MATMUL_ACC: {"trans_a": (bool, False), "trans_b": (bool, False)},
    Form.MATMUL_BIAS: {"trans_a": (bool, False), "trans_b": (bool, False)},
    Form.COMPARE: {"mode": (str, None)},
    Form.COMPARE_SCALAR: {"mode": (str, None)},
    Form.MERGE_RUNS: {"run": (int, None)},
    Form.CONVERT: {"rmode": (str, "")},
    Form.MATMUL_QUANTISED: {"format": (str, None)},
}
"""Constants that instructions of a form take by name: their type and default; None where there is none."""

PLACES: dict[Form, tuple[str, ...]] = dict.fromkeys((Form.EXTRACT, Form.INSERT, Form.SET), ("row", "col"))
"""Integers that instructions of a form take by name: optional, 0 by default."""


ATTRIBUTES: dict[str, type | None] = {
    **{name: kind for constants in CONSTANTS.values() for name, (kind, _) in constants.items()},
    **{name: None for amounts in (*EXTENTS.values(), *PLACES.values()) for name in amounts},
}
"""Every attribute by its name: the type of a constant, or None for an integer expression.

`mode` is that of a comparison, `rmode` how a conversion rounds, `format` that of a quantised matrix.
`trans_a` and `trans_b` transpose operands of a product, `run` is a length of sorted runs; `rows` and `cols`
are valid extents of what is made; `row` and `col` are where a part begins.
"""


def unknown_attribute(form: Form, attrs: Mapping[str, object]) -> str:
    """Return what is wrong with the attributes of an instruction, or nothing."""
    constants, amounts = CONSTANTS.get(form, {}), (*EXTENTS.get(form, ()), *PLACES.get(form, ()))
    for name, value in attrs.items():
        is_plain = isinstance(value, (str, int))
        if name in amounts and not is_plain:
            continue
        if name not in constants or type(value) is not constants[name][0]:
            return f"`{name} = {value}`"
        if name in MODES and value not in MODES[name]:
            return f"`{name} = {value}`, which is none of {', '.join(MODES[name])}"
        if name == "run" and isinstance(value, int) and value < 1:
            return f"`run = {value}`"
    for name, (_, default) in constants.items():
        if default is None and name not in attrs:
            return f"no `{name}`"
    return ""
