"""Tokens that a grammar allows next: its automaton walks over the texts of all tokens together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from examples.llm.config import UnknownModel
from examples.llm.grammar import BadGrammar, Rules, Symbol, parse

MOST_STACKS, MOST_MASKS = 4096, 256
"""Stacks of a state, and masks that are kept."""

WRONG = 0
"""State after a byte that the grammar does not allow."""

Stack = tuple[Symbol, ...]
"""Symbols that must follow, the next one first. The empty stack ends the text."""


class Automaton:
    """The states of a grammar, numbered as they are met.

    Args:
        rules: of the grammar.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules.alternatives
        self._stacks: list[frozenset[Stack]] = [frozenset()]
        self._numbers: dict[frozenset[Stack], int] = {frozenset(): WRONG}
        self._table = np.zeros((64, 256), np.int32)
        self._is_known = np.zeros(64, bool)
        self._is_known[WRONG] = True
        self.start = self._state(frozenset({("root",)}))

    def is_end(self, state: int) -> bool:
        """Return whether the text may end."""
        return () in self._stacks[state]

    def step(self, states: np.ndarray, read: np.ndarray) -> np.ndarray:
        """Return the states after one byte each."""
        for state in np.unique(states):
            if not self._is_known[state]:
                self._fill(int(state))
        return self._table[states, read]

    def _state(self, stacks: frozenset[Stack]) -> int:
        """Return the number of the state in which one of some stacks must follow."""
        closed, todo = set(), list(stacks)
        while todo:
            stack = todo.pop()
            if stack in closed:
                continue
            closed.add(stack)
            if len(closed) > MOST_STACKS:
                raise BadGrammar(
                    f"grammar: more than {MOST_STACKS} ways to read one text; make it less ambiguous"
                )
            if stack and isinstance(stack[0], str):
                todo += [(*one, *stack[1:]) for one in self._rules[stack[0]]]
        found = frozenset(s for s in closed if not s or not isinstance(s[0], str))
        if found not in self._numbers:
            self._numbers[found] = len(self._stacks)
            self._stacks.append(found)
            if len(self._stacks) > len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
                self._is_known = np.concatenate([self._is_known, np.zeros_like(self._is_known)])
        return self._numbers[found]

    def _fill(self, state: int) -> None:
        """Compute the states after every byte."""
        after: list[set[Stack]] = [set() for _ in range(256)]
        for stack in self._stacks[state]:
            if stack and not isinstance(stack[0], str):
                for byte in range(stack[0][0], stack[0][1] + 1):
                    after[byte].add(stack[1:])
        known: dict[frozenset[Stack], int] = {}
        for byte, stacks in enumerate(map(frozenset, after)):
            if stacks not in known:
                known[stacks] = self._state(stacks)
            self._table[state, byte] = known[stacks]
        self._is_known[state] = True


class Vocabulary:
    """The bytes of tokens as a tree: each node is a byte after those of its parent.

    Args:
        texts: bytes of every token; those of special tokens are empty.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = texts
        lengths = np.array([len(text) for text in texts])
        self._levels: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        node = np.zeros(len(texts), np.int64)
        for depth in range(int(lengths.max(initial=0))):
            inside = np.flatnonzero(lengths > depth)
            read = np.array([texts[token][depth] for token in inside.tolist()], np.int64)
            keys, node[inside] = np.unique(node[inside] * 256 + read, return_inverse=True)
            ends = inside[lengths[inside] == depth + 1]
            self._levels.append((keys // 256, keys % 256, ends, node[ends]))

    def allowed(self, automaton: Automaton, state: int) -> np.ndarray:
        """Return which tokens the grammar allows after a state, [vocab] i8 of 0 and 1."""
        found = np.zeros(len(self.texts), np.int8)
        states = np.array([state])
        for parents, read, tokens, nodes in self._levels:
            states = automaton.step(states[parents], read)
            found[tokens] = states[nodes] != WRONG
        return found


@dataclass(frozen=True)
class Mask:
    """A grammar over the tokens of a model.

    Attributes:
        automaton: of the grammar.
        vocabulary: of the model.
        end: tokens that end an answer; they are allowed where the text may end.
    """

    automaton: Automaton
    vocabulary: Vocabulary
    end: tuple[int, ...]
    kept: OrderedDict[int, np.ndarray]

    @classmethod
    def of(cls, grammar: str, vocabulary: Vocabulary, end: Sequence[int]) -> Mask:
        """Return the mask of a grammar's text.

        Raises:
            BadGrammar: the text is not a grammar.
            UnknownModel: a model without a token that ends an answer.
        """
        automaton = Automaton(parse(grammar))
        if not end:
            raise UnknownModel("grammars need a model with a token that ends an answer, found none")
        return cls(automaton, vocabulary, tuple(end), OrderedDict())

    def allowed(self, state: int) -> np.ndarray:
        """Return which tokens may follow, [vocab] i8 of 0 and 1."""
        if state not in self.kept:
            found = self.vocabulary.allowed(self.automaton, state)
            found[list(self.end)] = self.automaton.is_end(state)
            self.kept[state] = found
            if len(self.kept) > MOST_MASKS:
                self.kept.popitem(last=False)
        return self.kept[state]

    def after(self, state: int, token: int) -> int:
        """Return the state after a token."""
        for byte in self.vocabulary.texts[token]:
            state = int(self.automaton.step(np.array([state]), np.array([byte]))[0])
        return state
