"""Modules as Python: calls of the function builder that make them again.

A function is written as calls of the builder where these make exactly that function, which is tried; other
functions, those with what only our own form has, as nodes of the IR. Names appear in quotes only.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.module import PTOModule
from pto_wsp.errors import PtoError
from pto_wsp.ir import core, scalar
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module, called_functions
from pto_wsp.support.record import replace
from pto_wsp.text.recipes import Call, Function, NoRecipe, recipe
from pto_wsp.types import tile
from pto_wsp.types.dtype import DType

DEEPEST = 20
"""Levels of nodes inside each other that are written as one expression."""

_HEAD = '''\
"""A module, made from its text."""

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
{imports}
module = PTOModule({name})
'''
_IMPORTS = """\
from pto_wsp.ir import core, kernel, scalar, workload
from pto_wsp.support.record import replace
from pto_wsp.text import parse
from pto_wsp.types import dtype, tile
"""
_MODULES = {
    core.__name__: "core",
    k.__name__: "kernel",
    w.__name__: "workload",
    scalar.__name__: "scalar",
    tile.__name__: "tile",
}


def to_python(module: Module) -> str:
    """Return a program that makes a verified module again: as `module.ir`, or `ir` with what that lacks.

    Nothing of the module is run. References of kernels in C++ are not part of text.
    """
    writer = _Writer()
    functions = {f.name: f for f in (*module.kernels, *module.workloads)}
    for function in _callees_first(functions):
        writer.function(function, functions)
    writer.end(module, functions)
    imports = _IMPORTS if writer.has_nodes else ""
    return _HEAD.format(name=repr(module.name), imports=imports) + "\n".join(writer.lines) + "\n"


def _callees_first(functions: Mapping[str, Function]) -> list[Function]:
    """Return functions so that each follows those that it calls, otherwise in their order."""
    found: dict[str, Function] = {}
    pending = [*functions.values()][::-1]
    while pending:
        function = pending[-1]
        missing = [functions[name] for name in sorted(called_functions(function)) if name not in found]
        if missing:
            pending += missing
        else:
            found.setdefault(function.name, function)
            pending.pop()
    return [*found.values()]


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.has_nodes = False
        self.parts = 0
        self.order: list[str] = []

    def function(self, function: Function, functions: Mapping[str, Function]) -> None:
        self.order.append(function.name)
        calls = _built(function, functions)
        self.lines.append("")
        if calls is None:
            self.has_nodes = True
            self.lines.append(f"module.add_function({self.node(function)})")
            return
        self.lines.append(f"function = PTOFunctionBuilder({function.name!r}, module)")
        self.lines += [f"function.{_call_text(call)}" for call in calls]
        self.lines.append("function.build()")

    def end(self, module: Module, functions: Mapping[str, Function]) -> None:
        """Write what a module of the builder lacks: order, entry and schedule."""
        changes: list[str] = []
        for field, listed in (("kernels", module.kernels), ("workloads", module.workloads)):
            names = [function.name for function in listed]
            if names != [name for name in self.order if name in names]:
                changes.append(f"{field}=tuple(map(module.get_function, {names!r}))")
        self.lines.append("")
        if module.entry:
            self.lines.append(f"module.set_entry({module.entry!r})")
        elif functions:
            changes.append("entry=''")
        if module.schedule.directives:
            text = str(Module("", schedule=module.schedule))
            changes.append(f"schedule=parse({text!r}).schedule")
        self.has_nodes |= bool(changes)
        made = f"replace(module.ir, {', '.join(changes)})" if changes else "module.ir"
        self.lines += [f"ir = {made}", "", 'if __name__ == "__main__":', '    print(ir, end="")']

    # --- nodes ---

    def node(self, value: object) -> str:
        """Return a node as an expression; deep parts of it get lines before it."""
        return self._node(value)[0]

    def _node(self, value: object) -> tuple[str, int]:
        """Return the text of a node and how deep it is."""
        if isinstance(value, tuple):
            parts = [self._node(item) for item in value]
            text = ", ".join(part for part, _ in parts)
            return self._named(f"({text},)" if parts else "()", parts)
        if isinstance(value, DType):
            return f"dtype.{value.name}", 0
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})", 0
        home = _MODULES.get(type(value).__module__)
        if home is None:
            return repr(value), 0
        fields, parts = [], []
        for name in _fields(value):
            part = self._node(getattr(value, name))
            parts.append(part)
            fields.append(f"{name}={part[0]}")
        return self._named(f"{home}.{type(value).__name__}({', '.join(fields)})", parts)

    def _named(self, text: str, parts: list[tuple[str, int]]) -> tuple[str, int]:
        depth = 1 + max((depth for _, depth in parts), default=0)
        if depth < DEEPEST:
            return text, depth
        self.parts += 1
        self.lines.append(f"part_{self.parts} = {text}")
        return f"part_{self.parts}", 0


def _fields(value: object) -> list[str]:
    """Return the fields of a record that are not what it has by default."""
    cls = type(value)
    left_out = ("loc", *getattr(cls, "apart", ()))
    names = [name for name in cls.__match_args__ if name not in left_out]  # pyright: ignore
    return [name for name in names if name not in vars(cls) or getattr(value, name) != vars(cls)[name]]


def _built(function: Function, functions: Mapping[str, Function]) -> list[Call] | None:
    """Return calls of the builder that make exactly this function, or None."""
    for has_shapes in (False, True):
        try:
            calls = recipe(function, functions, has_shapes)
            module = PTOModule()
            for other in functions.values():
                if other is not function:
                    module.import_function(other)
            builder = PTOFunctionBuilder(function.name, module)
            for call in calls:
                getattr(builder, call.method)(*call.args, **dict(call.options))
            if builder.build() == replace(function):
                return calls
        except (NoRecipe, PtoError):
            continue
    return None


def _call_text(call: Call) -> str:
    args = [_value(arg) for arg in call.args]
    args += [f"{name}={_value(value)}" for name, value in call.options]
    return f"{call.method}({', '.join(args)})"


def _value(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)
