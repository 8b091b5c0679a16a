"""Python variables that a body would have to change at run time.

The body of a loop over `P`, or of `P.when`, runs once while the workload is built. A variable that it assigns
has one value from then on, whatever the run does: Python's meaning is lost where the next iteration reads
that variable, or where what follows could have read another value. Such a variable is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from pto_wsp.errors import CarriedValue
from pto_wsp.lang.source import enclosing_function, node_location

Described = ast.For | ast.With
"""A statement whose body is described once."""


def require_one_value(file: str, statement: Described) -> None:
    """Refuse variables that Python would change in the body of `statement`.

    Raises:
        CarriedValue: the next iteration would read what the body assigns, or what follows reads one of
            several values.
    """
    assigned = [*_assigned(statement.body)]
    function = enclosing_function(file, statement) if assigned else None
    if function is None:
        return
    for target in assigned:
        flow = _Flow(target.id)
        read = flow.block(statement.body) if isinstance(statement, ast.For) else None
        if not isinstance(read, ast.AST):
            read = flow.behind(function, statement)
            if not _is_bound_elsewhere(function, statement, target.id):
                continue
        if isinstance(read, ast.AST):
            raise _carried(file, statement, target, read)


def _carried(file: str, statement: Described, target: ast.Name, read: ast.AST) -> CarriedValue:
    what = "a loop over `P`" if isinstance(statement, ast.For) else "`P.when`"
    return CarriedValue(
        name=target.id,
        problem=f"is a Python variable, and the body of {what} runs once, while the workload is built",
        expected="a variable with one value for all that happens",
        found="an assignment that the run may make several times or never",
        loc=node_location(file, target),
        notes=[("another value would be read here", node_location(file, read))],
        hint="keep a number in a slot (`slot_set_i64`), choose one with `condition.where(a, b)`, or use "
        "another name in the body",
    )


def _assigned(body: Sequence[ast.stmt]) -> Iterator[ast.Name]:
    """Yield the variables that assignments in a body name, without those of functions inside it."""
    pending: list[ast.AST] = [*reversed(body)]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            yield from _stored(node)
        pending += reversed([*ast.iter_child_nodes(node)])


def _stored(node: ast.AST) -> Iterator[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    for target in targets:
        yield from (n for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _is_bound_elsewhere(function: ast.FunctionDef, statement: Described, name: str) -> bool:
    """Whether something outside of the body gives the variable a value too."""
    inside = {id(node) for child in statement.body for node in ast.walk(child)}
    arguments = function.args
    if any(arg.arg == name for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)):
        return True
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Store)
        and id(node) not in inside
        for node in ast.walk(function)
    )


class _Flow:
    """What first happens to a variable: the node that reads it, this object where it is assigned, or None."""

    def __init__(self, name: str) -> None:
        self.name = name

    def block(self, statements: Iterable[ast.stmt]) -> ast.AST | _Flow | None:
        """Return the first use or assignment in a sequence of statements."""
        for statement in statements:
            found = self.statement(statement)
            if found is not None:
                return found
        return None

    def behind(self, function: ast.FunctionDef, statement: ast.stmt) -> ast.AST | _Flow | None:
        """Return what first happens after a statement of a function, in the next iterations around it too."""
        for parent, rest in reversed(_path(function, statement)):
            found = self.block(rest)
            if found is not None:
                return found
            if isinstance(parent, (ast.For, ast.While)):
                found = self.statement(parent)
                if isinstance(found, ast.AST):
                    return found
        return None

    def statement(self, node: ast.stmt) -> ast.AST | _Flow | None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self.read(test) or self.either(self.block(body), self.block(orelse))
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                inside = self if self.stores(target) else self.block(body)
                return self.read(iterable) or self.either(inside, None) or self.block(orelse)
            case ast.While(test=test, body=body, orelse=orelse):
                return self.read(test) or self.either(self.block(body), None) or self.block(orelse)
            case ast.With(items=items, body=body):
                inside = self.block(body)
                found = self.read(*(item.context_expr for item in items))
                return found or (self.either(inside, None) if _is_conditional(node) else inside)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                inside = self.block([*body, *orelse])
                for handler in handlers:
                    inside = self.either(inside, self.block(handler.body))
                return inside or self.block(final)
            case _:
                return self.simple(node)

    def simple(self, node: ast.stmt) -> ast.AST | _Flow | None:
        if isinstance(node, ast.AugAssign) and self.stores(node.target):
            return node.target
        found = self.read(node)
        ends = isinstance(node, (ast.Return, ast.Raise))
        return found or (self if ends or self.stores(node) else None)

    def either(self, one: ast.AST | _Flow | None, two: ast.AST | _Flow | None) -> ast.AST | _Flow | None:
        """Return what first happens if one of two things does."""
        if isinstance(one, ast.AST) or isinstance(two, ast.AST):
            return one if isinstance(one, ast.AST) else two
        return one if one is two else None

    def read(self, *nodes: ast.AST) -> ast.AST | None:
        """Return what reads the variable in expressions, functions inside them included."""
        pending = [*reversed(nodes)]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name) and node.id == self.name and isinstance(node.ctx, ast.Load):
                return node
            if isinstance(node, ast.comprehension) and self.stores(node.target):
                pending.append(node.iter)
            elif not self.is_own(node):
                pending += reversed([*ast.iter_child_nodes(node)])
        return None

    def is_own(self, node: ast.AST) -> bool:
        """Whether a comprehension or function has a variable of this name for itself."""
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return any(self.stores(generator.target) for generator in node.generators)
        if isinstance(node, (ast.Lambda, ast.FunctionDef)):
            return any(isinstance(n, ast.arg) and n.arg == self.name for n in ast.walk(node.args))
        return False

    def stores(self, node: ast.AST) -> bool:
        return any(
            isinstance(n, ast.Name) and n.id == self.name and isinstance(n.ctx, ast.Store)
            for n in ast.walk(node)
        )


def _is_conditional(node: ast.With) -> bool:
    """Whether a body belongs to `P.when` or `P.otherwise`, as far as its text tells."""
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any(isinstance(c.func, ast.Attribute) and c.func.attr in ("when", "otherwise") for c in calls)


def _path(root: ast.AST, wanted: ast.stmt) -> list[tuple[ast.AST, list[ast.stmt]]]:
    """Return the statements around `wanted`, outermost first, each with those that follow inside it."""
    for field in ("body", "handlers", "orelse", "finalbody"):
        statements: list[ast.stmt] = getattr(root, field, None) or []
        last = root.finalbody if isinstance(root, ast.Try) and field != "finalbody" else []
        for number, statement in enumerate(statements):
            rest = [(root, [*statements[number + 1 :], *last])]
            if statement is wanted:
                return rest
            inner = _path(statement, wanted)
            if inner:
                return rest + inner
    return []
