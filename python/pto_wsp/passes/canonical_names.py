"""Give what functions declare for themselves names by their order: equal programs are then equal modules.

    %sum = trowsum %squares    ->    %t1 = trowsum %t0

Tiles, scalars and variables, loops and labels get new names; parameters keep theirs. Tiles are declared in
the order in which they are written, and only if something uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.effects import tile_written
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import KernelRenaming, WorkloadRenaming
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace


def canonical_names(module: Module) -> Module:
    """Return `module` with names that follow from its structure."""
    kernels = tuple(_kernel(kernel) for kernel in module.kernels)
    return replace(module, kernels=kernels, workloads=tuple(_workload(f) for f in module.workloads))


def _kernel(kernel: k.KernelFunction) -> k.KernelFunction:
    if kernel.body is None:
        return kernel
    statements = [*k.walk_statements(kernel.body)]
    fresh = Fresh(p.name for p in kernel.params)
    tiles = _numbered("t", _written(statements), fresh)
    types, scalar_types = dict(kernel.tiles), dict(kernel.scalars)
    assigned = (s.name for s in statements if isinstance(s, k.Assign) and s.name in scalar_types)
    scalars = _numbered("s", assigned, fresh)
    loops = _numbered("i", (stmt.var for stmt in statements if isinstance(stmt, k.For)), fresh)
    renaming = KernelRenaming(tiles=tiles, targets={**scalars, **loops})
    return replace(
        kernel,
        tiles=tuple((new, types[old]) for old, new in tiles.items()),
        scalars=tuple((new, scalar_types[old]) for old, new in scalars.items()),
        body=renaming.statements(kernel.body),
    )


def _written(statements: Iterable[k.Stmt]) -> Iterator[str]:
    return (tile for tile in map(tile_written, statements) if tile is not None)


def _workload(function: w.WorkloadFunction) -> w.WorkloadFunction:
    nodes = [*w.walk_nodes(function.body)]
    fresh = Fresh(p.name for p in function.params)
    loops = _numbered("i", (node.var for node in nodes if isinstance(node, w.Loop)), fresh)
    variables = _numbered("v", (name for name in function.variables if isinstance(name, str)), fresh)
    labels = _numbered("l", (node.label for node in nodes if isinstance(node, w.Task) and node.label), fresh)
    renaming = WorkloadRenaming(loops=loops, variables=variables, labels=labels)
    return replace(function, body=_without_names(renaming.nodes(function.body)))


def _without_names(body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
    """Forget what the user called loops."""
    found = (w.rebuild(node, _without_names) for node in body)
    return tuple(replace(node, name="") if isinstance(node, w.Loop) else node for node in found)


def _numbered(stem: str, names: Iterable[str], fresh: Fresh) -> dict[str, str]:
    return {name: fresh.name(f"{stem}{number}") for number, name in enumerate(dict.fromkeys(names))}
