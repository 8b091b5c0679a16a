"""Tokenizers of SentencePiece: `tokenizer.model`, and the pieces of GGUF files, as a `tokenizer.json`.

A `tokenizer.model` is a message of protobuf. Its other fields do not change tokens.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from examples.llm.config import UnknownModel

SPACE = "\u2581"
"""Character of pieces in place of a space."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Types of pieces."""

UNIGRAM, BPE = 1, 2
"""Types of models."""

PIECE, TRAINER, NORMALIZER = 1, 2, 3
"""Fields of the file; a piece has a text (1), a score (2) and a type (3)."""


@dataclass(frozen=True)
class Pieces:
    """The pieces and settings of a tokenizer of SentencePiece.

    Attributes:
        texts: of the pieces, by their numbers.
        scores: of the pieces.
        types: of the pieces.
        kind: `BPE` or `UNIGRAM`.
        has_prefix: a text gets a space before it.
        is_trimmed: spaces at both ends, and all but one between words, are left out.
        has_bytes: characters without a piece become pieces of bytes.
        characters: precompiled map of characters, or empty.
    """

    texts: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    kind: int = BPE
    has_prefix: bool = True
    is_trimmed: bool = False
    has_bytes: bool = True
    characters: bytes = b""


def read_pieces(message: bytes) -> Pieces:
    """Return the pieces and settings of a `tokenizer.model`.

    Raises:
        UnknownModel: it is not one, or has pieces or a setting that these programs do not have.
    """
    try:
        fields = list(_fields(message))
        pieces = [dict(_fields(value)) for number, value in fields if number == PIECE]
        trainer, normalizer = (
            dict(_fields(next((v for n, v in fields if n == number), b"")))
            for number in (TRAINER, NORMALIZER)
        )
        texts = [piece[1].decode() for piece in pieces]
        scores = [struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise UnknownModel("tokenizer.model: expected a model of SentencePiece, found other bytes") from error
    if trainer.get(24) or normalizer.get(5, 1) != 1:
        raise UnknownModel("tokenizer.model: expected spaces as \u2581 before words, found others")
    types = [piece.get(3, NORMAL) for piece in pieces]
    has_prefix, is_trimmed = (bool(normalizer.get(number, 1)) for number in (3, 4))
    characters, has_bytes = normalizer.get(2, b""), bool(trainer.get(35, 0))
    kind = trainer.get(3, UNIGRAM)
    if USER_DEFINED in types and (kind != BPE or has_prefix or is_trimmed or characters):
        raise UnknownModel(
            "tokenizer.model: pieces of users need a BPE model that leaves texts as they are, found "
            "unigrams, or a model that changes spaces or characters; use a tokenizer.json"
        )
    return Pieces(texts, scores, types, kind, has_prefix, is_trimmed, has_bytes, characters)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a message: integers, or bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        found = shift = 0
        while True:
            byte = message[place]
            place += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    while place < len(message):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if place + size > len(message):
            raise ValueError("a field ends after its message")
        yield number, message[place : place + size]
        place += size


def piece_tokenizer(pieces: Pieces) -> str:
    """Return the text of the `tokenizer.json` of pieces.

    A text after a control piece or a user-defined piece gets the space that a text at the beginning gets.

    Raises:
        UnknownModel: another kind of model or of pieces.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers

    others = {*pieces.types} - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE}
    if others or pieces.kind not in (BPE, UNIGRAM):
        raise UnknownModel(
            f"tokenizer of SentencePiece: expected models of type {UNIGRAM} or {BPE} and pieces of types 1 "
            f"to 4 and 6, found {pieces.kind} and {sorted(others)}"
        )
    unknown = next((i for i, kind in enumerate(pieces.types) if kind == UNKNOWN), None)
    if pieces.kind == BPE:
        vocab = {text: i for i, text in enumerate(pieces.texts)}
        name = None if unknown is None else pieces.texts[unknown]
        model = models.BPE(
            vocab, _merges(pieces), unk_token=name, fuse_unk=True, byte_fallback=pieces.has_bytes
        )
    else:
        table = list(zip(pieces.texts, pieces.scores, strict=True))
        model = models.Unigram(table, unknown, pieces.has_bytes)
    tokenizer = Tokenizer(model)
    steps = [normalizers.Precompiled(pieces.characters)] if pieces.characters else []
    if pieces.is_trimmed:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps += [normalizers.Prepend(SPACE)] if pieces.has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    parts += [decoders.Strip(" ", 1, 0)] if pieces.has_prefix else []
    tokenizer.decoder = decoders.Sequence(parts)
    for kind, is_special in ((CONTROL, True), (USER_DEFINED, False)):
        found = [t for t, of in zip(pieces.texts, pieces.types, strict=True) if of == kind]
        has_spaces = not is_special and not pieces.has_prefix  # a prefix would become a part of the piece
        tokenizer.add_tokens([AddedToken(t, special=is_special, normalized=has_spaces) for t in found])
    return tokenizer.to_str()


def _merges(pieces: Pieces) -> list[tuple[str, str]]:
    """Return the pairs that become pieces: the piece with the largest score first."""
    normal = {t: i for i, (t, of) in enumerate(zip(pieces.texts, pieces.types, strict=True)) if of == NORMAL}
    found = []
    for text, i in normal.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in normal and right in normal:
                found.append((-pieces.scores[i], normal[left], normal[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]
