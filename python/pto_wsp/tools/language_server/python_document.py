"""Checks a Python document in a process of its own, whose argument is the path of the document.

With a second argument `prove`, it proves what it can about a Python document or `.pto` text instead. The text
comes from standard input, remarks go to standard output as JSON. Statements are run one by one, but
only those that declare: imports, functions, classes and assignments. `compile` checks and builds nothing, so
that programs which declare and then run are checked without running.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from pto_wsp.errors import PtoError
from pto_wsp.ir.verify import verify
from pto_wsp.lang.compiling import set_compile_hook
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.location import Location
from pto_wsp.text import parse
from pto_wsp.tools.language_server.proving import proofs
from pto_wsp.tools.language_server.remarks import NOT_CHECKED, PYTHON_SYNTAX, Remark, dumped, remark_of

DECLARATIONS = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
)
MODULE_NAME = "__pto_document__"
REPORT, ERROR = "__pto_report", "__pto_error"


class Unbuilt:
    """Replaces a compiled program: all that is done with it succeeds and does nothing."""

    def __getattr__(self, name: str) -> Unbuilt:
        return self

    def __call__(self, *_: object, **__: object) -> Unbuilt:
        """Do nothing."""
        return self


def check(path: str, text: str) -> list[Remark]:
    """Return what is wrong in a Python document.

    Args:
        path: of the document; its folder is searched for imports.
        text: its present text, saved or not.
    """
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        line, col = error.lineno or 1, error.offset or 0
        return [Remark(line, col, max(col + 1, error.end_offset or 0), PYTHON_SYNTAX, error.msg)]
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    sys.path.insert(0, os.path.dirname(path))
    set_compile_hook(_checked)
    module = types.ModuleType(MODULE_NAME)
    module.__file__ = path
    sys.modules[MODULE_NAME] = module
    found = _declared(tree, path, module.__dict__)
    refused = {name for node in tree.body for name in _bound(node) if name not in module.__dict__}
    return [*found, *_traced(path, module.__dict__, refused)]


def _checked(traced: Any, *_: object) -> Any:
    verify(traced.module)
    return Unbuilt()


def _declared(tree: ast.Module, path: str, names: dict[str, Any]) -> list[Remark]:
    """Run the declarations of a module; return what is wrong in each.

    The module is compiled as a whole, since functions are compared with the code of their text.
    """
    found: list[Remark] = []

    def report(error: Exception, line: int) -> None:
        if isinstance(error, PtoError):
            found.append(remark_of(error, path, Location(path, line)))
            return
        what = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        found.append(Remark(line, 0, 0, NOT_CHECKED, f"not checked: {what}", is_error=False))

    body = [_guarded(node) for node in tree.body if isinstance(node, DECLARATIONS)]
    module = ast.fix_missing_locations(ast.Module(body, []))
    names[REPORT] = report
    exec(compile(module, path, "exec", dont_inherit=True), names)
    return found


def _guarded(statement: ast.stmt) -> ast.stmt:
    """Return a statement that reports its exception and lets later ones go on."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return statement
    call = ast.parse(f"{REPORT}({ERROR}, {statement.lineno})").body
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), ERROR, call)
    return ast.copy_location(ast.Try([statement], [handler], [], []), statement)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a declaration gives a value."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name for alias in statement.names)
    else:
        yield from (
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )


def _traced(path: str, names: dict[str, Any], refused: set[str]) -> Iterator[Remark]:
    """Describe and verify the workloads of a module; yield what is wrong in each, but for `refused` names."""
    for value in list(names.values()):
        if not isinstance(value, Workload):
            continue
        try:
            verify(value.trace().module)
        except PtoError as error:
            loc = value.body.loc
            is_here = loc is not None and loc.file == path
            yield remark_of(error, path, loc if loc is not None and is_here else Location(path, 1))
        except Exception as error:  # a mistake in the Python of the workload
            if isinstance(error, NameError) and error.name in refused:
                continue
            trace = error.__traceback__
            line = 1
            while trace is not None:
                line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == path else line
                trace = trace.tb_next
            yield Remark(line, 0, 0, "python-error", f"{type(error).__name__}: {error}")


def prove(path: str, text: str) -> Iterator[Remark]:
    """Yield what is proved about the `P` loops of a document whose check finds no error."""
    if path.endswith(".pto"):
        yield from proofs(parse(text, path), path)
    elif not any(remark.is_error for remark in check(path, text)):
        for value in list(vars(sys.modules[MODULE_NAME]).values()):
            if isinstance(value, Workload):
                yield from proofs(verify(value.trace().module), path)


def main() -> None:
    """Check the document whose path is the first argument."""
    text = sys.stdin.read()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        found = list((prove if sys.argv[2:] == ["prove"] else check)(sys.argv[1], text))
    print(dumped(found))


if __name__ == "__main__":
    main()
