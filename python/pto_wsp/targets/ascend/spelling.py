"""C++17 as kernels of Ascend are written in it, with the functions of `ascend.hpp`."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.scalar import Element, TileElement, Value
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.c_style.spelling import Spelling, view_name
from pto_wsp.targets.cpu.spelling import literal
from pto_wsp.types.dtype import DType

STORAGE = {
    "f32": "float",
    "f16": "half",
    "bf16": "bfloat16_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
}
"""Types of elements, as the library names them."""


class AscendSpelling(Spelling):
    """C++17 that the vendor's compiler reads, too."""

    unused = "[[maybe_unused]] "
    view = "const GLOBAL View&"
    zero = "{}"
    null = "nullptr"
    storage = STORAGE

    def __init__(self, generation: Generation) -> None:
        self.target = generation.name  # pyright: ignore[reportAttributeAccessIssue]

    def literal(self, value: Value, dtype: DType) -> str:
        """Return a literal of the type of a scalar."""
        return literal(value, dtype)

    def cast(self, kind: str, text: str) -> str:
        """Return a value converted to the type `kind`; pointers point to global memory."""
        return f"({'GLOBAL ' if kind.endswith('*') else ''}{kind})({text})"

    def call(self, op: str, arguments: Sequence[str], failed: str) -> str:
        """Return a call of a function of `ascend.hpp`."""
        return f"scalar_{op}({', '.join([*arguments, failed] if failed else arguments)})"

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return a call that reads an element of a view; elements of tiles are refused."""
        if isinstance(expr, TileElement):
            return super().element(expr, kind, places, failed)
        return f"view_element<{kind}>({', '.join([view_name(expr.name), failed, *places])})"

    def failed(self, number: int, values: Sequence[str]) -> str:
        """Return a call that keeps the values."""
        return f"failed({', '.join(['context', str(number), *values])})" if values else str(number)

    def stop_of(self, start: str, extent: str) -> str:
        """Return a call of `stop_of`."""
        return f"stop_of({start}, {extent})"

    def counter(self, name: str, start: str, stop: str, step: int) -> str:
        """Return the three parts of a `for` over a `Counter`."""
        return f"Counter {name}{{{start}, {stop}, {step}}}; {name}.more(); {name}.advance()"

    def window(self, name: str, storage: str, fields: Sequence[str]) -> str:
        """Return the declaration of a `Window`."""
        return f"const Window<{storage}> {name}{{{', '.join(fields)}}};"
