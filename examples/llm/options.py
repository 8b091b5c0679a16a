"""The options of `python -m examples.llm`, and which of them exclude each other."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from examples.llm.config import UnknownModel
from examples.llm.sampling import GREEDY, Sampling
from pto_wsp import bf16, f32, i8

TYPES = {"f32": f32, "bf16": bf16, "i8": i8}
"""Element types by their names."""


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the command line.

    The result also has `sampling`. Element types are types, `rope` is a kind and a factor, and
    `adapter` has pairs of a name and a folder.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.llm",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_work(parser)
    _add_sampling(parser)
    _add_model(parser)
    options = parser.parse_args(arguments)
    if options.max_tokens < 1 or min(options.pages, options.drafts) < 0:
        parser.error("--max-tokens is at least 1; --pages and --drafts are not negative")
    drawing = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
    given: dict[str, Any] = {name: value for name, value in drawing.items() if value is not None}
    if options.greedy and given:
        parser.error("--greedy goes with no option of drawing")
    try:
        options.sampling = Sampling(**{"temperature": 0.8, **given}) if given else GREEDY
    except UnknownModel as error:
        parser.error(str(error))
    if options.rope is not None:
        kind, _, factor = options.rope.partition(":")
        if not re.fullmatch(r"\d+(\.\d+)?", factor):
            parser.error("--rope: expected KIND:FACTOR, for example yarn:4")
        options.rope = kind, float(factor)
    options.adapter = [tuple(given.split("=", 1)) for given in options.adapter]
    if any(len(pair) < 2 or not all(pair) for pair in options.adapter):
        parser.error("--adapter: expected NAME=FOLDER")
    if options.json + (options.grammar is not None) + (options.serve is not None) + options.ignore_eos > 1:
        parser.error("--json, --grammar, --ignore-eos and --serve exclude each other")
    if options.use is not None and (options.batch is not None or options.serve is not None):
        parser.error("--use goes with a prompt or a conversation; lines and requests name their adapters")
    if (options.save is not None) != (options.batch is not None):
        parser.error("--batch and --save go together")
    options.activations, options.cache = TYPES[options.activations], TYPES[options.cache]
    return options


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
        "--max-tokens", type=int, default=512, metavar="N", help="most new tokens of an answer"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on after a token that ends an answer")
    parser.add_argument("--drafts", type=int, default=0, metavar="N", help="most tokens to guess per step")
    parser.add_argument("--activations", choices=["f32", "i8"], default="f32", help="of products")
    parser.add_argument("--cache", choices=list(TYPES), default="f32", help="of keys and values")
    parser.add_argument(
        "--adapter", action="append", default=[], metavar="NAME=FOLDER", help="load an adapter of PEFT"
    )
    parser.add_argument("--use", metavar="NAME", help="adapter of a prompt or a conversation")
    parser.add_argument("--rope", metavar="KIND:FACTOR", help="longer contexts: linear, llama3 or yarn")
    parser.add_argument("--json", action="store_true", help="answers are objects of JSON")
    parser.add_argument("--grammar", type=Path, metavar="FILE.gbnf", help="answers obey the rules of a file")
    parser.add_argument("--pages", type=int, default=0, metavar="N", help="of the cache, 64 positions each")
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="threads; all cores by default"
    )
