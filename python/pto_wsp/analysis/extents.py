"""What is known about valid extents while a kernel is read from top to bottom.

An extent is an int, or a string that represents one run-time value: equal strings are equal values. What a
branch or loop may have changed gets a new string.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Extent, Var, format_expr, substitute, walk
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import TileType, ViewType

Symbol = int | str
Pair = tuple[Symbol, Symbol]


class ExtentTable:
    """Symbols of the valid extents of tiles, and of the values of scalars, at one place of a kernel."""

    def __init__(self, kernel: KernelFunction) -> None:
        self._views = {p.name: p.type for p in kernel.views}
        self._tiles: dict[str, Pair] = {}
        self._versions: dict[str, int] = {}
        self._equal: dict[Symbol, Symbol] = {}
        self._fresh = itertools.count()

    def copy(self) -> ExtentTable:
        """Return an independent copy of the table; new strings stay unique over both."""
        other = ExtentTable.__new__(ExtentTable)
        other._views, other._fresh = self._views, self._fresh
        other._tiles, other._versions = dict(self._tiles), dict(self._versions)
        other._equal = dict(self._equal)
        return other

    def tile(self, name: str) -> Pair:
        """Return the valid extents of a tile."""
        if name not in self._tiles:
            self._tiles[name] = (self.unknown(), self.unknown())
        return self.resolve(self._tiles[name])

    def set_tile(self, name: str, extents: Pair) -> None:
        """Record what was written to a tile."""
        self._tiles[name] = extents

    def view(self, name: str, dim: int) -> Symbol:
        """Return an extent of a parameter."""
        view = self._views[name]
        if isinstance(view, ViewType) and view.dims is not None:
            static = view.dims[dim]
            if static is not None:
                return static
        return f"{name}.{dim}"

    def bound(self, name: str, dim: int) -> int | None:
        """Return the largest extent that a parameter can have, or None."""
        view = self._views[name]
        if isinstance(view, TileType):
            return view.shape[dim]
        assert isinstance(view, ViewType) and view.dims is not None
        return view.dims[dim]

    def unknown(self) -> str:
        """Return a string for a value that nothing is known about."""
        return f"?{next(self._fresh)}"

    def assign(self, names: Iterable[str]) -> None:
        """Record that scalar variables have new values."""
        for name in names:
            self._versions[name] = next(self._fresh)

    def forget(self, tiles: Iterable[str], scalars: Iterable[str]) -> None:
        """Record that tiles and scalars may have been written."""
        for name in tiles:
            self._tiles[name] = (self.unknown(), self.unknown())
        self.assign(scalars)

    def equate(self, a: Symbol, b: Symbol) -> None:
        """Record that two extents were found equal. Nothing follows from two numbers that differ."""
        a, b = self.resolve((a, b))
        keep, drop = (b, a) if isinstance(b, int) else (a, b)
        if keep != drop and not isinstance(drop, int):
            self._equal[drop] = keep

    def resolve(self, pair: Pair) -> Pair:
        """Return the representatives of two extents: the symbols of their classes of equal extents."""
        return self.resolve_one(pair[0]), self.resolve_one(pair[1])

    def resolve_one(self, symbol: Symbol) -> Symbol:
        """Return the representative of an extent: the symbol of its class of equal extents."""
        while symbol in self._equal:
            symbol = self._equal[symbol]
        return symbol

    def value(self, expr: Expr) -> Symbol:
        """Return the symbol of a range's extent (negative extents count as 0)."""
        if any(isinstance(node, Element) for node in walk(expr)):
            return self.unknown()  # memory may have changed since the same text was last evaluated

        def known(node: Expr) -> Expr | None:
            match node:
                case Var(name=name, dtype=dtype):
                    return Var(f"{name}#{self._versions.get(name, 0)}", dtype)
                case Extent(name=name, dim=dim):
                    symbol = self.view(name, dim) if name in self._views else self.tile(name)[dim]
                    return Const(symbol) if isinstance(symbol, int) else Var(symbol, i64)
                case _:
                    return None

        result = substitute(expr, known)
        if isinstance(result, Const):
            return max(0, int(result.value))
        if isinstance(result, Var) and isinstance(expr, Extent):
            return result.name
        return f"max(0, {format_expr(result)})"


def upper_bound(expr: Expr) -> int | None:
    """Return a number that the value of an i64 expression never exceeds, or None."""
    match expr:
        case Const(value=value):
            return int(value)
        case Binary(op="min", a=a, b=b):
            bounds = [bound for bound in (upper_bound(a), upper_bound(b)) if bound is not None]
            return min(bounds, default=None)
        case _:
            return None
