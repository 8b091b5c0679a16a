"""The artifact cache: built libraries and lowered programs, kept between processes.

One file per library or program, named by its key, ends with the SHA-256 of its content. A file that does
not match is built again. Files are written aside and renamed, so that processes need no locks.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from pto_wsp.errors import BadCache
from pto_wsp.support.cache_directory import default_directory

LIMIT_BYTES = 2**30
_MAGIC = b"pto-wsp-sha256:"
_TRAILER = len(_MAGIC) + 32
_FOLDERS = ("libraries", "notes", "failed")


class ArtifactCache:
    """A cache directory that only this user can write.

    Args:
        directory: where; the user's own cache by default. Made with mode 0700 where missing.
        limit_bytes: libraries used least recently go when they take more than this together.

    Raises:
        BadCache: it cannot be made or used, is not ours, or is writable by others.
    """

    def __init__(self, directory: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.directory = default_directory() if directory is None else directory
        self._limit_bytes = limit_bytes
        for folder in (self.directory, *(self.directory / name for name in _FOLDERS)):
            _make_private(folder)

    def library(self, key: str, make: Callable[[Path], object], kind: str = "so") -> tuple[Path, bool]:
        """Return the path of the library `key`, and whether `make(path)` was called to write it.

        The file, whose name ends with `kind`, is verified before it is returned.
        """
        found = self.find(key, kind)
        if found is not None:
            return found, False
        path = self._library_path(key, kind)
        aside = _aside(path)
        try:
            make(aside)
            content = aside.read_bytes()
            with aside.open("ab") as file:
                file.write(_trailer(content))
            aside.rename(path)
        except OSError as error:
            raise BadCache(path=self.directory, reason=error.strerror or str(error)) from None
        finally:
            aside.unlink(missing_ok=True)
        self._evict(keep=path)
        return path, True

    def keep_source(self, key: str, source: str) -> Path:
        """Keep generated code that the compiler refused; return its path."""
        path = self.directory / "failed" / f"{key}.cpp"
        _write(path, source.encode())
        return path

    def read_note(self, name: str) -> str | None:
        """Return the text stored as `name`, or None where there is none or it is damaged."""
        try:
            return (self.directory / "notes" / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write_note(self, name: str, text: str) -> None:
        """Store a small text as `name`."""
        _write(self.directory / "notes" / name, text.encode())

    def find(self, key: str, kind: str) -> Path | None:
        """Return the path of the library `key`, verified, or None where it is not there as it was written."""
        path = self._library_path(key, kind)
        return path if _whole(path) is not None and _was_used(path) else None

    def read(self, key: str, kind: str) -> bytes | None:
        """Return what `library` has kept as `key`, or None where it is not there as it was written."""
        path = self._library_path(key, kind)
        body = _whole(path)
        return bytes(body) if body is not None and _was_used(path) else None

    def _library_path(self, key: str, kind: str) -> Path:
        return self.directory / "libraries" / f"{key}.{kind}"

    def _evict(self, keep: Path) -> None:
        """Remove the libraries used least recently until the rest are within the limit."""
        found = []
        for path in (self.directory / "libraries").iterdir():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit_bytes:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                total -= size


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise BadCache(path=folder, reason=error.strerror or str(error)) from None
    if status.st_uid != os.geteuid():
        raise BadCache(path=folder, reason="it belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadCache(path=folder, reason="others can write to it")


def _trailer(content: bytes | memoryview) -> bytes:
    return _MAGIC + hashlib.sha256(content).digest()


def _whole(path: Path) -> memoryview | None:
    """Return the content of a file before the hash that ends it, or None where the hash does not match."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:
        return None
    body = content[:-_TRAILER]
    return body if len(body) > 0 and content[-_TRAILER:] == _trailer(body) else None


def _was_used(path: Path) -> bool:
    """Mark a library as used now; return whether it is still there, for other processes remove old ones."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # a disk that cannot be written keeps no times, and loses no files
    return True


def _aside(path: Path) -> Path:
    """Return an unused path in the folder of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(6).hex()}")


def _write(path: Path, content: bytes) -> None:
    aside = _aside(path)
    try:
        aside.write_bytes(content)
        aside.rename(path)
    except OSError as error:
        raise BadCache(path=path.parent, reason=error.strerror or str(error)) from None
    finally:
        aside.unlink(missing_ok=True)
