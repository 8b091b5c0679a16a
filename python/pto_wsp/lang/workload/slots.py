"""Slots: 256 variables of a run that a workload assigns and reads.

A reader gets the value of the last assignment before it in program order.
"""

from __future__ import annotations

import numpy as np

from pto_wsp.errors import BadIndex, BadOperand
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import NUM_SLOTS, Binary, Const, Expr, Slot, Unary, format_expr
from pto_wsp.lang.operands import Number, Scalar, expression
from pto_wsp.lang.workload.tensor import Entry, Tensor
from pto_wsp.lang.workload.trace import current_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import b1, i64


def slot_set_u64(slot: int, value: Number) -> None:
    """Assign an unsigned integer to a slot. A negative value fails the run.

    Args:
        slot: number of the slot, 0 to 255.
        value: an integer, or an expression of sizes, loop variables, elements and slots.

    Raises:
        BadOperand: the slot does not exist, or the value is not an integer.
    """
    _set("slot_set_u64", slot, value)


def slot_set_i64(slot: int, value: Number) -> None:
    """Assign a 64-bit integer to a slot: `slot_set_i64(0, slot_i64(0) + 1)`.

    Args:
        slot: number of the slot, 0 to 255.
        value: an integer, or an expression of sizes, loop variables, elements and slots.

    Raises:
        BadOperand: the slot does not exist, or the value is not an integer.
    """
    _set("slot_set_i64", slot, value)


def slot_set_bool(slot: int, value: Number) -> None:
    """Assign a truth value to a slot.

    Args:
        slot: number of the slot, 0 to 255.
        value: a bool, or a comparison of scalars.

    Raises:
        BadOperand: the slot does not exist, or the value is not a truth value.
    """
    _set("slot_set_bool", slot, value)


def slot_load_u64(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Assign an element of a tensor to a slot, as an unsigned integer. A negative element fails the run.

    This is a flush point: the tasks before it in program order that write the element are complete when it
    is read.

    Args:
        slot: number of the slot, 0 to 255.
        tensor_view: a tensor or view of integers or truth values with at most two dimensions.
        row: index of the first dimension.
        col: index of the second dimension.

    Raises:
        BadOperand: the slot does not exist, or the tensor has other elements.
        BadIndex: the view has more than two dimensions, or fewer than the indices given.
    """
    _load("slot_load_u64", slot, tensor_view, row, col)


def slot_load_i64(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Assign an element of a tensor to a slot, as a 64-bit integer. See `slot_load_u64`."""
    _load("slot_load_i64", slot, tensor_view, row, col)


def slot_load_bool(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Assign to a slot whether an element of a tensor is not 0. See `slot_load_u64`."""
    _load("slot_load_bool", slot, tensor_view, row, col)


def slot_u64(slot: int) -> Scalar:
    """Return the value of a slot as an unsigned integer. A negative value fails the run."""
    return Scalar(Unary("u64", _read("slot_u64", slot), caller_location()))


def slot_i64(slot: int) -> Scalar:
    """Return the value of a slot as a 64-bit integer, for predicates, extents, indices and arguments."""
    return Scalar(_read("slot_i64", slot))


def slot_bool(slot: int) -> Scalar:
    """Return whether the value of a slot is not 0."""
    return Scalar(Binary("ne", _read("slot_bool", slot), Const(0), caller_location()))


def _read(what: str, slot: int) -> Expr:
    current_trace(f"`{what}`")
    loc = caller_location()
    return replace(_slot(what, slot, loc), loc=loc)


def _set(what: str, slot: int, value: object) -> None:
    trace = current_trace(f"`{what}`")
    loc = caller_location()
    name, expr = _slot(what, slot, loc), expression(value)
    is_bool = what.endswith("bool")
    if expr is None or expr.dtype is not (b1 if is_bool else i64):
        found = type(value).__name__ if expr is None else f"`{format_expr(expr)}`, {expr.dtype}"
        raise BadOperand(op=what, expected="a truth value" if is_bool else "an integer", found=found, loc=loc)
    trace.blocks.add(w.Set(name, _stored(what, expr, loc), loc))


def _stored(what: str, expr: Expr, loc: Location | None) -> Expr:
    """Return the i64 that a slot holds for a value.

    Raises:
        BadOperand: a constant below 0 as u64.
    """
    if what.endswith("bool"):
        return Unary("i64", expr if expr.dtype is b1 else Binary("ne", expr, Const(0), loc), loc)
    if expr.dtype is b1:  # a truth value loaded as a number
        expr = Unary("i64", expr, loc)
    if what.endswith("i64"):
        return expr
    if isinstance(expr, Const) and expr.value < 0:
        raise BadOperand(op=what, expected="an integer >= 0", found=str(expr.value), loc=loc)
    return Unary("u64", expr, loc)


def _load(what: str, slot: int, view: object, row: Number, col: Number) -> None:
    trace = current_trace(f"`{what}`")
    loc = caller_location()
    name = _slot(what, slot, loc)
    if not isinstance(view, Tensor):
        raise BadOperand(op=what, expected="a tensor or view", found=type(view).__name__, loc=loc)
    rank = view.rank
    if rank > 2:
        expected = "a view with at most two dimensions"
        raise BadIndex(tensor=view.label, expected=expected, found=f"one with {rank}", loc=loc)
    for index, axis in ((row, "row"), (col, "col"))[rank:]:
        if isinstance(index, Scalar) or index != 0:
            found = f"`{axis}` of a view with {rank} dimension{'s' if rank != 1 else ''}"
            raise BadIndex(tensor=view.label, expected=f"no `{axis}`", found=found, loc=loc)
    entry = view if rank == 0 else view[(row, col)[:rank]]
    assert isinstance(entry, Entry)
    trace.blocks.add(w.Set(name, _stored(what, entry.expr, loc), loc))


def _slot(what: str, slot: object, loc: Location | None) -> Slot:
    is_number = isinstance(slot, (int, np.integer)) and not isinstance(slot, bool)
    if not is_number or not 0 <= int(slot) < NUM_SLOTS:  # pyright: ignore
        found = repr(slot) if is_number else type(slot).__name__
        raise BadOperand(
            op=what, expected=f"the number of a slot, 0 to {NUM_SLOTS - 1}", found=found, loc=loc
        )
    return Slot(int(slot))  # pyright: ignore
