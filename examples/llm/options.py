"""The options of `python -m examples.llm`, and which of them exclude each other."""

from __future__ import annotations

import argparse
import re
from math import inf
from pathlib import Path
from typing import Any

from examples.llm.config import UnknownModel
from examples.llm.sampling import GREEDY, Sampling
from pto_wsp import bf16, f32, i8

TYPES = {"f32": f32, "bf16": bf16, "i8": i8}
"""Element types by their names."""

DEFAULTS: dict[str, Any] = {
    "prompt": None, "raw": False, "batch": None, "save": None, "serve": None,
    "greedy": False, "max_tokens": 512, "ignore_eos": False, "drafts": 0, "activations": "f32",
    "cache": "f32", "adapter": [], "use": None, "rope": None, "json": False, "grammar": None,
    "pages": None, "workers": None,
}  # fmt: skip
"""Values of options that are not given; those of drawing are in `Sampling`."""

DRAWING = ("temperature", "top_k", "top_p", "min_p", "seed")
"""Options of `Sampling`."""

MODES = ("batch", "serve", "prompt")
"""Options that choose what to do. Without them there is a conversation."""

RANGES = (
    ("max_tokens", 1, inf), ("pages", 1, inf), ("workers", 1, inf), ("drafts", 0, inf), ("serve", 0, 65535),
)  # fmt: skip
"""Options that are numbers, with the least and the largest value."""

FIELD = "a request has its own field"
REFUSED: dict[str, dict[str, str]] = {
    "batch": {"raw": "prompts of a file are raw texts", "use": "lines name their adapters"},
    "serve": {
        **dict.fromkeys(("greedy", "max_tokens", "ignore_eos", "json", "grammar", *DRAWING), FIELD),
        "save": "answers go to clients", "raw": "prompts of requests are raw texts",
        "use": "requests name their adapters",
    },
    "prompt": {"save": "the answer goes to the terminal"},
    "conversation": {
        "save": "answers go to the terminal", "raw": "a conversation needs the template",
    },
}  # fmt: skip
"""Options that have no effect in a mode, with the reason. They are errors there."""

