"""llama.cpp on the same file: the wheel `xllamacpp`, with as many threads and a cache of f32 like ours."""

from __future__ import annotations

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
        given = {
            "prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        }  # fmt: skip
        found = self._server.handle_completions(given)
        if found["usage"]["completion_tokens"] != count:
            raise AssertionError(f"llama.cpp made {found['usage']['completion_tokens']} of {count} tokens")
        return found["timings"]

    def answer_all(self, prompts: list[list[int]], counts: list[int]) -> None:
        """Continue several prompts at the same time."""
        with ThreadPoolExecutor(self._requests) as pool:
            list(pool.map(self.answer, prompts, counts))
