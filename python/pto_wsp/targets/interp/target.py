"""The target `interp`: kernels run as their numpy meaning, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.targets.base import LibraryCache, Target


class InterpTarget(Target):
    """The reference: slow, and right by definition."""

    name = "interp"
    builds_library = False

    def unsupported(self, kernel: KernelFunction) -> None:
        """Return: every instruction has a numpy meaning."""

    def emit(self, kernels: Sequence[KernelFunction]) -> NoReturn:
        """Refuse: there is no code to show."""
        raise UnsupportedByTarget(target=self.name, what="generating code", reason="kernels run in numpy")

    def build_environment(self, cache: LibraryCache) -> NoReturn:
        """Refuse: nothing is built."""
        raise UnsupportedByTarget(target=self.name, what="building a library", reason="kernels run in numpy")

    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> NoReturn:
        """Refuse: there is no library to build."""
        raise UnsupportedByTarget(target=self.name, what="building a library", reason="kernels run in numpy")
