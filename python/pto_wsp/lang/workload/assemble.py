"""From what was recorded of a workload to a module: types decided, kernels specialised, arguments checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from pto_wsp.analysis.unwritten_reads import first_unwritten_read
from pto_wsp.errors import (
    ArgumentDType,
    ArgumentShape,
    NameClash,
    PtoError,
    RankMismatch,
    UnknownArgument,
    UnknownName,
    UnsetSlot,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.kernel import IN, KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, Slot, Var, walk
from pto_wsp.lang import arithmetic
from pto_wsp.lang.kernel.declarations import ConstexprType, Extents, KernelParam, TemplateType, amount
from pto_wsp.lang.operands import Scalar, expression, integer_constant
from pto_wsp.lang.workload.blocks import (
    OpenCond,
    OpenLoop,
    OpenNode,
    OpenProcess,
    OpenReceive,
    OpenSend,
    OpenTask,
    tasks_of,
)
from pto_wsp.lang.workload.panels import TileLoop, in_panels
from pto_wsp.lang.workload.ragged import RaggedAxis
from pto_wsp.lang.workload.ranges import Span
from pto_wsp.lang.workload.tensor import RowSet, Tensor, View, require_inside
from pto_wsp.lang.workload.trace import Param, WorkloadTrace, not_a_scalar
from pto_wsp.lang.workload.untyped import SCALAR, TENSOR, Untyped
from pto_wsp.location import Location, keyword_location
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace
from pto_wsp.types.axis import DenseDyn
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import ScalarType, TensorType, TileType, ViewType


def assemble(trace: WorkloadTrace) -> Module:
    """Return the module of a finished trace.

    Raises:
        FrontendError: a task whose arguments do not fit its kernel, at the task.
    """
    return _Assembler(trace).module()


@record
class _Argument:
    """A tensor argument: its tensor, and the indices of its first dimensions."""

    base: Tensor | Untyped
    entries: tuple[DimSelect, ...]

    @property
    def dropped(self) -> int:
        return sum(isinstance(e, (Index, Merged)) for e in self.entries)


@record
class _Template:
    """What the constants of a task make of its kernel."""

    constants: Mapping[str, object]
    params: tuple[KernelParam, ...]


class _Assembler:
    def __init__(self, trace: WorkloadTrace) -> None:
        self.trace = trace
        self.kernels: dict[str, KernelFunction] = {}
        self.variants: dict[str, list[KernelFunction]] = {}
        self.dims: dict[str, tuple[int | str, ...]] = {}
        self.tiles: dict[str, TileLoop] = {}
        self.labels = _labels(trace)
        self.templates: dict[int, _Template] = {}

    def module(self) -> Module:
        for task in tasks_of(self.trace.blocks.body):
            for param in self.template(task).params:
                self.decide(task, param, task.args[param.name])
        untyped = [p for p in self.trace.params.values() if isinstance(p, Untyped)]
        for param in untyped:
            if param.kind == TENSOR and (param.rank is None or param.dtype is None):
                raise param.undecided("an element type and rank", "kernels that take any")
        for entry in self.trace.untyped_elements:
            assert isinstance(entry.base, Untyped) and entry.base.dtype is not None
            if not entry.base.dtype.is_integer:
                raise not_a_scalar(entry, str(entry.base.dtype))
        body = self.renamed(self.nodes(self.trace.blocks.body))
        for param in untyped:
            if param.kind is None:
                raise param.undecided("a use that says what it is", "none")
        workload = w.WorkloadFunction(self.trace.name, self.params(), body, self.trace.loc)
        _require_set_slots(workload)
        self.require_written(workload)
        if workload.name in self.kernels:
            raise NameClash(kind="functions", name=workload.name, loc=self.trace.loc)
        return Module(workload.name, tuple(self.kernels.values()), (workload,), workload.name)

    def require_written(self, workload: w.WorkloadFunction) -> None:
        """Refuse reads of local tensors that a run could reach before a task has written them."""
        local = {t.name for t in workload.tensors if t.is_local and t.channel is None}
        unwritten = first_unwritten_read(workload.body, self.kernels, local) if local else None
        if unwritten is not None:
            axes = {name: axis.param.name for axis in self.trace.axes for name in axis.param.tensors}
            raise UnknownName(
                name=axes.get(unwritten.tensor, unwritten.tensor),
                where="what comes before its `group_by`, or after the loop or branch around that",
                advice="use it in the loop or branch that makes it",
                loc=unwritten.loc,
            )

    # --- parameters ---

    def decide(self, task: OpenTask, param: KernelParam, value: object) -> None:
        """Let a use of an untyped parameter decide its type."""
        base = value.base if isinstance(value, View) else value
        if not isinstance(base, Untyped):
            return
        match param.type:
            case ScalarType(dtype=dtype) if base is value:
                if base.kind is None:
                    base.use(SCALAR)
                    base.dtype = dtype
            case TileType(dtype=dtype) | ViewType(dtype=DType() as dtype):
                base.use(TENSOR)
                argument = _argument(value)
                assert argument is not None
                if base.rank is None:
                    base.rank = argument.dropped + _rank(param.type)
                base.dtype = base.dtype or dtype
            case ViewType():
                base.use(TENSOR)
            case ScalarType() | ConstexprType() | TemplateType():
                pass
            case _:
                assert_never(param.type)

    def params(self) -> tuple[w.WorkloadParam, ...]:
        found: dict[str, w.WorkloadParam] = {}
        for name, param in (*self.trace.params.items(), *self.trace.captured.items()):
            found[name] = self.param(name, param)
        for name, size in self.trace.sizes.items():
            found.setdefault(name, size)
        for axis in self.trace.axes:
            found.update({param.name: param for param in axis.hidden()})
        for name, (channel, ring) in self.trace.channels.items():
            kind = TensorType(ring.dtype, ring.dims)
            record = channel.record
            if record.merge == w.TIME and self.trace.is_nondeterministic:
                record = replace(record, merge=w.ARRIVAL)
            found[name] = w.TensorParam(name, kind, channel.loc, is_local=True, channel=record)
        return tuple(found.values())

    def param(self, name: str, param: Param | DenseDyn) -> w.WorkloadParam:
        match param:
            case Tensor():
                place = self.trace.places.get(name, self.trace.loc)
                last = param.dims[-1] if param.stored is not param else None
                columns = last if isinstance(last, int) else None
                kind = TensorType(param.dtype, param.stored.dims)
                is_distinct = any(param is tensor for tensor in self.trace.distinct)
                return w.TensorParam(name, kind, place, is_distinct=is_distinct, columns=columns)
            case RaggedAxis():
                return param.param
            case Untyped(kind="an axis"):
                return self.trace.sizes.get(name) or w.SizeParam(name, loc=param.loc)
            case Untyped(kind="a scalar", dtype=DType() as dtype):
                return w.ScalarParam(name, ScalarType(dtype), param.loc)
            case Untyped(dtype=DType() as dtype):
                return w.TensorParam(name, TensorType(dtype, self.tensor_dims(param)), param.loc)
            case w.ScalarParam() | w.SizeParam():
                return param
            case _:
                return self.trace.sizes[name]

    def tensor_dims(self, tensor: Tensor | Untyped) -> tuple[int | str, ...]:
        if isinstance(tensor, Tensor):
            return tensor.dims
        if tensor.name not in self.dims:
            assert tensor.rank is not None
            dims = tuple(self.trace.unique(f"{tensor.name}_{i}") for i in range(tensor.rank))
            self.trace.sizes.update({d: w.SizeParam(d, loc=tensor.loc) for d in dims})
            self.dims[tensor.name] = dims
        return self.dims[tensor.name]

    # --- body ---

    def nodes(self, body: Sequence[OpenNode]) -> tuple[w.Node, ...]:
        return tuple(self.node(node) for node in body)

    def node(self, node: OpenNode) -> w.Node:
        match node:
            case OpenTask():
                return self.task(node)
            case OpenLoop():
                if node.tile is not None:
                    self.tiles[node.var] = (node.extent, node.tile)
                inner = self.nodes(node.body)
                return w.Loop(
                    node.kind,
                    node.var,
                    node.extent,
                    node.tile,
                    inner,
                    node.loc,
                    max_range=node.expansion.max_range,
                    min_range=node.expansion.min_range,
                    tile_levels=node.expansion.tile_levels,
                    name=node.name,
                )
            case OpenCond():
                then, other = self.nodes(node.then), self.nodes(node.other)
                return w.Cond(node.condition, then, other, node.loc)
            case OpenProcess():
                return w.Process(node.name, self.nodes(node.body), node.loc)
            case OpenSend():
                body = self.nodes(node.body)
                return w.Send(node.channel, node.slot, node.index, node.scalars, body, node.loc)
            case OpenReceive():
                body = self.nodes(node.body)
                names = (node.slot, node.index, node.scalars)
                return w.Receive(node.channel, *names, node.ends_loop, body, node.loc)
            case w.Set() | w.Refuse() | w.Delay():
                return node
            case _:
                assert_never(node)

    def task(self, task: OpenTask) -> w.Task:
        views: dict[str, ViewType] = {}
        args: list[Region | Expr] = []
        template = self.template(task)
        for param in template.params:
            value = task.args[param.name]
            if isinstance(param.type, ScalarType):
                args.append(self.scalar(task, param, param.type, value))
            elif isinstance(param.type, (TileType, ViewType)):
                region, dtype = self.region(task, param, param.type, value)
                args.append(region)
                if param.is_generic:
                    rank = len(region.kept)
                    views[param.name] = ViewType(dtype, (None,) * rank)
        kernel = self.add_kernel(task.kernel.specialise(views, template.constants), task)
        label = self.labels.get(id(task), "")
        after = tuple(dict.fromkeys(self.labels[id(t)] for t in task.after))
        workspace, cost = self.amounts(task, args)
        return w.Task(kernel, tuple(args), task.keys, task.loc, label, after, workspace, cost)

    def amounts(self, task: OpenTask, args: Sequence[Region | Expr]) -> tuple[Expr | None, Expr | None]:
        """Return the workspace and the cost of a task, as its kernel declares them."""
        declaration = task.kernel.declaration
        if declaration.workspace is None and declaration.cost is None:
            return None, None
        scalars = iter([arg for arg in args if not isinstance(arg, Region)])
        values: dict[str, object] = {}
        for param in task.kernel.params:
            value = task.args[param.name]
            if isinstance(param.type, ConstexprType):
                values[param.name] = value
            elif isinstance(param.type, ScalarType):
                values[param.name] = Scalar(next(scalars))
            else:
                values[param.name] = Extents(tuple(map(Scalar, self.extents(value))))
        return (
            amount(task.kernel, "workspace", values, task.loc),
            amount(task.kernel, "cost", values, task.loc),
        )

    def extents(self, value: object) -> Iterator[Expr]:
        """Yield the extents of the view that a tensor argument is."""
        argument = _argument(value)
        assert argument is not None
        dims = self.tensor_dims(argument.base)
        entries = argument.entries + (Full(),) * (len(dims) - len(argument.entries))
        for entry, dim in zip(entries, dims, strict=True):
            match entry:
                case Full():
                    yield Const(dim) if isinstance(dim, int) else Var(dim)
                case TileRange(loop=loop):
                    yield LoopExtent(loop)
                case Range(extent=extent) | Rows(extent=extent):
                    yield extent
                case Index() | Merged():
                    pass
                case _:
                    assert_never(entry)

    def add_kernel(self, kernel: KernelFunction, task: OpenTask) -> str:
        """Add a kernel and return its name until `renamed`.

        Kernels of one definition, which a function has made several times, are variants of one name.
        """
        variants = self.variants.setdefault(kernel.name, [])
        for number, other in enumerate(variants):
            if other == kernel and _reference(other) is _reference(kernel):
                return _variant(kernel.name, number)
        if variants and variants[0].loc != kernel.loc:
            notes = [("the first one", variants[0].loc), ("the second one", kernel.loc)]
            hint = '`@kernel(name="...")` gives one of them another name'
            raise NameClash(kind="kernels", name=kernel.name, loc=task.loc, notes=notes, hint=hint)
        variants.append(kernel)
        return _variant(kernel.name, len(variants) - 1)

    def renamed(self, body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
        """Collect the kernels, with names of their own, and return the body with these names."""
        fresh = Fresh([*self.variants, self.trace.name])
        names: dict[str, str] = {}
        for name, variants in self.variants.items():
            for number, kernel in enumerate(variants):
                own = name if len(variants) == 1 else fresh.name(f"{name}_{number + 1}")
                names[_variant(name, number)] = own
                self.kernels[own] = replace(kernel, name=own)

        def change(block: w.Block) -> Iterator[w.Node]:
            for node in block:
                is_task = isinstance(node, w.Task)
                yield replace(node, kernel=names[node.kernel]) if is_task else w.rebuild(node, change)

        return body if all(key == own for key, own in names.items()) else tuple(change(body))

    # --- arguments ---

    def template(self, task: OpenTask) -> _Template:
        """Return the constants of a task, and the parameters of its kernel for them."""
        if id(task) not in self.templates:
            pairs = [(p, p.type, task.args[p.name]) for p in task.kernel.params]
            constants = {
                p.name: self.constant(task, p, kind, value)
                for p, kind, value in pairs
                if isinstance(kind, ConstexprType)
            }
            self.templates[id(task)] = _Template(constants, task.kernel.concrete(constants, task.loc))
        return self.templates[id(task)]

    def constant(self, task: OpenTask, param: KernelParam, kind: ConstexprType, value: object) -> object:
        if kind.type is float and type(value) is int:
            value = float(value)
        if type(value) is not kind.type:
            raise self.wrong_kind(task, param, f"a constant {kind.type.__name__}", value)
        return value

    def scalar(self, task: OpenTask, param: KernelParam, kind: ScalarType, value: object) -> Expr:
        if isinstance(value, Untyped) and value.kind == SCALAR:
            expr: Expr | None = Var(value.name, value.dtype or kind.dtype)
        else:
            expr = expression(value)
        if expr is None:
            raise self.wrong_kind(task, param, "a scalar", value)
        try:
            return arithmetic.convert(expr, kind.dtype, param.name, task.loc)
        except PtoError:
            raise ArgumentDType(
                param=param.name,
                kernel=task.kernel.name,
                expected=str(kind.dtype),
                found=str(expr.dtype),
                loc=_place(task, param),
            ) from None

    def region(
        self, task: OpenTask, param: KernelParam, kind: TileType | ViewType, value: object
    ) -> tuple[Region, DType]:
        argument = _argument(value)
        if argument is None:
            raise self.wrong_kind(task, param, "a tensor or a view of one", value)
        if isinstance(value, RowSet) and param.role != IN:
            raise self.wrong_kind(task, param, "a tensor, as the indices of a row set are only read,", value)
        base = argument.base
        name = base.name if isinstance(base, Untyped) else self.trace.tensor_name(base.logical, task.scope)
        dims, dtype = self.tensor_dims(base), base.dtype
        assert dtype is not None
        self.require_rank(task, param, kind, len(dims) - argument.dropped, len(dims))
        if len(argument.entries) > len(dims):
            raise RankMismatch(
                param=param.name,
                kernel=task.kernel.name,
                expected=f"at most {len(dims)} indices",
                found=str(len(argument.entries)),
                loc=_place(task, param),
            )
        if kind.dtype not in (None, dtype):
            raise ArgumentDType(
                param=param.name,
                kernel=task.kernel.name,
                expected=str(kind.dtype),
                found=str(dtype),
                loc=_place(task, param),
            )
        loc = value.loc if isinstance(value, View) else task.loc
        entries = argument.entries + (Full(),) * (len(dims) - len(argument.entries))
        region = Region(name, entries, loc)
        require_inside(dims, entries, region.tensor, loc)
        self.require_fit(task, param, kind, region, dims)
        if isinstance(base, Tensor) and base.stored is not base:
            region = in_panels(region, base, self.tiles)
        return region, dtype

    def require_rank(
        self, task: OpenTask, param: KernelParam, kind: TileType | ViewType, rank: int, declared: int
    ) -> None:
        expected = _rank(kind) if isinstance(kind, TileType) or kind.dims is not None else rank
        if rank != expected:
            dims = f"declare the tensor with {expected} dimensions, one of them `1`: `Tensor[f32, 1, n]`"
            raise RankMismatch(
                param=param.name,
                kernel=task.kernel.name,
                expected=f"{expected} dimensions",
                found=f"a view with {rank}",
                hint=dims if declared < expected else None,
                loc=_place(task, param),
            )

    def require_fit(
        self,
        task: OpenTask,
        param: KernelParam,
        kind: TileType | ViewType,
        region: Region,
        dims: Sequence[int | str],
    ) -> None:
        """Refuse a view whose known extents its kernel parameter can never take."""
        wanted = kind.shape if isinstance(kind, TileType) else kind.dims or ()
        for number, (dim, size) in enumerate(zip(region.kept, wanted, strict=False)):
            extent = self.known_extent(region.dims[dim], dims[dim])
            if extent is None or size is None:
                continue
            if extent > size or (extent != size and isinstance(kind, ViewType)):
                raise ArgumentShape(
                    param=param.name,
                    kernel=task.kernel.name,
                    expected=f"at most {size}" if isinstance(kind, TileType) else str(size),
                    found=f"{extent} elements in dimension {number}",
                    loc=region.loc,
                )

    def known_extent(self, entry: DimSelect, dim: int | str) -> int | None:
        """Return the extent of a selection, or its bound where the last tile of an axis may have less."""
        match entry:
            case Full():
                return dim if isinstance(dim, int) else None
            case TileRange(loop=loop):
                return self.tiles[loop][1]
            case Range(extent=LoopExtent(loop=loop)) | Rows(extent=LoopExtent(loop=loop)):
                return self.tiles[loop][1]
            case Range(extent=extent) | Rows(extent=extent):
                return integer_constant(extent)
            case Index() | Merged():
                return None
            case _:
                assert_never(entry)

    def wrong_kind(self, task: OpenTask, param: KernelParam, expected: str, value: object) -> UnknownArgument:
        return UnknownArgument(
            kernel=task.kernel.name,
            problem=f"takes {expected} for `{param.name}`",
            detail=f"found {_text(value)}",
            advice="a scalar of a range is `.start`, `.stop` or `.extent`" if isinstance(value, Span) else "",
            loc=_place(task, param),
        )


def _place(task: OpenTask, param: KernelParam) -> Location | None:
    """Return where a task is given an argument, or where the task is."""
    return None if task.loc is None else keyword_location(task.loc, param.name) or task.loc


def _require_set_slots(workload: w.WorkloadFunction) -> None:
    """Refuse slots that are read and that nothing sets."""
    known = workload.variables
    for node in w.walk_nodes(workload.body):
        for expr in w.node_expressions(node):
            for part in walk(expr):
                if isinstance(part, Slot) and part not in known:
                    raise UnsetSlot(slot=part.number, loc=part.loc)


def _labels(trace: WorkloadTrace) -> dict[int, str]:
    """Return a label, by identity, for every task that another one waits for explicitly."""
    waited = {id(earlier): earlier for task in tasks_of(trace.blocks.body) for earlier in task.after}
    return {number: trace.unique(f"{task.kernel.name}.task") for number, task in waited.items()}


def _argument(value: object) -> _Argument | None:
    if isinstance(value, View):
        assert isinstance(value.base, (Tensor, Untyped))
        return _Argument(value.base, value.entries)
    if isinstance(value, RowSet):
        return _Argument(value.indices, (value.range.selection(),))
    if isinstance(value, Tensor) or (isinstance(value, Untyped) and value.kind == TENSOR):
        return _Argument(value, ())
    return None


def _variant(name: str, number: int) -> str:
    """Return the temporary name of a kernel with several variants during tracing."""
    return f"{name}#{number}" if number else name


def _reference(kernel: KernelFunction) -> object:
    return None if kernel.native is None else kernel.native.reference


def _rank(kind: TileType | ViewType) -> int:
    return 2 if isinstance(kind, TileType) else len(kind.dims or ())


def _text(value: object) -> str:
    return "a tensor" if isinstance(value, Tensor) else f"{value!r}"
