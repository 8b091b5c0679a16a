"""The operators on loops: `tile` and `reorder`.

    for i in P("n"):                    for i_tile in P.tiles("n", 4):
        for j in P("m"):        ->          for j in P("m"):
            k[i, j](...)                        for i_in in P(i_tile.length):
                                                    k[i_tile.start + i_in, j](...)

after `tile("i", 4)` and `reorder("i_in", "j")`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.accesses.formula import Formula, less
from pto_wsp.analysis.accesses.instances import Instance
from pto_wsp.analysis.accesses.sites import sites
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import WorkloadRenaming, workload_names
from pto_wsp.ir.scalar import Var, add
from pto_wsp.prove.conflicts import Apart
from pto_wsp.prove.replay import Replayed, iteration_of
from pto_wsp.restructure.legality import questions_within, require_apart
from pto_wsp.restructure.places import (
    Request,
    exchange,
    loop_called,
    mentions,
    require_free_order,
)
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace


def tile(module: Module, name: str, length: int, request: Request) -> Module:
    """Return a module with a loop made two: over tiles of `length` iterations, and inside a tile.

    Tasks keep their order, so this needs no proof.
    """
    loop = loop_called(module, name, request)
    if loop.tile is not None or loop.max_range is not None:
        raise request.refused(f"`{name}` is a loop over tiles already", ("the loop", loop.loc))
    fresh = Fresh(workload_names(module.entry_workload))
    outer, inner = fresh.name(f"{loop.var}_tile"), fresh.name(f"{loop.var}_in")
    tiles = replace(loop, var=outer, name=f"{loop.called}_tile", tile=length, body=(), first=0, step=1)
    index = add(tiles.start, Var(inner))
    body = WorkloadRenaming(values={loop.var: index}).nodes(loop.body)
    within = replace(
        loop, var=inner, name=f"{loop.called}_in", extent=tiles.length, body=body, first=0, step=1
    )
    new = replace(tiles, body=(within,))
    return exchange(module, (loop, [new]))


def reorder(module: Module, outer_name: str, inner_name: str, request: Request) -> Module:
    """Return a module with two nested loops in the other order, if no tasks conflict that this swaps."""
    outer, inner = (loop_called(module, name, request) for name in (outer_name, inner_name))
    if any(node is outer for node in w.walk_nodes(inner.body)):
        hint = f'name the outer loop first: `reorder("{inner_name}", "{outer_name}")`'
        raise request.refused(f"the loop `{inner_name}` contains `{outer_name}`", hint=hint)
    if len(outer.body) != 1 or outer.body[0] is not inner:
        reason = f"the loop `{outer_name}` contains more than the loop `{inner_name}`"
        raise request.refused(reason, ("the outer loop", outer.loc), ("the inner loop", inner.loc))
    if mentions(inner, outer):
        reason = f"the extent of `{inner_name}` depends on `{outer_name}`"
        raise request.refused(reason, ("the inner loop", inner.loc))
    require_free_order(module, (outer,), request)
    found = [site for site in sites(module) if any(around is outer for around in site.loops)]
    if found:
        shared = next(at for at, step in enumerate(found[0].steps) if step is outer)
        depth = sum(isinstance(step, w.Loop) for step in found[0].steps[:shared])
        # Iterations of a parallel loop are independent in whatever is around it.
        becomes_wider = inner.kind == w.PARALLEL and outer.kind != w.PARALLEL
        aparts: list[Apart] = [_Swapped(depth), _BothLater(depth)] if becomes_wider else [_Swapped(depth)]
        for apart in aparts:
            questions = questions_within(found, shared, apart)
            require_apart(module, request, questions, _SwappedTasks(outer, inner, becomes_wider))
    new = replace(inner, body=(replace(outer, body=inner.body),))
    return exchange(module, (outer, [new]))


class _Swapped:
    """The first instance is in an earlier iteration of the outer loop and in a later one of the inner."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __call__(self, one: Instance, other: Instance) -> Sequence[Formula]:
        (i, j), (i_other, j_other) = (each.indices[self.depth : self.depth + 2] for each in (one, other))
        return [less(i, i_other), less(j_other, j)]


class _BothLater(_Swapped):
    """The first instance is in an earlier iteration of both loops."""

    def __call__(self, one: Instance, other: Instance) -> Sequence[Formula]:
        (i, j), (i_other, j_other) = (each.indices[self.depth : self.depth + 2] for each in (one, other))
        return [less(i, i_other), less(j, j_other)]


class _SwappedTasks:
    """The same for two tasks of a call."""

    def __init__(self, outer: w.Loop, inner: w.Loop, counts_both: bool) -> None:
        self.outer = outer
        self.inner = inner
        self.counts_both = counts_both

    def __call__(self, first: Replayed, second: Replayed) -> bool:
        one, other = (iteration_of(each.task, self.inner) for each in (first, second))
        if one is None or other is None or one[0][:-1] != other[0][:-1]:
            return False
        (i, j), (i_other, j_other) = (one[0][-1], one[1]), (other[0][-1], other[1])
        return i < i_other and (j > j_other or (self.counts_both and j < j_other))
