"""Embed a text file, one sentence a line, with all-MiniLM-L6-v2; search it; save the embeddings.

python -m examples.minilm [FILE] [--query TEXT] [--weights bf16|i8] [--save OUT.npy] [--stats STATS.json]
                          [--picture OUT.svg]

Without FILE it embeds the 256 sentences of the example, compares them with the stored reference and draws
the timeline.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from examples.command import status_of
from examples.minilm.encoder import Encoder, Totals
from examples.minilm.kernels import WEIGHTINGS
from examples.minilm.model import ModelMissing, load_weights, model_folder
from examples.minilm.search import Search
from examples.minilm.tokens import UnusableText, WordPieces, read_lines

HERE = Path(__file__).parent
SENTENCES = HERE / "sentences.txt"
REFERENCE = HERE / "embeddings_ref.npy"
PICTURE = HERE.parents[1] / "out" / "minilm.svg"
QUERY = "how do I raise an exception"
MAX_DIFFERENCE = 1e-5
"""Of an element from the reference, with weights of f32."""

LEAST_COSINES = {"f32": 0.99999, "bf16": 0.9995, "i8": 0.99}
"""Of each sentence with the reference, by the option `--weights`."""

WIDTH = 84


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse(arguments)
    return status_of(lambda: run(options), UnusableText, ModelMissing)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.minilm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", type=Path, help="UTF-8 text, one sentence a line")
    parser.add_argument("--query", metavar="TEXT", help="print the five sentences nearest to TEXT")
    parser.add_argument(
        "--weights", choices=WEIGHTINGS, default="f32", help="how linear layers keep weights (default: f32)"
    )
    parser.add_argument("--save", type=Path, metavar="OUT.npy", help="write the embeddings, [lines, 384] f32")
    parser.add_argument("--stats", type=Path, metavar="STATS.json", help="write the figures of the run")
    parser.add_argument("--picture", type=Path, metavar="OUT.svg", help="write the timeline of a run")
    options = parser.parse_args(arguments)
    options.is_demo = options.file is None
    if options.is_demo:
        options.file = SENTENCES
        options.query = QUERY if options.query is None else options.query
        options.picture = options.picture or PICTURE
    return options


def run(options: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    lines = read_lines(options.file)
    for path in (options.save, options.stats):
        if path is not None:
            require_writable(path)
    folder = model_folder()
    pieces, encoder = WordPieces(folder), Encoder(load_weights(folder, options.weights))
    began = time.perf_counter()
    with Progress(len(lines)) as progress:
        embeddings = encoder(pieces(lines), progress.show)
    report(encoder.totals, time.perf_counter() - began)
    if options.save is not None:
        with options.save.open("wb") as file:
            np.save(file, embeddings)
        print(f"  embeddings: {options.save}, {len(embeddings):,} x {embeddings.shape[1]} f32")
    if options.stats is not None:
        options.stats.write_text(json.dumps(encoder.totals.to_json(), indent=1) + "\n", encoding="utf-8")
        print(f"  figures:    {options.stats}")
    is_right = not options.is_demo or compare(embeddings, np.load(REFERENCE), options.weights)
    if options.query is not None:
        answer(options.query, lines, embeddings, encoder, pieces)
    if options.picture is not None and lines:
        draw(options.picture, encoder, pieces, lines)
    return 0 if is_right else 1


def report(totals: Totals, seconds: float) -> None:
    """Print what the encoder did."""
    sentences, tokens = counted(totals.sentences, "sentence"), counted(totals.tokens, "token")
    print(f"all-MiniLM-L6-v2: {sentences}, {tokens} in {seconds * 1e3:,.0f} ms")
    if not totals.sentences:
        return
    print(
        f"  engine:     {totals.run_ms:,.0f} ms, {totals.tokens_per_s:,.0f} tokens/s; "
        f"{totals.tasks:,} tasks, {counted(totals.runs, 'run')}"
    )
    calls = f"{counted(totals.compiles, 'compiler call')}, {totals.compile_ms:,.0f} ms"
    print(
        f"  compiled:   {totals.kernels} kernels and one workload, before any size was known; "
        f"{calls if totals.compiles else 'found in the cache'}"
    )
    padded, ratio = totals.padded_tokens, totals.padded_tokens / totals.tokens
    print(
        f"  padding:    none; batches of 32 padded to their longest would be {padded:,} tokens, {ratio:.2f}x"
    )


def counted(count: int, noun: str) -> str:
    """Return "1 run", "2 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compare(embeddings: np.ndarray, reference: np.ndarray, weights: str) -> bool:
    """Print how far the embeddings are from the reference; return whether that is near enough."""
    difference = float(np.abs(embeddings - reference).max())
    cosine = float((embeddings.astype(np.float64) * reference).sum(axis=1).min())
    least, limit = LEAST_COSINES[weights], f" (limit {MAX_DIFFERENCE:.0e})" if weights == "f32" else ""
    is_right = cosine >= least and (weights != "f32" or difference <= MAX_DIFFERENCE)
    print(
        f"  reference:  {'agrees' if is_right else 'DIFFERS'}: largest difference {difference:.1e}{limit}, "
        f"least cosine {cosine:.7f} (limit {least})"
    )
    return is_right


def answer(
    query: str, lines: list[str], embeddings: np.ndarray, encoder: Encoder, pieces: WordPieces
) -> None:
    """Print the sentences nearest to a query."""
    text = query.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    print(f"\n  nearest to: {printable(text)}")
    (ids,) = pieces([text])
    digits = len(f"{len(lines):,}")
    for hit in Search(embeddings).nearest(encoder.run([ids])):
        print(f"    {hit.cosine:6.3f}  line {hit.number + 1:>{digits},}  {printable(lines[hit.number])}")


def draw(path: Path, encoder: Encoder, pieces: WordPieces, lines: list[str]) -> None:
    """Trace a run of the first 256 lines and save its timeline."""
    encoder.run(list(pieces(lines[:256])), trace=True)
    encoder.save_timeline(path)
    print(
        f"\n  timeline:   {path} (any browser)\n              {path.with_suffix('.json')} (ui.perfetto.dev)"
    )


class Progress:
    """A line on a terminal that counts the lines done, while there are more to do."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def show(self, done: int) -> None:
        """Tell how many lines are done."""
        if done < self._total and sys.stderr.isatty():
            sys.stderr.write(f"\r  {done:,} of {self._total:,} lines")
            sys.stderr.flush()
            self._shown = True

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def require_writable(path: Path) -> None:
    """Refuse a place for a result before the work is done, not after it.

    Raises:
        OSError: the path is a folder, or lies in none, or may not be written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "may not be written", str(path))


def printable(text: str) -> str:
    """Return text on one line of limited width, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
