"""The C++ of each row of the instruction table.

Functions named here are those of include/pto/wsp/tile/. Values are vectors: `F` for floats of every width,
`L` for i64, `U` for u32, `I` for the other integers and for masks.
"""

from __future__ import annotations

from pto_wsp.isa.meaning import (
    ELEMENT_OUTSIDE,
    OTHER_COUNT,
    OUTSIDE,
    PART_OF_GROUP,
    PART_OUTSIDE,
    UNSORTED,
)
from pto_wsp.support.record import record
from pto_wsp.targets.c_style.spelling import INTEGERS
from pto_wsp.types.dtype import DType


@record
class Vector:
    """An elementwise row: an expression over operand vectors `{0}`, `{1}`, ...

    `keeps` are the kinds of element types whose values it does not leave, so that a result needs no rounding
    to the tile's type: letters of `DType.kind`.
    """

    text: str
    keeps: str = ""


@record
class Fold:
    """A reduction: a function of two vectors, and its identity for floats and for integers.

    `partials` results are kept per column, row i going to number i mod `partials`: the error of a sum of n
    terms then stays within its bound.
    """

    function: str
    float_identity: str
    int_identity: str  # with `{low}` and `{high}` for the limits of its type
    partials: int = 1


@record
class Whole:
    """A row that works on whole tiles; the emitter has a method of this name."""

    method: str


@record
class CallTemplate:
    """A row that is a function of whole tiles: the destination, the operands, then `arguments`, attributes.

    `failure` says what is wrong where the function returns false; empty where it returns nothing.
    `needs_spare` asks for memory of one row of the destination, passed last. `is_in_place` allows the
    destination to be an operand. Scalar operands come last, as vectors.
    """

    function: str
    arguments: tuple[str, ...] = ()
    failure: str = ""
    needs_spare: bool = False
    is_in_place: bool = False


@record
class Unsupported:
    """A row that this target refuses, and why."""

    reason: str


Template = Vector | Fold | Whole | CallTemplate | Unsupported

_INFINITY = "__builtin_inff()"

ALL = "fiub"

