"""Functions of Python that a kernel calls: their statements are read in place, with names of their own."""

from __future__ import annotations

import ast
from inspect import signature
from types import FunctionType

from pto_wsp.errors import FrontendError
from pto_wsp.lang.kernel.builder import Builder
from pto_wsp.lang.kernel.early_exit import without_leaving
from pto_wsp.lang.kernel.statements import StatementReader
from pto_wsp.lang.kernel.values import Constant, Value
from pto_wsp.lang.source import FunctionSource, read_function


class BodyReader(StatementReader):
    """Reads the statements of a kernel, or of a function that it calls.

    Args:
        callers: the functions that led here, outermost first: the kernel, and what it calls.
    """

    def __init__(
        self,
        source: FunctionSource,
        builder: Builder,
        env: dict[str, Value],
        callers: tuple[object, ...] = (),
    ) -> None:
        super().__init__(source, builder, env)
        self.callers = (*callers, source.function)
        self.reader.inline = self.inline

    def inline(self, function: FunctionType, node: ast.Call) -> Value | None:
        """Return what a call stands for; None for a function whose source nobody can read.

        Arguments are values: what the function assigns changes nothing for its caller. Its last statement may
        return something, no other.

        Raises:
            FrontendError: arguments that do not fit, a function that calls itself, or whatever its body does
                wrong, with a note on the call.
        """
        source = read_function(function, None)
        if source.node is None or source.node.decorator_list:
            return None
        if function in self.callers:
            self.reader.refuse(node, f"`{function.__name__}`, which calls itself,", "write a loop")
        self.builder.inlined.append(source)
        source = without_leaving(source)
        assert source.node is not None
        inner = BodyReader(source, self.builder, {}, self.callers)
        for name, value in self._arguments(source, node).items():
            inner.bind(name, value, self.reader.at(node))
        try:
            return inner.result(source.node.body)
        except FrontendError as error:
            error.notes += ((f"`{function.__name__}` is called here", self.reader.at(node)),)
            raise

    def _arguments(self, source: FunctionSource, node: ast.Call) -> dict[str, Value]:
        """Return what every parameter stands for."""
        defaults = source.parameters("function")
        given = [self.reader.read(arg) for arg in node.args]
        named = {str(keyword.arg): self.reader.read(keyword.value) for keyword in node.keywords}
        try:
            bound = signature(source.function).bind(*given, **named).arguments
        except TypeError as error:
            self.reader.refuse(node, f"`{ast.unparse(node)}`", "", str(error))
        return {name: bound.get(name, Constant(default)) for name, default in defaults.items()}

    def result(self, body: list[ast.stmt]) -> Value:
        """Read the statements of a function; return what its last one returns."""
        *before, last = body
        if not isinstance(last, ast.Return):
            self.statements(body)
            return Constant(None)
        self.statements(before)
        return Constant(None) if last.value is None else self.reader.read(last.value)

    def _advice(self, node: ast.stmt) -> str:
        is_called = len(self.callers) > 1
        return (
            "choose with a conditional expression, or assign, and return at the end"
            if is_called and isinstance(node, ast.Return)
            else super()._advice(node)
        )
