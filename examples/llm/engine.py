"""Continuous batching: every step runs prompt chunks and decode steps of all requests that have room."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.llm.config import UnknownModel
from examples.llm.kernels import PAGE
from examples.llm.masks import Mask
from examples.llm.model import Chunk, Model
from examples.llm.pages import Pages
from examples.llm.sampling import GREEDY, Sampling

MATCHED = 3
"""Tokens at the end of a text that a draft follows where they were before."""

SEARCHED = 1024
"""Last tokens of a text in which a draft is looked up."""


class TooLong(Exception):
    """A request cannot fit into the context or the cache; the message has the numbers."""


@dataclass(eq=False)
class Request:
    """A text that is continued.

    Attributes:
        ids: the prompt's tokens and the new ones after them.
        prompt: number of the prompt's tokens.
        most: number of new tokens after which it ends.
        ignores_end: it goes on after a token that ends an answer.
        sampling: how tokens are chosen.
        adapter: number of its adapter, or -1.
        mask: grammar of the new tokens, or None; `state` is that after them.
        problem: the reason for an end without an allowed token, else empty.
        pages: of the cache, in order.
        cached: tokens whose keys and values are in the cache.
        prefix: number of the prefix that its full pages hold.
        is_done: it has ended.
        preemptions: times that its pages were taken.
        reused: tokens of the prompt that were found in the cache.
    """

    ids: list[int]
    prompt: int
    most: int
    ignores_end: bool = False
    sampling: Sampling = GREEDY
    adapter: int = -1
    mask: Mask | None = None
    state: int = 0
    problem: str = ""
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    prefix: int = 0
    is_done: bool = False
    preemptions: int = 0
    reused: int = 0

    @property
    def new(self) -> list[int]:
        """The new tokens."""
        return self.ids[self.prompt :]


class Engine:
    """Requests over one model. Tokens of a request do not depend on other requests, nor on the order of work.

    Args:
        model: with the pages of its cache.
        most_tokens: largest number of tokens per step; prompts are cut into chunks that fit.
        drafts: largest number of tokens that a decode step guesses from the text so far, and verifies. The
            tokens of requests do not change.

    Attributes:
        model: the model.
        steps: number of batches run so far.
        tokens: number of tokens that they had.
    """

    def __init__(self, model: Model, most_tokens: int = 512, drafts: int = 0) -> None:
        self.model = model
        self.steps = self.tokens = 0
        self._most_tokens, self._drafts = most_tokens, drafts
        self._pages = Pages(model.pages)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._end = frozenset(model.packed.config.end)

    def add(
        self,
        ids: Sequence[int],
        most: int = 256,
        ignores_end: bool = False,
        sampling: Sampling = GREEDY,
        adapter: str | None = None,
        mask: Mask | None = None,
    ) -> Request:
        """Add a request; `step` works on it.

        Args:
            ids: tokens of the prompt, one or more.
            most: largest number of new tokens.
            ignores_end: go on after a token that ends an answer.
            sampling: how tokens are chosen.
            adapter: name of an adapter of the model; None: none.
            mask: grammar of the new tokens; None: any tokens may follow. The answer may end before the
                grammar does, after `most` tokens.

        Raises:
            TooLong: prompt and new tokens exceed the context, or all pages of the cache.
            UnknownModel: a prompt without tokens, or with tokens that the model does not have, or another
                adapter than the model has, or a mask with `ignores_end`.
        """
        if mask is not None and ignores_end:
            raise UnknownModel("a grammar says where an answer ends; expected `ignores_end` to be off")
        if adapter is not None and adapter not in self.model.adapters:
            known = ", ".join(self.model.adapters) or "none"
            raise UnknownModel(f"adapter: expected one of {known}, found {adapter!r}")
        config = self.model.packed.config
        room = min(config.context, self.model.pages * PAGE)
        if not ids or not all(0 <= token < config.vocab for token in ids):
            raise UnknownModel(f"a prompt: expected one or more tokens below {config.vocab}, found others")
        if len(ids) + most > room + 1:
            raise TooLong(
                f"expected at most {room} positions, found a prompt of {len(ids)} tokens and {most} new ones"
            )
        number = -1 if adapter is None else self.model.adapters[adapter]
        request = Request(list(ids), len(ids), most, ignores_end, sampling, number, mask)
        request.state = mask.automaton.start if mask else 0
        self._waiting.append(request)
        return request

    def generate(self, ids: Sequence[int], most: int = 256, **options: Any) -> Generator[int, None, None]:
        """Yield the tokens that follow a prompt, without the one that ends the answer; see `add`."""
        request = self.add(ids, most, **options)
        given = 0
        try:
            while not request.is_done or given < len(request.new):
                if given == len(request.new):
                    self.step()
                yield from request.new[given:]
                given = len(request.new)
            if request.problem:
                raise UnknownModel(request.problem)
        finally:
            self.cancel(request)

    def cancel(self, request: Request) -> None:
        """End a request; its pages are free for others."""
        if request in self._running:
            self._running.remove(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        self._leave(request)
        request.is_done = True

    @property
    def is_idle(self) -> bool:
        """Whether no request is left."""
        return not self._running and not self._waiting

    def step(self) -> None:
        """Run one batch: a token for each request whose prompt is complete, and chunks of prompts."""
        batch = self._decode_steps()
        budget = self._most_tokens - len(batch)
        for request in self._running:
            if budget > 0 and request not in batch:
                batch[request] = count = min(len(request.ids) - request.cached, budget)
                budget -= count
        while self._waiting and budget > 0 and self._admit(self._waiting[0]):
            request = self._waiting.popleft()
            self._running.append(request)
            batch[request] = count = min(len(request.ids) - request.cached, budget)
            budget -= count
        if batch:
            self._run(batch)

    def _decode_steps(self) -> dict[Request, int]:
        """Return the requests that take one token each, with a page for it; the youngest make room."""
        batch: dict[Request, int] = {}
        for request in list(self._running):
            if request not in self._running or len(request.ids) - request.cached > 1:
                continue
            while len(request.pages) * PAGE <= request.cached and not self._pages.free:
                self._preempt(self._running[-1])
            if request not in self._running:
                continue
            if len(request.pages) * PAGE <= request.cached:
                request.pages.append(self._pages.take())
            batch[request] = 1
        return {request: count for request, count in batch.items() if request in self._running}

    def _admit(self, request: Request) -> bool:
        """Give a request the pages of all its tokens, and return whether there are enough."""
        shared, prefix = self._pages.share(request.ids, -1 - request.adapter)
        missing = -(-len(request.ids) // PAGE) - len(shared)
        if missing > self._pages.free:
            self._pages.release(shared)
            return False
        request.pages = shared + [self._pages.take() for _ in range(missing)]
        request.cached = request.reused = len(shared) * PAGE
        request.prefix = prefix
        return True

    def _preempt(self, request: Request) -> None:
        """Take the pages of a request. It begins again when there is room."""
        self._running.remove(request)
        self._leave(request)
        request.preemptions += 1
        self._waiting.appendleft(request)

    def _leave(self, request: Request) -> None:
        self._pages.release(request.pages)
        request.pages, request.cached, request.prefix = [], 0, 0

    def _run(self, batch: dict[Request, int]) -> None:
        chunks = []
        for request, count in batch.items():
            end = request.cached + count
            ids, wanted = request.ids[request.cached : end], int(end == len(request.ids))
            draft = self._draft(request) if wanted and count == 1 else []
            draft, allowed = self._allowed(request, draft) if wanted else (draft, [])
            chunks.append(
                Chunk(
                    ids + draft, request.cached, request.pages, wanted + len(draft), request.sampling,
                    request.adapter, allowed,
                )
            )  # fmt: skip
        tokens = iter(self.model.run(chunks)[1].tolist())
        self.steps += 1
        self.tokens += sum(len(chunk.ids) for chunk in chunks)
        for (request, count), chunk in zip(batch.items(), chunks, strict=True):
            self._advance(request, count)
            self._accept(request, list(chunk.ids[count:]), [next(tokens) for _ in range(chunk.wanted)])

    def _draft(self, request: Request) -> list[int]:
        """Return what followed the last tokens of a request where they were before, as far as pages reach."""
        most = min(
            self._drafts,
            len(request.pages) * PAGE - request.cached - 1,
            request.most - len(request.new) - 1,
        )
        ids = request.ids[-SEARCHED:]
        end = ids[-MATCHED:]
        for start in range(len(ids) - MATCHED - 1, -1, -1) if most > 0 else ():
            if ids[start : start + MATCHED] == end:
                return ids[start + MATCHED : start + MATCHED + most]
        return []

    def _allowed(self, request: Request, draft: list[int]) -> tuple[list[int], list[np.ndarray]]:
        """Return the part of a draft that the grammar of a request allows, and the masks of wanted tokens."""
        if request.mask is None:
            return draft, []
        state, masks = request.state, [request.mask.allowed(request.state)]
        for i, token in enumerate(draft):
            if not masks[-1][token] or token in self._end:
                return draft[:i], masks
            state = request.mask.after(state, token)
            masks.append(request.mask.allowed(state))
        return draft, masks

    def _accept(self, request: Request, draft: list[int], chosen: list[int]) -> None:
        """Append chosen tokens, the last one after the first guess that was wrong."""
        for i, token in enumerate(chosen):
            self._append(request, token)
            if request.is_done or i == len(draft) or token != draft[i]:
                return
            self._advance(request, 1)

    def _advance(self, request: Request, count: int) -> None:
        """Note tokens that are in the cache, and the pages that they fill."""
        before, request.cached = request.cached, request.cached + count
        for page in range(before // PAGE, request.cached // PAGE):
            ids = request.ids[page * PAGE : (page + 1) * PAGE]
            request.prefix = self._pages.fill(request.pages[page], request.prefix, ids)

    def _append(self, request: Request, token: int) -> None:
        if request.mask is not None and not request.mask.allowed(request.state)[token]:
            request.problem = "the grammar needs a text for which the model has no token"
            self._end_request(request)
            return
        is_end = token in self._end and not request.ignores_end
        if not is_end:
            request.ids.append(token)
            if request.mask is not None:
                request.state = request.mask.after(request.state, token)
        if is_end or len(request.new) >= request.most:
            self._end_request(request)

    def _end_request(self, request: Request) -> None:
        self._running.remove(request)
        self._leave(request)
        request.is_done = True

    def figures(self) -> dict[str, Any]:
        """Return how many requests wait and run, and how many pages are free."""
        return {"waiting": len(self._waiting), "running": len(self._running), "free_pages": self._pages.free}
