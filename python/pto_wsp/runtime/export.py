"""Source trees as folders."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from pto_wsp import _native
from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.targets.base import SourceTree


def c_library_folder() -> Path:
    """Return the folder of `libpto_wsp`, the library of the C API."""
    return Path(_native.__file__).parent / "lib"


def write_tree(tree: SourceTree, folder: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the files of a tree below a folder, which is made where it is missing.

    Args:
        tree: the files.
        folder: where they go.
        force: overwrite files of the tree that exist. Other files of the folder stay.

    Raises:
        UnusableFile: the folder holds anything and `force` is not given, a path of the tree leaves the
            folder, or a file cannot be written.
    """
    root = Path(folder)
    for path in map(PurePosixPath, tree.files):
        if path.is_absolute() or ".." in path.parts:
            reason = f"expected a path inside the folder, and the target emits `{path}`"
            raise UnusableFile(what="written", path=folder, reason=reason)
    with naming_file("written", folder):
        if not force and root.is_dir() and any(root.iterdir()):
            reason, hint = (
                "the folder is not empty",
                "choose another folder, or overwrite its files with `force`",
            )
            raise UnusableFile(what="written", path=folder, reason=reason, hint=hint)
        if root.exists() and not root.is_dir():
            raise UnusableFile(what="written", path=folder, reason="it is a file, and a folder is needed")
        for path, text in tree.files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
