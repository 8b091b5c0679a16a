"""Slots: 256 numbers that a run keeps, set by the program and read by what comes later in it.

A slot holds the value of the last set before its reader in program order. Source: seed 003 section 3.
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
    """Set a slot to an integer >= 0; less is an error of the run.

    Raises:
        BadOperand: no slot 0..255, or no integer.
    """
    _set("slot_set_u64", slot, value)


def slot_set_i64(slot: int, value: Number) -> None:
    """Set a slot to an integer.

    Raises:
        BadOperand: no slot 0..255, or no integer.
    """
    _set("slot_set_i64", slot, value)


def slot_set_bool(slot: int, value: Number) -> None:
    """Set a slot to a truth value.

    Raises:
        BadOperand: no slot 0..255, or no truth value.
    """
    _set("slot_set_bool", slot, value)


def slot_load_u64(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Set a slot to an element >= 0 of a tensor or view with at most two dimensions.

    The tasks that write the element, as far as they come before in program order, are complete when it is
    read. `row` and `col` index the dimensions that the view has left; without one they are 0.

    Raises:
        BadOperand: no slot 0..255, or a tensor that holds no integers or truth values.
        BadIndex: the view has more than two dimensions, or fewer than it is given indices for.
    """
    _load("slot_load_u64", slot, tensor_view, row, col)


def slot_load_i64(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Set a slot to an element of a tensor or view, as `slot_load_u64` does."""
    _load("slot_load_i64", slot, tensor_view, row, col)


def slot_load_bool(slot: int, tensor_view: Tensor, row: Number = 0, col: Number = 0) -> None:
    """Set a slot to whether an element of a tensor or view is not 0, as `slot_load_u64` does."""
    _load("slot_load_bool", slot, tensor_view, row, col)


def slot_u64(slot: int) -> Scalar:
    """Return the value of a slot; one below 0 is an error of the run."""
    return Scalar(Unary("u64", _read("slot_u64", slot), caller_location()))


def slot_i64(slot: int) -> Scalar:
    """Return the value of a slot."""
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
