"""The C++ of each row of the instruction table.

Functions named here are those of include/pto/wsp/tile/. Values are vectors: `F` for floats of every width,
`I` for i32 and for masks.
"""

from __future__ import annotations

from pto_wsp.support.record import record


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
    int_identity: str
    partials: int = 1


@record
class Whole:
    """A row that works on whole tiles; the emitter has a method of this name."""

    method: str


@record
class Unsupported:
    """A row that this target refuses, and why."""

    reason: str


Template = Vector | Fold | Whole | Unsupported

_INFINITY, _LOWEST, _HIGHEST = "__builtin_inff()", "INT32_MIN", "INT32_MAX"

TEMPLATES: dict[str, Template] = {
    "load": Whole("load"),
    "store": Whole("store"),
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
    "expands": Vector("{0}", selects=True),
    "cmp": Vector("{mode}({0}, {1})", selects=True),
    "cmps": Vector("{mode}({0}, {1})", selects=True),
    "sel": Vector("select({0}, {1}, {2})", selects=True),
    "sels": Vector("select({0}, {1}, {2})", selects=True),
    "cvt": Vector("{convert}"),
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

MATH = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "rsqrt"})
"""Rows whose functions are in tile/math.hpp."""

CONVERSIONS: dict[tuple[str, str], str] = {
    ("f", "f"): "{0}",
    ("f", "i"): "to_int({0})",
    ("f", "b"): "to_mask({0})",
    ("i", "i"): "{0}",
    ("i", "f"): "to_float({0})",
    ("i", "b"): "to_mask({0})",
    ("b", "b"): "{0}",
    ("b", "i"): "mask_to_int({0})",
    ("b", "f"): "mask_to_float({0})",
}
"""How a vector is converted, by the kinds of the types it comes from and goes to."""

STORAGE: dict[str, str] = {"f32": "float", "f16": "F16", "bf16": "Bf16", "i32": "int32_t", "b1": "Bool"}
"""C++ type of an element in memory; tiles of other types are refused."""

ROUNDING: dict[str, str] = {"f16": "round_f16({0})", "bf16": "round_bf16({0})"}
"""How a float result is rounded to its type where it is kept in a vector."""
