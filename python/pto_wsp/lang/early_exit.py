"""Statements that leave a loop or an iteration early, as conditionals and variables.

    for i in range(n):          left = 0
        A                       for i in range(n):
        if c: break       ->        if left == 0:
        B                               stays = 1; A
                                        if c: stays = 0; left = 1
                                        if stays: B

A counting loop counts to its end: the iterations after the one that is left do nothing. Both front ends share
the rewriting; each says what its statements are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Generic, NoReturn, TypeVar

from pto_wsp.support.fresh import Fresh

S = TypeVar("S")


class EarlyExit(ABC, Generic[S]):
    """Rewrites statements `S` so that none leaves a loop.

    Args:
        taken: names that are in use.
    """

    def __init__(self, taken: Collection[str]) -> None:
        self._fresh = Fresh(taken)

    # --- what statements are ---

    @abstractmethod
    def leaves(self, node: S) -> bool | None:
        """Return True for a statement that ends a loop, False for one that ends an iteration, else None."""

    @abstractmethod
    def branches(self, node: S) -> tuple[Sequence[S], Sequence[S]] | None:
        """Return both bodies of a conditional, None for other statements."""

    @abstractmethod
    def with_branches(self, node: S, body: list[S], other: list[S]) -> S:
        """Return a conditional with other bodies."""

    @abstractmethod
    def loop_body(self, node: S) -> tuple[Sequence[S], Sequence[S]] | None:
        """Return a loop's body, and the statements after it that compute the condition; None if no loop."""

    @abstractmethod
    def with_body(self, node: S, body: list[S], tests: list[S], left: str) -> S:
        """Return a loop with another body; it ends, where it can, once the variable `left` is not 0."""

    @abstractmethod
    def counts(self, node: S) -> bool:
        """Return whether a loop counts: `with_body` cannot end it."""

    @abstractmethod
    def assignment(self, name: str, value: int, at: S) -> S:
        """Return the assignment of 0 or 1 to a variable, at the place of another statement."""

    @abstractmethod
    def conditional(self, name: str, value: int, body: list[S], at: S) -> S:
        """Return a conditional on a variable's value."""

    @abstractmethod
    def refuse(self, node: S, expected: str, found: str) -> NoReturn:
        """Raise the error of a statement that leaves no loop, or one that it cannot leave."""
        raise NotImplementedError

    @abstractmethod
    def require_loop(self, leaving: S, loop: S) -> None:
        """Refuse a statement that leaves a loop whose iterations are independent."""

    # --- rewriting ---

    def rewritten(self, nodes: Sequence[S]) -> list[S]:
        """Return statements that are in no loop, or of which none leaves the loop around them."""
        found: list[S] = []
        for node in nodes:
            if self.leaves(node) is not None:
                self.refuse(node, "a loop around it", "none")
            arms = self.branches(node)
            if arms is not None:
                found.append(self.with_branches(node, *map(self.rewritten, arms)))
            else:
                found += [node] if self.loop_body(node) is None else self._loop(node)
        return found

    def _loop(self, node: S) -> list[S]:
        parts = self.loop_body(node)
        assert parts is not None
        body, tests = parts[0], self.rewritten(parts[1])
        leaving = self._leaving(body)
        if not leaving:
            return [self.with_body(node, self.rewritten(body), tests, "")]
        self.require_loop(leaving[0], node)
        stays, left = self._fresh.name("stays"), self._fresh.name("left")
        guarded = [self.assignment(stays, 1, node), *self._guarded(body, stays, left)]
        if not any(self.leaves(each) for each in leaving):
            return [self.with_body(node, guarded, tests, "")]
        if self.counts(node):
            guarded = [self.conditional(left, 0, guarded, node)]
        elif tests:
            tests = [self.conditional(left, 0, tests, node)]
        return [self.assignment(left, 0, node), self.with_body(node, guarded, tests, left)]

    def _guarded(self, nodes: Sequence[S], stays: str, left: str) -> list[S]:
        """Return statements of a loop; those after one that may leave it are under a condition."""
        found: list[S] = []
        for number, node in enumerate(nodes):
            rest, is_last, arms = nodes[number + 1 :], self.leaves(node), self.branches(node)
            if is_last is not None:
                if rest:
                    self.refuse(node, "the end of its block", "statements that never run")
                ends = [self.assignment(left, 1, node)] if is_last else []
                return [*found, self.assignment(stays, 0, node), *ends]
            if arms is not None and self._leaving([node]):
                bodies = [self._guarded(arm, stays, left) for arm in arms]
                found.append(self.with_branches(node, *bodies))
                after = self._guarded(rest, stays, left)
                return [*found, *([self.conditional(stays, 1, after, node)] if after else [])]
            found += self.rewritten([node])
        return found

    def _leaving(self, nodes: Sequence[S]) -> list[S]:
        """Return the statements that leave the loop around `nodes`."""
        found: list[S] = []
        for node in nodes:
            if self.leaves(node) is not None:
                found.append(node)
            for arm in self.branches(node) or ():
                found += self._leaving(arm)
        return found
