"""What commands read and write: text and arrays, in files or, as `-`, in pipes."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np

from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.ir.module import Module
from pto_wsp.text import parse
from pto_wsp.types.dtype import DType

PIPE = "-"
_NPY, _ZIP = b"\x93NUMPY", b"PK"


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        UnusableFile: the file cannot be read, or is not text.
    """
    with naming_file("read", path):
        data = sys.stdin.buffer.read() if path == PIPE else Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not part of UTF-8 text"
        raise UnusableFile(what="read", path=path, reason=reason) from None


def read_module(path: str) -> Module:
    """Return the module that a `.pto` file holds. Nothing of it is compiled or run.

    Raises:
        UnusableFile: the file cannot be read, or is not text.
        TextError, InvalidIR: it holds no module.
    """
    return parse(read_text(path), "<stdin>" if path == PIPE else path)


def write_bytes(data: bytes, path: str) -> None:
    """Write a file."""
    with naming_file("written", path):
        Path(path).write_bytes(data)


def write_text(text: str, path: str | None) -> None:
    """Write text to a file, or to standard output."""
    with naming_file("written", path or "standard output"):
        if path is None or path == PIPE:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            Path(path).write_text(text, encoding="utf-8")


def read_array(path: str, dtype: DType | None) -> np.ndarray:
    """Return the array of a `.npy` file, of an element type that numpy lacks if `dtype` is one.

    Raises:
        UnusableFile: the file cannot be read, or holds no array of numbers.
    """
    with naming_file("read", path):
        data = sys.stdin.buffer.read() if path == PIPE else Path(path).read_bytes()
    if not data.startswith((_NPY, _ZIP)):
        raise UnusableFile(what="read", path=path, reason="it holds no array; expected a `.npy` file")
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, BadZipFile) as error:
        raise UnusableFile(what="read", path=path, reason=f"it holds no array: {error}") from None
    if not isinstance(array, np.ndarray):
        raise UnusableFile(what="read", path=path, reason="it holds several arrays; expected a `.npy` file")
    if array.dtype.kind == "V" and dtype is not None and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype.to_numpy())  # how numpy stores bf16
    return np.ascontiguousarray(array) if array.ndim else array


def require_writable(path: str) -> None:
    """Raise UnusableFile for an output that cannot be written, before it is known what is written there."""
    folder = Path(path).parent
    with naming_file("written", path):
        if path != PIPE and Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path != PIPE and not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def write_array(array: np.ndarray, path: str) -> None:
    """Write an array as a `.npy` file."""
    with naming_file("written", path):
        if path == PIPE:
            _save(array, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            with Path(path).open("wb") as file:
                _save(array, file)


def _save(array: np.ndarray, file: BinaryIO) -> None:
    data = io.BytesIO()  # numpy asks for the position, which a pipe has not
    np.save(data, array, allow_pickle=False)
    file.write(data.getvalue())


def modules_of(path: str) -> list[Path]:
    """Return the `.pto` files of a folder and of those inside it, in order.

    Raises:
        UnusableFile: there are none.
    """
    with naming_file("read", path):
        found = sorted(Path(path).rglob("*.pto"))
    if not found:
        raise UnusableFile(what="read", path=path, reason="there is no `.pto` file in this folder")
    return found


def make_folder(path: str) -> Path:
    """Return a folder, made where it is missing."""
    with naming_file("written", path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)
