"""What calls in InCore and Orchestration functions share: finding the callee and its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pto_wsp.builder.steps import Argument, CallStep, Declaration, Tree
from pto_wsp.errors import UnknownArgument, UnknownKernel, WrongFunctionKind, did_you_mean
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.support.record import record

Function = KernelFunction | WorkloadFunction
Functions = Mapping[str, Function]


@record
class Recorded:
    """A function as a builder has recorded it.

    Attributes:
        name: of the function.
        declared: what it declares.
        functions: those that it can call.
        tree: its steps.
        loc: where it is built.
    """

    name: str
    declared: Mapping[str, Declaration]
    functions: Functions
    tree: Tree
    loc: Location


def called(step: CallStep, functions: Functions) -> Function:
    """Return the function that a step calls.

    Raises:
        UnknownKernel: there is none of that name.
    """
    callee = functions.get(step.callee)
    if callee is None:
        advice = did_you_mean(step.callee, functions) or "build it in the same module first"
        raise UnknownKernel(name=step.callee, advice=advice, loc=step.loc)
    return callee


def in_order(step: CallStep, names: Sequence[str]) -> Iterator[tuple[str, Argument]]:
    """Yield the parameters of the callee with what a step gives for them.

    Args:
        step: the call.
        names: of its parameters, in order.

    Raises:
        UnknownArgument: an argument is missing, or one that it does not have is given.
    """
    for name in step.args:
        if name not in names:
            problem, advice = f"has no parameter `{name}`", did_you_mean(name, names)
            raise UnknownArgument(
                kernel=step.callee, problem=problem, detail="given here", advice=advice, loc=step.loc
            )
    for name in names:
        if name not in step.args:
            problem, advice = f"is called without `{name}`", f'give it: `"{name}": ...`'
            raise UnknownArgument(
                kernel=step.callee, problem=problem, detail="called here", advice=advice, loc=step.loc
            )
        yield name, step.args[name]


def wrong_kind(method: str, function: str, kind: str, loc: Location) -> WrongFunctionKind:
    """Return the error of a method that functions of another kind have."""
    return WrongFunctionKind(method=method, function=function, kind=kind, loc=loc)
