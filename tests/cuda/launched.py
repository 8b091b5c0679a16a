"""Programs of the target `cuda` whose code tests change before it is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp import Program
from pto_wsp.ir.module import Module
from pto_wsp.prove.waits import Derive, symbolic_waits
from pto_wsp.support.record import replace
from pto_wsp.targets.cuda.emit import ProgramCode
from pto_wsp.targets.cuda.target import CudaTarget


class ChangedCuda(CudaTarget):
    """The target, whose code has texts replaced."""

    def __init__(self, change: Mapping[str, str]) -> None:
        self.change = change

    def program_code(self, module: Module, derive: Derive = symbolic_waits) -> ProgramCode:
        """Return the changed code."""
        code = super().program_code(module, derive)
        text = code.text
        for old, new in self.change.items():
            assert old in text
            text = text.replace(old, new)
        return replace(code, text=text)


def launched(module: Module, change: Mapping[str, str] = {}) -> Program:
    """Return a module compiled for the GPU that the fixture `gpu` replaces."""
    return Program(module, {}, ChangedCuda(change))
