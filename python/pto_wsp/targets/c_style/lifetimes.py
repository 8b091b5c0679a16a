"""When the tiles of a planned kernel are in use."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.buffers import Nest, Use
from pto_wsp.ir.effects import tile_written, tiles_read
from pto_wsp.targets.c_style.plan import Node, PlannedBranch, PlannedLoop, steps_of


def uses(nodes: Sequence[Node]) -> tuple[Use | Nest, ...]:
    """Return what planned nodes have in use: a group or lone step is one moment."""
    found: list[Use | Nest] = []
    for node in nodes:
        match node:
            case PlannedLoop(body=body, live=live):
                found.append(Nest(id(node), uses(body), live))
            case PlannedBranch(then=then, other=other):
                found.append(Nest(id(node), (*uses(then), *uses(other))))
            case _:
                touched = (t for s in steps_of(node) for t in (*tiles_read(s.stmt), tile_written(s.stmt)))
                found.append(Use(id(node), frozenset(filter(None, touched))))
    return tuple(found)
