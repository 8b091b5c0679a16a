"""What a key of a schedule is for each task of a workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pto_wsp.errors import BadKey, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Range, Region, Rows, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import (
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    KernelNumber,
    KeyLeaf,
    LoopExtent,
    TaskIndex,
    TaskKernel,
    Var,
    format_expr,
    substitute,
    walk,
)
from pto_wsp.support.record import record


class TaskKeys:
    """Turns a key into the expression that it is at the place of a task.

    Args:
        module: a verified module.
        key: over the names that ir/schedule.py lists.
    """

    def __init__(self, module: Module, key: Expr) -> None:
        self._module = module
        self._key = key
        self._axes = module.entry_workload.axes_by_offsets
        self._leaves = [part for part in walk(key) if isinstance(part, KeyLeaf)]

    def check(self) -> None:
        """Raise BadKey if no task has this key, or one of its names can mean two things."""
        numbers = [leaf for leaf in self._leaves if isinstance(leaf, KernelNumber)]
        kernels = [kernel.name for kernel in self._module.kernels]
        for leaf in numbers:
            name = leaf.kernel
            if name not in kernels:
                advice = did_you_mean(name, kernels)
                raise BadKey(problem=f"no kernel is called `{name}`", detail="", advice=advice, loc=leaf.loc)
        sites = [*_sites(self._module.entry_workload.body, ())]
        found = [{leaf for leaf in self._leaves if self._leaf(leaf, site) is not None} for site in sites]
        if any(len(has) == len({*self._leaves}) for has in found):
            return
        for leaf in self._leaves:
            if not any(leaf in has for has in found):
                raise self._missing(leaf, sites)
        names = " and ".join(f"`{_shown(leaf)}`" for leaf in dict.fromkeys(self._leaves))
        raise BadKey(problem=f"no task has {names} together", detail="", advice="", loc=self._key.loc)

    def at(self, task: w.Task, loops: Sequence[w.Loop]) -> Expr | None:
        """Return the key of `task` inside `loops`, or None if the task lacks one of its names."""
        values = {leaf: self._leaf(leaf, _Site(task, tuple(loops))) for leaf in self._leaves}
        if None in values.values():
            return None
        return substitute(self._key, lambda part: values.get(part) if isinstance(part, KeyLeaf) else None)

    def _leaf(self, leaf: KeyLeaf, site: _Site) -> Expr | None:
        match leaf:
            case TaskIndex():
                return self._index(leaf, site)
            case TaskKernel():
                return self._number(site.task.kernel)
            case KernelNumber(kernel=kernel):
                return self._number(kernel)
            case ArgExtent():
                return self._extent(leaf, site.task)

    def _index(self, leaf: TaskIndex, site: _Site) -> Expr | None:
        name = leaf.loop
        loops = [loop for loop in site.loops if name in (loop.called, _axis_of(loop, self._axes))]
        if len(loops) > 1:
            raise BadKey(
                problem=f"`{_shown(leaf)}` can be the index of two loops around `{site.task.kernel}`",
                detail=f"{len(loops)} loops have the variable or the axis `{name}`",
                advice="use the name of one loop's variable",
                loc=leaf.loc,
                notes=[(f"the loop over `{loop.called}`", loop.loc) for loop in loops],
            )
        return Var(loops[0].var, loc=leaf.loc) if loops else None

    def _number(self, kernel: str) -> Expr:
        return Const([k.name for k in self._module.kernels].index(kernel))

    def _extent(self, leaf: ArgExtent, task: w.Task) -> Expr | None:
        """Return an extent of the view that the kernel gets for a parameter."""
        name = leaf.param
        params = [param.name for param in self._module.kernel(task.kernel).params]
        region = task.args[params.index(name)] if name in params else None
        if not isinstance(region, Region) or not region.kept or (leaf.dim == 1 and len(region.kept) != 2):
            return None
        dim = region.kept[leaf.dim]
        match region.dims[dim]:
            case Range(extent=extent) | Rows(extent=extent):
                return extent
            case TileRange(loop=loop):
                return LoopExtent(loop, leaf.loc)
            case Full():
                size = self._module.entry_workload.tensor(region.tensor).type.dims[dim]
                return Const(size) if isinstance(size, int) else Var(size, loc=leaf.loc)
            case _:
                raise AssertionError("a kept dimension has an extent")

    def _missing(self, leaf: KeyLeaf, sites: Sequence[_Site]) -> BadKey:
        around = [loop for site in sites for loop in site.loops]
        if isinstance(leaf, TaskIndex):
            blocks = [loop for loop in around if loop.block_of == leaf.loop]
            if blocks:
                return _taken_apart(leaf, blocks)
        loops = {name for loop in around for name in (loop.called, _axis_of(loop, self._axes)) if name}
        params = {param.name for site in sites for param in self._module.kernel(site.task.kernel).views}
        names = [*(_shown(TaskIndex(name)) for name in loops), "t.kernel", "t.args.PARAMETER.rows"]
        if isinstance(leaf, ArgExtent):
            names = [_shown(ArgExtent(param, leaf.dim)) for param in params]
        advice = did_you_mean(_shown(leaf), names)
        if isinstance(leaf, TaskIndex) and leaf.loop in ("rows", "cols") and params:
            advice = f"name an argument: `t.args.{min(params)}.{leaf.loop}`"
        return BadKey(
            problem=f"no task has `{_shown(leaf)}`",
            detail="expected the variable or the axis of a loop, or rows or columns of an argument",
            advice=advice,
            loc=leaf.loc,
        )


def _taken_apart(leaf: TaskIndex, blocks: Sequence[w.Loop]) -> BadKey:
    """Return the error of a key over a loop that binary expansion has replaced by blocks."""
    names = [_shown(TaskIndex(name)) for name in dict.fromkeys(block.called for block in blocks)]
    return BadKey(
        problem=f"no task has `{_shown(leaf)}`",
        detail=f"binary expansion has replaced the loop over `{leaf.loop}` by {len(names)} loops",
        advice=f"use the variable of one of these loops, for example `{names[0]}`, or use `t.kernel`",
        loc=leaf.loc,
        notes=[("this loop has `max_range`", blocks[0].loc)],
    )


@record
class _Site:
    """A task and the loops around it, outermost first."""

    task: w.Task
    loops: tuple[w.Loop, ...]


def _sites(body: Sequence[w.Node], loops: tuple[w.Loop, ...]) -> Iterator[_Site]:
    for node in body:
        if isinstance(node, w.Task):
            yield _Site(node, loops)
        for block in w.blocks(node):
            yield from _sites(block, (*loops, node) if isinstance(node, w.Loop) else loops)


def _axis_of(loop: w.Loop, axes: Mapping[str, str]) -> str:
    """Return the name of the axis that a loop runs over, or nothing where it has none.

    `axes` are axes of rows by the tensor that holds their offsets.
    """
    match loop.extent:
        case Var(name=name):
            return name
        case Binary(op="sub", a=Element(name=end), b=Element(name=start)) if start == end:
            return axes.get(start, "")
        case _:
            return ""


def _shown(leaf: KeyLeaf) -> str:
    """Return a name of a key as the user writes it."""
    if isinstance(leaf, ArgExtent):
        return f"t.args.{leaf.param}.{('rows', 'cols')[leaf.dim]}"
    return format_expr(leaf)
