"""Programs in files: the text of a module and its schedule after a line with the version of the form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.support.record import replace
from pto_wsp.text.modules import VERSION_LINE, parse

PathText = str | os.PathLike[str]


def write_program(path: PathText, module: Module, numbers: Mapping[str, int | float]) -> None:
    """Write a module; `numbers` are defaults of its entry's sizes and scalars, by name.

    Raises:
        UnusableFile: the file cannot be written.
    """
    text = f"{VERSION_LINE}\n{with_defaults(module, numbers)}"
    with naming_file("written", path):
        Path(path).write_bytes(text.encode())


def read_program(path: PathText) -> Module:
    """Read a module that was written; nothing of it is compiled, imported or run.

    Raises:
        UnusableFile: the file cannot be read, or is not one that `write_program` wrote.
        TextError, InvalidIR: its text is not right.
    """
    try:
        with naming_file("read", path):
            text = Path(path).read_bytes().decode()
    except UnicodeDecodeError:
        raise UnusableFile(what="read", path=path, reason="it is not UTF-8 text") from None
    if not text.startswith("// PTO Text:"):
        raise UnusableFile(what="loaded", path=path, reason=f"it does not begin with `{VERSION_LINE}`")
    return parse(text, os.fspath(path))


def with_defaults(module: Module, numbers: Mapping[str, int | float]) -> Module:
    """Return a module in which sizes and scalars of the entry have these defaults."""
    entry = module.entry_workload
    params = tuple(
        replace(param, default=numbers[param.name])
        if isinstance(param, (w.SizeParam, w.ScalarParam)) and param.name in numbers and param.value is None
        else param
        for param in entry.params
    )
    changed = replace(entry, params=params)
    workloads = tuple(changed if f.name == entry.name else f for f in module.workloads)
    return replace(module, workloads=workloads)
