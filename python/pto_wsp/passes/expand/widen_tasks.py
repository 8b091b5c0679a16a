"""Let the tasks of a loop each do the work of several iterations, on larger tiles.

    FOR %i, 0, %n, 1                                    FOR %i, 0, %n / 2, 1
      CALL @f(%X[%i * 32 :+ 32, :])            ->         CALL @f_64(%X[%i * 2 * 32 :+ 64, :])

A region whose rows the loop variable selects grows, and so does every dimension of the kernel that is bound
to them. What else such a dimension belongs to is

- a tensor that each iteration writes before it reads it, and that nothing else uses: its regions grow too;
- an input that every iteration reads as it is: its rows repeat in the larger tile.

Anything else is refused, and so is a value that an iteration leaves without having read it, for the last
iteration is then another one. A kernel that adds up over a dimension that grows does so in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from pto_wsp.analysis.affine import linear, mentions
from pto_wsp.analysis.dimensions import Dim, DimensionClasses
from pto_wsp.errors import CannotExpand
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.location import Location
from pto_wsp.passes.expand.retile import retile
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace

Place = tuple[str, int]
"""A tensor or parameter, and one of its dimensions."""


class Variants:
    """The kernels of a module, and those made from them for larger tiles."""

    def __init__(self, kernels: Sequence[k.KernelFunction], taken: Sequence[str]) -> None:
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self._fresh = Fresh(taken)
        self._made: dict[tuple[str, int, frozenset[Dim], frozenset[str]], str] = {}
        self._classes: dict[str, DimensionClasses] = {}

    def classes(self, name: str) -> DimensionClasses:
        """Return the classes of the dimensions of a kernel."""
        if name not in self._classes:
            self._classes[name] = DimensionClasses(self.kernels[name])
        return self._classes[name]

    def larger(
        self, name: str, rows: int, factor: int, growing: frozenset[Dim], periodic: frozenset[str]
    ) -> str:
        """Return the name of a kernel for larger tiles, which is created once."""
        key = (name, factor, growing, periodic)
        if key not in self._made:
            made = self._made[key] = self._fresh.name(f"{name}_{rows}")
            self.kernels[made] = retile(
                self.kernels[name], made, factor, self.classes(name), growing, periodic
            )
        return self._made[key]


@record
class _Plan:
    """What grows in one task: classes of the kernel, and the parameters whose rows repeat."""

    growing: frozenset[Dim]
    periodic: frozenset[str]


class Widening:
    """The body of one loop, for any factor.

    Args:
        variants: the kernels.
        workload: the function before any of its loops was expanded.
        original: the loop in it.
        body: the body of the loop, inner loops expanded.

    Attributes:
        base: rows that the tasks of the body work on per iteration.
    """

    def __init__(
        self, variants: Variants, workload: w.WorkloadFunction, original: w.Loop, body: tuple[w.Node, ...]
    ) -> None:
        self.variants = variants
        self.loop = original
        self.body = body
        self.tasks = [*w.tasks(body)]
        inside = {id(task) for task in w.tasks(original.body)}
        self.elsewhere = {
            a.tensor for t in w.tasks(workload.body) if id(t) not in inside for a in _regions(t)
        }
        self._check_nodes()
        self.selected = {id(task): [*self._selected(task)] for task in self.tasks}
        self.base = self._base()
        self.grown: set[Place] = set()
        self.plans = self._plans()
        self._larger: dict[int, tuple[w.Node, ...]] = {}

    def refuse(self, reason: str, loc: Location | None) -> CannotExpand:
        """Return the error that the loop's tasks cannot have larger tiles."""
        notes = [(reason, loc)] if loc else []
        return CannotExpand(loop=self.loop.var, reason=reason, loc=self.loop.loc or loc, notes=notes)

    # --- what the body may contain ---

    def _check_nodes(self) -> None:
        for node in w.walk_nodes(self.body):
            if not isinstance(node, (w.Task, w.Loop, w.Cond)):
                raise self.refuse("on larger tiles, a variable would be set less often", node.loc)
            if isinstance(node, w.Task):
                exprs: Sequence[Expr] = [arg for arg in node.args if not isinstance(arg, Region)]
            else:
                exprs = w.node_expressions(node)
            if any(mentions(expr, self.loop.var) for expr in exprs):
                what = "a scalar argument" if isinstance(node, w.Task) else "control"
                raise self.refuse(f"{what} depends on `{self.loop.var}`, which selects tiles", node.loc)

    def _base(self) -> int:
        found: dict[int, Location | None] = {}
        for task in self.tasks:
            for _, _, rows in self.selected[id(task)]:
                found.setdefault(rows, task.loc)
        if len(found) > 1:
            counts = " and ".join(map(str, sorted(found)))
            raise self.refuse(f"its tasks step over tiles of {counts} rows", [*found.values()][1])
        if not found:
            raise self.refuse("no task works on a tile that it selects", self.loop.loc)
        return next(iter(found))

    def _selected(self, task: w.Task) -> Iterator[tuple[str, int, int]]:
        """Yield parameter, dimension of its view and rows, where the loop variable selects a range."""
        for param, region in self._arguments(task):
            for number, at in enumerate(region.kept):
                rows = self._rows(region.dims[at], task.loc)
                if rows:
                    yield param.name, number, rows
            dropped = (d for i, d in enumerate(region.dims) if i not in region.kept)
            if any(mentions(e, self.loop.var) for e in Region("", tuple(dropped)).expressions):
                raise self.refuse(f"`{self.loop.var}` selects an index, which has no larger tile", task.loc)

    def _rows(self, dim: DimSelect, loc: Location | None) -> int:
        """Return the rows of a range that the loop variable moves by its extent; 0 if it moves nothing."""
        exprs = Region("", (dim,)).expressions
        if not any(mentions(expr, self.loop.var) for expr in exprs):
            return 0
        if isinstance(dim, Range) and isinstance(dim.extent, Const):
            rows = int(dim.extent.value)
            if rows > 0 and linear(dim.start).factor(self.loop.var) == rows:
                return rows
        raise self.refuse(f"`{self.loop.var}` selects something else than whole tiles", loc)

    def _arguments(self, task: w.Task) -> list[tuple[k.Param, Region]]:
        kernel = self.variants.kernels[task.kernel]
        pairs = zip(kernel.params, task.args, strict=True)
        return [(param, arg) for param, arg in pairs if isinstance(arg, Region)]

    # --- what grows ---

    def _plans(self) -> list[_Plan]:
        while True:
            before = len(self.grown)
            plans = [self._plan(task) for task in self.tasks]
            if len(self.grown) == before:
                break
        for task, plan in zip(self.tasks, plans, strict=True):
            self._check_left_behind(task, plan)
        return plans

    def _plan(self, task: w.Task) -> _Plan:
        classes = self.variants.classes(task.kernel)
        selected = {(name, number) for name, number, _ in self.selected[id(task)]}
        growing = self._growing(task, selected)
        periodic: set[str] = set()
        for param, region in self._arguments(task):
            for number, at in enumerate(region.kept):
                grows = classes.of(Dim(param.name, number, True)) in growing
                if grows and (param.name, number) not in selected:
                    self._bound(task, param, number, region, at, periodic)
        return _Plan(growing, frozenset(periodic))

    def _growing(self, task: w.Task, selected: AbstractSet[Place]) -> frozenset[Dim]:
        """Return the classes that grow: those of ranges that are selected, and of tensors that grow."""
        kernel = self.variants.kernels[task.kernel]
        if kernel.body is None:
            raise self.refuse(
                f"kernel `{kernel.name}` has no tile code that could work on more rows", task.loc
            )
        classes = self.variants.classes(task.kernel)
        found: set[Dim] = set()
        for param, region in self._arguments(task):
            for number, at in enumerate(region.kept):
                if (param.name, number) in selected or (region.tensor, at) in self.grown:
                    found.add(classes.of(Dim(param.name, number, True)))
        if not found:
            raise self.refuse(f"a task of `{kernel.name}` would run less often", task.loc)
        for fixed in filter(None, map(classes.fixed, sorted(found, key=repr))):
            reason = f"`{kernel.name}` cannot work on larger tiles: {fixed.reason}"
            raise self.refuse(reason, fixed.loc or task.loc)
        return frozenset(found)

    def _bound(
        self, task: w.Task, param: k.Param, number: int, region: Region, at: int, periodic: set[str]
    ) -> None:
        """Decide about a dimension that grows though the loop variable does not select it."""
        if self._is_temporary(region, at):
            self.grown.add((region.tensor, at))
        elif param.role == k.IN and number == 0 and self._is_unwritten(region.tensor):
            periodic.add(param.name)
        else:
            reason = f"`{region.tensor}` would have to grow with the tiles of `{param.name}`"
            if region.dims[at] == Full():
                reason += ": give it a shape with room for them"
            raise self.refuse(reason, task.loc)

    def _is_unwritten(self, tensor: str) -> bool:
        return not any(
            region.tensor == tensor and param.role != k.IN
            for task in self.tasks
            for param, region in self._arguments(task)
        )

    def _is_temporary(self, region: Region, at: int) -> bool:
        """Whether only the loop uses a tensor, in one place, and each iteration writes it, then reads it."""
        uses = [(p, r) for task in self.tasks for p, r in self._arguments(task) if r.tensor == region.tensor]
        # In a task, reads come before writes.
        first = next(task for task in self.tasks if any(r.tensor == region.tensor for r in _regions(task)))
        roles = {p.role for p, r in self._arguments(first) if r.tensor == region.tensor}
        is_read = any(p.role != k.OUT for p, _ in uses)
        places = {_constant_range(r.dims[at]) for _, r in uses}
        is_inside = region.tensor not in self.elsewhere and is_read and roles == {k.OUT}
        return is_inside and len(places) == 1 and None not in places

    def _check_left_behind(self, task: w.Task, plan: _Plan) -> None:
        """Refuse a result that does not grow, and that no iteration reads."""
        classes = self.variants.classes(task.kernel)
        for param, region in self._arguments(task):
            dims = (Dim(param.name, number, True) for number in range(len(region.kept)))
            if param.role != k.OUT or any(classes.of(dim) in plan.growing for dim in dims):
                continue
            readers = (r for t in self.tasks for p, r in self._arguments(t) if p.role != k.OUT)
            if not any(r.tensor == region.tensor for r in readers):
                reason = f"`{region.tensor}` keeps what the last tile leaves, which would be a larger one"
                raise self.refuse(reason, task.loc)

    # --- the larger body ---

    def nodes(self, rows: int) -> tuple[w.Node, ...]:
        """Return the body for tiles of `rows` rows, a multiple of `base` above it."""
        if rows not in self._larger:
            plans = {id(task): plan for task, plan in zip(self.tasks, self.plans, strict=True)}
            self._larger[rows] = self._nodes(self.body, plans, rows)
        return self._larger[rows]

    def _nodes(self, body: tuple[w.Node, ...], plans: Mapping[int, _Plan], rows: int) -> tuple[w.Node, ...]:
        return tuple(
            self._task(node, plans[id(node)], rows)
            if isinstance(node, w.Task)
            else w.rebuild(node, lambda block: self._nodes(block, plans, rows))
            for node in body
        )

    def _task(self, task: w.Task, plan: _Plan, rows: int) -> w.Task:
        factor = rows // self.base
        classes = self.variants.classes(task.kernel)
        kernel = self.variants.kernels[task.kernel]
        args: list[Region | Expr] = []
        for param, arg in zip(kernel.params, task.args, strict=True):
            if isinstance(arg, Region) and param.name not in plan.periodic:
                growing = {
                    at
                    for number, at in enumerate(arg.kept)
                    if classes.of(Dim(param.name, number, True)) in plan.growing
                }
                dims = (_larger(d, factor) if i in growing else d for i, d in enumerate(arg.dims))
                arg = replace(arg, dims=tuple(dims))
            args.append(arg)
        larger = self.variants.larger(task.kernel, rows, factor, plan.growing, plan.periodic)
        return replace(task, kernel=larger, args=tuple(args))


def _regions(task: w.Task) -> Iterator[Region]:
    return (arg for arg in task.args if isinstance(arg, Region))


def _constant_range(dim: DimSelect) -> Range | None:
    return dim if isinstance(dim, Range) and isinstance(dim.extent, Const) else None


def _larger(dim: DimSelect, factor: int) -> DimSelect:
    if dim == Full():
        return dim
    assert isinstance(dim, Range) and isinstance(dim.extent, Const)
    return Range(dim.start, Const(int(dim.extent.value) * factor))
