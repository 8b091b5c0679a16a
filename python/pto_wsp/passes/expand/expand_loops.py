"""Take loops of any length apart into blocks of powers of two, which may work on larger tiles.

    FOR %i, 0, %n, 1 max_range=8 min_range=4    ->    FOR %i_8, 0, %n // 8 * 8, 1
      CALL @f[%i](...)                                  CALL @f[%i_8](...)
                                                      IF (%n & 4) != 0
                                                        FOR %i_4, 0, 4, 1
                                                          CALL @f[%n // 8 * 8 + %i_4](...)
                                                      FOR %i_rest, 0, %n % 4, 1
                                                        CALL @f[%n // 4 * 4 + %i_rest](...)

Where `tile_levels` gives blocks more rows than kernels are written for, an iteration of such a block does the
work of several (`widen_tasks`). Loops inside are expanded too. Tasks keep their order, so results are the
same to the bit, other than where a kernel adds up over a dimension that grows. Requires a module without
calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.errors import CannotExpand
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import WorkloadRenaming, workload_names
from pto_wsp.ir.scalar import Const, Element, Expr, Var, add, binary, mul, name_of, walk
from pto_wsp.passes.expand.local_room import with_ranges, with_room
from pto_wsp.passes.expand.widen_tasks import Variants, Widening
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace


def expand_loops(module: Module) -> Module:
    """Return `module` without ranges of loops.

    Raises:
        CannotExpand: a loop cannot be taken apart, or its tasks cannot work on larger tiles.
    """
    if not any(_has_range(workload) for workload in module.workloads):
        return module
    names = [f.name for f in (*module.kernels, *module.workloads)]
    variants = Variants(module.kernels, names)
    workloads = tuple(_expanded(workload, variants) for workload in module.workloads)
    return replace(module, workloads=workloads, kernels=tuple(variants.kernels.values()))


def _expanded(workload: w.WorkloadFunction, variants: Variants) -> w.WorkloadFunction:
    if not any(isinstance(n, w.Loop) and n.tile_levels for n in w.walk_nodes(workload.body)):
        return _Expander(workload, variants).run()
    before = with_ranges(workload)
    return with_room(_Expander(before, variants).run(), before)


def _has_range(workload: w.WorkloadFunction) -> bool:
    return any(isinstance(n, w.Loop) and n.max_range is not None for n in w.walk_nodes(workload.body))


@record
class _Block:
    """Part of a loop: `extent` base iterations from `start` on, `scale` of them in one.

    `bit` is the bit of the extent that says whether the block is there, or None where it always is.
    """

    name: str
    start: Expr
    extent: Expr
    scale: int = 1
    rows: int = 0
    bit: int | None = None


class _Expander:
    def __init__(self, workload: w.WorkloadFunction, variants: Variants) -> None:
        self.workload = workload
        self.variants = variants
        self.fresh = Fresh(workload_names(workload))

    def run(self) -> w.WorkloadFunction:
        return replace(self.workload, body=self.nodes(self.workload.body))

    def nodes(self, body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
        found: list[w.Node] = []
        for node in body:
            if isinstance(node, w.Loop) and node.max_range is not None:
                found += self.loop(node)
            else:
                found.append(w.rebuild(node, self.nodes))
        return tuple(found)

    def loop(self, loop: w.Loop) -> Iterator[w.Node]:
        """Yield the blocks of a loop."""
        self.check(loop)
        body = self.nodes(loop.body)
        levels = dict(loop.tile_levels)
        widening = Widening(self.variants, self.workload, loop, body) if levels else None
        extent = loop.extent
        if self.can_change(extent):
            count = self.fresh.name(f"{loop.var}_count")
            yield w.Set(count, extent, loop.loc)
            extent = Var(count)
        for block in self.blocks(loop, extent, widening):
            inner = body if block.scale == 1 or widening is None else widening.nodes(block.rows)
            yield from self.block(loop, block, extent, inner)

    def check(self, loop: w.Loop) -> None:
        reason = ""
        if loop.kind == w.SEQUENTIAL:
            reason = "its iterations follow each other, and blocks of them would not"
        for node in w.walk_nodes(loop.body):
            if isinstance(node, w.Cond) and any(t.label for t in w.tasks((node,))):
                reason = "a task under a condition has a label"
        if reason:
            raise CannotExpand(loop=loop.var, reason=reason, loc=loop.loc)

    def can_change(self, extent: Expr) -> bool:
        """Whether `extent`, which a loop evaluates once, can have another value while the loop runs."""
        variables = self.workload.variables
        return any(isinstance(part, Element) or name_of(part) in variables for part in walk(extent))

    def scale(self, loop: w.Loop, block: int, widening: Widening | None) -> tuple[int, int]:
        """Return how many base iterations one iteration of a block does, and on how many rows."""
        if widening is None:
            return 1, 0
        rows = dict(loop.tile_levels).get(block, widening.base)
        scale, left = divmod(rows, widening.base)
        if left or (block and block % scale):
            reason = f"tiles of {rows} rows are not a whole number of tiles of {widening.base} rows"
            if not left:
                reason = f"a block of {block} iterations is not a whole number of tiles of {rows} rows"
            raise CannotExpand(loop=loop.var, reason=reason, loc=loop.loc)
        return scale, rows

    def blocks(self, loop: w.Loop, extent: Expr, widening: Widening | None) -> Iterator[_Block]:
        """Yield the blocks of a loop in order: whole ones of the largest size, each bit below, the rest."""
        assert loop.max_range is not None
        largest, smallest = loop.max_range, loop.min_range or 1
        scale, rows = self.scale(loop, largest, widening)
        count = mul(binary("floordiv", extent, Const(largest)), Const(largest // scale))
        yield _Block(str(largest), Const(0), count, scale, rows)
        bit = largest // 2
        while bit >= smallest:
            scale, rows = self.scale(loop, bit, widening)
            yield _Block(str(bit), _whole(extent, 2 * bit), Const(bit // scale), scale, rows, bit)
            bit //= 2
        if smallest > 1:
            yield from self.rest(loop, extent, smallest, widening)

    def rest(self, loop: w.Loop, extent: Expr, smallest: int, widening: Widening | None) -> Iterator[_Block]:
        """Yield the rest below the smallest block: first on larger tiles if requested, then others."""
        scale, rows = self.scale(loop, 0, widening)
        start, left = _whole(extent, smallest), binary("mod", extent, Const(smallest))
        if scale > 1:
            yield _Block("rest", start, binary("floordiv", left, Const(scale)), scale, rows)
            start, left = add(start, _whole(left, scale)), binary("mod", left, Const(scale))
        yield _Block("rest", start, left)

    def block(self, loop: w.Loop, block: _Block, extent: Expr, body: tuple[w.Node, ...]) -> Iterator[w.Node]:
        if block.extent == Const(0):
            return
        var = self.fresh.name(f"{loop.var}_{block.name}")
        at = add(block.start, mul(Var(var), Const(block.scale)))
        copy = self.copy(body, loop.var, at)
        made = w.Loop(loop.kind, var, block.extent, None, copy, loop.loc, block_of=loop.called)
        if block.bit is None:
            yield made
            return
        bit = binary("bitand", extent, Const(block.bit))
        condition = binary("ne", bit, Const(0), loop.loc)
        if not isinstance(condition, Const):
            yield w.Cond(condition, (made,), (), loop.loc)
        elif condition.value:
            yield made

    def copy(self, body: tuple[w.Node, ...], var: str, at: Expr) -> tuple[w.Node, ...]:
        """Return a body with `at` for the loop variable, and names of its own."""
        inside = [*w.walk_nodes(body)]
        loops = {n.var: self.fresh.name(n.var) for n in inside if isinstance(n, w.Loop)}
        labels = {n.label: self.fresh.name(n.label) for n in inside if isinstance(n, w.Task) and n.label}
        return WorkloadRenaming(loops, {var: at}, labels=labels).nodes(body)


def _whole(extent: Expr, block: int) -> Expr:
    """Return the part of `extent` that is whole blocks."""
    return mul(binary("floordiv", extent, Const(block)), Const(block))
