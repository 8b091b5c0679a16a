"""C++ as generated kernels are written in it, with the functions of include/pto/wsp/tile/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pto_wsp.ir.scalar import Element, TileElement, Value
from pto_wsp.targets.c_style.spelling import Spelling, literal, tile_name, view_name
from pto_wsp.targets.cpu.templates import STORAGE
from pto_wsp.types.dtype import DType


class CppSpelling(Spelling):
    """C++17 with the tile library.

    Attributes:
        functions: what the names of scalar operations begin with.
    """

    target = "cpu"
    functions: ClassVar[str] = "scalar::"
    unused = "[[maybe_unused]] "
    view = "const View&"
    zero = "{}"
    null = "nullptr"
    stop = "if (must_stop(context)) return kStopped;"
    storage = STORAGE

    def literal(self, value: Value, dtype: DType) -> str:
        """Return a literal of the type of a scalar."""
        return literal(value, dtype)

    def cast(self, kind: str, text: str) -> str:
        """Return a value converted to the type `kind`."""
        return f"static_cast<{kind}>({text})"

    def call(self, op: str, arguments: Sequence[str], failed: str) -> str:
        """Return a call of a function of scalar.hpp."""
        return f"{self.functions}{op}({', '.join([*arguments, failed] if failed else arguments)})"

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return a call of `element` of scalar.hpp."""
        if isinstance(expr, TileElement):
            return f"{self.functions}element({', '.join([tile_name(expr.name), failed, *places])})"
        return f"{self.functions}element<{kind}>({', '.join([view_name(expr.name), failed, *places])})"

    def failed(self, number: int, values: Sequence[str]) -> str:
        """Return a call of `failed` of monitor.hpp, which keeps the values."""
        return f"failed({', '.join(['context', str(number), *values])})" if values else str(number)

    def stop_of(self, start: str, extent: str) -> str:
        """Return a call of `stop_of` of monitor.hpp."""
        return f"stop_of({start}, {extent})"

    def counter(self, name: str, start: str, stop: str, step: int) -> str:
        """Return the three parts of a `for` over a `Counter`."""
        return f"Counter {name}{{{start}, {stop}, {step}}}; {name}.more(); {name}.advance()"

    def window(self, name: str, storage: str, fields: Sequence[str]) -> str:
        """Return the declaration of a `Window`."""
        return f"const Window<{storage}> {name}{{{', '.join(fields)}}};"
