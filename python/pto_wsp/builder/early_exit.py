"""Steps of a builder that leave a loop or an iteration early."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from pto_wsp.builder.steps import (
    IfStep,
    LeaveStep,
    LoopStep,
    Plain,
    ProcessStep,
    ReceiveStep,
    ScalarStep,
    SendStep,
    StepBlock,
    Tree,
    WhileStep,
)
from pto_wsp.errors import BadBlock
from pto_wsp.lang.early_exit import EarlyExit
from pto_wsp.location import Location
from pto_wsp.support.record import replace

Node = Plain | StepBlock


def without_leaving(tree: Tree, taken: Collection[str]) -> Tree:
    """Return steps none of which leaves a loop.

    Args:
        tree: the steps of a function.
        taken: its names.

    Raises:
        BadBlock: such a step is in no loop, in one whose iterations are independent, or before others.
    """
    return tuple(_StepExit(taken).rewritten(tree))


class _StepExit(EarlyExit[Node]):
    def leaves(self, node: Node) -> bool | None:
        return node.is_last if isinstance(node, LeaveStep) else None

    def branches(self, node: Node) -> tuple[Sequence[Node], Sequence[Node]] | None:
        if isinstance(node, StepBlock) and isinstance(node.opening, IfStep):
            return node.body, node.other
        return None

    def with_branches(self, node: Node, body: list[Node], other: list[Node]) -> Node:
        return replace(node, body=tuple(body), other=tuple(other))

    def loop_body(self, node: Node) -> tuple[Sequence[Node], Sequence[Node]] | None:
        if not isinstance(node, StepBlock):
            return None
        size = len(node.body) - node.num_tests
        return node.body[:size], node.body[size:]

    def with_body(self, node: Node, body: list[Node], tests: list[Node], left: str) -> Node:
        assert isinstance(node, StepBlock)
        is_ended = left and isinstance(node.opening, WhileStep)
        opening = replace(node.opening, unless=left) if is_ended else node.opening
        return replace(node, opening=opening, body=(*body, *tests))

    def counts(self, node: Node) -> bool:
        return isinstance(node, StepBlock) and isinstance(node.opening, LoopStep)

    def assignment(self, name: str, value: int, at: Node) -> Node:
        return ScalarStep(name, "mov", (value,), _place(at))

    def conditional(self, name: str, value: int, body: list[Node], at: Node) -> Node:
        return StepBlock(IfStep(f"{name} == {value}", None, _place(at)), tuple(body))

    def refuse(self, node: Node, expected: str, found: str) -> NoReturn:
        assert isinstance(node, LeaveStep)
        raise BadBlock(method=node.method, expected=expected, found=found, loc=node.loc)

    def require_loop(self, leaving: Node, loop: Node) -> None:
        opening = loop.opening if isinstance(loop, StepBlock) else None
        if isinstance(opening, (ProcessStep, SendStep, ReceiveStep)):
            self.refuse(leaving, "a loop inside", f"a block that begins at line {opening.loc.line}")
        if isinstance(opening, LoopStep) and opening.kind == "parallel":
            self.refuse(leaving, "a loop in order", "one whose iterations are independent")


def _place(node: Node) -> Location:
    return node.opening.loc if isinstance(node, StepBlock) else node.loc
