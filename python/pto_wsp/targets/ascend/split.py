"""Kernels that need vector cores and cube cores as phases, each for one kind of core.

Before: a kernel with products and arithmetic in any order, inside of loops and choices. After: a caller,
which keeps the control flow and the checks, and phases, which are kernels of their own. Tiles that live from
one phase to another go through global memory: a phase loads those that it reads first, and stores those that
are read later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pto_wsp.analysis.liveness import lives_after, names_at_head, names_before
from pto_wsp.errors import NoneKernelBody
from pto_wsp.ir.core import WHOLE, Region
from pto_wsp.ir.effects import name_written, names_in, names_read, tile_written, tiles_read, written
from pto_wsp.ir.kernel import (
    IN,
    OUT,
    Assert,
    Assign,
    For,
    If,
    Instr,
    KernelFunction,
    Load,
    Param,
    Prefetch,
    Stmt,
    Store,
    While,
    blocks,
    rebuild,
    statement_expressions,
    walk_statements,
)
from pto_wsp.ir.names import KernelRenaming
from pto_wsp.ir.scalar import Const
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import ScalarType, TileType

CUBE, VECTOR = "cube", "vector"
MIXED = "mixed"

PRODUCTS = ("matmul", "matmul_acc", "matmul_bias")


@record
class Phase:
    """A part of a kernel that one kind of core runs.

    Attributes:
        kernel: the part as a kernel. Its last parameters are the tiles that it loads and stores.
        core: CUBE or VECTOR.
        first, last: `id` of the statements of the caller that it begins and ends with.
        inputs: tiles that it loads from global memory.
        outputs: tiles that it stores to global memory.
    """

    kernel: KernelFunction
    core: str
    first: int = 0
    last: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@record
class Split:
    """A kernel as phases.

    Attributes:
        caller: the kernel with its statements in the order of the phases; None if there is one phase.
        phases: in program order.
        on_cube: tiles that never leave the memories of a cube core, except to global memory.
    """

    caller: KernelFunction | None
    phases: tuple[Phase, ...]
    on_cube: frozenset[str] = frozenset()


def split_cores(kernel: KernelFunction, taken: Collection[str] = ()) -> Split:
    """Return the phases of a kernel; one if all of it runs on one kind of core.

    Args:
        kernel: a verified kernel.
        taken: names that phases must not have.

    Raises:
        NoneKernelBody: it is only declared.
    """
    if kernel.body is None:
        raise NoneKernelBody(name=kernel.name, loc=kernel.loc)
    if not any(_is_product(stmt) for stmt in walk_statements(kernel.body)):
        return Split(None, (Phase(kernel, VECTOR),))
    fused = replace(kernel, body=_fused(kernel.body, frozenset()))
    on_cube = _accumulators(fused) | _operands(fused) | _results(fused)
    while True:
        found = _Splitter(_plain(fused, on_cube), on_cube, {kernel.name, *taken})
        body = found.block(found.kernel.body or (), frozenset())
        crossing = found.crossing & on_cube
        if not crossing:
            break
        on_cube -= crossing
    caller = replace(found.kernel, body=tuple(body))
    if len(found.phases) == 1 and found.phases[0].last == id(body[-1]):
        return Split(None, (Phase(caller, found.phases[0].core),))
    return Split(caller, tuple(found.phases), on_cube)


# --- what the cube cores keep ------------------------------------------------------------------------------


def _is_product(stmt: Stmt) -> bool:
    return isinstance(stmt, Instr) and stmt.op in PRODUCTS


def _fused(body: Sequence[Stmt], live_after: frozenset[str]) -> tuple[Stmt, ...]:
    """Write `t = a @ b; d = c + t` as `c = c + a @ b`, and `d` after it as `c`, if `c` is not read again."""
    found: list[Stmt] = []
    left = [*body]
    while left:
        stmt, live = left[0], lives_after(left, live_after)[0]
        del left[0]
        stmt = rebuild(
            stmt, lambda inner, stmt=stmt, live=live: _fused(inner, _live_after(stmt, inner, live))
        )
        last = found[-1] if found else None
        total = _added_to(last, stmt, live)
        if total is None or not isinstance(stmt, Instr) or not isinstance(last, Instr):
            found.append(stmt)
            continue
        if stmt.dst != total:
            if stmt.dst in live_after or total in live:
                found.append(stmt)
                continue
            left = [*KernelRenaming(tiles={stmt.dst: total}).statements(left)]
        found[-1] = replace(last, op="matmul_acc", dst=total, tiles=(total, *last.tiles))
    return tuple(found)


def _added_to(product: Stmt | None, stmt: Stmt, live: frozenset[str]) -> str | None:
    """Return the tile that a statement adds a product to, if nothing else needs the product."""
    if not isinstance(product, Instr) or not isinstance(stmt, Instr):
        return None
    if (stmt.op, product.op) != ("add", "matmul") or product.dst not in stmt.tiles:
        return None
    others = {*stmt.tiles} - {product.dst}
    total = next(iter(others), None)
    if len(others) != 1 or product.dst in live | {stmt.dst} or total in product.tiles:
        return None
    return total


def _live_after(stmt: Stmt, inner: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the names that may be read after a block inside of a statement, given those read after it."""
    return live if isinstance(stmt, If) else names_at_head(inner, live | names_read(stmt))


