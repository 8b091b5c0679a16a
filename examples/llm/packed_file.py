"""The file of a packed model: a line of JSON, then the arrays. It is mapped: a start reads what it uses."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (bf16 by name)
import numpy as np

from examples.llm.checkpoint import Checkpoint, Packed
from examples.llm.config import Config
from examples.llm.storage import FLOATS, Storage
from examples.llm.weights import Embedding
from pto_wsp import u8

VERSION = 2
"""Of the layout; files of others are written again."""

ALIGNMENT = 4096
"""Bytes: arrays begin at pages."""


def write(path: Path, checkpoint: Checkpoint, packed: Packed) -> None:
    """Write a model; the file appears whole or not at all."""
    header = {
        "version": VERSION,
        "config": packed.config.to_json(),
        "layers": {role: [asdict(s) for s in storages] for role, storages in packed.layers.items()},
        "head": asdict(packed.head),
        "embedding": asdict(packed.embedding) | {"dtype": str(packed.embedding.dtype)},
        "text": [checkpoint.tokenizer, checkpoint.template, checkpoint.tokens],
        "arrays": {name: [array.dtype.name, array.shape] for name, array in packed.arrays.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(json.dumps(header).encode() + b"\n")
            for array in packed.arrays.values():
                file.write(bytes(-file.tell() % ALIGNMENT))
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def read(path: Path) -> tuple[Packed, list[Any]] | None:
    """Return a packed model whose arrays are mapped, and what `Text` takes; None for another `VERSION`."""
    with path.open("rb") as file:
        header = json.loads(file.readline())
        place = file.tell()
        if header["version"] != VERSION:
            return None
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    arrays = {}
    for name, (dtype, shape) in header["arrays"].items():
        place += -place % ALIGNMENT
        kind = np.dtype(dtype)
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(memory, kind, count, place).reshape(shape)
        place += count * kind.itemsize
    embedding = header["embedding"]
    dtype = (FLOATS | {"u8": u8})[embedding["dtype"]]
    layers = {role: tuple(Storage(**s) for s in found) for role, found in header["layers"].items()}
    packed = Packed(
        Config.from_json(header["config"]), layers, Storage(**header["head"]),
        Embedding(**(embedding | {"dtype": dtype})), arrays,
    )  # fmt: skip
    return packed, header["text"]
