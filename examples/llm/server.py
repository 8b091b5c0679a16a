"""A local server with the completions interface of OpenAI: `python -m examples.llm MODEL --serve PORT`.

One thread runs the engine's steps. Tokens reach the requests' queues in the server's event loop.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.llm.config import UnknownModel
from examples.llm.engine import Engine, Request, TooLong
from examples.llm.grammar import JSON
from examples.llm.masks import Mask, Vocabulary
from examples.llm.sampling import Sampling
from examples.llm.tokenizer import Stream, Text

MOST_GRAMMARS = 16
"""Grammars whose states are kept."""

FIELDS = frozenset(
    (
        "model",
        "prompt",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stream",
        "ignore_eos",
        "n",
        "grammar",
        "response_format",
    )
)
"""Fields of a request that have an effect; any other is refused by name."""


@dataclass(eq=False)
class Ticket:
    """A request that the engine works on.

    Attributes:
        request: of the engine.
        tokens: new tokens in order, then None.
        given: number of tokens that are in `tokens`.
    """

    request: Request
    tokens: asyncio.Queue[int | None]
    given: int = 0


class Service:
    """Runs the steps of an engine in a thread while it has requests.

    Args:
        engine: that nothing else uses.
        text: the model's tokenizer.
    """

    def __init__(self, engine: Engine, text: Text) -> None:
        self.text = text
        self._engine = engine
        self._changed = threading.Condition()
        self._tickets: dict[Ticket, asyncio.AbstractEventLoop] = {}
        self._is_closed = False
        self._masking = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._masks: OrderedDict[str, Mask] = OrderedDict()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the step in progress."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def mask(self, grammar: str) -> Mask:
        """Return the mask of a grammar; the last ones are kept.

        Raises:
            BadGrammar: the text is not a grammar.
        """
        config = self._engine.model.packed.config
        with self._masking:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self.text.bytes_of_tokens(config.vocab))
            if grammar not in self._masks:
                self._masks[grammar] = Mask.of(grammar, self._vocabulary, config.end)
                if len(self._masks) > MOST_GRAMMARS:
                    self._masks.popitem(last=False)
            return self._masks[grammar]

    @property
    def adapters(self) -> list[str]:
        """Names of the model's adapters."""
        return list(self._engine.model.adapters)

    async def submit(self, ids: list[int], **options: Any) -> Ticket:
        """Add a request, with the options of `Engine.add`.

        Raises:
            TooLong, UnknownModel: as `Engine.add`.
        """
        loop = asyncio.get_running_loop()

        def add() -> Ticket:
            with self._changed:
                ticket = Ticket(self._engine.add(ids, **options), asyncio.Queue())
                self._tickets[ticket] = loop
                self._changed.notify()
                return ticket

        return await asyncio.to_thread(add)

    def cancel(self, ticket: Ticket) -> None:
        """End a request, whose tokens nothing reads any more."""

        def end() -> None:
            with self._changed:
                if self._tickets.pop(ticket, None) is not None:
                    self._engine.cancel(ticket.request)

        threading.Thread(target=end).start()

    def figures(self) -> dict[str, Any]:
        """Return what `Engine.figures` returns."""
        with self._changed:
            return self._engine.figures()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or not self._engine.is_idle)
                if self._is_closed:
                    return
                self._engine.step()
                for ticket, loop in list(self._tickets.items()):
                    self._give(ticket, loop)
            time.sleep(0)  # lets a thread that waits for the lock have it

    def _give(self, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> None:
        new: list[int | None] = list(ticket.request.new[ticket.given :])
        ticket.given += len(new)
        if ticket.request.is_done:
            del self._tickets[ticket]
            new.append(None)
        for token in new:
            loop.call_soon_threadsafe(ticket.tokens.put_nowait, token)


def application(service: Service, name: str) -> Starlette:
    """Return the ASGI application.

    Args:
        service: runs the requests.
        name: of the model. A request for another model means an adapter.
    """

    async def models(_: HttpRequest) -> Response:
        names = [name, *service.adapters]
        found = [{"id": of, "object": "model", "owned_by": "local"} for of in names]
        return JSONResponse({"object": "list", "data": found})

    async def completions(http: HttpRequest) -> Response:
        try:
            fields = await http.json()
            options = _read(fields, service.text)
            if (adapter := options.pop("adapter")) != name:
                options["adapter"] = adapter
            if (grammar := options.pop("grammar")) is not None:
                options["mask"] = await asyncio.to_thread(service.mask, grammar)
            ticket = await service.submit(**options)
        except (ValueError, TypeError, UnknownModel, TooLong) as error:
            return JSONResponse({"error": {"message": str(error), "type": "invalid_request_error"}}, 400)
        identity = f"cmpl-{secrets.token_hex(12)}"
        if fields.get("stream"):
            events = _events(service, ticket, identity, fields["model"])
            return StreamingResponse(events, media_type="text/event-stream")
        return await _whole(service, ticket, identity, fields["model"], http)

    return Starlette(
        routes=[Route("/v1/models", models), Route("/v1/completions", completions, methods=["POST"])]
    )


def _read(fields: dict[str, Any], text: Text) -> dict[str, Any]:
    """Return the options of `Engine.add` that a request sets. Its model is the adapter.

    Raises:
        UnknownModel: a field that has no effect, or a value out of its range.
        TypeError, ValueError: a value of another type.
    """
    for field, value in fields.items():
        if field not in FIELDS and value is not None:
            raise UnknownModel(f"field {field!r} is not supported; leave it out")
    given = {field: value for field, value in fields.items() if value is not None}
    if given.get("n", 1) != 1:
        raise UnknownModel(f"field 'n': expected 1, found {given['n']}")
    prompt = given.get("prompt")
    is_tokens = isinstance(prompt, list) and all(type(token) is int for token in prompt)
    if not isinstance(prompt, str) and not is_tokens:
        raise UnknownModel("field 'prompt': expected a text or a list of tokens, found another type")
    most = int(given.get("max_tokens", 16))
    if most < 1:
        raise UnknownModel(f"field 'max_tokens': expected 1 or more, found {most}")
    sampling = Sampling(
        float(given.get("temperature", 1.0)), int(given.get("top_k", 0)), float(given.get("top_p", 1.0)),
        float(given.get("min_p", 0.0)), int(given.get("seed", secrets.randbits(32))),
    )  # fmt: skip
    ids = text.encode(prompt) if isinstance(prompt, str) else list(prompt or [])
    if not isinstance(given.get("model"), str):
        raise UnknownModel(
            "field 'model': expected the name of the model or of an adapter, found another type"
        )
    return {
        "ids": ids, "most": most, "ignores_end": bool(given.get("ignore_eos", False)), "sampling": sampling,
        "adapter": given["model"], "grammar": _grammar(given),
    }  # fmt: skip


def _grammar(given: dict[str, Any]) -> str | None:
    """Return the grammar of the answer, or None.

    Raises:
        UnknownModel: another format than text and objects of JSON, or both fields.
    """
    found = given.get("grammar")
    form = given.get("response_format", {"type": "text"})
    kind = form.get("type") if isinstance(form, dict) else form
    if kind not in ("text", "json_object") or (found is not None and kind == "json_object"):
        raise UnknownModel(
            f"field 'response_format': expected type text, or json_object without a grammar, found {kind!r}"
        )
    if found is not None and not isinstance(found, str):
        raise UnknownModel("field 'grammar': expected a text, found another type")
    return JSON if kind == "json_object" else found


def _reason(request: Request) -> str:
    if request.problem:
        return "error"
    return "length" if len(request.new) >= request.most else "stop"


def _answer(identity: str, name: str, text: str, reason: str | None) -> dict[str, Any]:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
    return {
        "id": identity, "object": "text_completion", "created": int(time.time()), "model": name,
        "choices": [choice],
    }  # fmt: skip


async def _events(service: Service, ticket: Ticket, identity: str, name: str) -> AsyncIterator[str]:
    """Yield an event per token that completes text; a client that leaves ends the request."""
    stream = Stream(service.text)
    try:
        while (token := await ticket.tokens.get()) is not None:
            if part := stream.add(token):
                yield f"data: {json.dumps(_answer(identity, name, part, None))}\n\n"
        last = _answer(identity, name, stream.rest(), _reason(ticket.request))
        yield f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n"
    finally:
        service.cancel(ticket)


async def _whole(service: Service, ticket: Ticket, identity: str, name: str, http: HttpRequest) -> Response:
    """Return the whole answer; a client that leaves ends the request."""
    tokens: list[int] = []
    try:
        while (token := await ticket.tokens.get()) is not None:
            tokens.append(token)
            if await http.is_disconnected():
                return Response(status_code=499)
    finally:
        service.cancel(ticket)
    found = _answer(identity, name, service.text.decode(tokens), _reason(ticket.request))
    prompt = ticket.request.prompt
    usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens), "total_tokens": prompt + len(tokens)}
    return JSONResponse(found | {"usage": usage})
