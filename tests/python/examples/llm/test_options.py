"""Every option of the command line in every mode: it changes what runs, or it is an error with its name."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples.llm import __main__ as command
from examples.llm.options import MODES, REFUSED, parser

ROOT = 'root ::= "a"'
GIVEN: dict[str, list[str]] = {
    "prompt": ["other"], "raw": [], "batch": ["FOLDER/texts.jsonl"], "save": ["FOLDER/other.jsonl"],
    "serve": ["1"], "greedy": [], "temperature": ["0.5"], "top_k": ["3"], "top_p": ["0.5"], "min_p": ["0.1"],
    "seed": ["3"], "max_tokens": ["7"], "ignore_eos": [], "drafts": ["2"], "activations": ["i8"],
    "cache": ["bf16"], "adapter": ["a=FOLDER"], "use": ["a"], "rope": ["yarn:4"], "json": [],
    "grammar": ["FOLDER/rules.gbnf"], "pages": ["5"], "workers": ["3"],
}  # fmt: skip
"""Arguments of every option. FOLDER is a folder of the test."""

MODE: dict[str, list[str]] = {
    "batch": ["--batch", "FOLDER/prompts.jsonl", "--save", "FOLDER/out.jsonl"],
    "serve": ["--serve", "0"],
    "prompt": ["--prompt", "text"],
    "conversation": [],
}
"""Arguments that choose a mode."""

DEFAULT = {"greedy"}
"""Options that name what happens without them."""

TEXT = SimpleNamespace(
    encode=lambda text: [*text.encode()], decode=str, bytes_of_tokens=lambda count: [b"a"] * count,
    conversation=lambda messages: f"<{messages[-1]['content']}>",
)  # fmt: skip


@pytest.fixture
def observe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function from arguments to all that the command passes on."""
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "texts.jsonl").write_text('{"prompt": "b"}\n')
    (tmp_path / "rules.gbnf").write_text(ROOT)
    seen: list[Any] = []
    config = SimpleNamespace(context=640, vocab=4, end=(3,), with_rope=lambda *rope: seen.append(rope))

    def model(packed: Any, *positional: Any, **named: Any) -> Any:
        seen.append(("model", positional, named))
        return SimpleNamespace(packed=packed, pages=positional[1])

    class Recorder:
        is_idle, tokens, steps = True, 0, 0

        def __init__(self, model: Any, **named: Any) -> None:
            self.model = model
            seen.append(("engine", named))

        def add(self, *given: Any, **named: Any) -> Any:
            seen.append(("add", *map(_plain, given), named))
            return SimpleNamespace(is_done=True, new=[1], ids=[1], prompt=1)

        def step(self) -> None:
            pass

        def generate(self, *given: Any, **named: Any) -> list[int]:
            seen.append(("generate", given, {name: _plain(value) for name, value in named.items()}))
            return []

    monkeypatch.setattr(command, "load", lambda *_: (SimpleNamespace(config=config), TEXT))
    monkeypatch.setattr(command, "replace", lambda packed, **_: packed)
    monkeypatch.setattr(command, "Model", model)
    monkeypatch.setattr(command, "Engine", Recorder)
    monkeypatch.setattr(command, "read_adapter", lambda name, folder, _: (name, folder))
    server = SimpleNamespace(
        Service=lambda *_: SimpleNamespace(close=lambda: None), application=lambda _, name: name
    )
    monkeypatch.setitem(sys.modules, "examples.llm.server", server)  # type: ignore[arg-type]
    run = SimpleNamespace(run=lambda *given, **named: seen.append(("serve", given, named)))
    monkeypatch.setitem(sys.modules, "uvicorn", run)  # type: ignore[arg-type]

    def observed(*arguments: str) -> list[Any]:
        monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
        seen.clear()
        for file in tmp_path.glob("o*.jsonl"):
            file.unlink()
        assert command.main([argument.replace("FOLDER", str(tmp_path)) for argument in arguments]) == 0
        return [*seen, sorted(file.name for file in tmp_path.glob("o*.jsonl"))]

    return observed


def _plain(value: Any) -> Any:
    """Return the grammar of a mask in place of the mask."""
    return type(value).__name__ if type(value).__name__ == "Mask" else value


def test_the_table_has_every_option() -> None:
    actions = [action for action in parser()._actions if action.dest not in ("help", "model")]
    assert {action.dest for action in actions} == {*GIVEN} and {*MODE} == {*MODES, "conversation"} == {
        *REFUSED
    }


def arguments_of(option: str) -> list[str]:
    return ["--" + option.replace("_", "-"), *GIVEN[option]]


@pytest.mark.parametrize("mode", MODE)
@pytest.mark.parametrize("option", GIVEN)
def test_an_option_has_an_effect_or_is_refused(
    option: str, mode: str, observe: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["smollm2", *MODE[mode], *arguments_of(option)]
    is_other_mode = mode != "conversation" and option in MODES and option != mode
    if is_other_mode or option in REFUSED[mode]:
        with pytest.raises(SystemExit):
            observe(*given)
        says = capsys.readouterr().err.splitlines()[-1]
        assert arguments_of(option)[0] in says and ("does not go with" in says or "exclude" in says)
    elif mode == "conversation" and option == "batch":
        with pytest.raises(SystemExit):
            observe(*given)
        assert "--batch and --save go together" in capsys.readouterr().err
    else:
        assert (observe(*given) == observe("smollm2", *MODE[mode])) == (option in DEFAULT)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--rope yarn", "--rope: expected KIND:FACTOR"),
        ("--rope yarn:x", "--rope: expected KIND:FACTOR"),
        ("--adapter x", "--adapter: expected NAME=FOLDER"),
        ("--adapter x=", "--adapter: expected NAME=FOLDER"),
        ("--adapter =x", "--adapter: expected NAME=FOLDER"),
        ("--serve 0 --adapter smollm2=x", "--adapter: expected another name than that of the model"),
        ("--json --ignore-eos", "--json and --ignore-eos exclude each other"),
        ("--json --grammar x", "--json and --grammar exclude each other"),
        ("--batch a --save b --serve 0", "--batch and --serve exclude each other"),
        ("--serve 0 --max-tokens 512", "--max-tokens does not go with --serve: a request has its own field"),
        ("--serve 0 --use x", "requests name their adapters"),
        ("--batch x", "--batch and --save go together"),
        (
            "--greedy --seed 1 --temperature 1",
            "--greedy chooses the most likely token; leave out --temperature",
        ),
        ("--temperature 0 --top-k 1", "--temperature 0 chooses the most likely token; leave out --top-k"),
        ("--top-p 0", "expected top_p above 0"),
        ("--max-tokens 0", "--max-tokens: expected 1 or more, found 0"),
        ("--pages 0", "--pages: expected 1 or more, found 0"),
        ("--workers 0", "--workers: expected 1 or more, found 0"),
        ("--drafts -1", "--drafts: expected 0 or more, found -1"),
        ("--serve 65536", "--serve: expected 0 to 65535, found 65536"),
    ],
)
def test_refused_values(options: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["smollm2", *options.split()])
    assert says in capsys.readouterr().err