_UNARY_MATH = ("rsqrt", "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "silu", "gelu")
_ARITHMETIC = ("add", "sub", "mul", "div", "rem", "shl", "shr")
_CHOICES = ("max", "min", "bitwise_and", "bitwise_or", "bitwise_xor")

TEMPLATES: dict[str, Template] = {
    "load": Whole("load"),
    "store": Whole("store"),
    "gather": Whole("load"),
    "scatter": Whole("store"),
    "matmul": Whole("matmul"),
    "matmul_acc": Whole("matmul"),
    "matmul_bias": Whole("matmul"),
    "matmul_quantised": Whole("matmul_quantised"),
    "transpose": Whole("transpose"),
    **{name + suffix: Vector(f"{name}({{0}}, {{1}})") for name in _ARITHMETIC for suffix in ("", "s")},
    **{name + suffix: Vector(f"{name}({{0}}, {{1}})", ALL) for name in _CHOICES for suffix in ("", "s")},
    **dict.fromkeys(("prelu", "lrelu"), Vector("prelu({0}, {1})")),
    "addc": Vector("add(add({0}, {1}), {2})"),
    "subc": Vector("add(sub({0}, {1}), {2})"),
    "addsc": Vector("add(add({0}, {2}), {1})"),
    "subsc": Vector("add(sub({0}, {2}), {1})"),
    "mov": Vector("{0}", ALL),
    "relu": Vector("relu({0})", ALL),
    **{name: Vector(f"{name}({{0}})", "fb") for name in ("abs", "neg", "bitwise_not")},
    **{name: Vector(f"{name}({{0}})") for name in ("recip", "sqrt", *_UNARY_MATH)},
    **{
        expand + name: Vector(f"{name}({{0}}, {{1}})", ALL if name in _CHOICES else "")
        for expand in ("rowexpand", "colexpand")
        for name in ("add", "sub", "mul", "div", "max", "min")
    },
    "rowexpand": Vector("{0}", ALL),
    "colexpand": Vector("{0}", ALL),
    "iota": Vector("iota({0}, j)"),
    "reshape": CallTemplate("reshape", failure=OTHER_COUNT),
    "quantise": CallTemplate("quantise", failure=PART_OF_GROUP),
    "extract": CallTemplate("extract", arguments=("row", "col"), failure=PART_OUTSIDE),
    "insert": CallTemplate("insert", arguments=("row", "col"), failure=PART_OUTSIDE),
    "setval": CallTemplate("setval", arguments=("row", "col"), failure=ELEMENT_OUTSIDE, is_in_place=True),
    "sort32": CallTemplate("sort32"),
    "sort": CallTemplate("sort", needs_spare=True),
    "mrgsort": CallTemplate("mrgsort", arguments=("run",), failure=UNSORTED, needs_spare=True),
    "merge": CallTemplate("merge", failure=UNSORTED),
    "take": CallTemplate("take", failure=OUTSIDE),
    "put": CallTemplate("put", failure=OUTSIDE),
    **{
        name: CallTemplate(name)
        for name in ("extract_topk_values", "extract_topk_indices", "rowargmax", "rowargmin")
    },
    "expands": Vector("{0}", ALL),
    "cmp": Vector("{mode}({0}, {1})", ALL),
    "cmps": Vector("{mode}({0}, {1})", ALL),
    "sel": Vector("select({0}, {1}, {2})", ALL),
    "sels": Vector("select({0}, {1}, {2})", ALL),
    "cvt": Vector("convert<{to}, {source}, Round::{rmode}>({0})", "iub"),
    **{
        prefix + name: fold
        for prefix in ("row", "col")
        for name, fold in {
            "sum": Fold("add", "0.0f", "0", partials=4),
            "max": Fold("max", "-" + _INFINITY, "{low}"),
            "min": Fold("min", _INFINITY, "{high}"),
        }.items()
    },
}

NARROW = (
    frozenset(
        name + suffix
        for name in ("add", "sub", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor")
        for suffix in ("", "s")
    )
    | {"addc", "subc", "addsc", "subsc", "mov", "relu", "abs", "neg", "bitwise_not", "expands"}
    | {
        expand + name
        for expand in ("rowexpand", "colexpand")
        for name in ("", "add", "sub", "mul", "max", "min")
    }
)
"""Rows that need no lanes wider than their elements: include/pto/wsp/tile/narrow.hpp."""

NARROW_TYPES = ("i8", "u8", "i16", "u16")

HEADERS: dict[str, str] = {
    **dict.fromkeys(_UNARY_MATH, "math"),
    **dict.fromkeys(("matmul", "matmul_acc", "matmul_bias"), "matmul"),
    **dict.fromkeys(("matmul_quantised", "quantise"), "quantised"),
    "cvt": "convert",
    **{name: "fold" for name, template in TEMPLATES.items() if isinstance(template, Fold)},
    **{
        name: "sort"
        for name, template in TEMPLATES.items()
        if isinstance(template, CallTemplate)
        and name not in ("reshape", "extract", "insert", "setval", "quantise")
    },
}
"""Headers of include/pto/wsp/tile/ that rows need in addition to move.hpp and scalar.hpp."""

STORAGE: dict[str, str] = {
    "f32": "float",
    "f16": "F16",
    "bf16": "Bf16",
    **{t: INTEGERS[t] for t in ("i8", "i16", "i32", "i64", "u8", "u16", "u32")},
    "b1": "Bool",
}
"""C++ type of an element in memory; tiles of other types are refused."""


def vector_type(dtype: DType) -> str:
    """Return the C++ type of the vectors that elements are computed in."""
    return "F" if dtype.is_float else {"i64": "L", "u32": "U"}.get(dtype.name, "I")


def lane_type(dtype: DType) -> str:
    """Return the C++ type of one lane of such a vector."""
    return {"F": "float", "L": "int64_t", "U": "uint32_t", "I": "int32_t"}[vector_type(dtype)]


ROUNDING: dict[str, str] = {
    "f16": "round_f16({0})",
    "bf16": "round_bf16({0})",
    **{t: f"wrapped<{INTEGERS[t]}>({{0}})" for t in ("i8", "i16", "u8", "u16")},
}
"""How a result is brought to the values of its type where it is kept in a wider vector."""
