"""What the body of a kernel reads has been written: every tile and scalar, on every path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pto_wsp.errors import InvalidIR
from pto_wsp.ir import kernel as k
from pto_wsp.ir.scalar import Const, Expr, Extent, TileElement, Var, walk
from pto_wsp.location import Location


def require_written(kernel: k.KernelFunction) -> None:
    """Raise InvalidIR at the first statement that reads a tile or scalar which some path has not written."""
    _Paths(kernel).block(kernel.body or ())


class _Paths:
    def __init__(self, kernel: k.KernelFunction) -> None:
        self.own = {name for name, _ in (*kernel.tiles, *kernel.scalars)}
        self.written: set[str] = set()

    def block(self, body: Sequence[k.Stmt]) -> None:
        for stmt in body:
            match stmt:
                case k.Instr(dst=dst, tiles=tiles):
                    if stmt.scalars or stmt.attrs or not self.written.issuperset(tiles):
                        self.operands(stmt)
                    self.written.add(dst)
                case k.Load() | k.Store() | k.Prefetch():
                    self.moved(stmt)
                case k.Assign(name=name, value=value):
                    self.read((value,), stmt.loc)
                    self.written.add(name)
                case k.KernelCall(args=args):
                    self.read([arg for arg in args if not isinstance(arg, str)], stmt.loc)
                case _:
                    self.control(stmt)

    def operands(self, instr: k.Instr) -> None:
        if not self.written.issuperset(instr.tiles):
            unwritten = next(tile for tile in instr.tiles if tile not in self.written)
            raise self.unwritten(unwritten, instr.loc)
        if instr.scalars:
            self.read(instr.scalars, instr.loc)
        if instr.attrs:
            self.read([v for _, v in instr.attrs if not isinstance(v, (str, int))], instr.loc)

    def control(self, stmt: k.For | k.While | k.If) -> None:
        before = self.written
        match stmt:
            case k.If(condition=condition, then=then, other=other):
                self.read((condition,), stmt.loc)
                after = self.branch(then, before)
                self.written = after & self.branch(other, before)
            case k.While(condition=condition, body=body):
                self.read((condition,), stmt.loc)
                self.branch(body, before)
                self.written = before
            case k.For(start=start, stop=stop, body=body):
                self.read((start, stop), stmt.loc)
                after = self.branch(body, before)
                match start, stop:
                    case Const(value=first), Const(value=end) if first < end:
                        self.written = after
                    case _:
                        self.written = before

    def branch(self, body: Sequence[k.Stmt], before: set[str]) -> set[str]:
        """Return what has been written behind a block."""
        self.written = set(before)
        self.block(body)
        return self.written

    def moved(self, stmt: k.Load | k.Store | k.Prefetch) -> None:
        self.read(stmt.region.expressions, stmt.loc)
        for tile in (stmt.tile if isinstance(stmt, k.Store) else None, stmt.rows):
            if tile is not None and tile not in self.written:
                raise self.unwritten(tile, stmt.loc)
        if isinstance(stmt, k.Load):
            self.written.add(stmt.tile)

    def read(self, exprs: Iterable[Expr], loc: Location | None) -> None:
        for expr in exprs:
            for node in () if isinstance(expr, Const) else walk(expr):
                name = node.name if isinstance(node, (Var, Extent, TileElement)) else ""
                if name in self.own and name not in self.written:
                    raise self.unwritten(name, node.loc or loc)

    def unwritten(self, name: str, loc: Location | None) -> InvalidIR:
        return InvalidIR(message=f"`{name}` is read before every path has written it", loc=loc)
