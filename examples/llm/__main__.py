"""Continue texts with a language model: a conversation, one prompt, or a file of prompts.

python -m examples.llm MODEL                          a conversation in the terminal
python -m examples.llm MODEL --prompt TEXT            one answer, written as it comes
python -m examples.llm MODEL --batch FILE.jsonl --save OUT.jsonl
python -m examples.llm MODEL --serve PORT             OpenAI's completions on this machine

MODEL is `smollm2`, a .gguf file or a folder. A line of FILE is {"prompt": TEXT}, as raw text. It may
have {"adapter": NAME}.
A line of OUT is {"prompt", "ids", "tokens", "text"}.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from examples.command import status_of
from examples.llm.adapters import read_adapter
from examples.llm.config import Config, UnknownModel
from examples.llm.engine import Engine, TooLong
from examples.llm.grammar import JSON
from examples.llm.masks import Mask, Vocabulary
from examples.llm.model import Model, load
from examples.llm.options import parse
from examples.llm.tokenizer import Stream, Text


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse(arguments, __doc__)
    return status_of(lambda: run(options), UnknownModel, TooLong)


def run(options: argparse.Namespace) -> int:
    """Load the model, and do what the options ask; return the exit status."""
    began = time.perf_counter()
    packed, text = load(options.model, lambda what: note(f"packing {what}"))
    note("")
    if options.rope is not None:
        packed = replace(packed, config=packed.config.with_rope(*options.rope))
    pages = options.pages or max(2 * packed.config.context // 64, 16)
    adapters = [read_adapter(name, Path(folder), packed.config) for name, folder in options.adapter]
    model = Model(
        packed, options.activations, pages, options.cache, workers=options.workers, adapters=adapters
    )
    engine = Engine(model, drafts=options.drafts)
    options.mask = mask_of(options, text, packed.config)
    if options.mode == "prompt":
        prompt = options.prompt if options.raw else text.conversation([message("user", options.prompt)])
        write(answer(engine, text, prompt, options), began)
    else:
        {"batch": batch, "serve": serve, "conversation": converse}[options.mode](engine, text, options)
    return 0


def mask_of(options: argparse.Namespace, text: Text, config: Config) -> Mask | None:
    """Return the grammar of answers.

    Raises:
        UnknownModel: a file that cannot be read, or that is not a grammar.
    """
    if not options.json and options.grammar is None:
        return None
    try:
        grammar = JSON if options.json else options.grammar.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise UnknownModel(f"--grammar: {error}") from error
    return Mask.of(grammar, Vocabulary(text.bytes_of_tokens(config.vocab)), config.end)


def serve(engine: Engine, text: Text, options: argparse.Namespace) -> None:
    """Serve completions until the process is interrupted.

    Raises:
        UnknownModel: the packages of a server are not installed.
    """
    try:
        import uvicorn

        from examples.llm.server import Service, application
    except ImportError as error:
        raise UnknownModel("a server needs `pip install starlette uvicorn`") from error
    service = Service(engine, text)
    try:
        uvicorn.run(
            application(service, options.model), host="127.0.0.1", port=options.serve, log_level="info"
        )
    finally:
        service.close()


def note(line: str) -> None:
    """Show on a terminal what is going on, in place of the last note."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def message(role: str, content: str) -> dict[str, str]:
    """Return a message of a conversation."""
    return {"role": role, "content": content}


def answer(engine: Engine, text: Text, prompt: str, options: argparse.Namespace) -> Iterator[str]:
    """Yield an answer, token by token; each may complete no character."""
    stream = Stream(text)
    ids = text.encode(prompt)
    room = min(engine.model.packed.config.context, engine.model.pages * 64) - len(ids)
    tokens = engine.generate(
        ids,
        max(min(options.max_tokens, room), 1),
        ignores_end=options.ignore_eos,
        sampling=options.sampling,
        adapter=options.use,
        mask=options.mask,
    )
    for token in tokens:
        yield stream.add(token)
    yield stream.rest()


def write(parts: Iterator[str], began: float) -> str:
    """Write an answer as it comes, and then its figures; return it."""
    found, first = [], 0.0
    for part in parts:
        first = first or time.perf_counter()
        found.append(part)
        sys.stdout.write(part)
        sys.stdout.flush()
    ended, count = time.perf_counter(), len(found) - 1
    rate = (count - 1) / (ended - first) if count > 1 else 0.0
    print()
    if sys.stderr.isatty():
        print(
            f"[{count} tokens, first after {first - began:.2f} s, then {rate:.0f} tokens/s]", file=sys.stderr
        )
    return "".join(found)


def converse(engine: Engine, text: Text, options: argparse.Namespace) -> None:
    """Hold a conversation in the terminal, until its input ends."""
    messages: list[dict[str, str]] = []
    if sys.stdin.isatty():
        print("Write a message. Ctrl-D ends the conversation.")
    for line in read_lines(sys.stdin):
        messages.append(message("user", line))
        parts = answer(engine, text, text.conversation(messages), options)
        messages.append(message("assistant", write(parts, time.perf_counter())))


def read_lines(stream: TextIO) -> Iterator[str]:
    """Yield lines that are not empty, each after a prompt sign on a terminal."""
    while True:
        if stream.isatty():
            print("> ", end="", flush=True)
        line = stream.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def batch(engine: Engine, text: Text, options: argparse.Namespace) -> None:
    """Continue the prompts of a file; write the answers in order."""
    prompts = read_prompts(options.batch)
    with options.save.open("w") as file:
        began = time.perf_counter()
        requests = [
            engine.add(
                text.encode(prompt),
                options.max_tokens,
                options.ignore_eos,
                options.sampling,
                adapter,
                options.mask,
            )
            for prompt, adapter in prompts
        ]
        written, new, seconds = 0, 0, 0.0
        while not engine.is_idle or written < len(requests):
            engine.step()
            while written < len(requests) and requests[written].is_done:
                file.write(json.dumps(answer_of(prompts[written][0], requests[written], text)) + "\n")
                written += 1
            new = sum(len(request.new) for request in requests)
            seconds = time.perf_counter() - began
            note(f"{written} of {len(requests)} answers, {new / seconds:,.0f} tokens/s")
    note("")
    print(
        f"{len(requests)} answers, {new:,} new tokens in {seconds:.1f} s: {new / seconds:,.0f} tokens/s; "
        f"{engine.tokens:,} tokens in {engine.steps:,} batches"
    )


def read_prompts(path: Path) -> list[tuple[str, str | None]]:
    """Return the prompts of a file, and the names of their adapters or None.

    Raises:
        UnknownModel: a line is not an object with a prompt, or has another field than an adapter.
    """
    prompts = []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields: Any = json.loads(line)
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or "prompt" not in fields or not set(fields) <= {"prompt", "adapter"}:
            fields = {"prompt": None}
        prompt, adapter = fields["prompt"], fields.get("adapter")
        if not isinstance(prompt, str) or not isinstance(adapter, str | None):
            expected = '{"prompt": TEXT}, perhaps with {"adapter": NAME}'
            raise UnknownModel(f"{path}, line {number}: expected {expected}, found {line[:60]!r}")
        prompts.append((prompt, adapter))
    if not prompts:
        raise UnknownModel(f"{path}: expected one or more prompts, found none")
    return prompts


def answer_of(prompt: str, request: Any, text: Text) -> dict[str, Any]:
    """Return the line of an answer."""
    ids = request.ids[: request.prompt]
    return {"prompt": prompt, "ids": ids, "tokens": request.new, "text": text.decode(request.new)}


if __name__ == "__main__":
    sys.exit(main())
