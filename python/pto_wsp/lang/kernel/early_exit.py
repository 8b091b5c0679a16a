"""`break` and `continue` in kernels."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NoReturn, TypeVar

from pto_wsp.errors import UnsupportedSyntax
from pto_wsp.lang.early_exit import EarlyExit
from pto_wsp.lang.source import FunctionSource
from pto_wsp.support.record import replace

N = TypeVar("N", bound=ast.AST)


def without_leaving(source: FunctionSource) -> FunctionSource:
    """Return a kernel's source without `break` and `continue`; its old tree is unchanged.

    Raises:
        UnsupportedSyntax: statements after `break` or `continue` never run.
    """
    node = source.node
    if node is None or not any(isinstance(part, (ast.Break, ast.Continue)) for part in ast.walk(node)):
        return source
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | set(source.args)
    body = _SyntaxExit(source, names | set(source.names)).rewritten(node.body)
    return replace(source, node=_changed(node, body=body))


class _SyntaxExit(EarlyExit[ast.stmt]):
    def __init__(self, source: FunctionSource, taken: set[str]) -> None:
        super().__init__(taken)
        self._source = source

    def leaves(self, node: ast.stmt) -> bool | None:
        return isinstance(node, ast.Break) if isinstance(node, (ast.Break, ast.Continue)) else None

    def branches(self, node: ast.stmt) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]] | None:
        return (node.body, node.orelse) if isinstance(node, ast.If) else None

    def with_branches(self, node: ast.stmt, body: list[ast.stmt], other: list[ast.stmt]) -> ast.stmt:
        return _changed(node, body=body, orelse=other)

    def loop_body(self, node: ast.stmt) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]] | None:
        return (node.body, ()) if isinstance(node, (ast.For, ast.While)) else None

    def with_body(self, node: ast.stmt, body: list[ast.stmt], tests: list[ast.stmt], left: str) -> ast.stmt:
        if not (left and isinstance(node, ast.While)):
            return _changed(node, body=[*body, *tests])
        goes_on = _equals(left, 0, node.test)
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        both = ast.copy_location(ast.BoolOp(ast.And(), [goes_on, node.test]), node.test)
        return _changed(node, test=goes_on if always else both, body=body)

    def counts(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.For)

    def assignment(self, name: str, value: int, at: ast.stmt) -> ast.stmt:
        made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
        return _placed(made, _head(at))

    def conditional(self, name: str, value: int, body: list[ast.stmt], at: ast.stmt) -> ast.stmt:
        head = _head(at)
        return ast.copy_location(ast.If(_equals(name, value, head), body, []), head)

    def refuse(self, node: ast.stmt, expected: str, found: str) -> NoReturn:
        raise UnsupportedSyntax(
            construct=f"`{type(node).__name__.lower()}` before {found}",
            where="kernel",
            detail=f"expected {expected}",
            advice="remove the statements after it",
            loc=self._source.at(node),
        )

    def require_loop(self, leaving: ast.stmt, loop: ast.stmt) -> None:
        pass


def _head(node: ast.stmt) -> ast.AST:
    """Return the part of a statement that gives its place: not the bodies of a loop or conditional."""
    return getattr(node, "test", None) or getattr(node, "iter", None) or node


def _changed(node: N, **fields: object) -> N:
    """Return a node with some fields changed."""
    made = type(node)(**{name: value for name, value in ast.iter_fields(node)} | fields)
    return ast.copy_location(made, node)


def _equals(name: str, value: int, at: ast.AST) -> ast.expr:
    made = ast.Compare(ast.Name(name, ast.Load()), [ast.Eq()], [ast.Constant(value)])
    return _placed(made, at)


def _placed(node: N, at: ast.AST) -> N:
    """Give a new node and its parts the place of another one."""
    for part in ast.walk(node):
        ast.copy_location(part, at)
    return node
