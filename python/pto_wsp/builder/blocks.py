"""From a row of steps to blocks inside each other."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.builder.steps import (
    ElseStep,
    EndStep,
    IfStep,
    LoopStep,
    Opening,
    Plain,
    ProcessStep,
    ReceiveStep,
    SendStep,
    Step,
    StepBlock,
    Tree,
    WhileStep,
)
from pto_wsp.errors import BadBlock
from pto_wsp.support.record import record

_CLOSED_BY: dict[type[Opening], str] = {
    LoopStep: "end_for",
    WhileStep: "end_while",
    IfStep: "endif",
    ProcessStep: "end_process",
    SendStep: "end_send",
    ReceiveStep: "end_receive",
}


@record
class _Open:
    """A block that is not closed yet; `parts` has its body, and after `else_block` the other branch."""

    opening: Opening
    parts: list[list[Plain | StepBlock]]


def nest(steps: Sequence[Step]) -> Tree:
    """Return the steps as a tree of blocks.

    Raises:
        BadBlock: a block that is not closed, or a step that closes or continues none.
    """
    tree: list[Plain | StepBlock] = []
    stack: list[_Open] = []
    for step in steps:
        current = stack[-1].parts[-1] if stack else tree
        match step:
            case LoopStep() | WhileStep() | IfStep() | ProcessStep() | SendStep() | ReceiveStep():
                stack.append(_Open(step, [[]]))
            case ElseStep():
                _require_open(stack, IfStep, step, "else_block")
                if len(stack[-1].parts) == 2:
                    raise BadBlock(
                        method="else_block", expected="`endif`", found="a second one", loc=step.loc
                    )
                stack[-1].parts.append([])
            case EndStep(count=count):
                for _ in range(count):
                    _require_open(stack, step.closes, step, step.method)
                    block = stack.pop()
                    (stack[-1].parts[-1] if stack else tree).append(_closed(block, step.num_tests))
            case _:
                current.append(step)
    if stack:
        opening = stack[-1].opening
        method = _CLOSED_BY[type(opening)]
        raise BadBlock(method="build", expected=f"`{method}`", found="the end", loc=opening.loc)
    return tuple(tree)


def _closed(block: _Open, num_tests: int) -> StepBlock:
    body, *other = block.parts
    return StepBlock(block.opening, tuple(body), tuple(other[0]) if other else (), num_tests)


def _require_open(stack: Sequence[_Open], kind: type[Opening], step: ElseStep | EndStep, method: str) -> None:
    if stack and isinstance(stack[-1].opening, kind):
        return
    expected = "an open block that it belongs to"
    found = f"one that `{_CLOSED_BY[type(stack[-1].opening)]}` closes" if stack else "none"
    notes = [("the open block begins here", stack[-1].opening.loc)] if stack else []
    raise BadBlock(method=method, expected=expected, found=found, loc=step.loc, notes=notes)
