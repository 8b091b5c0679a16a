"""The C++ of each row of the instruction table.

Functions named here are those of include/pto/wsp/tile/. Values are vectors: `F` for floats of every width,
`L` for i64, `I` for the other integers and for masks.
"""

from __future__ import annotations

from pto_wsp.isa.meaning import OUTSIDE, UNSORTED
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.expressions import INTEGERS
from pto_wsp.types.dtype import DType, i64


@record
class Vector:
    """An elementwise row: an expression over operand vectors `{0}`, `{1}`, ...

    `selects` says that a result is always one of the operands' values (or its negation), so that it needs no
    rounding to the tile's type.
    """

    text: str
    selects: bool = False


@record
class Fold:
    """A reduction: a function of two vectors, and its identity for floats and for integers.

    `partials` results are kept per column, row i going to number i mod `partials`: the error of a sum of n
    terms then stays within its bound.
    """

    function: str
    float_identity: str
    int_identity: str  # with `{bits}` for the bits of its type
    partials: int = 1


@record
class Whole:
    """A row that works on whole tiles; the emitter has a method of this name."""

    method: str


@record
class Call:
    """A row that is a function of whole tiles: the destination, the operands, then `arguments`.

    `failure` says what is wrong where the function returns false; empty where it returns nothing.
    `needs_spare` asks for memory of one row of the destination, passed last.
    """

    function: str
    arguments: tuple[str, ...] = ()
    failure: str = ""
    needs_spare: bool = False


@record
class Unsupported:
    """A row that this target refuses, and why."""

    reason: str


Template = Vector | Fold | Whole | Call | Unsupported

_INFINITY, _LOWEST, _HIGHEST = "__builtin_inff()", "INT{bits}_MIN", "INT{bits}_MAX"

SORT_ROWS = (
    "sort32",
    "sort",
    "mrgsort",
    "merge",
    "extract_topk_values",
    "extract_topk_indices",
    "rowargmax",
    "rowargmin",
    "take",
)

TEMPLATES: dict[str, Template] = {
    "load": Whole("load"),
    "store": Whole("store"),
    "gather": Whole("load"),
    "scatter": Whole("store"),
    "matmul": Whole("matmul"),
    "matmul_acc": Whole("matmul"),
    "transpose": Whole("transpose"),
    **{name: Vector(f"{name}({{0}}, {{1}})") for name in ("add", "sub", "mul", "div", "rem")},
    **{name: Vector(f"{name}({{0}}, {{1}})", selects=True) for name in ("max", "min")},
    **{name + "s": Vector(f"{name}({{0}}, {{1}})") for name in ("add", "sub", "mul", "div", "rem")},
    **{name + "s": Vector(f"{name}({{0}}, {{1}})", selects=True) for name in ("max", "min")},
    "mov": Vector("{0}", selects=True),
    **{name: Vector(f"{name}({{0}})", selects=True) for name in ("abs", "neg", "relu")},
    **{
        name: Vector(f"{name}({{0}})")
        for name in ("recip", "sqrt", "rsqrt", "exp", "log", "tanh", "erf", "sigmoid")
    },
    "rowexpandsub": Vector("sub({0}, {1})"),
    "rowexpandmul": Vector("mul({0}, {1})"),
    "rowexpanddiv": Vector("div({0}, {1})"),
    "rowexpand": Vector("{0}", selects=True),
    "colexpand": Vector("{0}", selects=True),
    "iota": Vector("iota({0}, j)", selects=True),
    "sort32": Call("sort32"),
    "sort": Call("sort", needs_spare=True),
    "mrgsort": Call("mrgsort", arguments=("run",), failure=UNSORTED, needs_spare=True),
    "merge": Call("merge", failure=UNSORTED),
    "take": Call("take", failure=OUTSIDE),
    **{
        name: Call(name) for name in ("extract_topk_values", "extract_topk_indices", "rowargmax", "rowargmin")
    },
    "expands": Vector("{0}", selects=True),
    "cmp": Vector("{mode}({0}, {1})", selects=True),
    "cmps": Vector("{mode}({0}, {1})", selects=True),
    "sel": Vector("select({0}, {1}, {2})", selects=True),
    "sels": Vector("select({0}, {1}, {2})", selects=True),
    "cvt": Vector("convert<{to}, {source}>({0})"),
    **{
        prefix + name: fold
        for prefix in ("row", "col")
        for name, fold in {
            "sum": Fold("add", "0.0f", "0", partials=4),
            "max": Fold("max", "-" + _INFINITY, _LOWEST),
            "min": Fold("min", _INFINITY, _HIGHEST),
        }.items()
    },
}

HEADERS: dict[str, str] = {
    **dict.fromkeys(("exp", "log", "tanh", "erf", "sigmoid", "rsqrt"), "math"),
    **dict.fromkeys(("matmul", "matmul_acc"), "matmul"),
    "cvt": "convert",
    **dict.fromkeys(SORT_ROWS, "sort"),
}
"""Headers of include/pto/wsp/tile/ that rows need beside move.hpp and scalar.hpp."""

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
    return "F" if dtype.is_float else "L" if dtype is i64 else "I"


def lane_type(dtype: DType) -> str:
    """Return the C++ type of one lane of such a vector."""
    return {"F": "float", "L": "int64_t", "I": "int32_t"}[vector_type(dtype)]


ROUNDING: dict[str, str] = {"f16": "round_f16({0})", "bf16": "round_bf16({0})"}
"""How a float result is rounded to its type where it is kept in a vector."""
