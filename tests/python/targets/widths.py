"""The vectors that tests generate code for: this machine's, narrower ones, and NEON under an emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pto_wsp.targets.cpu.features import VARIABLE, resolve_features
from tests.python.targets import foreign

NEON = "NEON"
_NATIVE = resolve_features().lanes
_NARROWER = {lanes: names for lanes, names in {8: "avx2,fma", 4: ""}.items() if lanes < _NATIVE}
_EMULATED = [NEON] if foreign.is_emulated() else []

SETTINGS = [None, *_NARROWER.values(), *_EMULATED]
"""What is asked for: the machine's own width, then those below it, then those of other machines."""

WIDTHS = [
    *(pytest.param(names, id=f"{lanes} lanes") for lanes, names in {_NATIVE: None, **_NARROWER}.items()),
    *(pytest.param(name, id=name) for name in _EMULATED),
]
"""The same as parameters of tests."""


@contextmanager
def vectors_of(width: str | None) -> Iterator[None]:
    """Generate code for one of `SETTINGS`."""
    with pytest.MonkeyPatch.context() as patch:
        if width == NEON:
            patch.setenv("CXX", f"{foreign.COMPILER} -march=armv8.2-a+bf16")
        if width is not None:
            patch.setenv(VARIABLE, "" if width == NEON else width)
        yield
