"""Text to word pieces, one line a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.minilm.kernels import MAX_TOKENS

LINES_AT_ONCE = 512


class UnusableText(Exception):
    """A file is not text with one sentence a line; the message says why."""


def read_lines(path: Path) -> list[str]:
    r"""Read UTF-8 text; only "\n" and "\r\n" end a line, and the last line may lack its end.

    Raises:
        OSError: the file cannot be read.
        UnusableText: it is not UTF-8, or has zero bytes.
    """
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data:
        raise UnusableText(f"{path} is not text: it has a zero byte at offset {data.index(0)}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UnusableText(
            f"{path} is not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}"
        ) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


class WordPieces:
    """The model's tokenizer, without the padding and the limit of 128 that its file asks for."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._end = self._tokenizer.encode("").ids[-1]

    def __call__(self, lines: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the ids of each line: i32, [CLS] and [SEP] included, at most 256."""
        for start in range(0, len(lines), LINES_AT_ONCE):
            for encoding in self._tokenizer.encode_batch(list(lines[start : start + LINES_AT_ONCE])):
                ids = np.array(encoding.ids[:MAX_TOKENS], np.int32)
                ids[-1] = self._end
                yield ids
