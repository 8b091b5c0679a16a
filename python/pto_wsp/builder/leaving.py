"""Steps that leave a loop or an iteration early, as conditionals and variables.

    for i in range(n):          left = 0
        A                       for i in range(n):
        if c: break       ->        if left == 0:
        B                               stays = 1; A
                                        if c: stays = 0; left = 1
                                        if stays: B

A loop counts to its end: the iterations behind the one that is left do nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pto_wsp.builder.steps import IfStep, LeaveStep, LoopStep, Plain, ScalarStep, StepBlock, Tree, WhileStep
from pto_wsp.errors import BadBlock
from pto_wsp.location import Location
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace


def without_leaving(tree: Tree, taken: Collection[str]) -> Tree:
    """Return steps none of which leaves a loop.

    Args:
        tree: the steps of a function.
        taken: its names.

    Raises:
        BadBlock: such a step stands in no loop, in one whose iterations are independent, or before others.
    """
    return _Leaving(taken).outside(tree)


@record
class _Names:
    """The variables of a loop that is left early: whether an iteration goes on, whether it was the last."""

    stays: str
    left: str


class _Leaving:
    def __init__(self, taken: Collection[str]) -> None:
        self.fresh = Fresh(taken)

    def outside(self, tree: Sequence[Plain | StepBlock]) -> Tree:
        """Return steps that stand in no loop, or of which none leaves the loop around them."""
        found: list[Plain | StepBlock] = []
        for step in tree:
            if isinstance(step, LeaveStep):
                raise BadBlock(method=step.method, expected="a loop around it", found="none", loc=step.loc)
            if not isinstance(step, StepBlock):
                found.append(step)
            elif isinstance(step.opening, IfStep):
                found.append(replace(step, body=self.outside(step.body), other=self.outside(step.other)))
            else:
                found += self.loop(step, step.opening)
        return tuple(found)

    def loop(self, block: StepBlock, opening: LoopStep | WhileStep) -> Tree:
        leaves = [*_leaves(block.body)]
        if not leaves:
            return (replace(block, body=self.outside(block.body)),)
        if isinstance(opening, LoopStep) and opening.kind == "parallel":
            found = "one whose iterations are independent"
            raise BadBlock(
                method=leaves[0].method, expected="a loop in order", found=found, loc=leaves[0].loc
            )
        names, loc = _Names(self.fresh.name("stays"), self.fresh.name("left")), opening.loc
        size = len(block.body) - block.num_tests
        body = (_set(names.stays, 1, loc), *self.guarded(block.body[:size], names))
        tests = self.outside(block.body[size:])
        if not any(step.is_last for step in leaves):
            return (replace(block, body=(*body, *tests)),)
        goes_on = f"{names.left} == 0"
        if isinstance(opening, WhileStep):
            opening = replace(opening, unless=names.left)
            tests = (StepBlock(IfStep(goes_on, None, loc), tests),) if tests else ()
        else:
            body = (StepBlock(IfStep(goes_on, None, loc), body),)
        return (_set(names.left, 0, loc), replace(block, opening=opening, body=(*body, *tests)))

    def guarded(self, steps: Sequence[Plain | StepBlock], names: _Names) -> Tree:
        """Return steps of a loop, those behind one that may leave it under a condition."""
        found: list[Plain | StepBlock] = []
        for number, step in enumerate(steps):
            rest = steps[number + 1 :]
            if isinstance(step, LeaveStep):
                if rest:
                    expected, found_text = "the end of its block", "steps that are never done"
                    raise BadBlock(method=step.method, expected=expected, found=found_text, loc=step.loc)
                left = [_set(names.left, 1, step.loc)] if step.is_last else []
                return (*found, _set(names.stays, 0, step.loc), *left)
            if isinstance(step, StepBlock) and isinstance(step.opening, IfStep) and [*_leaves((step,))]:
                arms = {"body": self.guarded(step.body, names), "other": self.guarded(step.other, names)}
                found.append(replace(step, **arms))
                behind = self.guarded(rest, names)
                if behind:
                    found.append(StepBlock(IfStep(names.stays, None, step.opening.loc), behind))
                return tuple(found)
            found += self.outside((step,))
        return tuple(found)


def _set(name: str, value: int, loc: Location) -> ScalarStep:
    return ScalarStep(name, "mov", (value,), loc)


def _leaves(steps: Sequence[Plain | StepBlock]) -> list[LeaveStep]:
    """Return the steps that leave the loop around `steps`."""
    found: list[LeaveStep] = []
    for step in steps:
        if isinstance(step, LeaveStep):
            found.append(step)
        elif isinstance(step, StepBlock) and isinstance(step.opening, IfStep):
            found += _leaves((*step.body, *step.other))
    return found
