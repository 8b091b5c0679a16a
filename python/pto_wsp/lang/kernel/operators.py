"""The meaning of Python's operators and functions in a kernel."""

from __future__ import annotations

import ast
import math

import numpy as np

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("add", "+"),
    ast.Sub: ("sub", "-"),
    ast.Mult: ("mul", "*"),
    ast.Div: ("div", "/"),
    ast.FloorDiv: ("floordiv", "//"),
    ast.Mod: ("mod", "%"),
    ast.Pow: ("pow", "**"),
    ast.MatMult: ("matmul", "@"),
    ast.LShift: ("lshift", "<<"),
    ast.RShift: ("rshift", ">>"),
    ast.BitAnd: ("bitand", "&"),
    ast.BitOr: ("bitor", "|"),
    ast.BitXor: ("bitxor", "^"),
    ast.Lt: ("lt", "<"),
    ast.LtE: ("le", "<="),
    ast.Gt: ("gt", ">"),
    ast.GtE: ("ge", ">="),
    ast.Eq: ("eq", "=="),
    ast.NotEq: ("ne", "!="),
    ast.USub: ("neg", "-"),
    ast.UAdd: ("pos", "+"),
    ast.Invert: ("invert", "~"),
    ast.Not: ("not", "not"),
}

TILE_OPERATORS = {
    **{name: name for name in ("add", "sub", "mul", "div")},
    "bitand": "bitwise_and",
    "bitor": "bitwise_or",
    "bitxor": "bitwise_xor",
    "lshift": "shl",
    "rshift": "shr",
}
"""The rows of the operators of tiles."""

TILE_ADVICE = {
    "floordiv": "`pto.div(a, b)` of i32 tiles truncates; `//` would round down",
    "mod": "`pto.rem(a, b)` has the sign of `a`; `%` would have the sign of `b`",
    "pow": "multiply: `x * x`, or use `pto.exp` and `pto.log`",
}

COMPREHENSION = "a comprehension"

REFUSED_EXPRESSIONS: dict[type[ast.AST], str] = {
    ast.ListComp: COMPREHENSION,
    ast.SetComp: COMPREHENSION,
    ast.DictComp: COMPREHENSION,
    ast.GeneratorExp: COMPREHENSION,
    ast.Lambda: "`lambda`",
    ast.JoinedStr: "a formatted string",
    ast.NamedExpr: "`:=`",
    ast.Starred: "`*`",
    ast.Await: "`await`",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Slice: "a slice that indexes nothing",
}
"""What expressions that kernels do not have are called."""

_PURE = frozenset(
    {f for f in vars(math).values() if callable(f)}
    | {abs, bool, divmod, float, int, len, max, min, pow, round, sum}
)


def is_foldable(function: object) -> bool:
    """Return whether a function has no side effects: it is called where its arguments are constants."""
    if isinstance(function, np.ufunc) or (isinstance(function, type) and issubclass(function, np.generic)):
        return True
    try:
        return function in _PURE
    except TypeError:
        return False
