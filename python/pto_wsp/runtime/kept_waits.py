"""Symbolic waits of programs, kept between processes: they take much longer to derive than to read.

The key covers the text of the module without its schedule, the files of the package, and islpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

from pto_wsp.errors import BadCache
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import DEFAULT
from pto_wsp.prove.wait_text import waits_of_text, waits_to_text
from pto_wsp.prove.waits import SymbolicWait, symbolic_waits
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.kept_programs import package_stamp

_KIND = "waits"


def kept_waits(module: Module, cache: ArtifactCache) -> Sequence[SymbolicWait]:
    """Return what the tasks of a module wait for, as `symbolic_waits` derives it; islpy is installed."""
    stamp = package_stamp()
    if stamp is None:
        return symbolic_waits(module)
    text = str(module.with_schedule(DEFAULT))
    key = hashlib.sha256("\0".join((stamp, version("islpy"), text)).encode()).hexdigest()
    found = cache.read(key, _KIND)
    if found is not None:
        return waits_of_text(found.decode(), module)
    waits = symbolic_waits(module)
    with suppress(BadCache):
        cache.library(key, lambda path: path.write_text(waits_to_text(waits)), _KIND)
    return waits
