"""`assume`: what a workload takes for granted. Each run checks it, and proofs use it."""

from __future__ import annotations

from pto_wsp.errors import BadOperand
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Unary, format_expr
from pto_wsp.lang.operands import Number, kind_of
from pto_wsp.lang.workload.blocks import OpenCond
from pto_wsp.lang.workload.conditions import predicate_of
from pto_wsp.lang.workload.sparse import Held
from pto_wsp.lang.workload.tensor import Tensor, View
from pto_wsp.lang.workload.trace import current_trace
from pto_wsp.location import caller_location


class Distinct:
    """That no two elements of a tensor are equal; made by `distinct`, for `assume`."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def distinct(tensor: Tensor) -> Distinct:
    """Return the condition that no two elements of a tensor are equal: `assume(distinct(slots))`.

    Args:
        tensor: a whole parameter of integers, of any shape.

    Raises:
        BadOperand: a part of a tensor, or one that does not hold integers.
    """
    loc = caller_location()
    if not isinstance(tensor, Tensor) or isinstance(tensor, (View, Held)):
        raise BadOperand(op="distinct", expected="a whole tensor", found=kind_of(tensor), loc=loc)
    if not tensor.dtype.is_integer:
        found = f"a tensor of {tensor.dtype}"
        raise BadOperand(op="distinct", expected="a tensor of integers", found=found, loc=loc)
    return Distinct(tensor)


def assume(condition: Number | Distinct) -> None:
    """State what holds at this place of a workload. A proof uses it, and each run checks it.

    A run in which it does not hold ends with `AssumptionFails`: before the first task, where no task of the
    run decides the condition. It costs a comparison each time that the walk reaches it; `distinct` is
    checked when a run is bound.

    Args:
        condition: a comparison, such as `slots[b] < 4`, or `distinct(slots)`.

    Raises:
        BadOperand: something else, or a condition that never holds.
    """
    trace = current_trace("`assume`")
    loc = caller_location()
    if isinstance(condition, Distinct):
        trace.distinct.append(condition.tensor)
        return
    predicate = predicate_of("assume", condition, loc)
    if predicate is False:
        raise BadOperand(op="assume", expected="a condition that can hold", found="False", loc=loc)
    if predicate is not True:
        assert not isinstance(predicate, bool)
        failure = w.Refuse("", (), Const(0), loc, format_expr(predicate))
        trace.blocks.add(OpenCond(Unary("not", predicate, loc), loc, [failure], []))
