"""The artifact cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pto_wsp.errors import BadCache
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.cache_directory import VARIABLE, default_directory


def writer(text: bytes, calls: list[Path]) -> object:
    def make(path: Path) -> None:
        calls.append(path)
        path.write_bytes(text)

    return make


def test_a_library_is_made_once(tmp_path: Path) -> None:
    calls: list[Path] = []
    path, made = ArtifactCache(tmp_path / "c").library("key", writer(b"code", calls))
    assert made and path.read_bytes().startswith(b"code")
    again, made = ArtifactCache(tmp_path / "c").library("key", writer(b"code", calls))
    assert again == path and not made and len(calls) == 1


def test_a_disk_that_cannot_be_written_still_gives_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    made, _ = ArtifactCache(tmp_path / "c").library("key", writer(b"code", calls))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    for owner, name in ((os, "utime"), (Path, "write_bytes"), (Path, "rename")):
        monkeypatch.setattr(owner, name, refuse)
    found, was_made = ArtifactCache(tmp_path / "c").library("key", writer(b"code", calls))
    assert found == made and not was_made and len(calls) == 1


def test_directories_are_private(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "deep" / "c")
    for folder in (cache.directory, *cache.directory.iterdir()):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(mode)
    with pytest.raises(BadCache, match="others can write"):
        ArtifactCache(tmp_path / "c")


def test_a_folder_inside_that_others_can_write_is_refused(tmp_path: Path) -> None:
    ArtifactCache(tmp_path / "c")
    (tmp_path / "c" / "libraries").chmod(0o777)
    with pytest.raises(BadCache, match="others can write"):
        ArtifactCache(tmp_path / "c")


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(BadCache, match="another user"):
        ArtifactCache(tmp_path / "c")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadCache, match=r"Not a directory|exists"):
        ArtifactCache(tmp_path / "file" / "c")
    with pytest.raises(BadCache):
        ArtifactCache(tmp_path / "file")


@pytest.mark.parametrize("damage", ["tampered", "truncated", "empty", "gone"])
def test_a_damaged_library_is_made_again(tmp_path: Path, damage: str) -> None:
    cache, calls = ArtifactCache(tmp_path / "c"), []
    path, _ = cache.library("key", writer(b"code" * 100, calls))
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        changed = {"tampered": b"C" + whole[1:], "truncated": whole[:-50], "empty": b""}[damage]
        path.write_bytes(changed)
    again, made = cache.library("key", writer(b"code" * 100, calls))
    assert made and again.read_bytes() == whole


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "c")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.library("key", fail)
    assert list((cache.directory / "libraries").iterdir()) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtifactCache(tmp_path / "c")

    def rename(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", rename)
    for write in (
        lambda: cache.library("key", writer(b"code", [])),
        lambda: cache.write_note("note", "text"),
        lambda: cache.keep_source("key", "text"),
    ):
        with pytest.raises(BadCache, match="No space left"):
            write()
    assert not [path for path in cache.directory.rglob("*") if path.is_file()]


def test_what_was_used_least_recently_goes(tmp_path: Path) -> None:
    cache, calls = ArtifactCache(tmp_path / "c", limit_bytes=3500), []
    for age, key in enumerate("abc"):
        path, _ = cache.library(key, writer(bytes(1000), calls))
        os.utime(path, (age, age))
    cache.library("a", writer(b"", calls))
    cache.library("d", writer(bytes(1000), calls))
    left = {path.stem for path in (cache.directory / "libraries").iterdir()}
    assert left == {"a", "c", "d"}
    small = ArtifactCache(tmp_path / "small", limit_bytes=10)
    assert small.library("large", writer(bytes(1000), calls))[0].exists()


def test_notes_and_sources(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "c")
    assert cache.read_note("n") is None
    cache.write_note("n", "text")
    assert cache.read_note("n") == "text"
    (tmp_path / "c" / "notes" / "n").write_bytes(b"te\xe1\xff")
    assert cache.read_note("n") is None
    assert cache.keep_source("key", "int x;").read_text() == "int x;"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "pto-wsp"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "pto-wsp"


WORKER = """
import sys
from pathlib import Path
from pto_wsp.runtime.cache import ArtifactCache
cache = ArtifactCache(Path(sys.argv[1]))
for turn in range(40):
    for key in ("a", "b", "c"):
        text = key.encode() * 50_000
        path, _ = cache.library(key, lambda path: path.write_bytes(text))
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # another process has just removed it
            continue
        assert content.startswith(text) and len(content) > len(text)
        if turn % 5 == 0:
            path.unlink(missing_ok=True)
"""


def test_three_processes_share_a_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "c")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    hidden = [p.name for p in (tmp_path / "c" / "libraries").iterdir() if p.name.startswith(".")]
    assert not hidden
