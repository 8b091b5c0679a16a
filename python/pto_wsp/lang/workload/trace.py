"""Recording a workload while its function runs once, with placeholders for the values of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pto_wsp.errors import (
    BadIndex,
    BadOperand,
    CallArgument,
    NameClash,
    UnknownAxis,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Index
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Var
from pto_wsp.lang.operands import expression, integer_constant, kind_of
from pto_wsp.lang.source import FunctionSource
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.blocks import Blocks, OpenBlock, OpenLoop
from pto_wsp.lang.workload.broadcast import has_every
from pto_wsp.lang.workload.expansion import NOT_EXPANDED, Expansion
from pto_wsp.lang.workload.ragged import RaggedAxis
from pto_wsp.lang.workload.ranges import Stretch
from pto_wsp.lang.workload.tensor import Entry, Tensor, View, require_inside
from pto_wsp.lang.workload.untyped import AXIS, TENSOR, Untyped
from pto_wsp.location import Location
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DType, b1, i64
from pto_wsp.types.tile import ScalarType

Param = Tensor | Untyped | RaggedAxis | w.ScalarParam | w.SizeParam


class ChannelLike(Protocol):
    """A channel, as a trace knows it."""

    name: str
    record: w.Ring
    loc: Location | None

    def ring(self) -> Tensor:
        """Return the tensor that holds the buffers."""
        ...


@record
class Frame:
    """A function whose body is being recorded.

    Attributes:
        source: the function.
        arguments: what it has for its parameters.
        sizes: the values of the sizes that its parameters name; None where they are the trace's own.
    """

    source: FunctionSource
    arguments: dict[str, object]
    sizes: dict[str, Expr] | None

    @property
    def scope(self) -> Mapping[str, object]:
        """What names mean in the function."""
        return self.source.names

    def size(self, name: str) -> Expr | None:
        """Return the value of a size of a called workload, or None if it has no such size."""
        if self.sizes is None:
            return None
        if name not in self.sizes and name in self.arguments:
            expr = expression(self.arguments[name])
            if expr is not None:
                self.sizes[name] = expr
        return self.sizes.get(name)


class WorkloadTrace:
    """What has been recorded of a workload.

    Attributes:
        frames: the functions whose bodies are being recorded, innermost last.
        sources: the functions whose bodies have been recorded, or are being.
        blocks: its loops, conditionals and tasks.
        params: parameters of its function, by name.
        places: where they are declared.
        captured: tensors and axes found in the scopes around it, by the name of their variable.
        sizes: every size that is known so far.
        fixed: extents of parameters that are axes of fixed extent.
        axes: ragged and sparse axes, whose rows lie in parameters of their own.
        loops: every loop, by variable.
        distinct: tensors of which no two elements are equal, as `assume` states.
        untyped_elements: scalars that are elements of tensors whose element type is not known yet.
        channels: the channels that processes name, with the tensors that hold their buffers.
        is_in_process: whether the body of a process is being recorded.
        is_nondeterministic: whether channels that are merged by time are merged as tokens come where there is
            no clock.
    """

    def __init__(self, name: str, loc: Location | None) -> None:
        self.name = name
        self.loc = loc
        self.blocks = Blocks()
        self.params: dict[str, Param] = {}
        self.places: dict[str, Location | None] = {}
        self.captured: dict[str, Tensor | DenseDyn] = {}
        self.sizes: dict[str, w.SizeParam] = {}
        self.fixed: dict[str, int] = {}
        self.axes: list[RaggedAxis] = []
        self.loops: dict[str, OpenLoop] = {}
        self.untyped_elements: list[Entry] = []
        self.channels: dict[str, tuple[ChannelLike, Tensor]] = {}
        self.is_in_process = False
        self.is_nondeterministic = False
        self.distinct: list[Tensor] = []
        self.frames: list[Frame] = []
        self.sources: dict[object, FunctionSource] = {}
        self._fresh = Fresh()
        self._symbols: dict[str, w.ScalarParam] = {}

    @property
    def offsets(self) -> frozenset[str]:
        """Names of the tensors that hold offsets of its axes."""
        return frozenset(axis.param.offsets for axis in self.axes)

    # --- names ---

    @property
    def frame(self) -> Frame:
        """The function whose body is being recorded."""
        return self.frames[-1]

    def declare(self, name: str, param: Param, loc: Location | None) -> None:
        """Add a parameter of the function, declared at `loc`."""
        self.places[name] = loc
        if name in self.sizes:
            raise NameClash(kind="parameters and sizes", name=name, loc=self.loc)
        self.params[name] = param
        self._fresh.taken.add(name)
        if isinstance(param, w.SizeParam):
            self.sizes[name] = param
        if isinstance(param, RaggedAxis):
            self.axes.append(param)

    def declare_symbol(self, name: str, dtype: DType, loc: Location | None) -> None:
        """Add a scalar parameter that the body names; naming it again is the same one.

        Raises:
            NameClash: something else, or a symbol of another type, has this name.
        """
        param = w.ScalarParam(name, ScalarType(dtype), loc)
        if self._symbols.get(name) == param:
            return
        if name in self._fresh.taken:
            notes = [("the first one", self.places.get(name))]
            raise NameClash(kind="parameters", name=name, loc=loc, notes=notes)
        self._symbols[name] = param
        self.declare(name, param, loc)

    def declare_sizes(self, dims: Sequence[int | str], loc: Location | None) -> None:
        """Add the sizes that the dimensions of a tensor name; a parameter of that name is the size."""
        for dim in dims:
            if isinstance(dim, str) and dim not in self.sizes:
                param = self.params.get(dim)
                if isinstance(param, Untyped):
                    param.use(AXIS)
                elif param is not None:
                    raise NameClash(kind="parameters and sizes", name=dim, loc=loc)
                self._fresh.taken.add(dim)
                self.sizes[dim] = w.SizeParam(dim, loc=loc)

    def channel(self, channel: ChannelLike, loc: Location | None) -> Tensor:
        """Return the tensor that holds the buffers of a channel.

        Raises:
            NameClash: something else has its name.
        """
        known = self.channels.get(channel.name)
        if known is not None and known[0] is channel:
            return known[1]
        if channel.name in self._fresh.taken:
            first = self.places.get(channel.name) if known is None else known[0].loc
            notes = [("the first one", first), ("the channel", channel.loc)]
            raise NameClash(kind="channels or parameters", name=channel.name, loc=loc, notes=notes)
        ring = channel.ring()
        self.declare_sizes((*ring.dims, channel.record.latency), channel.loc)
        self._fresh.taken.add(channel.name)
        self.channels[channel.name] = channel, ring
        return ring

    def unique(self, name: str) -> str:
        """Return `name`, or one like it that nothing has yet."""
        return self._fresh.name(name)

    def tensor_name(self, tensor: Tensor, scope: Mapping[str, object]) -> str:
        """Return the name of a parameter, or of the variable of `scope` that holds a captured tensor."""
        for name, param in (*self.params.items(), *self.captured.items()):
            if param is tensor:
                return name
        if any(tensor is held for axis in self.axes for held in axis.tensors):
            return tensor.label
        if any(tensor is ring for _, ring in self.channels.values()):
            return tensor.label
        name = self._capture(tensor, scope)
        self.declare_sizes(tensor.dims, self.loc)
        tensor.called(name)
        return name

    def _capture(self, value: Tensor | DenseDyn, scope: Mapping[str, object]) -> str:
        name = (value.name if isinstance(value, Tensor) else None) or _variable_of(value, scope)
        if name is None:
            hint = "make it a parameter of the workload, keep it in a variable around the workload"
            raise CallArgument(
                workload=self.name,
                problem=f"uses {value!r}, which no variable around it holds",
                detail="it has no name, so that a call of the program cannot give it",
                hint=hint + (', or name it: `Tensor(..., name="X")`' if isinstance(value, Tensor) else ""),
                loc=self.loc,
            )
        if name in self._fresh.taken:
            raise NameClash(kind="parameters", name=name, loc=self.loc)
        self._fresh.taken.add(name)
        self.captured[name] = value
        return name

    def element(self, entry: Entry) -> Expr:
        """Return an element of a tensor as an expression.

        Raises:
            BadOperand: the tensor has no integers or truth values.
            BadAnnotation: a parameter without a type, of which only other uses can tell what it holds.
        """
        base = entry.base
        if has_every(entry.entries):
            raise BadIndex(
                tensor=entry.label, expected="ALL in arguments of a task", found="it", loc=entry.loc
            )
        at = tuple(i.at for i in entry.entries if isinstance(i, Index))
        if isinstance(base, Untyped):
            base.use(TENSOR)
            base.decide_rank(len(at))
            self.untyped_elements.append(entry)
            return Element(base.name, at, entry.loc)
        assert isinstance(base, Tensor)
        if not (base.dtype.is_integer or base.dtype is b1) or base.stored is not base:
            found = str(base.dtype) if base.stored is base else f"one with {base.layout}"
            raise not_a_scalar(entry, found)
        require_inside(base.dims, entry.entries, entry.label, entry.loc)
        element = Element(self.tensor_name(base, self.frame.scope), at, entry.loc)
        return Binary("ne", element, Const(0), entry.loc) if base.dtype is b1 else element

    # --- loops ---

    def extent_of(self, axis: object, loc: Location | None) -> Expr:
        """Return the extent of the axis of a loop.

        Raises:
            UnknownAxis: a name that no tensor or parameter has.
            BadOperand: nothing that can be looped over.
        """
        if isinstance(axis, str):
            return self._size_named(axis, loc)
        if isinstance(axis, Dense):
            axis = axis.extent
        if isinstance(axis, DenseDyn):
            return Var(self._axis_name(axis))
        if isinstance(axis, Stretch):
            return axis.extent_expr
        expr = expression(axis)
        size = None if expr is None else integer_constant(expr)
        if expr is None or expr.dtype is not i64 or (size is not None and size < 0):
            expected = "an extent, the name of a size, or an axis"
            raise BadOperand(op="P", expected=expected, found=kind_of(axis), loc=loc)
        return expr

    def _size_named(self, name: str, loc: Location | None) -> Expr:
        frame = self.frame
        bound = frame.size(name)
        if bound is not None:
            return bound
        is_called = frame.sizes is not None
        if not is_called and name in self.fixed:
            return Const(self.fixed[name])
        if not is_called and name not in self.sizes and isinstance(self.params.get(name), Untyped):
            self.declare_sizes([name], loc)
        is_known = name in self.sizes and not is_called
        for value in () if is_known else frame.scope.values():
            if isinstance(value, Tensor) and not isinstance(value, View) and name in value.dims:
                self.declare_sizes(value.dims, loc)
                is_known = True
        if not is_known:
            axes = frame.sizes if frame.sizes is not None else self.sizes
            known = [*axes, *(n for n, v in frame.arguments.items() if isinstance(v, Untyped))]
            workload = frame.source.function.__name__
            raise UnknownAxis(name=name, workload=workload, advice=did_you_mean(name, known), loc=loc)
        return Var(name)

    def _axis_name(self, axis: DenseDyn) -> str:
        for name, value in self.captured.items():
            if value is axis:
                return name
        name = self._capture(axis, self.frame.scope)
        self.sizes[name] = w.SizeParam(name, axis.extent, self.loc)
        return name

    def open_loop(
        self,
        kind: str,
        name: str,
        extent: Expr,
        tile: int | None,
        loc: Location | None,
        expansion: Expansion = NOT_EXPANDED,
    ) -> tuple[OpenLoop, OpenBlock]:
        """Begin a loop, whose body is recorded up to the end of the block."""
        var = self.unique(name)
        loop = OpenLoop(kind, var, extent, tile, loc, [], name if var != name else "", expansion)
        self.blocks.add(loop)
        self.loops[loop.var] = loop
        return loop, self.blocks.enter(loop.body, "a loop", loc)


def active_trace() -> WorkloadTrace | None:
    """Return the trace of the workload that is being built, if any."""
    trace = context.ACTIVE.get()
    assert trace is None or isinstance(trace, WorkloadTrace)
    return trace


def current_trace(what: str, where: str = "workload") -> WorkloadTrace:
    """Return the trace of the workload that is being built; `where` is the decorator that errors name.

    Raises:
        OutsideWorkload: `what` is used while none is.
    """
    trace = context.current(what, where)
    assert isinstance(trace, WorkloadTrace)
    return trace


def not_a_scalar(entry: Entry, found: str) -> BadOperand:
    """Return the error that an element cannot be used as a scalar."""
    expected = "a tensor of integers or truth values"
    hint = (
        "declare the parameter as `In[Tile[1, 1, f32]]`, and pass a view: `T[b : b + 1]` of a `[n, 1]` tensor"
    )
    op = f"an element of {entry.label}"
    return BadOperand(op=op, expected=expected, found=found, loc=entry.loc, hint=hint)


def _variable_of(value: object, scope: Mapping[str, object]) -> str | None:
    """Return the name of the variable of a workload's scope that holds `value`."""
    return next((name for name, found in scope.items() if found is value), None)