def _accumulators(kernel: KernelFunction) -> frozenset[str]:
    """Return the tiles that begin with zeros or a product, and to which only products are added."""
    added, others = set[str](), set[str]()
    for stmt in walk_statements(kernel.body or ()):
        tile = tile_written(stmt)
        if tile is None:
            continue
        match stmt:
            case Instr(op="matmul_acc", tiles=(acc, *_)) if acc == tile:
                added.add(tile)
            case Instr(op="expands", scalars=(Const(value=value),)) if value == 0:
                pass
            case Instr(op="matmul"):
                pass
            case _:
                others.add(tile)
    return frozenset(added - others)


def _operands(kernel: KernelFunction) -> frozenset[str]:
    """Return the tiles that are only loaded, and that only products read."""
    loaded, others = set[str](), set[str]()
    for stmt in walk_statements(kernel.body or ()):
        tile = tile_written(stmt)
        if tile is not None:
            (loaded if isinstance(stmt, Load) and stmt.rows is None else others).add(tile)
        if _is_product(stmt):
            assert isinstance(stmt, Instr)
            has_acc = stmt.op == "matmul_acc"
            others.update(stmt.tiles[:has_acc], stmt.tiles[has_acc + 2 :])
        else:
            others.update(tiles_read(stmt))
    return frozenset(loaded - others)


def _results(kernel: KernelFunction) -> frozenset[str]:
    """Return the tiles that are stored, and that hold only products and sums of a cube core."""
    stmts = tuple(walk_statements(kernel.body or ()))
    stored = frozenset(s.tile for s in stmts if isinstance(s, Store) and s.rows is None)
    others = {tile_written(s) for s in stmts if not (isinstance(s, Instr) and s.op == "matmul")}
    return stored & (_accumulators(kernel) | (stored - others))


def _plain(kernel: KernelFunction, on_cube: frozenset[str]) -> KernelFunction:
    """Write the term that is added to a product as an addition, unless the cube core adds it."""
    tiles = dict(kernel.tiles)

    def change(body: Iterable[Stmt]) -> Iterable[Stmt]:
        for stmt in body:
            match stmt:
                case Instr(op="matmul_acc", dst=dst, tiles=(acc, a, b)) if acc != dst or dst not in on_cube:
                    product = _fresh(f"{dst}_product", tiles, tiles[dst])
                    yield replace(stmt, op="matmul", dst=product, tiles=(a, b))
                    yield Instr("add", dst, (acc, product), loc=stmt.loc)
                case Instr(op="matmul_bias", dst=dst, tiles=(a, b, bias)):
                    product = _fresh(f"{dst}_product", tiles, tiles[dst])
                    yield replace(stmt, op="matmul", dst=product, tiles=(a, b))
                    yield Instr("colexpandadd", dst, (product, bias), loc=stmt.loc)
                case _:
                    yield rebuild(stmt, change)

    body = tuple(change(kernel.body or ()))
    return replace(kernel, body=body, tiles=tuple(tiles.items()))


def _fresh(stem: str, tiles: dict[str, TileType], kind: TileType) -> str:
    name = stem
    while name in tiles:
        name += "_"
    tiles[name] = replace(kind, space=None)
    return name


