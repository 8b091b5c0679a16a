"""A `match` names every kind that it ignores, so that a new kind of node cannot be ignored silently."""

from __future__ import annotations

import ast

import pytest

from tests.sources import PACKAGE, tree

ALLOWED: dict[tuple[str, str], str] = {}
"""Matches that may ignore the rest, as (file, subject), with the reason."""


def ignored(source: ast.AST) -> list[str]:
    """Return the subjects of matches whose last case is `case _` without any effect."""
    found: list[str] = []
    for node in ast.walk(source):
        if isinstance(node, ast.Match):
            last = node.cases[-1]
            is_wildcard = isinstance(last.pattern, ast.MatchAs) and last.pattern.name is None
            if is_wildcard and last.guard is None and not any(map(_does_something, last.body)):
                found.append(ast.unparse(node.subject))
    return found


def _does_something(stmt: ast.stmt) -> bool:
    is_bare_return = isinstance(stmt, ast.Return) and stmt.value is None
    return not (is_bare_return or isinstance(stmt, (ast.Pass, ast.Continue)))


@pytest.mark.parametrize("body", ["pass", "return", "continue"])
def test_a_silent_default_is_found(body: str) -> None:
    source = "def f(nodes):\n for n in nodes:\n  match n:\n   case _:\n    {}\n"
    assert ignored(ast.parse(source.format(body))) == ["n"]
    assert ignored(ast.parse(source.format("assert_never(n)"))) == []


def test_no_match_of_the_package_ignores_the_rest_silently() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {(name, subject) for name, path in files.items() for subject in ignored(tree(path))}
    assert found == set(ALLOWED)
