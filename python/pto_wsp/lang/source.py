"""The source of a user's function: its syntax tree with true places, and the values of its names."""

from __future__ import annotations

import ast
import builtins
import linecache
import re
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import takewhile
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Final

from pto_wsp.errors import UnknownName, UnsupportedSyntax, closest, did_you_mean
from pto_wsp.location import Location
from pto_wsp.support.containers import is_plain, plain_copy
from pto_wsp.support.record import record

MISSING: Final = object()
"""The default of a parameter without one."""


@record
class FunctionSource:
    """A function and where it was written.

    Attributes:
        function: the function.
        file: name of its file, notebook cell or doctest, as `linecache` knows it.
        node: its syntax tree with line numbers of the file, or None where there is no source text.
        names: values of the names that it uses from the scopes around it, as they were when it was read.
        contents: copies of those that are small containers of scalars.
        of_module: the names that are variables of its module.
        visible: every name of those scopes.
    """

    function: FunctionType
    file: str
    node: ast.FunctionDef | None
    names: Mapping[str, object]
    contents: Mapping[str, object]
    of_module: frozenset[str]
    visible: frozenset[str]

    def suggestion(self, name: str, local_names: Iterable[str] = ()) -> str:
        """Return a hint for a name that is not defined: the closest one, or else the local ones."""
        local = set(local_names)
        known = local | self.visible
        return did_you_mean(name, known if closest(name, known) else local)

    @property
    def loc(self) -> Location:
        """The place of the function's name."""
        if self.node is None:
            return Location(self.file, self.function.__code__.co_firstlineno)
        start = self.at(self.node)
        col = start.col + len("def ")
        return Location(start.file, start.line, col, col + len(self.node.name))

    def parameters(self, where: str) -> dict[str, object]:
        """Return the default of every parameter, MISSING where there is none.

        Raises:
            UnsupportedSyntax: a parameter that cannot be given by name; `where` says in what.
        """
        code = self.function.__code__
        if code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) or code.co_posonlyargcount:
            raise UnsupportedSyntax(
                construct="a parameter without a name of its own",
                where=where,
                detail="`*`, `**` or `/` among its parameters",
                advice="name each parameter",
                loc=self.loc,
            )
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = self.function.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        found: dict[str, object] = dict.fromkeys(names, MISSING)
        found.update(zip(names[first : code.co_argcount], defaults, strict=True))
        found.update(getattr(self.function, "__kwdefaults__", None) or {})
        return found

    @property
    def args(self) -> dict[str, ast.arg]:
        """The syntax of the parameters, as far as there is source text."""
        if self.node is None:
            return {}
        return {arg.arg: arg for arg in (*self.node.args.args, *self.node.args.kwonlyargs)}

    def at(self, node: ast.AST) -> Location:
        """Return the place of a node of the tree."""
        return node_location(self.file, node)

    def place_of(self, name: str) -> Location:
        """Return the place where the function first reads a variable, or its own."""
        nodes = [] if self.node is None else [n for n in ast.walk(self.node) if isinstance(n, ast.Name)]
        return next((self.at(node) for node in nodes if node.id == name), self.loc)

    def annotation(self, arg: ast.arg, others: Mapping[str, object] = MappingProxyType({})) -> object:
        """Return the value of a parameter's annotation, or None without one.

        It is evaluated here and not by Python, so that names of enclosing functions are found even where
        annotations are deferred. `others` are values of names that the scope around the function lacks.
        """
        node = arg.annotation
        if node is None:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = quoted_annotation(node)
        return self.evaluate(node, "an annotation", others)

    def evaluate(
        self, node: ast.expr, where: str, others: Mapping[str, object] = MappingProxyType({})
    ) -> object:
        """Return the value that an expression has in the scope around the function, and with other names."""
        known = {**others, **self.names}
        for name in (n for n in ast.walk(node) if isinstance(n, ast.Name)):
            if name.id not in known:
                raise UnknownName(
                    name=name.id, where=where, advice=self.suggestion(name.id), loc=self.at(name)
                )
        code = compile(ast.Expression(node), self.file, "eval")
        return eval(code, {"__builtins__": {}}, known)


