"""The server, with the client of OpenAI: streams, many clients, clients that leave, and refused requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from examples.llm.checkpoint import pack
from examples.llm.engine import Engine
from examples.llm.model import Model
from examples.llm.tokenizer import Text
from tests.python.examples.llm.models import SMALL, random_checkpoint
from tests.python.examples.llm.test_engine import alone, prompt

uvicorn = pytest.importorskip("uvicorn", reason="needs `make extras`")
pytest.importorskip("starlette", reason="needs `make extras`")
openai = pytest.importorskip("openai", reason="needs `make extras`")

WORDS = {chr(0x100 + i): i for i in range(SMALL.vocab)}
TEXT = Text(
    json.dumps(
        {
            "version": "1.0",
            "model": {"type": "BPE", "vocab": WORDS, "merges": []},
            "decoder": {"type": "Fuse"},
        }
    )
)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(pack(random_checkpoint(SMALL)), pages=8)


@pytest.fixture(scope="module")
def served(model: Model) -> Iterator[tuple[Any, Any]]:
    """A client, and the service."""
    from examples.llm.server import Service, application

    service = Service(Engine(Model(model.packed, pages=8)), TEXT)
    config = uvicorn.Config(application(service, "small"), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        yield client, service
    server.should_exit = True
    thread.join()
    service.close()


def wait_until_free(service: Any) -> None:
    for _ in range(500):
        if service.figures() == {"waiting": 0, "running": 0, "free_pages": 8}:
            return
        time.sleep(0.02)
    raise AssertionError(service.figures())


def complete(client: Any, ids: list[int], most: int, **options: Any) -> Any:
    given = {"model": "small", "temperature": 0} | options
    return client.completions.create(prompt=ids, max_tokens=most, **given)


def test_answers_whole_and_as_a_stream(served: tuple[Any, Any], model: Model) -> None:
    client, service = served
    expected = TEXT.decode(alone(model, prompt(20), 30))
    whole = complete(client, prompt(20), 30)
    assert whole.choices[0].text == expected and whole.choices[0].finish_reason == "length"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (20, 30)
    parts = list(complete(client, prompt(20), 30, stream=True))
    assert "".join(part.choices[0].text for part in parts) == expected and len(parts) > 25
    assert parts[-1].choices[0].finish_reason == "length"
    assert [found.id for found in client.models.list()] == ["small"]
    wait_until_free(service)


def test_many_clients_in_a_full_cache(served: tuple[Any, Any], model: Model) -> None:
    prompts = [prompt(60, seed) for seed in range(12)]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda ids: complete(served[0], ids, 80).choices[0].text, prompts))
    assert found == [TEXT.decode(alone(model, ids, 80)) for ids in prompts]
    wait_until_free(served[1])


def test_a_client_that_leaves_frees_its_pages(served: tuple[Any, Any]) -> None:
    stream = complete(served[0], prompt(10), 500, stream=True)
    next(iter(stream))
    stream.close()
    wait_until_free(served[1])


@pytest.mark.parametrize(
    ("ids", "options", "says"),
    [
        (prompt(600), {}, "at most 512 positions, found a prompt of 600 tokens"),
        ([], {}, "one or more tokens below 99"),
        ([1], {"stop": ["x"]}, "field 'stop' is not supported"),
        ([1], {"n": 2}, "field 'n': expected 1, found 2"),
        ([1], {"top_p": 0.0}, "expected top_p above 0"),
        ([1], {"extra_body": {"grammar": "root ="}}, "grammar, line 1, column 6"),
        (
            [1],
            {"extra_body": {"response_format": {"type": "json_schema"}}},
            "expected type text, or json_obj",
        ),
        ([1], {"model": "other"}, "adapter: expected one of none, found 'other'"),
    ],
)
def test_refused_requests(served: tuple[Any, Any], ids: list[int], options: Any, says: str) -> None:
    with pytest.raises(openai.BadRequestError, match=says):
        complete(served[0], ids, 5, **options)
