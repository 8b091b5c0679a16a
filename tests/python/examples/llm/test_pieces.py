"""Tokenizers of SentencePiece: the tokens of its own library, which made `pieces_reference.json`."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.llm.config import UnknownModel
from examples.llm.pieces import BPE, CONTROL, USER_DEFINED, Pieces, piece_tokenizer, read_pieces
from examples.llm.tokenizer import Stream, Text, gguf_tokenizer

pytest.importorskip("tokenizers")
REFERENCE: dict[str, Any] = json.loads((Path(__file__).parent / "pieces_reference.json").read_text())
"""Models that the library trained on `perplexity.txt`: BPE, BPE with pieces of users, and unigrams that leave
out spaces."""

KINDS = pytest.mark.parametrize("kind", REFERENCE)


def pieces_of(kind: str) -> Pieces:
    return read_pieces(base64.b64decode(REFERENCE[kind]["model"]))


@KINDS
def test_tokens_and_texts_of_the_library(kind: str) -> None:
    text = Text(piece_tokenizer(pieces_of(kind)))
    assert len(REFERENCE[kind]["cases"]) == 25
    for given, ids, back in REFERENCE[kind]["cases"]:
        assert text.encode(given) == ids and text.decode(ids) == back


@KINDS
def test_a_stream_is_the_whole_text(kind: str) -> None:
    text = Text(piece_tokenizer(pieces_of(kind)))
    for given, ids, back in REFERENCE[kind]["cases"]:
        stream = Stream(text)
        found = "".join(stream.add(token) for token in ids)
        assert found + stream.rest() == back, given


def test_special_pieces_are_found_in_texts() -> None:
    pieces = pieces_of("bpe")
    place = pieces.types.index(CONTROL)
    text = Text(piece_tokenizer(pieces))
    ids = text.encode(f"{pieces.texts[place]}the")
    assert ids == [place, *text.encode("the")] and text.decode(ids) == "the"


def test_pieces_of_gguf_files() -> None:
    pieces = pieces_of("bpe")
    values = {"model": "llama", "tokens": pieces.texts, "scores": pieces.scores, "token_type": pieces.types}

    def value(key: str, default: Any = None) -> Any:
        return values.get(key.removeprefix("tokenizer.ggml."), default)

    assert gguf_tokenizer(value) == piece_tokenizer(pieces)
    values["add_space_prefix"] = False
    assert gguf_tokenizer(value) == piece_tokenizer(replace(pieces, has_prefix=False))
    values["model"] = "bert"
    with pytest.raises(UnknownModel, match=r"expected gpt2 .* or llama \(SentencePiece\), found 'bert'"):
        gguf_tokenizer(value)


def test_bytes_of_pieces() -> None:
    pieces = pieces_of("bpe")
    found = Text(piece_tokenizer(pieces)).bytes_of_tokens(len(pieces.texts))
    byte, space = pieces.texts.index("<0xC3>"), pieces.texts.index("\u2581")
    assert found[byte] == b"\xc3" and found[space] == b" " and found[pieces.types.index(CONTROL)] == b""


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of protobuf with a small number or a short value."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"PK no model", "expected a model of SentencePiece, found other bytes"),
        (field(1, field(1, b"a")) + b"\x0a\x7f", "found other bytes"),
        (field(1, b""), "found other bytes"),
        (field(1, field(1, b"a") + field(3, USER_DEFINED)), "pieces of users need a BPE model"),
        (field(1, field(1, b"a")) + field(3, field(5, 0)), "expected spaces as"),
    ],
)
def test_files_that_are_refused(message: bytes, says: str) -> None:
    with pytest.raises(UnknownModel, match=says):
        read_pieces(message)


@pytest.mark.parametrize("pieces", [Pieces(["a"], [0.0], [1], 3), Pieces(["a"], [0.0], [5], BPE)])
def test_models_that_are_refused(pieces: Pieces) -> None:
    with pytest.raises(UnknownModel, match="expected models of type 1 or 2 and pieces of types 1 to 4"):
        piece_tokenizer(pieces)
