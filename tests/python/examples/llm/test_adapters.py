"""Adapters: the scores of a model with merged matrices, and the bits of every request alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llm.adapters import read_adapter
from examples.llm.checkpoint import Checkpoint, pack
from examples.llm.config import UnknownModel
from examples.llm.engine import Engine
from examples.llm.folder import ROLES
from examples.llm.kernels import PAGE
from examples.llm.model import Chunk, Model
from examples.llm.storage import Matrix
from pto_wsp import i8
from tests.python.examples.llm.models import SMALL, random_checkpoint, scores
from tests.python.examples.llm.test_engine import finish, prompt

FORM = replace(SMALL, has_bias=True, has_head_norms=True)
SETTINGS: dict[str, Any] = {"peft_type": "LORA", "lora_alpha": 16, "bias": "none"}


def write(folder: Path, roles: tuple[str, ...], rank: int, seed: int, **changes: Any) -> Path:
    """Write a random adapter as PEFT does."""
    from safetensors.numpy import save_file

    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(SETTINGS | {"r": rank} | changes))
    rng, tensors = np.random.default_rng(seed), {}
    for layer in range(FORM.layers):
        for role in roles:
            k, n = FORM.dims(role)
            name = f"base_model.model.model.layers.{layer}.{ROLES[role]}.lora"
            tensors[f"{name}_A.weight"] = rng.standard_normal((rank, k), np.float32) / 8
            tensors[f"{name}_B.weight"] = rng.standard_normal((n, rank), np.float32) / 16
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged(checkpoint: Checkpoint, adapter: Any) -> Checkpoint:
    """Return the model with the products of an adapter added to its matrices."""

    def matrix(role: str, layer: int) -> Matrix:
        found = checkpoint.matrix(role, layer)
        if (role, layer) not in adapter.parts:
            return found
        a, b = adapter.parts[role, layer]
        return Matrix("f32", found.values() + (a @ b).T, found.k)

    return replace(checkpoint, matrix=matrix)


ALL, SOME = tuple(ROLES), ("Query", "Value", "Gate")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    path = tmp_path_factory.mktemp("adapters")
    return [
        read_adapter("all", write(path / "all", ALL, 8, 1), FORM),
        read_adapter("some", write(path / "some", SOME, 3, 2, use_rslora=True), FORM),
    ]


@pytest.fixture(scope="module")
def model(adapters: list[Any]) -> Model:
    return Model(pack(random_checkpoint(FORM)), pages=16, adapters=adapters)


def test_scores_are_those_of_merged_matrices(model: Model, adapters: list[Any]) -> None:
    checkpoint, ids = random_checkpoint(FORM), prompt(100)
    chunks = [Chunk(ids, 0, [2 * i, 2 * i + 1], 100, adapter=i - 1) for i in range(3)]
    found, _ = model.run(chunks)
    expected = [scores(checkpoint, ids), *(scores(merged(checkpoint, a), ids) for a in adapters)]
    for i, of in enumerate(expected):
        assert np.abs(found[100 * i : 100 * i + 100] - of).max() < 2e-4
    assert np.abs(expected[0] - expected[1]).max() > 0.1 and np.abs(expected[0] - expected[2]).max() > 0.1
    alone = [model.run([Chunk(ids, 0, [9, 7], 100, adapter=i - 1)])[0].copy() for i in range(3)]
    again, _ = model.run(chunks)
    assert np.concatenate(alone).tobytes() == again.tobytes()


def test_a_request_without_an_adapter_has_the_bits_of_the_plain_model(model: Model) -> None:
    chunk = Chunk(prompt(70), 0, [0, 1], 70)
    found = model.run([chunk])[0].copy()
    assert found.tobytes() == Model(model.packed, pages=2).run([chunk])[0].tobytes()


def test_requests_choose_adapters_and_share_no_pages_between_them(model: Model) -> None:
    ids, names = prompt(2 * PAGE + 5), (None, "all", "some")
    expected = [list(Engine(model).generate(ids, 20, adapter=name)) for name in names]
    assert len({tuple(tokens) for tokens in expected}) == 3
    engine = Engine(model, 50)
    for name, tokens in zip(names, expected, strict=True):
        first = engine.add(ids, 20, adapter=name)
        finish(engine)
        second = engine.add(ids, 20, adapter=name)
        finish(engine)
        assert (first.reused, second.reused) == (0, 2 * PAGE)
        assert first.new == second.new == tokens
    together = [engine.add(ids[i:], 20, adapter=name) for i in (0, 1) for name in names]
    finish(engine)
    assert [request.new for request in together[:3]] == expected
    assert together[4].new == list(Engine(model).generate(ids[1:], 20, adapter="all"))
    with pytest.raises(UnknownModel, match="expected one of all, some, found 'other'"):
        engine.add(ids, 1, adapter="other")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"peft_type": "IA3"}, "`peft_type`: expected LORA, found 'IA3'"),
        ({"use_dora": True}, "`use_dora` is not supported"),
        ({"bias": "all"}, "`bias`: expected none, found 'all'"),
        ({"alpha_pattern": {"q_proj": 3}}, "`alpha_pattern` is not supported"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=says):
        read_adapter("x", write(tmp_path / "x", SOME, 2, 0, **changes), FORM)


def test_adapters_that_are_refused(tmp_path: Path, adapters: list[Any]) -> None:
    folder = write(tmp_path / "x", SOME, 2, 0)
    with pytest.raises(UnknownModel, match=r"expected a file .*adapter_config.json, found none"):
        read_adapter("x", tmp_path, FORM)
    with pytest.raises(UnknownModel, match="with experts are not supported"):
        read_adapter("x", folder, replace(FORM, experts=4, chosen=2))
    with pytest.raises(UnknownModel, match=r"expected A \[rank, 48\] and B \[\d+, rank\], found"):
        read_adapter("x", folder, replace(FORM, hidden=48))
    with pytest.raises(UnknownModel, match=r"tensor 'base_model.*layers.1.*' is not one"):
        read_adapter("x", folder, replace(FORM, layers=1))
    with pytest.raises(UnknownModel, match="expected different names, found"):
        Model(pack(random_checkpoint(FORM)), adapters=[adapters[0], adapters[0]])
    with pytest.raises(UnknownModel, match="adapters need activations of f32"):
        Model(pack(random_checkpoint(SMALL)), i8, adapters=adapters)