# --- phases ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Segment:
    """Statements for one kind of core; None while it is open which."""

    core: str | None = None
    body: list[Stmt] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """The segments of a block so far, and loads that the next segment of a cube core begins with."""

    found: list[_Segment | Stmt] = field(default_factory=list)
    current: _Segment = field(default_factory=_Segment)
    pending: list[Stmt] = field(default_factory=list)

    def close(self, core: str | None = None) -> None:
        """End the current segment."""
        if self.current.body:
            self.found.append(self.current)
        self.current = _Segment(core)

    def flush(self) -> None:
        """Put the loads that wait into a segment."""
        if self.pending:
            self.close(CUBE)
            self.current.body += self.pending
            self.pending.clear()

    def add(self, stmt: Stmt, core: str | None) -> None:
        """Add a statement to the current segment, or to a new one."""
        if core == MIXED:
            self.close()
            self.found.append(stmt)
            return
        if core and self.current.core not in (None, core):
            self.close()
        self.current.core = self.current.core or core
        self.current.body.append(stmt)


class _Splitter:
    """Splits the blocks of a kernel.

    Attributes:
        phases: in program order.
        crossing: tiles that phases of cube cores load, or would have to keep from one phase to the next.
    """

    def __init__(self, kernel: KernelFunction, on_cube: frozenset[str], taken: set[str]) -> None:
        self.kernel = kernel
        self.phases: list[Phase] = []
        self.crossing: set[str] = set()
        self._on_cube = on_cube
        self._taken = taken
        self._types = dict(kernel.tiles)

    def block(self, body: Sequence[Stmt], live_after: frozenset[str]) -> list[Stmt]:
        """Add the phases of a block; return its statements in their order."""
        parts = self._segments(body)
        flat = [stmt for part in parts for stmt in (part.body if isinstance(part, _Segment) else [part])]
        found: list[Stmt] = []
        for part in parts:
            if isinstance(part, _Segment):
                after = flat[len(found) + len(part.body) :]
                self._add(part, names_before(after, live_after))
                found += part.body
            else:
                found.append(self._control(part, names_before(flat[len(found) + 1 :], live_after)))
        return found

    def _control(self, stmt: Stmt, live: frozenset[str]) -> Stmt:
        return rebuild(stmt, lambda inner: self.block(inner, _live_after(stmt, inner, live)))

    def _core(self, stmt: Stmt) -> str | None:
        """Return the core that a statement runs on; None if each can, MIXED if it needs both."""
        match stmt:
            case Prefetch(rows=str()):
                return VECTOR  # the scalar unit of a vector core reads the tile
            case Assign() | Assert() | Prefetch():
                return None
            case Load(tile=tile) | Store(tile=tile):
                return CUBE if tile in self._on_cube else VECTOR
            case Instr(op=op, dst=dst):
                is_sum = op == "expands" and dst in self._on_cube
                return CUBE if _is_product(stmt) or is_sum else VECTOR
            case For() | While() | If():
                inner = {self._core(s) for block in blocks(stmt) for s in block} - {None}
                if _multiplies_product((stmt,), stmt):
                    return MIXED
                return next(iter(inner), None) if len(inner) < 2 else MIXED
            case _:
                return VECTOR

    def _segments(self, body: Sequence[Stmt]) -> list[_Segment | Stmt]:
        """Return runs of statements for one kind of core; loads of operands come just before their use."""
        run = _Run()
        for stmt in body:
            core = self._core(stmt)
            if _must_follow(stmt, run.pending):
                run.flush()
            is_open = run.current.core == CUBE or (run.current.core is None and run.current.body)
            if core == CUBE and isinstance(stmt, Load) and not is_open:
                run.pending.append(stmt)
                continue
            if core in (MIXED, CUBE):
                run.flush()
            if core == CUBE and _multiplies_product(run.current.body, stmt):
                run.close(CUBE)
            run.add(stmt, core)
        run.flush()
        run.close()
        return run.found

    def _add(self, segment: _Segment, live: frozenset[str]) -> None:
        """Add the phase of a segment, after which the names `live` may be read."""
        if segment.core is None:
            return
        body = tuple(segment.body)
        tiles = written(body)[0]
        needed = names_before(body, live)
        used = tiles | {name for stmt in walk_statements(body) for name in names_read(stmt)}
        inputs = tuple(n for n, _ in self.kernel.tiles if n in needed and n in used)
        outputs = tuple(n for n, _ in self.kernel.tiles if n in tiles and n in live)
        # The caller refers to the first and the last statement by their identity: no two are one object.
        for at in {0, len(body) - 1}:
            segment.body[at] = replace(segment.body[at])
        kernel = self._kernel(body, inputs, outputs, needed)
        if segment.core == CUBE:
            read = {name for stmt in walk_statements(body) for name in tiles_read(stmt)}
            self.crossing.update((set(inputs) & (read | tiles)), {n for n in outputs if self._is_operand(n)})
        self.phases.append(
            Phase(kernel, segment.core, id(segment.body[0]), id(segment.body[-1]), inputs, outputs)
        )

    def _is_operand(self, name: str) -> bool:
        stmts = walk_statements(self.kernel.body or ())
        return any(isinstance(stmt, Load) and stmt.tile == name for stmt in stmts)

    def _kernel(
        self,
        body: tuple[Stmt, ...],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        needed: frozenset[str],
    ) -> KernelFunction:
        """Return a phase as a kernel."""
        named = {name for stmt in walk_statements(body) for name in _names(stmt)}
        names = {p.name for p in self.kernel.params} | self._types.keys()
        loads = {tile: _unused(f"{tile}_in", names) for tile in inputs}
        stores = {tile: _unused(f"{tile}_out", names) for tile in outputs}
        params = [p for p in self.kernel.params if p.name in named]
        scalars, assigned = dict(self.kernel.scalars), written(body)[1]
        loops = {s.var for s in walk_statements(self.kernel.body or ()) if isinstance(s, For)}
        kinds = {name: ScalarType(i64) for name in loops} | scalars
        outer = sorted((needed & kinds.keys()) & named)
        params += [Param(name, IN, kinds[name], self.kernel.loc) for name in outer]
        params += [Param(name, IN, self._types[tile], self.kernel.loc) for tile, name in loads.items()]
        params += [Param(name, OUT, self._types[tile], self.kernel.loc) for tile, name in stores.items()]
        own = named | {*inputs, *outputs}
        first = tuple(Load(tile, Region(name, WHOLE)) for tile, name in loads.items())
        last = tuple(Store(Region(name, WHOLE), tile) for tile, name in stores.items())
        return replace(
            self.kernel,
            name=_unused(f"{self.kernel.name}_{len(self.phases)}", self._taken),
            params=tuple(params),
            tiles=tuple((n, t) for n, t in self.kernel.tiles if n in own),
            scalars=tuple((n, t) for n, t in scalars.items() if n in assigned and n not in outer),
            body=(*first, *body, *last),
        )


