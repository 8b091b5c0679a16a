"""Errors of the engine that are about arrays, regions and expressions."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp import errors
from pto_wsp.interp.workload import negative_extent, refused
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import TileRange
from pto_wsp.ir.evaluate import element_outside
from pto_wsp.ir.scalar import (
    BELOW_ZERO,
    DIVISION_BY_ZERO,
    OUTSIDE_RANGE,
    OUTSIDE_RANGE_HINT,
    OVERFLOW,
    SHIFT_OUTSIDE,
    Element,
    walk,
)
from pto_wsp.location import Location, caller_location
from pto_wsp.runtime.explain_context import ErrorContext
from pto_wsp.runtime.run import where_started
from pto_wsp.types.dtype import DTYPES


def _wrong_dtype(c: ErrorContext) -> errors.PtoError:
    found = next(t.name for t in DTYPES.values() if t.code == c.number("found"))
    tensor = c.tensor()
    return errors.WrongDType(name=tensor.name, expected=tensor.type.dtype, found=found, loc=tensor.loc)


def _unknown_dtype(c: ErrorContext) -> errors.PtoError:
    tensor, found = c.tensor(), c.arrays[c.number("tensor")].dtype
    return errors.WrongDType(name=tensor.name, expected=tensor.type.dtype, found=found, loc=tensor.loc)


def _too_many_dimensions(c: ErrorContext) -> errors.PtoError:
    tensor, found = c.tensor(), c.number("found")
    return errors.WrongRank(name=tensor.name, expected=len(tensor.type.dims), found=found, loc=tensor.loc)


def _wrong_rank(c: ErrorContext) -> errors.PtoError:
    tensor = c.tensor()
    return errors.WrongRank(
        name=tensor.name, expected=c.number("expected"), found=c.number("found"), loc=tensor.loc
    )


def _size_mismatch(c: ErrorContext) -> errors.PtoError:
    tensor, dim = c.tensor(), c.number("dim")
    declared, expected = tensor.type.dims[dim], c.number("expected")
    text = f"{declared} = {expected}" if isinstance(declared, str) else str(expected)
    notes = []
    if c.number("other_tensor") >= 0:
        other = c.tensor("other_tensor")
        notes.append((f"`{declared}` was taken from `{other.name}`", other.loc))
    else:
        axes = [axis for axis in _axes(c) if axis.outer == declared]
        notes += [(f"`{declared}` was taken from `{axis.name}`", axis.loc) for axis in axes[:1]]
    return errors.WrongShape(
        name=tensor.name, dim=dim, expected=text, found=c.number("found"), loc=tensor.loc, notes=notes
    )


def _axes(c: ErrorContext) -> list[w.RaggedParam | w.SparseParam]:
    """Return the ragged and sparse axes that the call was given."""
    return [p for p in c.module.entry_workload.params if isinstance(p, w.RaggedParam | w.SparseParam)]


def _unusable(reason: str) -> Callable[[ErrorContext], errors.PtoError]:
    def describe(c: ErrorContext) -> errors.PtoError:
        tensor = c.tensor()
        return errors.UnusableArray(name=tensor.name, reason=reason, loc=tensor.loc)

    return describe


def _inner_stride(c: ErrorContext) -> errors.PtoError:
    if "pc" not in c.details:
        return _unusable("its innermost stride is not 1")(c)
    return errors.StridedView(
        param=c.param.name, kernel=c.kernel.name, tensor=c.tensor().name, dim=c.number("dim"), loc=c.arg_loc
    )


def _read_only(c: ErrorContext) -> errors.PtoError:
    tensor = c.tensor()
    return errors.ReadOnlyArray(name=tensor.name, loc=tensor.loc)


def _overlapping(c: ErrorContext) -> errors.PtoError:
    first, second = c.tensor("other_tensor"), c.tensor()
    undecided = bool(c.number("undecided"))
    return errors.OverlappingArrays(
        first=first.name,
        second=second.name,
        written=f"`{first.name if first.name in c.lowered.written else second.name}`",
        detail="whether they overlap could not be decided" if undecided else "they overlap in part",
    )


def _in_flight(c: ErrorContext) -> errors.PtoError:
    run = c.number("run")
    other = where_started(run, c.number("thread"))
    return errors.ArraysInFlight(
        name=c.tensor().name,
        run=run,
        loc=caller_location(),
        notes=[("the other run was started here", other)] if other is not None else [],
    )


def _unbound(c: ErrorContext) -> errors.PtoError:
    name = c.lowered.symbols[c.number("symbol")]
    return errors.UnboundTensor(kind="size", name=name, advice=f"call the program with {name}=number")


def _region_outside(c: ErrorContext) -> errors.PtoError:
    tensor, start = c.tensor(), c.number("start")
    return errors.RegionOutside(
        tensor=tensor.name,
        dim=c.number("dim") - tensor.hidden_dims,
        size=c.number("size"),
        start=start,
        stop=start + c.number("extent"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
        notes=[(f"`{tensor.name}` is declared here", tensor.loc)],
        hint=_hint_of_rows(c),
    )


def _hint_of_rows(c: ErrorContext) -> str | None:
    """Return what to do about a range that is a row of a ragged axis; None for other ranges."""
    region = c.region_of_argument
    read = {e.name for given in region.expressions for e in walk(given) if isinstance(e, Element)}
    axis = next((axis for axis in _axes(c) if axis.offsets in read), None)
    return (
        None if axis is None else f"pass lengths of `{axis.name}` that add up to at most {c.number('size')}"
    )


def _view_shape(c: ErrorContext) -> errors.PtoError:
    low, high = c.number("min"), c.number("max")
    return errors.ViewShape(
        param=c.param.name,
        kernel=c.kernel.name,
        dim=c.number("dim"),
        expected=str(low) if low == high else f"at most {high}",
        found=c.number("extent"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
        notes=[(f"`{c.param.name}` is declared here", c.param.loc)],
    )


def _expression(reason: str, hint: str = "") -> Callable[[ErrorContext], errors.PtoError]:
    def describe(c: ErrorContext) -> errors.PtoError:
        text = reason.format(value=c.details.get("value"), limit=c.details.get("limit"))
        return _bad_expression(c, text, hint)

    return describe


def _bad_expression(c: ErrorContext, reason: str, hint: str = "") -> errors.BadExpression:
    loc = c.lowered.places.get(c.number("pc"))
    return errors.BadExpression(reason=reason, loc=loc, hint=hint).in_iteration(c.where(c.enclosing))


def _element_outside(c: ErrorContext) -> errors.PtoError:
    tensor, dim = c.tensor(), c.number("dim")
    size = c.arrays[c.number("tensor")].shape[dim]
    reason = element_outside(tensor.name, c.number("index"), dim, size)
    return _bad_expression(c, reason)


def _deciding_array(c: ErrorContext) -> errors.PtoError:
    first, second = c.tensor("other_tensor"), c.tensor()
    written = second.name if second.name in c.lowered.written else first.name
    return errors.OverlappingArrays(
        first=first.name, second=second.name, written=f"`{written}`", detail="the other decides what runs"
    )


def _negative_extent(c: ErrorContext) -> errors.PtoError:
    loop = c.lowered.sites[c.number("pc")]
    assert isinstance(loop, w.Loop)
    return negative_extent(loop, c.number("value"), c.where(c.enclosing))


def _refused(c: ErrorContext) -> errors.PtoError:
    return refused(c.lowered.refusals[c.number("reason")], c.number("value"), c.where(c.enclosing))


def _row_outside(c: ErrorContext) -> errors.PtoError:
    return errors.RowOutside(
        tensor=c.tensor().name,
        indices=c.tensor("index_tensor").name,
        position=c.number("position"),
        row=c.number("index"),
        size=c.number("size"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
    )


def _conflict(
    c: ErrorContext,
    error: type[errors.EdgesMissing | errors.IterationsConflict],
    *notes: tuple[str, Location | None],
) -> errors.PtoError:
    other = c.lowered.sites[c.number("other_pc")]
    assert isinstance(other, w.Task)
    is_write, was_write = c.number("writes") != 0, c.number("other_writes") != 0
    kind = f"{'write' if is_write else 'read'} after {'write' if was_write else 'read'}"
    return error(
        second=c.task.kernel,
        second_where=c.where(c.enclosing),
        second_does="writes" if is_write else "reads",
        first=other.kernel,
        first_where=c.where(c.lowered.enclosing[c.number("other_pc")], "other_registers"),
        first_does="writes" if was_write else "reads",
        region=c.region(),
        kind=kind,
        loc=c.arg_loc,
        notes=[(f"the other task, `{other.kernel}`", other.loc), *notes],
    )


def _iterations_conflict(c: ErrorContext) -> errors.PtoError:
    loop = c.lowered.sites[c.number("loop_pc")]
    assert isinstance(loop, w.Loop)
    error = _conflict(c, errors.IterationsConflict, ("the P loop", loop.loc))
    axis = _axis_left_out(c)
    if axis is not None:
        row = f"`{axis.name}[...][{c.enclosing[-1].called}]`"
        error.help = f"a range of a row counts from 0: index `{c.tensor().name}` with {row}"
    elif loop.tile is not None:
        error.help = errors.IterationsConflict.hint_of_tiles
    return error


def _axis_left_out(c: ErrorContext) -> w.RaggedParam | w.SparseParam | None:
    """Return the axis over whose row the innermost loop runs, if the region is that range alone."""
    dims = c.region_of_argument.dims
    if not any(isinstance(dim, TileRange) and dim.loop == c.enclosing[-1].var for dim in dims):
        return None
    read, used = (
        {part.name for expr in exprs for part in walk(expr) if isinstance(part, Element)}
        for exprs in ((c.enclosing[-1].extent,), c.region_of_argument.expressions)
    )
    return next((axis for axis in _axes(c) if axis.offsets in read - used), None)


def _instances_conflict(c: ErrorContext) -> errors.PtoError:
    index = c.details["index"]
    assert isinstance(index, list)
    return errors.InstancesConflict(
        first=c.number("first"),
        second=c.number("second"),
        kernel=c.kernel.name,
        where=c.where(c.enclosing),
        param=c.param.name,
        index=", ".join(map(str, index)),
        loc=c.arg_loc,
    )


def _unknown_rows(c: ErrorContext) -> errors.PtoError:
    return errors.RowsNotKnown(tensor=c.tensor().name, kernel=c.kernel.name, loc=c.arg_loc)


def _row_repeated(c: ErrorContext) -> errors.PtoError:
    return errors.RowRepeated(
        tensor=c.tensor().name,
        indices=c.tensor("index_tensor").name,
        row=c.number("index"),
        first=c.number("first_position"),
        second=c.number("position"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
    )


def _strided_rows(c: ErrorContext) -> errors.PtoError:
    return errors.StridedRows(tensor=c.tensor().name, dim=c.number("dim"), loc=c.arg_loc)


def _negative_amount(what: str) -> Callable[[ErrorContext], errors.PtoError]:
    def describe(c: ErrorContext) -> errors.PtoError:
        return errors.NegativeAmount(
            what=what,
            kernel=c.kernel.name,
            found=c.number("value"),
            where=c.where(c.enclosing),
            loc=c.task.loc,
        )

    return describe


DESCRIBE_VALUES: dict[str, Callable[[ErrorContext], errors.PtoError]] = {
    "wrong-dtype": _wrong_dtype,
    "unknown-dtype": _unknown_dtype,
    "unsupported-array": _unknown_dtype,
    "too-many-dimensions": _too_many_dimensions,
    "wrong-rank": _wrong_rank,
    "size-mismatch": _size_mismatch,
    "negative-stride": _unusable("it has a negative stride"),
    "zero-stride": _unusable("it has a zero stride, and the program writes it"),
    "self-overlap": _unusable("its elements share memory, and the program writes it"),
    "misaligned-array": _unusable("it is not aligned to its element size"),
    "foreign-byte-order": _unusable("its byte order is not this machine's"),
    "inner-stride": _inner_stride,
    "read-only-array": _read_only,
    "overlapping-arrays": _overlapping,
    "arrays-in-flight": _in_flight,
    "unbound-symbol": _unbound,
    "region-outside": _region_outside,
    "view-shape": _view_shape,
    "element-outside": _element_outside,
    "deciding-array-written": _deciding_array,
    "division-by-zero": _expression(DIVISION_BY_ZERO),
    "expression-overflow": _expression(OVERFLOW),
    "shift-outside": _expression(SHIFT_OUTSIDE),
    "u64-below-zero": _expression(BELOW_ZERO),
    "slice-outside": _expression(OUTSIDE_RANGE, OUTSIDE_RANGE_HINT),
    "rows-outside": _row_outside,
    "rows-repeat": _row_repeated,
    "rows-stride": _strided_rows,
    "negative-workspace": _negative_amount("workspace"),
    "negative-cost": _negative_amount("cost"),
    "refused": _refused,
    "negative-extent": _negative_extent,
    "edges-missing": lambda c: _conflict(c, errors.EdgesMissing),
    "instances-conflict": _instances_conflict,
    "iterations-conflict": _iterations_conflict,
    "unknown-rows": _unknown_rows,
}
"""The error of a code, for its details."""
