"""llama.cpp on the same file: the wheel `xllamacpp`, with as many threads and a cache of f32 like ours."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

PEER = "llama.cpp (wheel xllamacpp)"


class LlamaCpp:
    """A server of llama.cpp in this process.

    Args:
        path: of the GGUF file.
        threads: that compute.
        requests: most requests at a time.
        context: positions per request.

    Raises:
        ImportError: `xllamacpp` is not installed.
    """

    def __init__(self, path: Path, threads: int, requests: int, context: int) -> None:
        library = import_module("xllamacpp")
        params = library.CommonParams()
        params.model.path = str(path)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_parallel, params.n_ctx = requests, requests * context
        params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F32
        params.verbosity = 0
        self._server = library.Server(params)
        self._requests = requests

    def answer(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Continue a prompt by `count` tokens, and return the server's own timings in ms."""
        found = self._server.handle_completions(_request(prompt, count))
        if found["usage"]["completion_tokens"] != count:
            raise AssertionError(f"llama.cpp made {found['usage']['completion_tokens']} of {count} tokens")
        return found["timings"]

    def stream(self, prompt: list[int], count: int, on_token: Callable[[], None]) -> None:
        """Continue a prompt by `count` tokens, and call `on_token` for each."""

        def on_part(part: dict[str, Any]) -> None:
            if part["choices"][0]["finish_reason"] is None:
                on_token()

        self._server.handle_completions(_request(prompt, count) | {"stream": True}, on_part)

    def answer_all(self, prompts: list[list[int]], counts: list[int]) -> None:
        """Continue several prompts at the same time."""
        with ThreadPoolExecutor(self._requests) as pool:
            list(pool.map(self.answer, prompts, counts))


def _request(prompt: list[int], count: int) -> dict[str, Any]:
    return {
        "prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
    }  # fmt: skip