EXCLUSIVE = ("json", "grammar", "ignore_eos")
"""Options of which one is given at most: a grammar decides where an answer ends."""


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m examples.llm",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    _add_work(found)
    _add_sampling(found)
    _add_model(found)
    return found


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the command line.

    The result also has `mode` and `sampling`. Element types are types, `rope` is a kind and a factor,
    and `adapter` has pairs of a name and a folder.

    Raises:
        SystemExit: an option that has no effect in the mode, or a value out of its range.
    """
    reader = parser(description)
    given = vars(reader.parse_args(arguments))
    options = argparse.Namespace(**DEFAULTS | given)
    try:
        _check_together(given)
        _check_ranges(given)
        options.mode = _mode(given)
        options.sampling = _sampling(given)
        options.rope = _rope(options.rope)
    except UnknownModel as error:
        reader.error(str(error))
    options.adapter = [tuple(given.split("=", 1)) for given in options.adapter]
    if any(len(pair) < 2 or not all(pair) for pair in options.adapter):
        reader.error("--adapter: expected NAME=FOLDER")
    if options.mode == "serve" and any(name == options.model for name, _ in options.adapter):
        reader.error(f"--adapter: expected another name than that of the model, found {options.model!r}")
    options.activations, options.cache = TYPES[options.activations], TYPES[options.cache]
    return options


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _mode(given: dict[str, Any]) -> str:
    """Return what to do.

    Raises:
        UnknownModel: an option has no effect there.
    """
    mode = next((name for name in MODES if name in given), "conversation")
    for name, reason in REFUSED[mode].items():
        if name in given:
            where = "a conversation" if mode == "conversation" else _flag(mode)
            raise UnknownModel(f"{_flag(name)} does not go with {where}: {reason}")
    if mode == "batch" and "save" not in given:
        raise UnknownModel("--batch and --save go together")
    return mode


def _check_together(given: dict[str, Any]) -> None:
    """Check that options of which one is given at most are not given together.

    Raises:
        UnknownModel: two of them are.
    """
    for names in (MODES, EXCLUSIVE):
        found = [_flag(name) for name in names if name in given]
        if len(found) > 1:
            raise UnknownModel(f"{' and '.join(found)} exclude each other")


def _check_ranges(given: dict[str, Any]) -> None:
    """Check numbers.

    Raises:
        UnknownModel: a number is out of its range.
    """
    for name, least, most in RANGES:
        if name in given and not least <= given[name] <= most:
            end = "or more" if most == inf else f"to {most}"
            raise UnknownModel(f"{_flag(name)}: expected {least} {end}, found {given[name]}")


def _sampling(given: dict[str, Any]) -> Sampling:
    """Return how tokens are chosen.

    Raises:
        UnknownModel: an option has no effect, or a value is out of its range.
    """
    drawing = {name: given[name] for name in DRAWING if name in given}
    if "greedy" in given or drawing.get("temperature") == 0:
        how = "--greedy" if "greedy" in given else "--temperature 0"
        if idle := [_flag(name) for name in drawing if not how.startswith(_flag(name))]:
            raise UnknownModel(f"{how} chooses the most likely token; leave out {', '.join(idle)}")
    return Sampling(**{"temperature": 0.8, **drawing}) if drawing else GREEDY


def _rope(text: str | None) -> tuple[str, float] | None:
    """Return a kind and a factor.

    Raises:
        UnknownModel: the text is something else.
    """
    if text is None:
        return None
    kind, _, factor = text.partition(":")
    if not re.fullmatch(r"\d+(\.\d+)?", factor):
        raise UnknownModel("--rope: expected KIND:FACTOR, for example yarn:4")
    return kind, float(factor)


def _add_work(parser: argparse.ArgumentParser) -> None:
    """Add what to do."""
    parser.add_argument("model", help="`smollm2`, a .gguf file or a folder")
    parser.add_argument("--prompt", metavar="TEXT", help="answer one message and end")
    parser.add_argument("--raw", action="store_true", help="continue the prompt's text, without a template")
    parser.add_argument("--batch", type=Path, metavar="FILE.jsonl", help="continue the prompts of a file")
    parser.add_argument("--save", type=Path, metavar="OUT.jsonl", help="write the answers of a batch")
    parser.add_argument(
        "--serve", type=int, metavar="PORT", help="serve completions on 127.0.0.1; 0: any port"
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add how tokens are chosen."""
    parser.add_argument("--greedy", action="store_true", help="choose the most likely token: the default")
    parser.add_argument("--temperature", type=float, metavar="T", help="draw tokens; by default 0.8")
    parser.add_argument("--top-k", type=int, metavar="N", help="tokens to draw from; 0: all")
    parser.add_argument("--top-p", type=float, metavar="P", help="their probability together")
    parser.add_argument(
        "--min-p", type=float, metavar="P", help="probability of each, of the most likely one's"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of random numbers")


def _add_model(parser: argparse.ArgumentParser) -> None:
    """Add how answers are made."""
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="most new tokens of an answer; 512 by default"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on after a token that ends an answer")
    parser.add_argument("--drafts", type=int, metavar="N", help="most tokens to guess per step")
    parser.add_argument("--activations", choices=list(TYPES), help="of products")
    parser.add_argument("--cache", choices=list(TYPES), help="of keys and values")
    parser.add_argument("--adapter", action="append", metavar="NAME=FOLDER", help="load an adapter of PEFT")
    parser.add_argument("--use", metavar="NAME", help="adapter of a prompt or a conversation")
    parser.add_argument("--rope", metavar="KIND:FACTOR", help="longer contexts: linear, llama3 or yarn")
    parser.add_argument("--json", action="store_true", help="answers are objects of JSON")
    parser.add_argument("--grammar", type=Path, metavar="FILE.gbnf", help="answers obey the rules of a file")
    parser.add_argument("--pages", type=int, metavar="N", help="of the cache, 64 positions each")
    parser.add_argument("--workers", type=int, metavar="N", help="threads; all cores by default")