def read_function(function: FunctionType, frame: FrameType | None) -> FunctionSource:
    """Find the source of `function`, which is being decorated in `frame`."""
    code = function.__code__
    node = _find_definition(code.co_filename, function)
    if node is not None and not _is_text_of(_text(code.co_filename), function):
        node = None
    scope = _scope(function, frame)
    names = {name: scope[name] for name in _names_used(node, code) if name in scope}
    contents = {name: plain_copy(value) for name, value in names.items() if is_plain(value)}
    *nearer, of_module, _ = scope.maps
    module = frozenset(n for n in names if n in of_module and not any(n in each for each in nearer))
    return FunctionSource(function, code.co_filename, node, names, contents, module, frozenset(scope))


def identifier(name: str) -> str:
    """Return a name with `_` for what identifiers cannot have."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if text[:1].isdigit() else text


def quoted_annotation(node: ast.Constant) -> ast.expr:
    """Return the expression inside an annotation that is written as a string."""
    inner = ast.parse(str(node.value).strip(), mode="eval").body
    for part in ast.walk(inner):
        ast.copy_location(part, node)
    return inner


def node_location(file: str, node: ast.AST) -> Location:
    """Return the place of a syntax node: of several lines, the rest of the first one."""
    line, col, end_line, end_col = _span(node)
    text = linecache.getline(file, line).rstrip("\n")
    raw = text.encode()
    start = len(raw[:col].decode(errors="replace"))
    stop = len(raw[:end_col].decode(errors="replace")) if end_line == line else len(text)
    return Location(file, line, start + 1, max(stop, start + 1) + 1)


def loop_targets(loc: Location) -> tuple[tuple[str, ...], Location]:
    """Return the names that the loop at `loc` binds, or (), and the place of its iterable.

    Depending on its version, Python places the start of a loop at the statement or at its iterable.
    """
    return _loop_targets(_text(loc.file), loc)


@lru_cache(maxsize=1024)
def _loop_targets(text: str, loc: Location) -> tuple[tuple[str, ...], Location]:
    for node in _nodes_at(_parse(text), loc.line):
        for target, iterable in _loops_of(node):
            if _starts_at(loc, iterable) or _starts_at(loc, node):
                targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                names = tuple(t.id for t in targets if isinstance(t, ast.Name))
                return (names if len(names) == len(targets) else ()), node_location(loc.file, iterable)
    return (), loc


def _loops_of(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets and iterables of a loop statement or comprehension."""
    match node:
        case ast.For(target=target, iter=iterable):
            return [(target, iterable)]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [(g.target, g.iter) for g in node.generators]
        case _:
            return []


def loop_statement(loc: Location) -> ast.For | None:
    """Return the `for` statement whose iterable starts at `loc`, or None."""
    for node in _nodes_at(_parse(_text(loc.file)), loc.line):
        if isinstance(node, ast.For) and _starts_at(loc, node.iter):
            return node
    return None


def enclosing_function(file: str, statement: ast.stmt) -> ast.FunctionDef | None:
    """Return the innermost function that contains a statement, or None."""
    found = None
    for node in _nodes_at(_parse(_text(file)), statement.lineno):
        if isinstance(node, ast.FunctionDef):
            found = node
        if node is statement:
            return found
    return None


def assigned_name(loc: Location) -> str | None:
    """Return the name that the value of the call executing at `loc` is assigned to, or None."""
    for node in _nodes_at(_parse(_text(loc.file)), loc.line):
        if isinstance(node, ast.Assign) and _starts_at(loc, node.value) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                return target.id
    return None


def with_statement(loc: Location) -> ast.With | None:
    """Return the `with` statement that one of its context expressions, executing at `loc`, opens."""
    for node in _nodes_at(_parse(_text(loc.file)), loc.line):
        if isinstance(node, ast.With) and any(_starts_at(loc, i.context_expr) for i in node.items):
            return node
    return None


_LEAVING = {ast.Return: "return", ast.Yield: "yield", ast.YieldFrom: "yield", ast.Await: "await"}
_LEAVING_LOOPS = {ast.Break: "break", ast.Continue: "continue"}


def leaving_statements(file: str, statement: ast.With) -> Iterator[tuple[str, Location]]:
    """Yield what leaves, or may leave, the body of a `with` statement before its end: keyword and place."""
    pending = [(node, False) for node in reversed(statement.body)]
    while pending:
        node, in_loop = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        keyword = _LEAVING.get(type(node)) or (None if in_loop else _LEAVING_LOOPS.get(type(node)))
        if keyword is not None:
            yield keyword, node_location(file, node)
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            pending += [(child, in_loop) for child in reversed(node.orelse)]
            pending += [(child, True) for child in reversed(node.body)]
        else:
            pending += [(child, in_loop) for child in reversed([*ast.iter_child_nodes(node)])]


