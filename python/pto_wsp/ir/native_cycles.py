"""The cost that the C++ of a kernel states: `PTO_CYCLES(300 + 20 * x.rows())`.

The expression is both C++ and Python: numbers, `+ - * / %`, `min`, `max`, scalars and constants of the
kernel, and `.rows()`, `.cols()` and `.size(dim)` of its views.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from pto_wsp.errors import BadKernelOption
from pto_wsp.ir.kernel import KernelFunction, Native
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.tile import ScalarType, TileType, ViewType

MACRO = "PTO_CYCLES"

Number = int | float
Shapes = Mapping[str, tuple[int, ...]]

_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_CALL = re.compile(rf"\b{MACRO}\s*\(")


def _quotient(a: Number, b: Number) -> Number:
    """Divide as C++: integers toward zero."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: _quotient,
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {"min": min, "max": max}
_EXTENTS = {"rows": 0, "cols": 1}


@record
class NativeCycles:
    """A cost that C++ states.

    Attributes:
        text: the expression.
        names: scalars of the kernel that it uses.
    """

    text: str
    names: frozenset[str]
    _tree: ast.expr
    _constants: tuple[tuple[str, object], ...]

    def of(self, shapes: Shapes, scalars: Mapping[str, Number]) -> Number:
        """Return the cycles of a call.

        Raises:
            ZeroDivisionError: the expression divides by zero.
        """
        values = {name: value for name, value in self._constants if isinstance(value, (int, float))}
        return _value(self._tree, shapes, values | dict(scalars))


def native_cycles(kernel: KernelFunction) -> NativeCycles | None:
    """Return the cost that the C++ of a kernel states, or None if it has no C++ or states none.

    Raises:
        BadKernelOption: the cost is stated twice, or is not such an expression.
    """
    native = kernel.native
    if native is None:
        return None
    views = {p.name: _rank(p.type) for p in kernel.views}
    scalars = [p.name for p in kernel.scalar_params]
    code = _TOKENS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), native.source)
    found = [call for call in _CALL.finditer(code) if not _line_before(code, call.start()).startswith("#")]
    if not found:
        return None
    loc = _place(native, code, found[-1].end())
    if len(found) > 1:
        raise _bad(kernel.name, "its cost is stated twice", f"one {MACRO}", "another one", loc)
    text = _argument(code, found[0].end())
    try:
        tree = ast.parse(text.replace("std::", "").strip(), mode="eval").body
        _require(tree, views, {*scalars, *(name for name, _ in native.constants)})
    except SyntaxError:
        raise _unreadable(kernel.name, f"`{text}`", loc) from None
    except ValueError as error:
        raise _unreadable(kernel.name, str(error), loc) from None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return NativeCycles(text, frozenset(used & set(scalars)), tree, tuple(native.constants))


def _rank(kind: TileType | ViewType | ScalarType) -> int:
    return len(kind.dims or ()) if isinstance(kind, ViewType) else 2


def _line_before(code: str, position: int) -> str:
    return code[code.rfind("\n", 0, position) + 1 : position].strip()


def _argument(code: str, start: int) -> str:
    """Return the text from `start` to the bracket that closes the call."""
    depth = 1
    for end in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        if depth == 0:
            return code[start:end]
    return code[start:]


def _require(node: ast.expr, views: Mapping[str, int], names: set[str]) -> None:
    """Raise a ValueError for a field that a cost does not have."""
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return
        case ast.Name(id=name) if name in names:
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _require(operand, views, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _require(left, views, names)
            _require(right, views, names)
        case ast.Call(func=ast.Name(id=name), args=[_, _] as args, keywords=[]) if name in _FUNCTIONS:
            for arg in args:
                _require(arg, views, names)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=view), attr=name), keywords=[]) if view in views:
            if not 0 <= _dimension(node, name) < views[view]:
                raise ValueError(f"`{ast.unparse(node)}` of a view with {views[view]} dimensions")
        case _:
            raise ValueError(f"`{ast.unparse(node)}`")


def _dimension(node: ast.Call, name: str) -> int:
    """Return the dimension that a method of a view names, or -1."""
    match node.args:
        case [] if name in _EXTENTS:
            return _EXTENTS[name]
        case [ast.Constant(value=int(dim))] if name == "size":
            return dim
        case _:
            return -1


def _value(node: ast.expr, shapes: Shapes, values: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, shapes, values)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, shapes, values), _value(right, shapes, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, shapes, values) for arg in args))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=view), attr=name)):
            return shapes[view][_dimension(node, name)]
        case _:
            raise AssertionError(ast.dump(node))


def _place(native: Native, code: str, position: int) -> Location | None:
    if native.loc is None:
        return None
    return Location(native.loc.file, native.loc.line + code.count("\n", 0, position), 1)


def _unreadable(kernel: str, found: str, loc: Location | None) -> BadKernelOption:
    expected = "numbers, + - * / %, min, max, scalars, and .rows(), .cols(), .size(n) of views"
    return _bad(kernel, f"the cost in {MACRO} cannot be read", expected, found, loc)


def _bad(kernel: str, problem: str, expected: str, found: str, loc: Location | None) -> BadKernelOption:
    return BadKernelOption(kernel=kernel, problem=problem, expected=expected, found=found, advice="", loc=loc)
