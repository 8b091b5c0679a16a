"""What the run makes is read only where it is made: every tile that a task reads, an earlier task writes.

A write covers a read where the regions are equal once the loops around the write, beyond those around both,
are matched with loops of the same extents around the read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from pto_wsp.builder.steps import Memref
from pto_wsp.errors import UnknownName
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Region
from pto_wsp.ir.kernel import IN, OUT, KernelFunction
from pto_wsp.ir.scalar import Element, Expr, Var, name_of, substitute, walk
from pto_wsp.support.record import record

Path = tuple[tuple[w.Loop | w.Cond, bool], ...]
"""The loops and branches around a task, outermost first; of a branch, whether it is the other one."""


@record
class _Use:
    """A region that a task reads or writes."""

    region: Region
    path: Path


def require_made(
    body: Sequence[w.Node], kernels: Mapping[str, KernelFunction], local: Mapping[str, Memref]
) -> None:
    """Refuse tasks that read what no earlier task has surely written.

    Args:
        body: of the workload.
        kernels: the kernels of its tasks.
        local: the tensors that the run makes.

    Raises:
        UnknownName: at the first such task.
    """
    written: list[_Use] = []
    moving = {node.name for node in w.walk_nodes(body) if isinstance(node, w.Set)}
    for task, path in _tasks(body, ()):
        pairs = zip(kernels[task.kernel].params, task.args, strict=True)
        uses = [(p.role, a) for p, a in pairs if isinstance(a, Region) and a.tensor in local]
        for role, region in uses:
            read = _Use(region, path)
            if role != OUT and not any(_covers(write, read, moving) for write in written):
                raise UnknownName(
                    name=region.tensor,
                    where="what comes before this task, not for all that it reads",
                    advice="declare it with `.memref(...)`: then a call gives its array",
                    loc=task.loc,
                )
        written += [_Use(region, path) for role, region in uses if role != IN]


def _tasks(body: Sequence[w.Node], path: Path) -> Iterator[tuple[w.Task, Path]]:
    for node in body:
        match node:
            case w.Task():
                yield node, path
            case w.Loop():
                yield from _tasks(node.body, (*path, (node, False)))
            case w.Cond():
                yield from _tasks(node.then, (*path, (node, False)))
                yield from _tasks(node.other, (*path, (node, True)))
            case _:
                pass


def _covers(write: _Use, read: _Use, moving: Set[w.Variable]) -> bool:
    """Whether a write surely has written what a read reads; `moving` are the variables, which change."""
    if write.region.tensor != read.region.tensor:
        return False
    common = 0
    for a, b in zip(write.path, read.path, strict=False):
        if a[0] is not b[0] or a[1] != b[1]:
            break
        common += 1
    inner = [node for node, _ in write.path[common:]]
    loops = [node for node in inner if isinstance(node, w.Loop)]
    exprs = [*write.region.expressions, *(loop.extent for loop in loops)]
    if any(isinstance(e, Element) or name_of(e) in moving for x in exprs for e in walk(x)):
        return False
    around = [node for node, _ in read.path[common:] if isinstance(node, w.Loop)]
    return len(loops) == len(inner) and _matches(write.region, read.region, loops, around, {})


def _matches(
    write: Region, read: Region, loops: Sequence[w.Loop], around: Sequence[w.Loop], names: Mapping[str, str]
) -> bool:
    """Whether the loops of a write can be matched with those of a read so that the regions are equal."""

    def renamed(expr: Expr) -> Expr:
        return substitute(
            expr, lambda e: Var(names[e.name]) if isinstance(e, Var) and e.name in names else None
        )

    if not loops:
        mapped = write.mapped(renamed)
        return all(_contains(a, b) for a, b in zip(mapped.dims, read.dims, strict=True))
    first, *rest = loops
    candidates: Iterable[w.Loop] = (a for a in around if a.var not in names.values())
    return any(
        _matches(write, read, rest, around, {**names, first.var: loop.var})
        for loop in candidates
        if renamed(first.extent) == loop.extent
    )


def _contains(outer: DimSelect, inner: DimSelect) -> bool:
    return isinstance(outer, Full) or outer == inner