def _starts_at(loc: Location, node: ast.AST) -> bool:
    start = node_location(loc.file, node)
    return start.line == loc.line and loc.col in (0, start.col)


def _text(file: str) -> str:
    lines = linecache.getlines(file)
    known = _TEXTS.get(file)
    if known is None or known[0] is not lines:
        known = _TEXTS[file] = (lines, "".join(lines))
    return known[1]


_TEXTS: Final[dict[str, tuple[list[str], str]]] = {}
"""For each file its lines, the same list while `linecache` holds them, and its text."""


@lru_cache(maxsize=32)
def _parse(text: str) -> ast.Module | None:
    """Return the syntax tree of a file, or None if there is no text or it is not Python."""
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError):
        return None


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    line: int = getattr(node, "lineno", 1)
    col: int = getattr(node, "col_offset", 0)
    return line, col, getattr(node, "end_lineno", line) or line, getattr(node, "end_col_offset", col) or col


def _find_definition(file: str, function: FunctionType) -> ast.FunctionDef | None:
    first = function.__code__.co_firstlineno
    for node in _nodes_at(_parse(_text(file)), first):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            if _first_line(node, first) == first:
                return node
    return None


def _nodes_at(tree: ast.AST | None, line: int) -> Iterator[ast.AST]:
    """Yield the nodes of a tree whose text, decorators included, has the line; outer nodes first."""
    pending = [tree] if tree is not None else []
    while pending:
        node = pending.pop()
        if _first_line(node, line) <= line <= (getattr(node, "end_lineno", None) or line):
            yield node
            pending += reversed([*_children_near(node, line)])


def _children_near(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the children of a node, of a list of statements only those that can have the line."""
    for _, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if children and isinstance(children[0], ast.stmt):
            start = bisect_left(children, line, key=lambda statement: statement.end_lineno)
            children = takewhile(lambda statement: _first_line(statement, line) <= line, children[start:])
        yield from (child for child in children if isinstance(child, ast.AST))


def _first_line(node: ast.AST, default: int) -> int:
    parts = (node, *getattr(node, "decorator_list", ()))
    return min(getattr(part, "lineno", default) for part in parts)


def _is_text_of(text: str, function: FunctionType) -> bool:
    """Whether compiling the text gives the function's code: false when the file was edited since."""
    wanted = function.__code__
    pending = [_compile(text)]
    while pending:
        code = pending.pop()
        if (code.co_name, code.co_firstlineno) == (wanted.co_name, wanted.co_firstlineno):
            return fingerprint(code) == fingerprint(wanted)
        pending += [c for c in code.co_consts if isinstance(c, CodeType)]
    return False


@lru_cache(maxsize=32)
def _compile(text: str) -> CodeType:
    return compile(text, "<source>", "exec", dont_inherit=True)


def fingerprint(code: CodeType) -> tuple[object, ...]:
    """Return a key that is equal for code of the same text at any place."""
    constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants


def _names_used(node: ast.FunctionDef | None, code: CodeType) -> set[str]:
    if node is None:
        return {*code.co_names, *code.co_freevars}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | annotation_names(node)


def annotation_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that the annotations of parameters mention."""
    args = function.args
    used: set[str] = set()
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        node = arg.annotation
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = quoted_annotation(node)
        used |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()
    return used


def _scope(function: FunctionType, frame: FrameType | None) -> ChainMap[str, object]:
    """Return what names mean inside `function`: its closure, the functions around it, globals, builtins."""
    maps: list[dict[str, object]] = [_closure(function)]
    code = function.__code__
    while frame is not None:
        if any(c is code for c in frame.f_code.co_consts):
            if frame.f_locals is not function.__globals__:
                maps.append(dict(frame.f_locals))
            code = frame.f_code
        frame = frame.f_back
    return ChainMap(*maps, function.__globals__, dict(vars(builtins)))


def _closure(function: FunctionType) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell: the variable is assigned later
            values[name] = cell.cell_contents
    return values
