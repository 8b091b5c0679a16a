"""The operator `split_tasks`: tasks of some of the rows, where rows do not depend on each other.

for b in P("n"):                           for b in P("n"):
    norm[b](x=X[b], y=Y[b])    ->              for part in P.tiles(64, 16):
                                                   norm_rows16[b, part](x=X[b, part], y=Y[b, part])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pto_wsp.analysis.accesses.sites import sites
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Range, Region, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import workload_names
from pto_wsp.ir.scalar import Const, Element, Expr, Extent, LoopExtent, LoopStart, TileElement, Var, add, walk
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.prove.replay import Replayed
from pto_wsp.restructure.legality import questions_between, require_apart
from pto_wsp.restructure.places import Request, exchange, task_of
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace
from pto_wsp.types.tile import TileType

ALIKE = frozenset(
    {
        Form.UNARY,
        Form.BINARY,
        Form.TILE_SCALAR,
        Form.TERNARY,
        Form.BINARY_SCALAR,
        Form.ROW_BROADCAST,
        Form.ROW_EXPAND,
        Form.COMPARE,
        Form.COMPARE_SCALAR,
        Form.SELECT,
        Form.SELECT_SCALAR,
        Form.CONVERT,
        Form.ROW_REDUCE,
        Form.ROW_ARG,
    }
)
"""Forms whose row i depends on rows i of the operands alone."""


MADE = frozenset({Form.FILL, Form.COL_EXPAND})
"""Forms whose rows are all made of the same values."""


def split_tasks(module: Module, name: str, rows: int, request: Request) -> Module:
    """Return a module in which each task of a kernel is several, one for each `rows` of its rows."""
    task, _ = task_of(module, name, request)
    kernel = module.kernel(name)
    _require_plain(kernel, task, request)
    split = _Rows(kernel, rows, request).split()
    _require_own_rows(module, task, split, request)
    fresh = Fresh(f.name for f in (*module.kernels, *module.workloads))
    smaller = replace(_with_rows(kernel, split, rows), name=fresh.name(f"{name}_rows{rows}"))
    loop = _loop(module, kernel, task, smaller.name, split, rows, request)
    return exchange(replace(module, kernels=(*module.kernels, smaller)), (task, [loop]))


def _require_plain(kernel: k.KernelFunction, task: w.Task, request: Request) -> None:
    note = f"`{kernel.name}`", kernel.loc
    if kernel.body is None:
        raise request.refused(f"the body of `{kernel.name}` is C++", note)
    if kernel.block_dim > 1 or task.workspace is not None:
        raise request.refused(f"`{kernel.name}` has several instances, or a workspace", note)
    if task.after or task.label:
        raise request.refused("explicit edges name the task", ("the task", task.loc))


@record
class _Whole:
    """Why all rows of a tile or view are needed together."""

    reason: str
    loc: Location | None


class _Rows:
    """Finds the tiles and views of a kernel whose rows are independent."""

    def __init__(self, kernel: k.KernelFunction, rows: int, request: Request) -> None:
        self.kernel = kernel
        self.request = request
        self.types = dict(kernel.tiles) | {
            p.name: p.type for p in kernel.params if isinstance(p.type, TileType)
        }
        outputs = [p for p in kernel.views if p.role != k.IN]
        heights = {t.rows if isinstance(t := p.type, TileType) else 0 for p in outputs}
        if len(heights) != 1 or heights <= {0, 1} or rows >= max(heights):
            expected = "one number of rows in all results, larger than that of the new tasks"
            raise request.refused(f"expected {expected}, found {sorted(heights)}", ("the kernel", kernel.loc))
        self.height = heights.pop()
        self.outputs = outputs
        self.groups: dict[str, str] = {}
        self.whole: dict[str, _Whole] = {}

    def split(self) -> frozenset[str]:
        """Return the names of the tiles and views whose rows are independent."""
        for stmt in k.walk_statements(self.kernel.body or ()):
            self._statement(stmt)
        for name, kind in self.types.items():
            if kind.rows != self.height:
                self._needs_all(name, f"`{name}` has {kind.rows} rows", None)
        for output in self.outputs:
            why = self.whole.get(self._group(output.name))
            if why is not None:
                reason = f"rows of `{output.name}` depend on each other: {why.reason}"
                raise self.request.refused(reason, ("here", why.loc or output.loc))
        return frozenset(name for name in self.types if self._group(name) not in self.whole)

    def _group(self, name: str) -> str:
        while name in self.groups:
            name = self.groups[name]
        return name

    def _join(self, names: Iterable[str]) -> None:
        first, *others = [self._group(name) for name in names]
        for other in others:
            if other != first:
                self.groups[other] = first
                if other in self.whole:
                    self.whole.setdefault(first, self.whole[other])

    def _needs_all(self, name: str, reason: str, loc: Location | None) -> None:
        self.whole.setdefault(self._group(name), _Whole(reason, loc))

    def _statement(self, stmt: k.Stmt) -> None:
        for expr in k.statement_expressions(stmt):
            self._expression(expr, stmt.loc)
        if isinstance(stmt, (k.Load, k.Store)):
            self._move(stmt.tile, stmt.region, stmt)
        elif isinstance(stmt, k.Instr):
            self._instruction(stmt)
        elif isinstance(stmt, k.Print):
            for tile in stmt.tiles:
                self._needs_all(tile, "the kernel prints it", stmt.loc)

    def _expression(self, expr: Expr, loc: Location | None) -> None:
        for part in walk(expr):
            if isinstance(part, (TileElement, Element)):
                self._needs_all(part.name, "the kernel reads an element of it as a number", loc)
            elif isinstance(part, Extent) and part.dim == 0:
                self._needs_all(part.name, "the kernel asks for its number of rows", loc)

    def _move(self, tile: str, region: Region, stmt: k.Load | k.Store) -> None:
        is_of_rows = isinstance(region.dims[0], Full) and stmt.rows is None and len(region.kept) == 2
        if is_of_rows and region.tensor in self.types:
            return self._join((tile, region.tensor))
        for name in (tile, region.tensor):
            self._needs_all(name, "the kernel moves some of its rows, or through row numbers", stmt.loc)

    def _instruction(self, stmt: k.Instr) -> None:
        form = TABLE[stmt.op].form
        alike, whole = [stmt.dst, *stmt.tiles], list[str]()
        if form in MADE and self._asks_for_all(stmt):
            alike, whole = [], [*stmt.tiles]
        elif form is Form.COL_BROADCAST:
            alike, whole = [stmt.dst, stmt.tiles[0]], [*stmt.tiles[1:]]
        elif form in (Form.MATMUL, Form.MATMUL_ACC, Form.MATMUL_BIAS) and not stmt.attrs:
            a, b = self._factors(form, stmt.tiles)
            alike, whole = [stmt.dst, a], [b]
            others = [tile for tile in stmt.tiles if tile not in (a, b)]
            (alike if form is Form.MATMUL_ACC else whole).extend(others)
        elif form not in ALIKE:
            alike, whole = [], alike
        for tile in whole:
            self._needs_all(tile, f"`{stmt.op}` takes all of its rows together", stmt.loc)
        if alike:
            self._join(alike)

    def _asks_for_all(self, stmt: k.Instr) -> bool:
        rows = stmt.attr("rows")
        return rows is None or rows == self.height or rows == Const(self.height)

    @staticmethod
    def _factors(form: Form, tiles: Sequence[str]) -> tuple[str, str]:
        a, b = tiles[:2] if form is Form.MATMUL_BIAS else tiles[-2:]
        return a, b


def _with_rows(kernel: k.KernelFunction, split: frozenset[str], rows: int) -> k.KernelFunction:
    params = tuple(
        replace(p, type=replace(p.type, rows=rows)) if p.name in split and isinstance(p.type, TileType) else p
        for p in kernel.params
    )
    tiles = tuple((n, replace(t, rows=rows) if n in split else t) for n, t in kernel.tiles)
    body = tuple(_asking(stmt, split, rows) for stmt in kernel.body or ())
    return replace(kernel, params=params, tiles=tiles, body=body, cost=None)


def _asking(stmt: k.Stmt, split: frozenset[str], rows: int) -> k.Stmt:
    """Return a statement that asks for that many rows where it makes a tile of independent rows."""
    stmt = k.rebuild(stmt, lambda block: (_asking(inner, split, rows) for inner in block))
    if isinstance(stmt, k.Instr) and stmt.dst in split and stmt.attr("rows") is not None:
        attrs = tuple((key, Const(rows) if key == "rows" else value) for key, value in stmt.attrs)
        return replace(stmt, attrs=attrs)
    return stmt


def _require_own_rows(module: Module, task: w.Task, split: frozenset[str], request: Request) -> None:
    """Raise CannotRestructure unless what a new task writes is read by no other one of the same old task."""
    site = next(s for s in sites(module) if s.node is task)
    questions = [
        question
        for question in questions_between([site], [site], len(site.steps), lambda a, b: [])
        if question.first.is_write
        and question.first is not question.second
        and not (
            question.first.region == question.second.region
            and {question.first.param.name, question.second.param.name} <= split
        )
    ]

    def is_one_task(first: Replayed, second: Replayed) -> bool:
        return False

    require_apart(module, request, questions, is_one_task)


def _loop(
    module: Module,
    kernel: k.KernelFunction,
    task: w.Task,
    name: str,
    split: frozenset[str],
    rows: int,
    request: Request,
) -> w.Loop:
    var = Fresh(workload_names(module.entry_workload)).name("part")
    extents: dict[Expr, str] = {}
    args: list[Region | Expr] = []
    loop = w.Loop(w.PARALLEL, var, Const(0), rows, (), task.loc)
    for param, arg in zip(kernel.params, task.args, strict=True):
        if isinstance(arg, Region) and param.name in split:
            extents.setdefault(_extent(module, arg, param, request), param.name)
            arg = replace(arg, dims=tuple(_part(arg, loop)))
        args.append(arg)
    if len(extents) != 1:
        names = " and ".join(f"`{each}`" for each in extents.values())
        raise request.refused(f"it is not known that {names} have equally many rows", ("here", task.loc))
    part = replace(task, kernel=name, args=tuple(args), keys=(*task.keys, Var(var)), cost=None)
    return replace(loop, extent=next(iter(extents)), body=(part,))


def _extent(module: Module, region: Region, param: k.Param, request: Request) -> Expr:
    """Return the number of rows of a region."""
    dim = region.kept[0]
    match region.dims[dim]:
        case Full():
            size = module.entry_workload.tensor(region.tensor).type.dims[dim]
            return Const(size) if isinstance(size, int) else Var(size)
        case TileRange(loop=loop):
            return LoopExtent(loop)
        case Range(extent=extent):
            return extent
        case _:
            reason = f"row numbers decide what `{param.name}` is"
            raise request.refused(reason, ("here", region.loc))


def _part(region: Region, loop: w.Loop) -> Iterator[DimSelect]:
    for at, dim in enumerate(region.dims):
        if at != region.kept[0]:
            yield dim
            continue
        match dim:
            case TileRange(loop=outer):
                yield Range(add(LoopStart(outer), loop.start), loop.length)
            case Range(start=start):
                yield Range(add(start, loop.start), loop.length)
            case _:
                yield TileRange(loop.var)
