"""The PTO tile calls of each row of the instruction table.

Only calls that every version of the library has are used. In a text, `{d}` is the result, `{0}` and `{1}`
are operands, `{s}` is the scalar, and `{t}` is a temporary tile of the shape of operand 0.
"""

from __future__ import annotations

from pto_wsp.isa.meaning import OTHER_COUNT, OUTSIDE, UNSORTED
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.templates import Unsupported
from pto_wsp.types.dtype import DType, f16, f32, i16, i32


@record
class Calls:
    """A row that is written as calls.

    Attributes:
        lines: the calls, in order.
        dtypes: element types that every generation accepts.
        is_arithmetic: whether a generation with wider arithmetic accepts its types, too.
        is_in_place: whether the result may overwrite an operand while it is computed.
    """

    lines: tuple[str, ...]
    dtypes: frozenset[DType]
    is_arithmetic: bool = False
    is_in_place: bool = True


@record
class Method:
    """A row that a writer has a method for: that of cube cores for `product`, else that of vector cores."""

    name: str


@record
class Rewritten:
    """A row that `rewrite` writes with other rows."""


@record
class ByElement:
    """A row that the scalar unit computes, element by element: a function of `elements.hpp`.

    Attributes:
        function: called with the result, the operands, the attributes `arguments` and the scalar.
        arguments: names of attributes.
        failure: what is wrong where the function returns false; empty if it returns nothing.
    """

    function: str
    arguments: tuple[str, ...] = ()
    failure: str = ""


Template = Calls | Method | Rewritten | ByElement | Unsupported

FLOATS = frozenset({f32, f16})
PLAIN = frozenset({f32, f16, i32, i16})
BITS = frozenset({i16, i32})
_ONLY_F32 = frozenset({f32})

_QUANTISED = Unsupported("cube cores multiply no packed blocks: unpack them in a kernel of another target")
_PRECISE = Unsupported("the vector cores have no such function: write it with exp, log and arithmetic")

TEMPLATES: dict[str, Template] = {
    "load": Method("load"),
    "store": Method("store"),
    "gather": Method("load"),
    "scatter": Method("store"),
    "bitwise_and": Calls(("TAND({d}, {0}, {1})",), BITS),
    "bitwise_or": Calls(("TOR({d}, {0}, {1})",), BITS),
    "bitwise_xor": Rewritten(),
    "bitwise_not": Calls(("TNOT({d}, {0})",), BITS),
    "bitwise_ands": Calls(("TANDS({d}, {0}, {s})",), BITS),
    "bitwise_ors": Calls(("TORS({d}, {0}, {s})",), BITS),
    "bitwise_xors": Unsupported("it needs a temporary tile of a type that is not known: use `and`, `or`"),
    "rem": Calls(("TFMOD({d}, {0}, {1})",), _ONLY_F32),
    "rems": Calls(("TFMODS({d}, {0}, {s})",), _ONLY_F32),
    "prelu": Unsupported("it needs a temporary tile of a type that is not known: use max, min and multiply"),
    "lrelu": Calls(("TLRELU({d}, {0}, {s})",), FLOATS),
    "mov": Calls(("TMOV({d}, {0})",), PLAIN, is_arithmetic=True),
    "abs": Calls(("TABS({d}, {0})",), FLOATS),
    "neg": Calls(("TNEG({d}, {0})",), FLOATS),
    "relu": Calls(("TRELU({d}, {0})",), FLOATS | {i32}),
    "recip": Calls(("TDIVS({d}, 1.0f, {0})",), _ONLY_F32),
    "sqrt": Calls(("TSQRT({d}, {0})",), FLOATS),
    "rsqrt": Calls(("TRSQRT({d}, {0})",), FLOATS),
    "exp": Calls(("TEXP({d}, {0})",), FLOATS),
    "log": Calls(("TLOG({d}, {0})",), FLOATS),
    "sigmoid": Calls(
        ("TMULS({t}, {0}, -1.0f)", "TEXP({t}, {t})", "TADDS({t}, {t}, 1.0f)", "TDIVS({d}, 1.0f, {t})"),
        _ONLY_F32,
    ),
    "silu": Calls(
        (
            "TMULS({t}, {0}, -1.0f)",
            "TEXP({t}, {t})",
            "TADDS({t}, {t}, 1.0f)",
            "TMAXS({d}, {0}, -0x1.fffffep127f)",
            "TDIV({d}, {d}, {t})",
        ),
        _ONLY_F32,
    ),
    **dict.fromkeys(("expm1", "log1p", "tanh", "erf", "gelu"), _PRECISE),
    "rowexpand": Method("expand"),
    "colexpand": Method("expand"),
    "expands": Calls(("TEXPANDS({d}, {s})",), PLAIN, is_arithmetic=True),
    "iota": Method("numbers"),
    **{name: ByElement(name) for name in ("sort32", "sort", "extract_topk_values", "extract_topk_indices")},
    "mrgsort": ByElement("mrgsort", ("run",), UNSORTED),
    "merge": ByElement("merge", failure=UNSORTED),
    **dict.fromkeys(("cmp", "sels", "rowargmax", "rowargmin"), Rewritten()),
    "cmps": Method("compare"),
    "sel": Method("choose"),
    "transpose": Method("transpose"),
    "take": ByElement("take", failure=OUTSIDE),
    "put": ByElement("put", failure=OUTSIDE),
    "reshape": ByElement("reshape", failure=OTHER_COUNT),
    **dict.fromkeys(("extract", "insert", "setval"), Method("part")),
    **dict.fromkeys(("matmul", "matmul_acc", "matmul_bias"), Method("product")),
    **dict.fromkeys(("matmul_quantised", "quantise"), _QUANTISED),
    "cvt": Method("convert"),
}
for _name in ("addc", "subc", "addsc", "subsc"):
    TEMPLATES[_name] = Unsupported("no version of the library has it on hardware: write two operations")
for _name in ("add", "sub", "mul", "div", "max", "min"):
    _types = FLOATS if _name == "div" else PLAIN
    _call = f"T{_name.upper()}"
    TEMPLATES[_name] = Calls((f"{_call}({{d}}, {{0}}, {{1}})",), _types, is_arithmetic=True)
    TEMPLATES[_name + "s"] = Calls((f"{_call}S({{d}}, {{0}}, {{s}})",), _types, is_arithmetic=True)
    for _line in ("row", "col"):
        TEMPLATES[f"{_line}expand{_name}"] = Method("broadcast")
for _name in ("sum", "max", "min"):
    for _line in ("row", "col"):
        TEMPLATES[_line + _name] = Method("reduce")

INTEGERS: dict[str, ByElement] = {
    name + suffix: ByElement(function)
    for name, function in (
        ("div", "divide"),
        ("rem", "take_remainder"),
        ("shl", "shift_left"),
        ("shr", "shift_right"),
    )
    for suffix in ("", "s")
}
"""Rows of integers that no call computes for all operands."""

for _name in ("shl", "shr", "shls", "shrs"):
    TEMPLATES[_name] = INTEGERS[_name]

ROUND_MODES = {
    mode: f"RoundMode::CAST_{mode.upper()}" for mode in ("rint", "round", "floor", "ceil", "trunc")
}
"""Names of the library for the modes of `cast`; `interface.py` says that they are not verified."""