def _multiplies_product(before: Sequence[Stmt], stmt: Stmt) -> bool:
    """Return whether a statement multiplies a product: products leave a cube core to be operands."""
    made = {s.dst for s in walk_statements(before) if isinstance(s, Instr) and _is_product(s)}
    inner = (s for s in walk_statements((stmt,)) if isinstance(s, Instr) and _is_product(s))
    return any(made & {*s.tiles[s.op == "matmul_acc" :][:2]} for s in inner)


def _must_follow(stmt: Stmt, pending: Sequence[Stmt]) -> bool:
    """Return whether a statement changes elements that loads read, so it must follow them."""
    inner = list(walk_statements((stmt,)))
    if pending and any(isinstance(s, Store) for s in inner):
        return True
    names = {name for load in pending for name in names_in(*statement_expressions(load))}
    return any(name_written(s) in names for s in inner) or any(
        isinstance(s, For) and s.var in names for s in inner
    )


def _names(stmt: Stmt) -> Iterable[str]:
    """Return every name of a statement: those of views, tiles and scalars."""
    yield from names_read(stmt)
    yield from names_in(*statement_expressions(stmt))
    written_name = name_written(stmt)
    if written_name is not None:
        yield written_name
    if isinstance(stmt, Load | Store | Prefetch):
        yield stmt.region.tensor


def _unused(stem: str, taken: set[str]) -> str:
    name = stem
    while name in taken:
        name += "_"
    taken.add(name)
    return name
