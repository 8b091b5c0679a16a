"""The reader of a kernel's expressions, as the modules that it calls know it."""

from __future__ import annotations

import ast
from typing import NoReturn, Protocol

from pto_wsp.ir.scalar import Expr
from pto_wsp.lang.kernel.builder import Builder
from pto_wsp.lang.kernel.tile_ops import TileOps
from pto_wsp.lang.kernel.values import ScalarValue, Value
from pto_wsp.location import Location


class KernelReader(Protocol):
    """Reads the expressions of one kernel and builds their IR."""

    builder: Builder
    ops: TileOps

    def at(self, node: ast.AST) -> Location:
        """Return the place of a node."""
        ...

    def read(self, node: ast.expr, hint: str = "") -> Value:
        """Return the value of an expression; `hint` names a tile that it makes."""
        ...

    def condition(self, node: ast.expr) -> Expr:
        """Return an expression that must be a truth value."""
        ...

    def integer(self, node: ast.expr, what: str) -> ScalarValue:
        """Return an expression that must be an integer scalar."""
        ...

    def constant_integer(self, node: ast.expr, what: str) -> int:
        """Return an expression that must be a positive integer known while the kernel is read."""
        ...

    def refuse(self, node: ast.AST, construct: str, advice: str, detail: str = "not supported") -> NoReturn:
        """Raise UnsupportedSyntax at `node`."""
        ...
