"""Workloads inside workloads: arguments of called workloads, `combine` and `sequential`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from pto_wsp.errors import CallArgument, PtoError
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Binary, Const, Expr, Var, format_expr
from pto_wsp.lang import arithmetic
from pto_wsp.lang.operands import Scalar, expression, integer_constant, kind_of
from pto_wsp.lang.source import MISSING
from pto_wsp.lang.workload.broadcast import has_every
from pto_wsp.lang.workload.functions import Body, BodyParameter, declarations, functions, record_body
from pto_wsp.lang.workload.parameters import Parameter
from pto_wsp.lang.workload.ragged import RaggedAxis
from pto_wsp.lang.workload.ranges import Stretch
from pto_wsp.lang.workload.sparse import SparseAxis
from pto_wsp.lang.workload.subviews import is_fixed
from pto_wsp.lang.workload.tasks import Handle
from pto_wsp.lang.workload.tensor import Entry, RowSet, Tensor, View, dim_expr
from pto_wsp.lang.workload.trace import Frame, WorkloadTrace
from pto_wsp.lang.workload.untyped import Untyped
from pto_wsp.location import Location
from pto_wsp.types.axis import Dense, DenseDyn
from pto_wsp.types.dtype import DType, b1, f32
from pto_wsp.types.layout import MemLayout

MAX_DEPTH = 64
"""Workloads that may call one another: more is a recursion through functions that make workloads."""


def call_workload(
    trace: WorkloadTrace, name: str, body: Body, values: Mapping[str, object], loc: Location | None
) -> Handle:
    """Record a workload with arguments of the one that calls it.

    Raises:
        CallArgument: an argument is missing or does not fit, or the workload calls itself.
    """
    open_sources = [frame.source for frame in trace.frames]
    for source in functions(body):
        if any(source is other for other in open_sources) or len(open_sources) == MAX_DEPTH:
            raise CallArgument(
                workload=name,
                problem="calls itself",
                detail="a workload that contains itself has no end",
                loc=loc,
                notes=[("it is defined here", source.loc)],
            )
    declared = declarations(body)
    frame = Frame(next(functions(body)), {}, {})
    block = trace.blocks.innermost
    first = len(block.nodes)
    for key in sorted(declared, key=lambda n: declared[n].names_sizes):
        value = values.get(key, declared[key].default)
        argument = _Argument(trace, name, key, declared[key], frame, loc)
        frame.arguments[key] = argument.stand_in(None if value is MISSING else value)
    record_body(trace, body, frame.arguments, frame.sizes)
    return Handle(trace, block.nodes[first:], [], loc)


class _Argument(Parameter):
    """A parameter of a workload that another one calls: it is bound to its argument."""

    def __init__(
        self,
        trace: WorkloadTrace,
        workload: str,
        name: str,
        declared: BodyParameter,
        frame: Frame,
        call: Location | None,
    ) -> None:
        super().__init__(trace, declared, name, {})
        self.workload = workload
        self.frame = frame
        self.call = call

    def stand_in(self, value: object) -> object:
        """Return the function's value for an argument; None if it is missing."""
        if value is None and not isinstance(self.annotation, (Dense, DenseDyn)):
            raise self._refused("missing", "no value")
        return super().stand_in(value)

    def _tensor(self, dtype: DType, dims: tuple[int | str, ...], layout: MemLayout, value: object) -> Tensor:
        view, base = self._view(value)
        if base.dtype is not dtype:
            self._misfit(str(dtype), str(base.dtype))
        if base.layout != layout:
            self._misfit(f"a tensor in {layout}", f"one in {base.layout}")
        extents = view.extents if isinstance(view, View) else tuple(map(dim_expr, view.dims))
        if len(extents) != len(dims):
            self._misfit(f"{len(dims)} dimensions", str(len(extents)))
        for number, (dim, extent) in enumerate(zip(dims, extents, strict=True)):
            if isinstance(dim, str) and dim:
                self._bind(dim, extent)
            elif dim != "" and extent != Const(int(dim)):
                self._misfit(f"{dim} elements in dimension {number}", f"`{format_expr(extent)}`")
        return view

    def _view(self, value: object) -> tuple[Tensor, Tensor]:
        """Return a tensor argument, and the tensor that it is a view of."""
        if isinstance(value, Untyped):
            self._misfit("a tensor of known type", f"`{value.name}`, which has no annotation")
        if not isinstance(value, Tensor):
            self._misfit("a tensor or a view of one", kind_of(value))
        base = value.base if isinstance(value, View) else value
        if isinstance(value, View) and has_every(value.entries):
            self._misfit("a view of one place", "ALL, which selects many")
        if not isinstance(base, Tensor):
            self._misfit("a tensor of known type", f"a view of {value.label}, which has no annotation")
        return value, base

    def _scalar(self, dtype: object, value: object) -> Scalar:
        expr = expression(value)
        if expr is None:
            self._misfit("a scalar", kind_of(value))
        assert isinstance(dtype, DType)
        expr = self._value(expr)
        try:
            return Scalar(arithmetic.convert(expr, dtype, self.name, self.call))
        except PtoError:
            self._misfit(str(dtype), str(expr.dtype))

    def _value(self, expr: Expr) -> Expr:
        """Return a number at the call of the workload; a variable keeps a value that may change."""
        if is_fixed(expr, self.trace.offsets) or expr.dtype is f32:
            return expr
        name = self.trace.unique(f"{self.name}.value")
        self.trace.blocks.add(w.Set(name, expr, self.call))
        return Binary("ne", Var(name), Const(0), self.call) if expr.dtype is b1 else Var(name)

    def _axis(self, value: object) -> Scalar:
        expr = self._value(self._extent(value))
        self._bind(self.name, expr)
        return Scalar(expr)

    def _fixed(self, extent: int, value: object) -> int:
        if value is not None and integer_constant(self._extent(value)) != extent:
            self._misfit(f"the extent {extent}", kind_of(value))
        self._bind(self.name, Const(extent))
        return extent

    def _extent(self, value: object) -> Expr:
        try:
            return self.trace.extent_of(value, self.call)
        except PtoError:
            self._misfit("an axis or extent", kind_of(value))

    def _ragged(self, outer: object, value: object) -> RaggedAxis:
        if not isinstance(value, RaggedAxis) or isinstance(value, SparseAxis):
            self._misfit("a ragged axis", kind_of(value))
        self._bind(str(outer), value.num_rows)
        return value

    def _sparse(self, outer: object, value: object) -> SparseAxis:
        if not isinstance(value, SparseAxis):
            self._misfit("a sparse axis", kind_of(value))
        self._bind(str(outer), value.num_rows)
        return value

    def _untyped(self, value: object) -> object:
        if isinstance(value, (str, Dense, DenseDyn)):
            return self._axis(value)
        if isinstance(value, Entry) and not value.is_number:
            value = View(value.base, value.label, value.entries, value.loc)
        if isinstance(value, (Tensor, RaggedAxis, Stretch, RowSet, Untyped)) and not isinstance(value, Entry):
            return value
        expr = expression(value)
        if expr is None:
            self._misfit("a tensor, an axis or a scalar", kind_of(value))
        return value if is_fixed(expr, self.trace.offsets) else Scalar(self._value(expr))

    def _bind(self, size: str, extent: Expr) -> None:
        """Bind a size of the workload.

        Raises:
            CallArgument: it is bound to another value already.
        """
        known = self.frame.size(size)
        if known is None:
            assert self.frame.sizes is not None
            self.frame.sizes[size] = extent
        elif known != extent:
            self._misfit(f"`{format_expr(known)}` elements, as size `{size}` has", f"`{format_expr(extent)}`")

    def _misfit(self, expected: str, found: str) -> NoReturn:
        raise self._refused("does not fit", f"expected {expected}, found {found}")

    def _refused(self, problem: str, detail: str) -> CallArgument:
        return CallArgument(
            workload=self.workload,
            problem=f"is called with an argument `{self.name}` that {problem}"
            if problem != "missing"
            else f"is called without its argument `{self.name}`",
            detail=detail,
            loc=self.call,
            notes=[(f"`{self.name}` is declared here", self.loc)],
        )
