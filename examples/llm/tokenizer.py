"""Text to tokens and back: byte-level BPE, and the conversation's template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from examples.llm.config import UnknownModel
from examples.llm.pieces import BPE, SPACE, Pieces, piece_tokenizer

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
"""Patterns by which a text is cut before its pieces are merged."""

CONTROL, USER_DEFINED = 3, 4
"""Types of tokens that are found in a text before it is cut."""


def _cut(kind: str) -> Any:
    """Return what cuts a text, by the name that a file gives.

    Raises:
        UnknownModel: another name.
    """
    from tokenizers import Regex, pre_tokenizers

    bytes_of = pre_tokenizers.ByteLevel
    if kind in ("gpt-2", "default"):
        return bytes_of(add_prefix_space=False)
    if kind == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), bytes_of(add_prefix_space=False)]
        )
    patterns = {"llama-bpe": LLAMA_3, "qwen2": QWEN_2}
    if kind not in patterns:
        expected = ", ".join(["gpt-2", "default", "smollm", *patterns])
        raise UnknownModel(f"pre-tokenizer: expected {expected}, found {kind!r}")
    split = pre_tokenizers.Split(Regex(patterns[kind]), behavior="isolated")
    return pre_tokenizers.Sequence([split, bytes_of(add_prefix_space=False, use_regex=False)])


def gguf_tokenizer(value: Callable[..., Any]) -> str:
    """Return the text of the `tokenizer.json` of a GGUF file.

    Args:
        value: returns a value of the file's metadata.

    Raises:
        UnknownModel: neither byte-level BPE nor SentencePiece, or an unknown way to cut a text.
    """
    model = value("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level_tokenizer(value)
    if model != "llama":
        raise UnknownModel(
            f"tokenizer: expected gpt2 (byte-level BPE) or llama (SentencePiece), found {model!r}"
        )
    texts, scores, types = (value(f"tokenizer.ggml.{name}") for name in ("tokens", "scores", "token_type"))
    has_prefix = bool(value("tokenizer.ggml.add_space_prefix", True))
    is_trimmed = bool(value("tokenizer.ggml.remove_extra_whitespaces", False))
    return piece_tokenizer(Pieces(texts, scores, types, BPE, has_prefix, is_trimmed))


def _byte_level_tokenizer(value: Callable[..., Any]) -> str:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    texts, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in value("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    tokenizer.pre_tokenizer = _cut(str(value("tokenizer.ggml.pre", "default")))
    tokenizer.decoder = decoders.ByteLevel()
    for kind, is_special in ((CONTROL, True), (USER_DEFINED, False)):
        found = [t for t, of in zip(texts, types, strict=True) if of == kind]
        tokenizer.add_tokens([AddedToken(t, special=is_special, normalized=False) for t in found])
    return tokenizer.to_str()


BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
"""Pieces of single bytes."""


def _byte_level_bytes() -> dict[str, int]:
    """Return the byte of every character of byte-level tokens."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Text:
    """The tokenizer and the template of a model.

    Args:
        tokenizer: text of a `tokenizer.json`.
        template: Jinja template of conversations, or empty.
        tokens: texts of special tokens that the template uses, by name.
    """

    def __init__(self, tokenizer: str, template: str = "", tokens: dict[str, str] | None = None) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._template = template
        self._tokens = tokens or {}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, in which texts of special tokens are these tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens; special tokens have none."""
        return self._tokenizer.decode(list(ids))

    def bytes_of_tokens(self, count: int) -> list[bytes]:
        """Return the bytes of each of `count` tokens; special tokens have none."""
        fields = json.loads(self._tokenizer.to_str())
        decoder = str(fields.get("decoder"))
        is_byte_level, has_pieces = "'ByteLevel'" in decoder, SPACE in decoder
        bytes_of = _byte_level_bytes() if is_byte_level else {}
        found = [b""] * count
        for text, i in self._tokenizer.get_vocab(with_added_tokens=False).items():
            if is_byte_level:
                found[i] = bytes(bytes_of[c] for c in text)
            elif has_pieces and (match := BYTE_PIECE.fullmatch(text)):
                found[i] = bytes([int(match[1], 16)])
            else:
                found[i] = text.replace(SPACE, " ").encode() if has_pieces else text.encode()
        for token in fields.get("added_tokens") or []:
            found[token["id"]] = b"" if token["special"] else token["content"].encode()
        return found

    def conversation(self, messages: Sequence[dict[str, str]]) -> str:
        """Return the text of a conversation, up to where the answer begins.

        Raises:
            UnknownModel: the model has no template, or the template refuses the messages.
        """
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if not self._template:
            raise UnknownModel("the model has no template for conversations; use `--raw`")

        def refuse(message: str) -> None:
            raise UnknownModel(f"the template of conversations: {message}")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        try:
            template = environment.from_string(self._template)
            return template.render(messages=list(messages), add_generation_prompt=True, **self._tokens)
        except jinja2.TemplateError as error:
            raise UnknownModel(f"the template of conversations: {error}") from error


class Stream:
    """The text of tokens as they come: a character is written when all its bytes are there."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._ids: list[int] = []
        self._done = 0

    def add(self, token: int) -> str:
        """Return the text that a token completes."""
        self._ids.append(token)
        whole = self._text.decode(self._ids)
        if whole.endswith("\ufffd"):
            return ""
        new, self._done = whole[self._done :], len(whole)
        if "\n" in new:
            self._ids = [token]  # stays, because a decoder may leave out the first space of a text
            self._done = len(self._text.decode(self._ids))
        return new

    def rest(self) -> str:
        """Return the text that is left at the end."""
        return self._text.decode(self._ids)[self._done :]
