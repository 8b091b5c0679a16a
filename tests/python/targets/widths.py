"""The vectors that tests generate code for: this machine's, narrower and wider ones, and NEON emulated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pto_wsp.support.record import replace
from pto_wsp.targets.cpu import target
from pto_wsp.targets.cpu.features import VARIABLE, resolve_features
from tests.python.targets import foreign
from tests.slow import mostly_slow

NEON, WIDER = "NEON", "wider"
_NATIVE = resolve_features().lanes
_NARROWER = {lanes: names for lanes, names in {8: "avx2,fma", 4: ""}.items() if lanes < _NATIVE}
_WIDER = {16: WIDER} if _NATIVE == 8 else {}
"""Vectors that the compiler makes two of: what processors with longer ones run."""

_OTHERS = [(names, f"{lanes} lanes") for lanes, names in (_NARROWER | _WIDER).items()]
_EMULATED = [(NEON, NEON)] if foreign.is_emulated() and os.environ.get("EMULATE") else []
"""Of every test of widths only where that is asked for: test_arm64.py always emulates a part."""

WIDTHS = [
    pytest.param(names, id=name)
    for names, name in mostly_slow([(None, f"{_NATIVE} lanes"), *_OTHERS, *_EMULATED])
]
"""The machine's own width, then those below and above it, then those of other machines."""


@contextmanager
def vectors_of(width: str | None) -> Iterator[None]:
    """Generate code for one of `WIDTHS`."""
    with pytest.MonkeyPatch.context() as patch:
        if width == NEON:
            patch.setenv("CXX", f"{foreign.COMPILER} -march=armv8.2-a+bf16")
        if width == WIDER:
            wider = replace(resolve_features(), lanes=16)
            patch.setattr(target, "resolve_features", lambda: wider)
        elif width is not None:
            patch.setenv(VARIABLE, "" if width == NEON else width)
        yield
