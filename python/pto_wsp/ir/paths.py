"""What every path through a kernel has written: one analysis for the verifier and for all front ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_wsp.errors import InvalidIR, PtoError
from pto_wsp.ir import kernel as k
from pto_wsp.ir.effects import name_written, names_read, tiles_read
from pto_wsp.ir.scalar import Const, Extent, TileElement, Var, walk
from pto_wsp.location import Location

Refuse = Callable[[str, "Location | None"], PtoError]
"""Makes the error of a name that is read at a place before every path has written it."""


def unwritten(name: str, loc: Location | None) -> InvalidIR:
    """Return the error of a name that is read before every path has written it."""
    return InvalidIR(message=f"`{name}` is read before every path has written it", loc=loc)


def require_written(kernel: k.KernelFunction, refuse: Refuse = unwritten) -> None:
    """Raise what `refuse` makes of the first tile or scalar that some path reads before it writes it."""
    _Paths(kernel, refuse).block(kernel.body or ())


def surely_runs(stmt: k.Stmt) -> bool:
    """Return whether the body of a loop runs at least once, whatever the arguments are."""
    match stmt:
        case k.For(start=Const(value=start), stop=Const(value=stop)):
            return start < stop
        case _:
            return False


class _Paths:
    def __init__(self, kernel: k.KernelFunction, refuse: Refuse) -> None:
        self.own = {name for name, _ in (*kernel.tiles, *kernel.scalars)}
        self.refuse = refuse
        self.written: set[str] = set()

    def block(self, body: Sequence[k.Stmt]) -> None:
        for stmt in body:
            if not (isinstance(stmt, k.Instr) and self.is_plain(stmt)):
                self.read(stmt)
            inner = k.blocks(stmt)
            name = name_written(stmt)
            if name is not None:
                self.written.add(name)
            elif inner:
                before = self.written
                ends = [self.branch(block, before) for block in inner]
                is_choice = isinstance(stmt, k.If)
                self.written = set.intersection(*ends) if is_choice or surely_runs(stmt) else before

    def branch(self, body: Sequence[k.Stmt], before: set[str]) -> set[str]:
        """Return what has been written after a block."""
        self.written = set(before)
        self.block(body)
        return self.written

    def is_plain(self, instr: k.Instr) -> bool:
        """Whether an instruction reads tiles alone, all of them written."""
        return not (instr.scalars or instr.attrs) and self.written.issuperset(instr.tiles)

    def read(self, stmt: k.Stmt) -> None:
        missing = (names_read(stmt) & self.own) - self.written
        if not missing:
            return
        parts = [part for expr in k.statement_expressions(stmt) for part in walk(expr)]
        places = [(tile, None) for tile in tiles_read(stmt) if not isinstance(stmt, k.Assign)]
        places += [(p.name, p.loc) for p in parts if isinstance(p, (Var, Extent, TileElement))]
        name, loc = next(place for place in places if place[0] in missing)
        raise self.refuse(name, loc or stmt.loc)
