"""The vector widths of the machine that the tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pto_wsp.targets.cpu.features import VARIABLE, resolve_features

_NATIVE = resolve_features().lanes
_NARROWER = {lanes: names for lanes, names in {8: "avx2,fma", 4: ""}.items() if lanes < _NATIVE}

SETTINGS = [None, *_NARROWER.values()]
"""What is asked for: the machine's own width, then those below it."""

WIDTHS = [pytest.param(names, id=f"{lanes} lanes") for lanes, names in {_NATIVE: None, **_NARROWER}.items()]
"""The same as parameters of tests."""


@contextmanager
def vectors_of(width: str | None) -> Iterator[None]:
    """Generate code for one of `SETTINGS`."""
    with pytest.MonkeyPatch.context() as patch:
        if width is not None:
            patch.setenv(VARIABLE, width)
        yield
