"""llama.cpp on the same file, with as many threads and a cache of f32 like ours.

The environment variable `LLAMA_SERVER` names a `llama-server` that was built for this machine. Without it,
the peer is the wheel `xllamacpp`, whose kernels are for many machines.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

SERVER = "LLAMA_SERVER"

PEER = f"llama.cpp ({'built here' if SERVER in os.environ else 'wheel xllamacpp'})"

MISSING = f"llama.cpp is missing: build llama-server and name it in {SERVER}, or pip install xllamacpp"

START_S = 60.0
"""Most seconds until a server answers."""

SETTLE_S = 0.2
"""Seconds after an answer in which threads of the server may still look for work."""


class LlamaCpp(Protocol):
    """A server of llama.cpp."""

    def answer(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Continue a prompt by `count` tokens, and return the server's own timings in ms."""
        ...

    def stream(self, prompt: list[int], count: int, on_token: Callable[[], None]) -> None:
        """Continue a prompt by `count` tokens, and call `on_token` for each."""
        ...


def has_peer() -> bool:
    """Whether llama.cpp is there."""
    return SERVER in os.environ or find_spec("xllamacpp") is not None


@contextmanager
def llama_cpp(path: Path, threads: int, requests: int, context: int) -> Iterator[LlamaCpp]:
    """Give a server.

    Args:
        path: of the GGUF file.
        threads: that compute.
        requests: most requests at a time.
        context: positions per request.
    """
    program = os.environ.get(SERVER)
    if program is None:
        yield Wheel(path, threads, requests, context)
        return
    server = Built(program, path, threads, requests, context)
    try:
        yield server
    finally:
        server.close()


def timings(peer: LlamaCpp, prompt: list[int], count: int) -> dict[str, Any]:
    """Continue a prompt by `count` tokens, and return the server's own timings in ms when it is quiet."""
    found = peer.answer(prompt, count)
    time.sleep(SETTLE_S)
    return found


def answer_all(peer: LlamaCpp, prompts: list[list[int]], counts: list[int]) -> None:
    """Continue several prompts at the same time."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(peer.answer, prompts, counts))


class Built:
    """A process of `llama-server`; arguments as those of `llama_cpp`."""

    def __init__(self, program: str, path: Path, threads: int, requests: int, context: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        options = {
            "-m": path, "-t": threads, "-tb": threads, "-np": requests, "-c": requests * context,
            "-ctk": "f32", "-ctv": "f32", "--host": "127.0.0.1", "--port": self._port,
        }  # fmt: skip
        words = [str(word) for option in options.items() for word in option]
        self._process = subprocess.Popen(
            [program, *words, "--log-disable"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self._ask("GET", "/health").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.close()
        raise RuntimeError("llama-server did not start")

    def _ask(self, method: str, path: str, body: object = None) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self._port)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        return connection.getresponse()

    def answer(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Continue a prompt by `count` tokens, and return the server's own timings in ms."""
        found = json.load(self._ask("POST", "/completion", _request(prompt, count)))
        return _timings(found, found["tokens_predicted"], count)

    def stream(self, prompt: list[int], count: int, on_token: Callable[[], None]) -> None:
        """Continue a prompt by `count` tokens, and call `on_token` for each."""
        for line in self._ask("POST", "/completion", _request(prompt, count) | {"stream": True}):
            if line.startswith(b"data: ") and not json.loads(line[6:])["stop"]:
                on_token()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


class Wheel:
    """A server of the wheel `xllamacpp` in this process; arguments as those of `llama_cpp`."""

    def __init__(self, path: Path, threads: int, requests: int, context: int) -> None:
        library = import_module("xllamacpp")
        params = library.CommonParams()
        params.model.path = str(path)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_parallel, params.n_ctx = requests, requests * context
        params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F32
        params.verbosity = 0
        self._server = library.Server(params)

    def answer(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Continue a prompt by `count` tokens, and return the server's own timings in ms."""
        found = self._server.handle_completions(_request(prompt, count))
        return _timings(found, found["usage"]["completion_tokens"], count)

    def stream(self, prompt: list[int], count: int, on_token: Callable[[], None]) -> None:
        """Continue a prompt by `count` tokens, and call `on_token` for each."""

        def on_part(part: dict[str, Any]) -> None:
            if part["choices"][0]["finish_reason"] is None:
                on_token()

        self._server.handle_completions(_request(prompt, count) | {"stream": True}, on_part)


def _timings(found: dict[str, Any], made: int, count: int) -> dict[str, Any]:
    """Return the timings of an answer, which must have as many tokens as were asked for."""
    if made != count:
        raise AssertionError(f"llama.cpp made {made} of {count} tokens")
    return found["timings"]


def _request(prompt: list[int], count: int) -> dict[str, Any]:
    return {
        "prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
    }  # fmt: skip
